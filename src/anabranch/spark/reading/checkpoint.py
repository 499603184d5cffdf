"""Reads the files of a checkpoint, if this process has access to them."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from anabranch.spark.reading.offsets import OffsetError, Vector

VERSION: Final = "v1"
"""Of the files, their first line."""

DIGEST: Final = "anabranch.digest"
"""Among the settings of a batch that a job of this package has planned; see `digest_of`."""

_NEW_S: Final = 60.0


def newest_batch(checkpoint: Path, log: str) -> int | None:
    """The last batch in ``offsets`` (planned) or in ``commits`` (done); None if there is none."""
    names = (each.name for each in checkpoint.glob(f"{log}/[0-9]*"))
    return max((int(name) for name in names if name.isdigit()), default=None)


def _lines(checkpoint: Path, batch: int) -> list[str]:
    """The plan of a batch: version of the file, facts, and the end of each source."""
    lines = (checkpoint / "offsets" / str(batch)).read_text("utf-8").splitlines()
    if len(lines) < 2 or lines[0] != VERSION:
        raise ValueError(f"{checkpoint}/offsets/{batch} is damaged, or of another Spark")
    return lines


def digest_of(checkpoint: Path, *ends: str) -> str:
    """SHA-256 of the query's name and of the lines with the ends of a batch."""
    query = (checkpoint / "metadata").read_bytes()
    return hashlib.sha256(b"\n".join([query, *map(str.encode, ends)])).hexdigest()


def damaged(checkpoint: Path, files: str, problem: Exception) -> OffsetError:
    """The error that tells what to do about files of a checkpoint."""
    return OffsetError(
        f"{checkpoint}: {files} is not as it was written ({problem}). Put back a copy of the "
        "directory; or begin with a new checkpoint where this one ended (startingOffsets)"
    )


def ends_of_batch(checkpoint: Path, batch: int) -> list[Vector]:
    """Where a batch ends in each source of this package. Raises `OffsetError`."""
    try:
        _, facts, *ends = _lines(checkpoint, batch)
        digest = json.loads(facts).get("conf", {}).get(DIGEST)  # Spark's queries have none
        if digest not in (None, digest_of(checkpoint, *ends)):
            raise ValueError("another digest")
        found = [json.loads(each) for each in ends if each != "-"]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as problem:
        raise damaged(checkpoint, f"offsets/{batch} or metadata", problem) from None
    return [
        Vector.parse(each)
        for each in found
        if isinstance(each, dict) and "s" in each and "k" in each  # others are of another kind
    ]


def seconds_since_planned(location: str | None) -> float:
    """How long ago the batch that is to be written now was planned for the first time.

    The time is long if the batch repeats one that was running when its query ended. It is 0 below a
    minute, as for a new batch, and where it is unknown: `location` may be on a file system that
    this process cannot read.
    """
    path = None if location is None else _local(location)
    try:
        batch = None if path is None else newest_batch(path, "offsets")
        if path is None or batch is None:
            return 0.0
        planned_ms = int(json.loads(_lines(path, batch)[1])["batchTimestampMs"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0
    seconds = time.time() - planned_ms / 1000
    return seconds if seconds > _NEW_S else 0.0


def _local(location: str) -> Path | None:
    if location.startswith("/"):
        return Path(location)
    parts = urlsplit(location)
    return Path(unquote(parts.path)) if parts.scheme == "file" and not parts.netloc else None
