"""Archives of classes that Java starts from: where they are, and whether they are as written.

There are two files that Java has written, one of its own classes and on that one of Spark's, and a
list of both with their checksums. Java itself would look at no more than their headers, and crash
on contents that are not what they were; or at all of it, for which it takes half a second.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import xxhash

from anabranch.spark.java import digest, publish

__all__ = ["archive_list", "archive_options", "list_archives", "sound_archive"]


def archive_list(home: Path, spark: Path) -> Path:
    """Of the archives for the Java of a `java_home` and the Spark of a SPARK_HOME: their list."""
    import pyspark  # noqa: PLC0415 - heavy

    return home / f"spark-{pyspark.__version__}-{digest(str(spark))}.archives"


def list_archives(listing: Path, archives: Sequence[Path]) -> None:
    """Put archives, which lie beside it, into use; the last one stands on those before it."""
    publish(listing, "".join(f"{_checksum(each)} {each.name}\n" for each in archives), 0o644)


def sound_archive(listing: Path) -> Path | None:
    """The archive to start from; None if there is none, or one is not as it was written."""
    archive = None
    try:
        for line in listing.read_text().splitlines():
            checksum, name = line.split(" ", 1)
            archive = listing.parent / name
            if _checksum(archive) != checksum:
                return None
    except (OSError, ValueError):
        return None
    return archive


def _checksum(place: Path) -> str:
    with place.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as contents:
        return xxhash.xxh3_128_hexdigest(contents)


def archive_options(archive: Path) -> list[str]:
    """Arguments that make Java start with the archive, or without it where it does not fit."""
    # Java would print why it does not use an archive, some of it among the program's output.
    return ["-Xlog:cds*=off", "-Xlog:aot*=off", f"-XX:SharedArchiveFile={archive}"]
