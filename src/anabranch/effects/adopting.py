"""Writes the consumer groups of a stream again in a region, for RESTORE, COPY and MOVE.

Entries get new numbers of this region, and the progress of each group is expressed in these
numbers. Other regions get a group that begins at the last-delivered-id, or below the lowest entry
that nobody has processed; in it all processed entries count as acknowledged. Pending entries and
consumers concern this region alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.effects import kinds
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.group import NO_REPLICA_ID, Group
from anabranch.stream.pending_entry import PendingEntry
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import Span
from anabranch.stream.renumbering import Renumbering
from anabranch.stream.shared import Dot
from anabranch.stream.stream import Stream

__all__ = ["groups_again"]

SETTLED_RANGES_MAX: Final = 100_000
"""The most intervals in one effect, about 2 MB: a frame between regions is bounded."""

_Row = tuple[int, int, int, int, int, int]


def groups_again(
    db: int, key: bytes, source: Stream, target: Stream, renumbering: Renumbering
) -> Iterator[kinds.Effect]:
    """Effects that give all groups of ``source`` to ``target``, which has the entries."""
    for name, group in list(source.groups.items()):
        yield from _group_again(db, key, name, _Standing(source, group, target, renumbering))


def _group_again(db: int, key: bytes, name: bytes, was: _Standing) -> Iterator[kinds.Effect]:
    yield kinds.CreateGroup(db, key, name, was.start, None)
    replica_id = was.replica_id
    yield kinds.AdoptGroup(
        db,
        key,
        name,
        was.last_id,
        [(replica_id, was.delivered.flat())],
        [(replica_id, number) for number in was.passed_over],
        [(each.name, each.seen_ms, each.active_ms) for each in was.group.consumers.values()],
        was.pending,
        was.entries_read,
    )
    done = was.delivered.without(Ranges((n - 1, n) for n in was.unprocessed))
    ranges = [(replica_id, low, high) for low, high in done]
    for low in range(0, len(ranges), SETTLED_RANGES_MAX):
        some = ranges[low : low + SETTLED_RANGES_MAX]
        greatest = was.log.id_upto(some[-1][-1])
        yield kinds.AcknowledgeRuns(db, key, name, was.creations(name), some, greatest)


class _Standing:
    """The progress of a group, in the new numbers of its entries."""

    def __init__(
        self, source: Stream, group: Group, target: Stream, renumbering: Renumbering
    ) -> None:
        self.group = group
        self.last_id = renumbering.behind(group.last_delivered_id)
        self.entries_read = group.read_count(source)
        self._source = source
        self._target = target
        self._renumbering = renumbering
        self.replica_id, self.log = next(
            (replica_id, log) for replica_id, log in target.logs.items() if log is target.local
        )
        late = self._numbers(group.late(source.logs))
        self.passed_over = self._numbers(group.passed_over(source.logs))
        self.pending = self._pending()
        held = [number for _, replica_id, number, *_ in self.pending if replica_id != NO_REPLICA_ID]
        self.unprocessed = sorted({*held, *self.passed_over})
        given = Ranges(self._given(self.last_id))
        self.delivered = given.without(Ranges((n - 1, n) for n in late))
        lowest = min([*self.unprocessed, *late], default=None)
        self.start = self.last_id
        if lowest is not None:
            self.start = min(self.start, self.log.id_upto(lowest) - 1)

    def creations(self, name: bytes) -> list[Dot]:
        """The creations of the group that was made for the new key."""
        made = self._target.groups[name]
        return list(made.creations)

    def _given(self, last_id: int) -> Iterator[tuple[int, int]]:
        """The numbers of the entries up to an ID."""
        top = self.log.number_upto(last_id)
        for block, low, _ in self.log.spans_numbered(0, top):
            yield block.number(low) - 1, top
            return

    def _number(self, entry_id: int) -> int | None:
        found = self.log.find(entry_id)
        if found is None:
            return None
        block, index = found
        return block.number(index)

    def _numbers(self, spans: Iterable[tuple[int, Span]]) -> list[int]:
        id_of = self._renumbering.id_of
        numbers = (
            self._number(id_of(replica_id, block.number(at), old))
            for replica_id, (block, low, high) in spans
            for at, old in enumerate(block.ids[low:high], low)
        )
        return sorted({number for number in numbers if number is not None})

    def _pending(self) -> list[_Row]:
        """Pending entries in the order of delivery, then released ones in the order of release.

        Deleted entries are numbered by their IDs.
        """
        group = self.group
        places: dict[int, tuple[int, int, int]] = {}
        gone = 0
        for entry in group.between(MIN_ID, MAX_ID):
            found = self._source.find_pending(group, entry)
            number, entry_id = None, entry.entry_id
            if found is not None:
                entry_id = self._renumbering.id_of(found[0], entry.number, entry.entry_id)
                number = self._number(entry_id)
            if number is None:
                gone += 1
                places[id(entry)] = entry.entry_id, NO_REPLICA_ID, gone
            else:
                places[id(entry)] = entry_id, self.replica_id, number
        held = [entry for entry in group.between(MIN_ID, MAX_ID) if entry.consumer is not None]
        owners = {name: index for index, name in enumerate(group.consumers)}
        rows: dict[tuple[int, int], _Row] = {}  # the first of the entries with one ID
        for entry in [*sorted(held, key=_stamp), *group.released]:
            entry_id, replica_id, number = places[id(entry)]
            owner = -1 if entry.consumer is None else owners[entry.consumer.name]
            rest = owner, entry.delivery_ms, entry.delivery_count
            rows.setdefault((replica_id, entry_id), (entry_id, replica_id, number, *rest))
        return list(rows.values())


def _stamp(entry: PendingEntry) -> int:
    return entry.stamp
