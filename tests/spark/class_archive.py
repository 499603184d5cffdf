"""An archive of the classes that Spark loads: each Java of these tests starts in half the time.

Java reads and checks some fifteen thousand classes for the first result of a session. An archive
has them ready, for one release of Java and one class path. It is made once, takes half a minute,
and is kept in ``build``. A Java with another class path starts without it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pyspark

from anabranch.spark.java import find_java, java_home, spark_home
from tests.support.servers import REPOSITORY

_SECONDS = 600.0
_AT_ONCE = 25
"""From this release on Java makes the archive without another one of its own classes."""

_JOB = """
from anabranch.spark import session
spark = session("classes", "local[2]")
spark.range(1000).selectExpr("sum(id)").collect()
spark.stop()
"""


def archive_options() -> str:
    """Arguments of Java that use the archive, which is made if there is none."""
    java = find_java()
    made, used = "ArchiveClassesAtExit", "SharedArchiveFile"
    if java.version >= _AT_ONCE:
        made, used = "AOTCacheOutput", "AOTCache"
    what = f"{java.release} {java_home(java)} {spark_home()} {pyspark.__version__}"
    directory = REPOSITORY / "build"
    archive = directory / f"spark-{hashlib.sha256(what.encode()).hexdigest()[:16]}.classes"
    if " " in str(archive):  # Spark splits the arguments at spaces
        return ""
    directory.mkdir(exist_ok=True)
    with (directory / "spark-classes.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the tests run in several processes
        if not archive.exists():
            _make(archive, made)
    return f"-XX:{used}={archive} -Xlog:disable"


def _make(archive: Path, made: str) -> None:
    """Run a job; Java writes the archive as it ends, and holds its standard output until then."""
    new = archive.with_suffix(".new")
    options = f"-XX:TieredStopAtLevel=1 -XX:{made}={new} -Xlog:disable"
    subprocess.run(
        [sys.executable, "-c", _JOB],
        env={**os.environ, "SPARK_SUBMIT_OPTS": options},
        capture_output=True,
        timeout=_SECONDS,
        check=True,
    )
    if not new.exists():  # this Java has no archive of its own classes: do not try again
        new.touch()
    new.replace(archive)
