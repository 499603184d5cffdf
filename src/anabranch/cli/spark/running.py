"""Runs a job of ``anabranch spark``: in this process, or in a Spark session if that is needed."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from anabranch.errors import AnabranchError
from anabranch.spark.jobs.signatures import JobSignature, SessionNeeded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Job = Callable[["SparkSession | None"], Any]

_PROBLEM_CHARS_MAX = 2000
_LAST_BATCH_S = 10.0  # for a batch that is under way when a job is interrupted


class JobFailed(AnabranchError):
    """A job failed within Spark; the text is the line of the failure that concerns this package."""


def run(job: _Job, signature: JobSignature, master: str | None, tell: Callable[[Any], None]) -> Any:
    """Run a job, `tell` its result and return it. Mistakes in options are told before Java starts.

    `job` needs the session only, its parameters are those of `signature`. `master`: of the session;
    None for a job without one. Raises `JobFailed`, `OptionError` and other errors of this package.
    """
    from anabranch.spark.connection.client import connect  # noqa: PLC0415 - an extra

    # The driver of Spark Connect is elsewhere, and so may be the servers that it reaches.
    is_elsewhere = master is not None and master.startswith("sc://")
    for server in signature.check():
        if not is_elsewhere:
            connect(replace(server, retries=min(server.retries, 1))).close()
    source = click.get_current_context().get_parameter_source("master")
    if master is None or signature.dry_run or source is not ParameterSource.COMMANDLINE:
        try:
            result = job(None)
        except SessionNeeded:
            if master is None:
                raise
        else:
            tell(result)
            return result
    return _run_by_spark(job, str(master), tell)


def _run_by_spark(job: _Job, master: str, tell: Callable[[Any], None]) -> Any:
    from anabranch.spark import session  # noqa: PLC0415 - what others do without
    from anabranch.spark.runtime.supervise import reason_of  # noqa: PLC0415 - an extra

    logging.basicConfig(format="anabranch: %(message)s", level=logging.WARNING)
    spark = session("anabranch", master)
    if not master.startswith("sc://"):
        spark.sparkContext.setLogLevel("OFF")  # what goes wrong is in the exception
    try:
        with _stopping(spark):
            # It is told before Spark is stopped, which takes about a second.
            result = job(spark)
            tell(result)
            return result
    except Exception as problem:  # Spark wraps ours in its own
        raise JobFailed(reason_of(problem)[:_PROBLEM_CHARS_MAX]) from None
    finally:
        spark.stop()


@contextmanager
def _stopping(spark: SparkSession) -> Iterator[None]:
    """Let the first SIGINT or SIGTERM stop the queries, if there are any, so that a job ends well.

    A batch that is under way is waited for, but not long: it would be repeated by the next run.
    """
    over = threading.Event()

    def stop() -> None:
        deadline = time.monotonic() + _LAST_BATCH_S
        while not over.is_set():  # a query may be about to start
            for query in spark.streams.active:
                if not query.status["isTriggerActive"] or time.monotonic() > deadline:
                    query.stop()
            over.wait(0.1)

    def ask(*_: object) -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        stopper.start()

    stopper = threading.Thread(target=stop, daemon=True)
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        over.set()
        if stopper.is_alive():
            stopper.join()
