"""The effects of one turn, until they are written to the log."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Final

from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds
from anabranch.effects.apply import total_numbers
from anabranch.keyspace.replica import Replica, epoch_of
from anabranch.oplog.batch import CONTINUES, LOCAL, UNIT_CONTINUES, batch_of, body_of, pack
from anabranch.oplog.compression import Compressor

__all__ = ["Turn"]

BATCH_EFFECTS_MAX = 10_000  # not Final: tests of the compiled core lower it, too
"""The most effects of one batch; the turn continues in another batch."""

BATCH_BYTES_MAX: Final = 32 << 20
"""The most bytes of one batch, except of a single effect; other regions accept twice as much."""


class Turn:
    """Effects in the order in which they were applied, and the number of the next one."""

    def __init__(self, replica: Replica) -> None:
        """``replica`` contains the replica ID of the effects."""
        self._replica = replica
        self.next_number = 1  # of effects that concern other regions
        self.effects: list[kinds.Effect] = []
        self._compressor = Compressor()

    @property
    def region(self) -> int:
        """The number of the region that made the effects."""
        return self._replica.region

    @property
    def epoch(self) -> int:
        """The epoch in which the region made them."""
        return epoch_of(self._replica.own)

    def _dependencies(self) -> list[int]:
        """The applied effects of other replica IDs. No such effect is applied within a turn."""
        replica = self._replica
        return [
            edge
            for replica_id, number in sorted(replica.vector.items())
            if replica_id != replica.own
            for edge in (replica_id, number)
        ]

    def encode_ahead(self, effect: kinds.AddRun, *, compress: bool = True) -> None:
        """Make the batch body of an effect that will be recorded later.

        It contains the context of now. The other batches of its turn contain the rest.
        """
        body = body_of([effect], self._dependencies())
        effect.encoded = pack(body, self._compressor if compress else None)

    def drain(self, wall_ms: int, *, compress: bool = True) -> bytes:
        """The bytes of the batches of the turn; the next turn begins empty."""
        return b"".join(self.drain_batches(wall_ms, compress=compress))

    def drain_batches(self, wall_ms: int, *, compress: bool = True) -> list[bytes]:
        """The same, one by one."""
        effects = self.effects
        if not effects:
            return []
        compressor = self._compressor if compress else None
        dependencies = self._dependencies()
        parts: list[_Part] = []
        for is_local, some in _stretches(effects):
            parts += _parts(is_local, some, () if is_local else dependencies, compressor)
        counts = [total_numbers(part.effects) for part in parts]
        taken = self._replica.vector.get(self._replica.own)
        if taken is not None:  # they have their numbers already
            self.next_number = taken - sum(counts) + 1
        number = self.next_number
        later = len(parts)
        numbered_later = 0
        for part in parts:
            numbered_later += not part.is_local
        batches = []
        for part, count in zip(parts, counts, strict=True):
            flags = part.flags
            later -= 1
            if later:
                flags |= CONTINUES
            if part.is_local:
                flags |= LOCAL
            else:
                numbered_later -= 1
                if numbered_later:
                    flags |= UNIT_CONTINUES
            batches.append(
                batch_of(
                    part.body,
                    region=self.region,
                    epoch=self.epoch,
                    first=number,
                    count=count,
                    wall_ms=wall_ms,
                    flags=flags,
                )
            )
            number += count
        # Whatever fails before, for want of memory, has changed nothing and can be tried again.
        self.next_number = number
        effects.clear()
        return batches


@mypyc_attr(acyclic=True)
class _Part:
    """The effects of one batch."""

    __slots__ = ("body", "effects", "flags", "is_local")

    def __init__(
        self, is_local: bool, effects: Sequence[kinds.Effect], flags: int, body: bytes
    ) -> None:
        self.is_local = is_local
        self.effects = effects
        self.flags = flags
        """How the body is packed."""
        self.body = body


def _stretches(effects: list[kinds.Effect]) -> list[tuple[bool, Sequence[kinds.Effect]]]:
    """Runs of local effects and runs of numbered effects, none longer than a batch."""
    if len(effects) == 1:
        return [(effects[0].local, effects)]
    kinds_present: set[type[kinds.Effect]] = set(map(type, effects))
    present = {kind.local for kind in kinds_present}
    if len(present) == 1:
        return _pieces(present.pop(), effects)
    found: list[tuple[bool, Sequence[kinds.Effect]]] = []
    for is_local, group in groupby(effects, attrgetter("local")):
        found += _pieces(is_local, list(group))
    return found


def _parts(
    is_local: bool,
    effects: Sequence[kinds.Effect],
    dependencies: Sequence[int],
    compressor: Compressor | None,
) -> list[_Part]:
    """The batches of effects that are all local, or none; an effect encoded ahead is alone."""
    if kinds.AddRun not in map(type, effects):
        return _packed(is_local, effects, dependencies, compressor)
    parts: list[_Part] = []
    for encoded, group in groupby(effects, _encoded):
        if encoded is not None:
            parts.append(_Part(is_local, list(group), *encoded))
        else:
            parts += _packed(is_local, list(group), dependencies, compressor)
    return parts


def _encoded(effect: kinds.Effect) -> tuple[int, bytes] | None:
    return effect.encoded if type(effect) is kinds.AddRun else None


def _packed(
    is_local: bool,
    effects: Sequence[kinds.Effect],
    dependencies: Sequence[int],
    compressor: Compressor | None,
) -> list[_Part]:
    """Effects with their body; a body that is too long is halved until it fits."""
    body = body_of(effects, dependencies)
    if len(body) <= BATCH_BYTES_MAX or len(effects) == 1:
        return [_Part(is_local, effects, *pack(body, compressor))]
    middle = len(effects) // 2
    return [
        *_packed(is_local, effects[:middle], dependencies, compressor),
        *_packed(is_local, effects[middle:], dependencies, compressor),
    ]


def _pieces(
    is_local: bool, effects: list[kinds.Effect]
) -> list[tuple[bool, Sequence[kinds.Effect]]]:
    if len(effects) <= BATCH_EFFECTS_MAX:
        return [(is_local, effects)]
    return [
        (is_local, effects[low : low + BATCH_EFFECTS_MAX])
        for low in range(0, len(effects), BATCH_EFFECTS_MAX)
    ]
