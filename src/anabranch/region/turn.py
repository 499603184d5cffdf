"""The effects of one turn, until they are written to the log."""

from __future__ import annotations

from typing import Final

from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds
from anabranch.effects.recorded import Additions, Recordable, Recorded, total_numbers
from anabranch.keyspace.replica import Replica
from anabranch.oplog.batch import (
    CONTINUES,
    LOCAL,
    UNIT_CONTINUES,
    Compressor,
    batch_pieces,
    pack,
)
from anabranch.oplog.body import body_parts

_ADD_RUN: Final = kinds.AddRun  # a name of an interpreted module is looked up each time

BATCH_EFFECTS_MAX = 10_000  # not Final: tests of the compiled core lower it, too
"""The most effects of one batch; the turn continues in another batch."""

BATCH_BYTES_MAX = 32 << 20  # not Final: tests of the compiled core lower it, too
"""The most bytes of one batch, except of a single effect; other regions accept twice as much."""


class Turn:
    """Effects in the order in which they were applied, and the number of the next one."""

    def __init__(self, replica: Replica, compressed_bytes_min: int = 0) -> None:
        """``replica`` contains the replica ID of the effects; fewer bytes are not compressed."""
        self._replica = replica
        self.next_number = 1  # of effects that concern other regions
        self.recorded = Recorded()
        self._compressor = Compressor(compressed_bytes_min)

    def _dependencies(self) -> list[int]:
        """The applied effects of other replica IDs. No such effect is applied within a turn."""
        vector, own = self._replica.vector, self._replica.own
        if not vector:
            return []
        others = [replica_id for replica_id in vector if replica_id != own]
        others.sort()
        edges: list[int] = []
        for replica_id in others:
            edges.append(replica_id)
            edges.append(vector[replica_id])
        return edges

    def encode_ahead(self, effect: kinds.AddRun, *, compress: bool = True) -> None:
        """Make the batch body of an effect that will be recorded later.

        It contains the context of now. The other batches of its turn contain the rest.
        """
        body = b"".join(body_parts([effect], self._dependencies()))
        flags, packed = pack([body], self._compressor if compress else None)
        effect.encoded = flags, packed[0]

    def drain(self, wall_ms: int, *, compress: bool = True) -> bytes:
        """The bytes of the batches of the turn; the next turn begins empty."""
        return b"".join(self.drain_batches(wall_ms, compress=compress))

    def drain_batches(
        self, wall_ms: int, *, compress: bool = True, whole: bool = True
    ) -> list[bytes]:
        """The batches of the effects so far, each as bytes; empties the turn.

        Unless they must be ``whole``, a batch with a long field comes in several pieces, one after
        another: the field is not copied.
        """
        effects = self.recorded.effects
        if not effects:
            return []
        dependencies = self._dependencies()
        compressor = self._compressor if compress else None
        parts: list[_BatchPart] = []
        for some in _stretches(effects):
            _add_parts(parts, some, dependencies, compressor)
        replica = self._replica
        number = self.next_number
        taken = replica.vector.get(replica.own)
        if taken is not None:  # they have their numbers already
            number = taken + 1
            for part in parts:
                number -= part.count
        followed = followed_by_numbered = 0
        for part in reversed(parts):
            part.flags |= followed
            followed = CONTINUES
            if not part.flags & LOCAL:
                part.flags |= followed_by_numbered
                followed_by_numbered = UNIT_CONTINUES
        batches = []
        for part in parts:
            pieces = batch_pieces(
                part.body,
                region=replica.region,
                epoch=replica.epoch,
                first=number,
                count=part.count,
                wall_ms=wall_ms,
                flags=part.flags,
            )
            if whole and len(pieces) > 1:
                batches.append(b"".join(pieces))
            else:
                batches += pieces
            number += part.count
        # Whatever fails before, for want of memory, has changed nothing and can be tried again.
        self.next_number = number
        self.recorded.clear()
        return batches


@mypyc_attr(acyclic=True)
class _BatchPart:
    """One batch, before it gets its numbers."""

    def __init__(self, flags: int, body: list[bytes], count: int) -> None:
        self.flags = flags
        self.body = body
        """The parts of the packed body."""
        self.count = count
        """The count of numbers that its effects take."""


def _stretches(effects: list[Recordable]) -> list[list[Recordable]]:
    """The effects of each batch: all local or none; an effect encoded ahead is alone."""
    before = effects[0]
    if len(effects) == 1:
        return [effects]
    found: list[list[Recordable]] = []
    kind: type = type(before)
    add_run, most = _ADD_RUN, BATCH_EFFECTS_MAX  # each is looked up in a dictionary
    low = count = 0  # where the stretch begins, and how many effects it has
    for at, effect in enumerate(effects):
        if type(effect) is not kind or kind is add_run or count >= most:
            kind = type(effect)
            if at > low and (
                count >= most
                or effect.local is not before.local
                or _encoded(effect) is not None
                or _encoded(before) is not None
            ):
                found.append(effects[low:at])
                low, count = at, 0
        count += len(effect.ids) if isinstance(effect, Additions) else 1
        before = effect
    found.append(effects[low:] if low else effects)
    return found


def _encoded(effect: Recordable) -> tuple[int, bytes] | None:
    """The batch that was made of an effect ahead."""
    return effect.encoded if type(effect) is _ADD_RUN else None


def _add_parts(
    parts: list[_BatchPart],
    effects: list[Recordable],
    dependencies: list[int],
    compressor: Compressor | None,
) -> None:
    """Make a batch of effects; if it would be too long, they are halved until it fits."""
    first = effects[0]
    is_local = first.local
    encoded = _encoded(first)
    if encoded is None:
        body = body_parts(effects, () if is_local else dependencies)
        size = 0
        for part in body:
            size += len(part)
        if size > BATCH_BYTES_MAX:
            halves = _halves(effects)
            for half in halves:
                _add_parts(parts, half, dependencies, compressor)
            if halves:
                return
        flags, body = pack(body, compressor)
    else:
        flags, body = encoded[0], [encoded[1]]
    parts.append(_BatchPart(flags | LOCAL if is_local else flags, body, total_numbers(effects)))


def _halves(effects: list[Recordable]) -> list[list[Recordable]]:
    """The effects in two parts; nothing if there is but one."""
    count = len(effects)
    if count > 1:
        return [effects[: count // 2], effects[count // 2 :]]
    run = effects[0]
    if not isinstance(run, Additions) or len(run.ids) == 1:
        return []
    count = len(run.ids)
    return [[run.part(0, count // 2)], [run.part(count // 2, count)]]
