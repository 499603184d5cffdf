"""Batches that a test makes of effects."""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.effects import kinds
from anabranch.effects.recorded import total_numbers
from anabranch.oplog.batch import Compressor, batch_pieces, pack
from anabranch.oplog.body import body_parts


def encode_batch(
    effects: Sequence[kinds.Effect],
    *,
    region: int,
    epoch: int,
    first: int,
    wall_ms: int,
    flags: int,
    dependencies: Sequence[int] = (),
    compressor: Compressor | None = None,
) -> bytes:
    """Encode effects as a batch; all of them are local, or none, as ``flags`` says."""
    listed = list(effects)
    packed, body = pack(body_parts(listed, dependencies), compressor)
    return b"".join(
        batch_pieces(
            body,
            region=region,
            epoch=epoch,
            first=first,
            count=total_numbers(listed),
            wall_ms=wall_ms,
            flags=flags | packed,
        )
    )
