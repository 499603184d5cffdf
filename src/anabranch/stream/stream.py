"""One stream: region logs, counters, consumer groups, idempotent producers.

Methods that change something are called by ``effects`` only; they decide nothing. Reading hands
out *spans* (stretches of wire-ready entries) or their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.stream.block import Block
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.group import LOCAL_REGION, Group
from anabranch.stream.ledger import Ledger
from anabranch.stream.merge import limited, merge_spans, merge_spans_reversed
from anabranch.stream.producer import Producers
from anabranch.stream.region_log import RegionLog, Span

__all__ = ["MAX_ENTRIES_ADDED", "Stream"]

MAX_ENTRIES_ADDED = (1 << 63) - 1


class Stream:
    """The value behind a stream key."""

    __slots__ = (
        "accessed_ms",
        "added_surplus",
        "groups",
        "incarnation",
        "last_id",
        "ledger",
        "local",
        "logs",
        "max_deleted_id",
        "producers",
    )

    type_name = b"stream"

    def __init__(self, idmp_duration_s: int, idmp_maxsize: int) -> None:
        self.local = RegionLog()
        self.logs: dict[int, RegionLog] = {LOCAL_REGION: self.local}
        self.last_id = 0  # last-generated-id; survives deletion
        self.max_deleted_id = 0
        self.added_surplus = 0  # what XSETID made of entries-added
        self.groups: dict[bytes, Group] = {}
        self.producers = Producers(idmp_duration_s, idmp_maxsize)
        self.incarnation = 0  # where positions begin for those who read by them
        self.ledger = Ledger()
        self.accessed_ms = 0  # for OBJECT IDLETIME only

    # -- counters -----------------------------------------------------------------------------

    @property
    def entries_added(self) -> int:
        """Entries ever added, deleted ones included; the positions count them."""
        added = self.added_surplus + sum([log.next_position for log in self.logs.values()])
        return min(added, MAX_ENTRIES_ADDED)

    @entries_added.setter
    def entries_added(self, count: int) -> None:
        self.added_surplus = count - sum(log.next_position for log in self.logs.values())

    # -- reading ------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Live entries of all regions."""
        if len(self.logs) == 1:
            return self.local.length
        return sum(log.length for log in self.logs.values())

    @property
    def first_id(self) -> int:
        """recorded-first-entry-id: the oldest live entry, 0 when empty."""
        if len(self.logs) == 1:
            return self.local.first_id
        return min((log.first_id for log in self.logs.values() if log.length), default=0)

    @property
    def last_live_id(self) -> int:
        """The newest live entry, 0 when empty."""
        if len(self.logs) == 1:
            return self.local.last_id
        return max(log.last_id for log in self.logs.values())

    def spans(self, start: int, end: int, limit: int = -1) -> Iterator[Span]:
        """Live entries with ``start <= ID <= end`` of all regions, ascending."""
        if len(self.logs) == 1:
            return self.local.spans(start, end, limit)
        sources = [self.logs[region].spans(start, end) for region in sorted(self.logs)]
        return limited(merge_spans(sources), limit)

    def spans_reversed(self, start: int, end: int, limit: int = -1) -> Iterator[Span]:
        """The same entries from the newest; each span is still ascending inside."""
        if len(self.logs) == 1:
            return self.local.spans_reversed(start, end, limit)
        sources = [self.logs[region].spans_reversed(start, end) for region in sorted(self.logs)]
        return limited(merge_spans_reversed(sources), limit, newest_first=True)

    def spans_beyond(self, cursors: dict[int, int], limit: int = -1) -> Iterator[tuple[int, Span]]:
        """``(region, span)`` of live entries above each region's cursor, ascending over all."""
        if len(self.logs) == 1:
            for span in self.local.spans(cursors[LOCAL_REGION] + 1, MAX_ID, limit):
                yield LOCAL_REGION, span
            return
        owner: dict[int, int] = {}
        sources = []
        for region in sorted(self.logs):
            log = self.logs[region]
            owner.update((id(block), region) for block in log.live_blocks())
            sources.append(log.spans(cursors.get(region, 0) + 1, MAX_ID))
        for span in limited(merge_spans(sources), limit):
            yield owner[id(span[0])], span

    def has_beyond(self, cursors: dict[int, int]) -> bool:
        """Whether :meth:`spans_beyond` would give anything; O(regions)."""
        return any(log.last_id > cursors.get(region, 0) for region, log in self.logs.items())

    def find(self, entry_id: int) -> tuple[int, Block, int] | None:
        """``(region, block, index)`` of the live entry with this ID, or None."""
        for region, log in self.logs.items():
            found = log.find(entry_id)
            if found is not None:
                return region, *found
        return None

    def fragment(self, entry_id: int) -> bytes | None:
        """The wire bytes of the live entry with this ID, or None."""
        found = self.find(entry_id)
        return None if found is None else found[1].fragment(found[2])

    @property
    def node_count(self) -> int:
        """Blocks in use (XINFO calls it radix-tree-keys)."""
        return sum(len(log.blocks) for log in self.logs.values())

    # -- changing -----------------------------------------------------------------------------

    def remove(self, entry_id: int) -> bool:
        """Remove a live entry; False when there is none."""
        for log in self.logs.values():
            found = log.find(entry_id)
            if found is not None:
                log.remove(*found)
                return True
        return False

    def trim(self, region: int, below_position: int) -> int:
        """Remove a region's entries with positions below the given one; returns how many."""
        log = self.logs[region]
        log.trimmed = max(log.trimmed, below_position)
        before = log.length
        while log.tail is not None:
            block = log.blocks[0]
            if block.first_position >= below_position:
                break
            if block.position(len(block.ids) - 1) < below_position:
                log.drop_oldest_block()
                continue
            doomed = []
            for first, stop in block.runs(0, len(block.ids)):
                doomed += [i for i in range(first, stop) if block.position(i) < below_position]
            for entry_id in [block.ids[index] for index in doomed]:
                found = log.find(entry_id)
                assert found is not None
                log.remove(*found)
            break
        return before - log.length

    def set_last_id(self, last_id: int) -> None:
        """XSETID: the next entry must be above ``last_id``, which may be lower than before."""
        if last_id < self.last_id:
            for log in self.logs.values():
                log.reopen_at(last_id)
        self.last_id = last_id

    def drop_references(self, entry_id: int) -> int:
        """Remove an entry from every group's pending list; returns in how many it was."""
        return sum(group.acknowledge([entry_id]) for group in self.groups.values())

    def copy(self) -> Stream:
        """An independent copy with groups, pending entries, counters and producers."""
        other = Stream(self.producers.duration_s, self.producers.maxsize)
        other.logs = {region: log.copy() for region, log in self.logs.items()}
        other.local = other.logs[LOCAL_REGION]
        other.last_id = self.last_id
        other.max_deleted_id = self.max_deleted_id
        other.entries_added = self.entries_added
        other.groups = {name: group.copy() for name, group in self.groups.items()}
        other.producers = self.producers.copy()
        other.ledger = self.ledger.copy()
        return other

    def check(self) -> None:
        """Assert every invariant of a stream."""
        for log in self.logs.values():
            log.check()
        assert self.last_live_id <= self.last_id
        assert self.first_id <= self.last_live_id
        for group in self.groups.values():
            group.check()
            assert group.entries_read is None or group.entries_read <= self.entries_added
        self.producers.check()
