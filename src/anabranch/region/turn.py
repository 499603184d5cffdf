"""What one event-loop turn has changed, until the log takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from anabranch.effects import kinds
from anabranch.oplog.batch import CONTINUES, LOCAL, encode_batch
from anabranch.oplog.compression import Compressor

__all__ = ["Turn"]

BATCH_EFFECTS_MAX: Final = 10_000
"""More effects than this go on in another batch of the same turn."""


class Turn:
    """Effects in the order in which they were applied, and the number the next one gets."""

    def __init__(self, region: int = 0, epoch: int = 0) -> None:
        self.region = region
        self.epoch = epoch
        self.next_number = 1  # of effects that concern other regions
        self.effects: list[kinds.Effect] = []
        self._compressor = Compressor()

    def take(self, wall_ms: int, *, compress: bool = True) -> bytes:
        """The batches of the turn, one behind the other; the next turn begins empty."""
        effects = self.effects
        parts = list(_parts(effects))
        last = len(parts) - 1
        batches = []
        for index, (is_local, part) in enumerate(parts):
            batches.append(
                encode_batch(
                    part,
                    region=self.region,
                    epoch=self.epoch,
                    first=self.next_number,
                    wall_ms=wall_ms,
                    flags=(LOCAL if is_local else 0) | (CONTINUES if index < last else 0),
                    compressor=self._compressor if compress else None,
                )
            )
            if not is_local:
                self.next_number += len(part)
        effects.clear()
        return batches[0] if len(batches) == 1 else b"".join(batches)


def _parts(effects: list[kinds.Effect]) -> Iterator[tuple[bool, Sequence[kinds.Effect]]]:
    """Stretches of local or of other effects, none too long."""
    kinds_present: set[type[kinds.Effect]] = set(map(type, effects))
    present = {kind.local for kind in kinds_present}
    if len(present) == 1:
        yield from _pieces(present.pop(), effects)
        return
    for is_local, group in groupby(effects, attrgetter("local")):
        yield from _pieces(is_local, list(group))


def _pieces(
    is_local: bool, effects: list[kinds.Effect]
) -> Iterator[tuple[bool, Sequence[kinds.Effect]]]:
    if len(effects) <= BATCH_EFFECTS_MAX:
        yield is_local, effects
        return
    for low in range(0, len(effects), BATCH_EFFECTS_MAX):
        yield is_local, effects[low : low + BATCH_EFFECTS_MAX]
