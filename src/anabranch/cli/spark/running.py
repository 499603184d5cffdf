"""Runs a job of ``anabranch spark``: in this process, or in a Spark session if that is needed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError
from anabranch.spark.jobs.signatures import ArchiveJob, JobSignature

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Job = Callable[["SparkSession | None"], Any]

_PROBLEM_CHARS_MAX = 2000


class JobFailed(AnabranchError):
    """A job failed within Spark; the text is the line of the failure that concerns this package."""


def run(job: _Job, signature: JobSignature, master: str | None, tell: Callable[[Any], None]) -> Any:
    """Run a job, `tell` its result and return it. Mistakes in options are told before Java starts.

    `job` needs the session only, its parameters are those of `signature`. `master`: of the session;
    None: this process does the work. Raises `JobFailed`, `OptionError` and other errors of this
    package.
    """
    from anabranch.spark.connection.client import connect  # noqa: PLC0415 - an extra

    for server in signature.check():
        connect(replace(server, retries=min(server.retries, 1))).close()
    if master is not None and not signature.dry_run:
        return _run_by_spark(job, signature, master, tell)
    with _stopping(signature):
        result = job(None)
    tell(result)
    return result


def _run_by_spark(
    job: _Job, signature: JobSignature, master: str, tell: Callable[[Any], None]
) -> Any:
    from anabranch.spark import session  # noqa: PLC0415 - what others do without
    from anabranch.spark.runtime.logs import audible  # noqa: PLC0415 - an extra
    from anabranch.spark.runtime.supervise import reason_of  # noqa: PLC0415 - an extra

    audible()
    spark = session("anabranch", master)
    if not master.startswith("sc://"):
        spark.sparkContext.setLogLevel("OFF")  # what goes wrong is in the exception
    try:
        with _stopping(signature):  # a session sets a handler of its own
            result = job(spark)
        tell(result)  # before Spark is stopped, which takes about a second
        return result
    except Exception as problem:  # Spark wraps ours in its own
        raise JobFailed(reason_of(problem)[:_PROBLEM_CHARS_MAX]) from None
    finally:
        spark.stop()


@contextmanager
def _stopping(signature: JobSignature) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop an archive in order; the second has its usual effect."""
    if not isinstance(signature, ArchiveJob):
        yield
        return

    def ask(*_: object) -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        # Not here: who waits for the event may hold its lock.
        threading.Thread(target=signature.stop.set).start()

    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
