"""Checks whether Spark works on this machine, part by part, and runs a small job."""

from __future__ import annotations

import importlib
import pkgutil
import platform
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING

from anabranch.spark.jobs.signatures import DoctorJob, taking

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    what: str
    found: str
    good: bool

    def __str__(self) -> str:
        """For people."""
        return f"{'ok ' if self.good else 'BAD'} {self.what}: {self.found}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Whether Spark works."""

    healthy: bool
    checks: tuple[CheckResult, ...]

    @property
    def findings(self) -> tuple[CheckResult, ...]:
        """What does not work."""
        return tuple(each for each in self.checks if not each.good)


@taking(DoctorJob)
def doctor(_spark: SparkSession | None, job: DoctorJob) -> Diagnosis:
    """Look at every part; the last check starts Spark. Never raises.

    With `url` the server there is asked what it can do for readers and writers. Without
    `start_spark` the small job is left out.
    """
    found = []
    for what, look in _checks(job):
        job.progress(f"looking at {what}")
        try:
            found.append(CheckResult(what, look(), good=True))
        except Exception as error:
            lines = str(error).splitlines() or [""]
            found.append(CheckResult(what, f"{type(error).__name__}: {lines[0]}", good=False))
    return Diagnosis(all(each.good for each in found), tuple(found))


def _checks(job: DoctorJob) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each part, and what looks at it; that raises if the part does not work."""
    yield "Python", lambda: f"{platform.python_version()}, {platform.machine()}"
    for name in ("pyspark", "pyarrow", "numpy", "hiredis"):
        yield name, partial(metadata.version, name)
    for program in ("bash", "chmod"):
        yield program, partial(_program, program)
    # Spark imports every pyspark_* module; one that fails hides all others.
    for module in pkgutil.iter_modules():
        if module.name.startswith("pyspark_"):
            yield module.name, partial(_imported, module.name)
    yield "Java", _java
    if job.url is not None:
        yield "server", partial(_server, job.url)
    if job.start_spark:
        yield "Spark", partial(_small_job, job.master)


def _program(name: str) -> str:
    place = shutil.which(name)
    if place is None:
        raise FileNotFoundError("not on PATH, and Spark needs it")
    return place


def _imported(name: str) -> str:
    return str(importlib.import_module(name).__file__)


def _java() -> str:
    from anabranch.spark.runtime.java import find_java, java_home  # noqa: PLC0415 - only if Spark is there

    java = find_java()
    return f"{java.version} from {java.source}: {java.program}, started by {java_home(java)}"


def _server(url: str) -> str:
    from anabranch.spark.connection.client import connect  # noqa: PLC0415 - only if Spark is there
    from anabranch.spark.options import ServerOptions  # noqa: PLC0415

    with connect(ServerOptions(url=url, retries=0)) as client:
        if client.has_bulk:
            return "AB.OFFSETS, AB.EXPORT, AB.IMPORT: fast reads, exactly-once writes by ledger"
        if client.has_marks:
            return "XADD IDMP: exactly-once writes by idempotent producers; reads by XRANGE"
        return "neither AB.IMPORT nor XADD IDMP: writes need idempotence=none; reads by XRANGE"


def _small_job(master: str) -> str:
    from anabranch.spark import session  # noqa: PLC0415 - heavy

    began = time.monotonic()
    spark = session("doctor", master)
    started = time.monotonic()
    total = spark.range(10).selectExpr("sum(id) as total").collect()[0].total
    if total != 45:
        raise RuntimeError(f"the sum of 0 ... 9 is {total}")
    done = time.monotonic()
    return (
        f"{spark.version} on {master}: session in {started - began:.1f} s, "
        f"ten rows in {done - started:.1f} s"
    )
