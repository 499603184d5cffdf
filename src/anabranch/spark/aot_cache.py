"""Java's AOT cache for Spark: where it is, and whether it is as it was written.

Beside the cache there is a record: its checksum and name. Java itself would look at no more than a
header, and crash on contents that are not what they were; or at all of it, for which it takes half
a second.
"""

from __future__ import annotations

import mmap
from pathlib import Path

import xxhash

from anabranch.spark.java import digest, publish

__all__ = ["cache_options", "cache_record", "record_cache", "sound_cache"]


def cache_record(home: Path, spark: Path) -> Path:
    """Of the cache for the Java of a `java_home` and the Spark of a SPARK_HOME: its record."""
    import pyspark  # noqa: PLC0415 - heavy

    return home / f"spark-{pyspark.__version__}-{digest(str(spark))}.cache"


def record_cache(record: Path, cache: Path) -> None:
    """Put a cache, which lies beside it, into use."""
    publish(record, f"{_checksum(cache)} {cache.name}\n", 0o644)


def sound_cache(record: Path) -> Path | None:
    """The cache to start from; None if there is none, or it is not as it was written."""
    try:
        checksum, name = record.read_text().splitlines()[0].split(" ", 1)
        cache = record.parent / name
        return cache if _checksum(cache) == checksum else None
    except (OSError, ValueError, IndexError):
        return None


def _checksum(place: Path) -> str:
    with place.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as contents:
        return xxhash.xxh3_128_hexdigest(contents)


def cache_options(cache: Path) -> list[str]:
    """Arguments that make Java start with the cache, or without it where it does not fit."""
    # Java would print why it does not use a cache, some of it among the program's output.
    return ["-Xlog:cds*=off", "-Xlog:aot*=off", f"-XX:AOTCache={cache}"]
