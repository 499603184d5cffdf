"""Making a region differ from the others, which nothing that one can ask of a region does.

While it is down, effects in its log are replaced by others that take the same numbers. It comes
back with a sound log, and with a vector that says it has seen what the others have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from anabranch.effects import kinds
from anabranch.oplog.batch import COMPRESSED, Batch, decode_batch, effects_in
from anabranch.oplog.manifest import ManifestFile
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES, batches_in
from anabranch.server.disk import Directory
from tests.support.batches import encode_batch

Change = Callable[[Batch, kinds.Effect], kinds.Effect]
"""An effect of a batch, as it was or another one that takes as many numbers."""


def rewrite_log(directory: Path, change: Change) -> None:
    """Change the log of a server that is down; it must be one file."""
    (path,) = directory.glob("log-*.ablog")
    raw = path.read_bytes()
    path.write_bytes(raw[:SEGMENT_HEADER_BYTES] + b"".join(_batches(raw, change)))
    ManifestFile(Directory(directory)).clear()  # it knows the last bytes as they were


def _batches(raw: bytes, change: Change) -> Iterator[bytes]:
    for item in batches_in(raw):
        at, batch = item
        assert isinstance(batch, Batch)
        after = [change(batch, each) for each in effects_in(batch)]
        if after == effects_in(batch):
            yield raw[at : at + batch.size]
            continue
        made = encode_batch(
            after,
            region=batch.region,
            epoch=batch.epoch,
            first=batch.first,
            wall_ms=batch.wall_ms,
            flags=batch.flags & ~COMPRESSED,
            dependencies=batch.context,
        )
        assert decode_batch(made).numbered == batch.numbered, "other numbers would not fit"
        yield made
