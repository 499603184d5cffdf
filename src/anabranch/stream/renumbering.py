"""One rule for entries with equal IDs, where a sequence needs each ID once.

Clients may have given one ID in two regions. Both entries stay. But a payload for Redis, and the
log of one region, contain an ID only once. So, in the order of XRANGE, an entry whose ID is not
above that of the entry before gets the ID of that entry plus one.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.errors import CommandError
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.block import Block
from anabranch.stream.entry_id import MAX_ID, text
from anabranch.stream.frozen_log import FrozenLog
from anabranch.stream.merge import merge_labelled
from anabranch.stream.stream import Stream

_NONE_LEFT = "ERR Entries with equal IDs cannot get different IDs: no greater ID is left"

_STEP = 100
"""Spans looked at in one step."""


class Renumbering:
    """Visits the entries of all regions, ascending, and remembers those that get other IDs."""

    __slots__ = ("ids", "last", "moved")

    def __init__(self, last: int = 0) -> None:
        self.last = last
        """The ID of the newest entry so far."""
        self.moved: dict[tuple[int, int], tuple[int, int]] = {}
        """By replica ID and number: the ID that an entry had, and the ID that it gets."""
        self.ids: set[int] = set()
        """The latter."""

    def assign(self, replica_id: int, block: Block, low: int, high: int) -> Sequence[int]:
        """The IDs that the next entries, ``[low, high)`` of a block, get."""
        ids = block.ids[low:high]
        if ids[0] > self.last:  # within a block they ascend
            self.last = ids[-1]
            return ids
        fresh = []
        for entry_id, number in zip(ids, block.numbers_of(low, high), strict=True):
            if entry_id > self.last:
                self.last = entry_id
            else:
                self.last += 1
                if self.last > MAX_ID:
                    raise CommandError(_NONE_LEFT)
                self.moved[replica_id, number] = entry_id, self.last
                self.ids.add(self.last)
            fresh.append(self.last)
        return fresh

    def follow(self, behind: Renumbering) -> None:
        """Continue after the entries of another renumbering, which began where this one ended."""
        self.last = behind.last
        self.moved.update(behind.moved)
        self.ids.update(behind.ids)

    def id_of(self, replica_id: int, number: int, entry_id: int) -> int:
        """The ID that a live entry gets or keeps."""
        moved = self.moved.get((replica_id, number))
        return entry_id if moved is None else moved[1]

    def behind(self, entry_id: int) -> int:
        """Where a cursor at an ID must be set: after all entries that had an ID up to this."""
        return max([new for old, new in self.moved.values() if old <= entry_id] + [entry_id])


def renamed(fragment: bytes, entry_id: int) -> bytes:
    """The fragment of an entry, with another ID."""
    _, _, rest = fragment.split(b"\r\n", 2)
    _, _, pairs = rest.partition(b"\r\n")
    shown = text(entry_id)
    return b"*2\r\n$%d\r\n%b\r\n%b" % (len(shown), shown, pairs)


def counted(stream: Stream) -> Steps[int]:
    """The count of entries that get another ID, in short steps; as of the first step."""
    if sum(log.length > 0 for log in stream.logs.values()) < 2:
        return 0
    renumbering = Renumbering()
    logs = {each: FrozenLog(stream.logs[each]) for each in stream.ranked()}
    try:
        sources = {replica_id: log.spans() for replica_id, log in logs.items()}
        for index, (replica_id, span) in enumerate(merge_labelled(sources)):
            renumbering.assign(replica_id, *span)
            if not index % _STEP:
                yield
    finally:
        for log in logs.values():
            log.release()
    return len(renumbering.moved)


def check_ids(stream: Stream) -> None:
    """Raise :class:`CommandError` if no ID is left for an entry that needs another."""
    if stream.last_live_id > MAX_ID - stream.length:
        in_one_go(counted(stream))
