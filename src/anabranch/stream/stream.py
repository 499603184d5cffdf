"""One stream: region logs, counters, consumer groups, idempotent producers.

Methods that change something are called by ``effects`` only; they decide nothing. Reading hands
out *spans* (stretches of wire-ready entries) or their bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat, takewhile
from typing import ClassVar, Final

from anabranch.compiling import mypyc_attr
from anabranch.stream import by_number
from anabranch.stream.block import Block
from anabranch.stream.counters import Counted
from anabranch.stream.entry_id import MAX_ID, SEALED_ID, equal_id_rank
from anabranch.stream.groups.group import LOCAL_REPLICA_ID, Group, group_alone, group_of_regions
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.merge import (
    limited,
    limited_labelled,
    merge_labelled,
    merge_spans,
    merge_spans_reversed,
)
from anabranch.stream.producer import BulkLedger, Producers
from anabranch.stream.region_log import RegionLog, Share, Span
from anabranch.stream.retained import Retained
from anabranch.stream.shared import NOTHING_SHARED, Dot, Shared, Tag, age_rank, winner

LONG_BYTES: Final = 2048
"""A stream with a longer new entry is measured soon, and not only when its block is full."""


def _newest_ms(dots: dict[Dot, Tag]) -> int:
    return max([tag.at_ms for tag in dots.values()])


@mypyc_attr(acyclic=True)
class Stream(Counted):
    """The value of a stream key."""

    __slots__ = (
        "accessed_ms",
        "counted_bytes",
        "groups",
        "incarnation",
        "is_due",
        "ledger",
        "long_bytes",
        "new_group",
        "own",
        "producers",
        "retained",
        "shared",
    )

    type_name: ClassVar = b"stream"

    def __init__(self, idmp_duration_s: int, idmp_maxsize: int) -> None:
        self.local = RegionLog()
        self.own = LOCAL_REPLICA_ID  # the replica ID of the local log
        self.logs: dict[int, RegionLog] = {LOCAL_REPLICA_ID: self.local}
        self.last_id = 0  # last-generated-id; survives deletion
        self.max_deleted_id = 0
        self.added_surplus = 0  # what XSETID has added to entries-added
        self.groups: dict[bytes, Group] = {}
        self.producers = Producers(idmp_duration_s, idmp_maxsize)
        self.incarnation = 0  # the number at which positions begin
        self.ledger = BulkLedger()
        self.accessed_ms = 0  # for OBJECT IDLETIME only
        self.counted_bytes = -1  # of memory, see keyspace/accounting.py; -1: no key is bound to it
        self.is_due = False  # changed since its memory was counted
        self.long_bytes = LONG_BYTES  # a longer new entry has it measured soon
        self.retained: Retained | None = None  # with policies that remove entries
        self.shared = NOTHING_SHARED  # what several writing regions share
        # Makes a group of this stream, of last-delivered-id and entries-read
        self.new_group: Callable[[int, int | None], Group] = group_alone

    @classmethod
    def of_regions(cls, own: int, idmp_duration_s: int, idmp_maxsize: int) -> Stream:
        """An empty stream that several regions write; ``own`` is the replica ID of this region."""
        stream = cls(idmp_duration_s, idmp_maxsize)
        stream.shared = Shared()
        stream.new_group = group_of_regions
        stream.logs = {}
        stream.write_as(own)
        return stream

    def write_as(self, own: int) -> None:
        """Add entries under this replica ID from now on."""
        self.own = own
        self.local = self.log_of(own)

    def begin_at(self, incarnation: int) -> None:
        """Let positions begin so that those of trimmed entries are below; of a region alone.

        Entries that were trimmed under another key are none of this key.
        """
        log = self.local
        log.base = log.known_from = max(log.base, log.trimmed)
        self.incarnation = incarnation

    def log_of(self, replica_id: int) -> RegionLog:
        """The log of a replica ID; it is created if necessary."""
        log = self.logs.get(replica_id)
        if log is None:
            log = self.logs[replica_id] = RegionLog()
        return log

    # -- reading ------------------------------------------------------------------------------

    @property
    def last_live_id(self) -> int:
        """The newest live entry, 0 when empty."""
        if len(self.logs) == 1:
            return self.local.last_id
        return max(log.last_id for log in self.logs.values())

    @property
    def is_sealed(self) -> bool:
        """Whether it was ended: :data:`SEALED_ID` counts as given, though no entry ever had it."""
        return self.last_id == SEALED_ID and (
            SEALED_ID not in (self.last_live_id, self.max_deleted_id)
        )

    def count(self, start: int, end: int) -> int:
        """Live entries with ``start <= ID <= end``; O(regions x log n), amortised."""
        return sum(log.count(start, end) for log in self.logs.values())

    def ranked(self) -> list[int]:
        """The replica IDs of the logs, in the order of entries with equal IDs."""
        return sorted(self.logs, key=equal_id_rank)

    def spans(self, start: int, end: int, limit: int = -1) -> Iterator[Span]:
        """Live entries with ``start <= ID <= end`` of all regions, ascending.

        The limit may be exceeded so that entries with one ID stay together.
        """
        if len(self.logs) == 1:
            return self.local.spans(start, end, limit)
        sources = [self.logs[each].spans(start, end) for each in self.ranked()]
        return limited(merge_spans(sources), limit)

    def spans_by_region(self, limit: int = -1) -> Iterator[tuple[int, Span]]:
        """``(replica ID, span)`` of all live entries, ascending."""
        spans = merge_labelled({each: self.logs[each].spans(0, MAX_ID) for each in self.ranked()})
        return limited_labelled(spans, limit)

    def spans_reversed(self, start: int, end: int, limit: int = -1) -> Iterator[Span]:
        """The entries of :meth:`spans` from the newest one; within a span they still ascend."""
        if len(self.logs) == 1:
            return self.local.spans_reversed(start, end, limit)
        sources = [self.logs[each].spans_reversed(start, end) for each in self.ranked()]
        return limited(merge_spans_reversed(sources), limit, newest_first=True)

    def spans_for(self, group: Group, limit: int = -1) -> Iterable[tuple[int, Span]]:
        """``(replica ID, span)`` of live entries that were not delivered to a group, ascending."""
        if len(self.logs) == 1:
            own = self.own
            spans = group.progress.spans(own, self.local, limit)
            if limit > 0:  # at most as many spans: a list costs less than an iterator
                return [(own, span) for span in spans]
            return zip(repeat(own), spans)
        sources = {
            replica_id: iter(group.progress.spans(replica_id, log))
            for replica_id in self.ranked()
            if (log := self.logs[replica_id]).length
        }
        return limited_labelled(merge_labelled(sources), limit)

    def has_for(self, group: Group) -> bool:
        """Whether :meth:`spans_for` would return an entry."""
        if len(self.logs) == 1:
            return group.progress.has(self.own, self.local)
        return any(group.progress.has(replica_id, log) for replica_id, log in self.logs.items())

    def find(self, entry_id: int) -> tuple[int, Block, int] | None:
        """``(replica ID, block, index)`` of the live entry with this ID, or None."""
        for replica_id, log in self.logs.items():
            found = log.find(entry_id)
            if found is not None:
                block, index = found  # in machine code, *found takes as long as finding it
                return replica_id, block, index
        return None

    def live_among(self, ids: Sequence[int]) -> list[int]:
        """Those of these IDs that live entries have, in the given order."""
        if len(self.logs) == 1 and len(ids) > 1:
            return self.local.live_among(ids)
        return [entry_id for entry_id in ids if self.find(entry_id) is not None]

    def find_all(self, entry_id: int) -> list[tuple[int, Block, int]]:
        """``(replica ID, block, index)`` of all live entries with this ID: regions may use one."""
        if len(self.logs) == 1:
            only = self.find(entry_id)
            return [] if only is None else [only]
        return [
            (replica_id, *found)
            for replica_id in self.ranked()
            if (found := self.logs[replica_id].find(entry_id)) is not None
        ]

    def find_pending(self, group: Group, entry: PendingEntry) -> tuple[int, Block, int] | None:
        """The live entry of a pending entry, or None."""
        if not entry.number:
            return self.find(entry.entry_id)
        replica_id = group.pending.region_of(entry)
        log = self.logs.get(replica_id)
        found = None if log is None else by_number.find(log, entry.number)
        return None if found is None else (replica_id, *found)

    def oldest_delivery_ms(self, group: Group) -> int | None:
        """When the oldest pending entry that still exists was delivered to its consumer."""
        for aged in group.pending.oldest_first():
            group.pending.ghosts = aged
            if self.find_pending(group, aged[2]) is not None:
                return aged[0]
        return None

    def released(self, group: Group) -> Iterable[PendingEntry]:
        """Released entries of a group in the order of release, from the first that still exists."""
        entries = group.pending.released_first()
        ghosts = takewhile(lambda entry: self.find_pending(group, entry) is None, entries)
        for ghost in list(ghosts):
            del entries[ghost]
        return entries

    def claimable(
        self, group: Group, entry_id: int
    ) -> list[tuple[tuple[int, Block, int] | None, PendingEntry | None]]:
        """``(live entry, pending entry)`` for everything with an ID; one of them may be None."""
        first = group.pending.find(entry_id)
        if len(self.logs) == 1 and (first is None or not first.number):
            return [(self.find(entry_id), first)]
        live = {found[0]: found for found in self.find_all(entry_id)}
        known = dict(group.pending.with_id(entry_id))
        pairs: list[tuple[tuple[int, Block, int] | None, PendingEntry | None]] = []
        for replica_id in {**live, **known}:
            found, entry = live.get(replica_id), known.get(replica_id)
            if found is not None and entry is not None:
                block, index = found[1:]
                if block.number(index) != entry.number:
                    pairs.append((None, entry))  # of an entry that had this ID before
                    continue
            pairs.append((found, entry))
        return pairs or [(None, None)]

    def fragments(self, entry_id: int) -> list[bytes]:
        """The wire bytes of the live entries with this ID."""
        return [block.fragment(index) for _, block, index in self.find_all(entry_id)]

    @property
    def node_count(self) -> int:
        """Blocks in use (XINFO calls it radix-tree-keys)."""
        return sum(len(log.blocks) for log in self.logs.values())

    # -- changing -----------------------------------------------------------------------------

    def remove(self, entry_id: int) -> bool:
        """Remove a live entry; False if there is none."""
        for log in self.logs.values():
            found = log.find(entry_id)
            if found is not None:
                block, index = found
                log.remove_within(block, [index])
                return True
        return False

    def remove_all(self, ids: Sequence[int]) -> list[int]:
        """Remove the live entries that have these distinct IDs; returns the IDs that were found."""
        if len(self.logs) == 1 and len(ids) > 1:
            return self.local.remove_all(ids)
        return [entry_id for entry_id in ids if self.remove(entry_id)]

    def remove_located(self, shares: Iterable[Share]) -> None:
        """Remove entries that were located at this moment."""
        for replica_id, block, indexes, _ in shares:
            self.logs[replica_id].remove_within(block, indexes)

    def trim(self, replica_id: int, below_position: int) -> list[Block]:
        """Remove the entries of a region with lower positions.

        Returns the blocks that became empty.
        """
        log = self.logs[replica_id]
        log.trimmed = max(log.trimmed, below_position)
        whole = 0
        block = log.oldest(0)
        while block is not None and block.position(block.count - 1) < below_position:
            whole += 1
            block = log.oldest(whole)
        gone = log.drop_blocks(0, whole)
        block = log.oldest(0)
        if block is not None and block.first_position < below_position:
            doomed = [
                index
                for run in block.runs(0, block.count)
                for index in range(*run)
                if block.position(index) < below_position
            ]
            if doomed:
                log.remove_within(block, doomed)
        return gone

    def set_ids(self, last_id: int, entries_added: int | None, max_deleted_id: int | None) -> None:
        """XSETID: the next entry must be above ``last_id``, which may be lower than before.

        A lower entries-added limits the entries-read of groups.
        """
        if last_id < self.last_id:
            for log in self.logs.values():
                log.reopen_at(last_id)
            for group in self.groups.values():
                group.pending.forget_ghosts()  # IDs of trimmed entries may be used again
        self.last_id = last_id
        if entries_added is not None:
            self.entries_added = entries_added
            for group in self.groups.values():
                if (read := group.progress.entries_read) is not None:
                    group.progress.entries_read = min(read, entries_added)
        if max_deleted_id is not None:
            self.max_deleted_id = max_deleted_id

    def keep_places(self, replica_id: int, log: RegionLog, high: int) -> None:
        """Call this before entries of a replica ID, up to a number, are removed.

        Most groups have not moved since the last removal: nothing is computed for them.
        """
        for group in self.groups.values():
            if replica_id not in group.shared.settled:
                group.shared.keep_place(replica_id, log, high)

    def drop_references(self, ids: Sequence[int]) -> None:
        """Remove entries from the pending lists of all groups."""
        for group in self.groups.values():
            group.pending.acknowledge(ids)

    # -- of several regions -------------------------------------------------------------------

    @property
    def exists(self) -> bool:
        """Whether the key exists: it has a group, or an addition since its last deletion."""
        shared = self.shared
        return (
            shared.keeps_key
            or bool(self.groups)
            or bool(shared.last_ids)
            or any(log.newest_number for log in self.logs.values())
        )

    @property
    def is_blank(self) -> bool:
        """Whether a stream that does not exist has nothing stored."""
        return self.shared.is_blank and all(log.is_blank for log in self.logs.values())

    @property
    def has_only_tombstones(self) -> bool:
        """Whether a stream that does not exist has nothing stored but tombstones."""
        shared = self.shared
        return not (shared.deadlines or shared.limits or shared.tags or shared.accepted)

    def prune(self, watermark: Mapping[int, int], own: int) -> bool:
        """Drop tombstones that every member has; returns whether one is left.

        Empty logs stay: readers by position learn from them whether they had read everything when
        the key was deleted. Those that were never written to are dropped.
        """
        if self.shared.prune(watermark):
            return True
        for replica_id, log in list(self.logs.items()):
            if log.is_blank and not log.next_position:
                del self.logs[replica_id]
        self.write_as(own)
        return False

    def recount(self) -> None:
        """Compute the counters again, after more than an addition."""
        shared = self.shared
        logs = self.logs.values()
        self.last_id = max([log.newest_id for log in logs] + list(shared.last_ids.values()))
        self.max_deleted_id = max(
            [log.deleted_id for log in logs] + list(shared.deleted_ids.values())
        )
        self.added_surplus = sum(shared.surpluses.values()) - sum(log.base for log in logs)

    def renew_producers(self, duration_s: int, maxsize: int) -> dict[bytes, Collection[Dot]]:
        """Compute limits and look-up tables again; the given limits count if none were set.

        Returns the tags that are displaced now, by producer.
        """
        shared = self.shared
        producers = self.producers
        if shared.limits:
            _, _, duration_s, maxsize = max(shared.limits.values())
        producers.duration_s, producers.maxsize = duration_s, maxsize
        producers.tables.clear()
        producers.tracked = 0
        self.ledger.renew({pid: max(dots.values()) for pid, dots in shared.accepted.items()})
        return {pid: self.renew_table(pid) for pid in list(shared.tags)}

    def remember(self, pid: bytes, iid: bytes, *, is_new: bool = True) -> Collection[Dot]:
        """Compute the reply to a retry with an idempotent ID whose tags have changed.

        The newest ``maxsize`` IDs of a producer are remembered, by (time, region, epoch, number) of
        any region, so regions that have applied the same effects remember the same IDs. Returns the
        tags that are displaced now.
        """
        shared = self.shared
        producers = self.producers
        tags = shared.tags[pid]
        dots = tags[iid]
        table = producers.tables.get(pid)
        if table is None:
            table = producers.tables[pid] = {}
        elif table and (iid in table or age_rank(dots) < age_rank(tags[next(reversed(table))])):
            producers.iids_added += is_new
            if is_new:
                return self._insert(pid, iid)
            table[iid] = dots[winner(dots)].answered, table[iid][1]
            return ()
        if len(dots) > 1:
            dropped = producers.remember(pid, iid, dots[winner(dots)].answered, _newest_ms(dots))
        else:
            ((entry_id, at_ms, _, stays),) = dots.values()
            dropped = producers.remember(pid, iid, stays or entry_id, at_ms)
        return () if dropped is None else tags.pop(dropped, ())

    def _insert(self, pid: bytes, iid: bytes) -> Collection[Dot]:
        """Put an idempotent ID that came late, or exists already, to the place of its rank."""
        shared = self.shared
        producers, tags = self.producers, shared.tags[pid]
        dots = tags[iid]
        table = producers.tables[pid]
        producers.tracked -= len(table)
        table.pop(iid, None)
        known = list(table.items())
        at = bisect_left(known, age_rank(dots), key=lambda item: age_rank(tags[item[0]]))
        known.insert(at, (iid, (dots[winner(dots)].answered, _newest_ms(dots))))
        displaced = [dot for oldest, _ in known[: -producers.maxsize] for dot in tags.pop(oldest)]
        producers.tables[pid] = dict(known[-producers.maxsize :])
        producers.tracked += len(producers.tables[pid])
        return displaced

    def renew_table(self, pid: bytes) -> Collection[Dot]:
        """Compute a producer's look-up table again; returns the tags that are displaced now."""
        shared = self.shared
        producers, tags = self.producers, shared.tags[pid]
        newest = sorted(tags, key=lambda iid: age_rank(tags[iid]))[-producers.maxsize :]
        producers.tracked -= len(producers.tables.get(pid, ()))
        producers.tables[pid] = {}
        for iid in newest:
            dots = tags[iid]
            producers.restore(pid, iid, dots[winner(dots)].answered, _newest_ms(dots))
        return self.drop_tags(pid)

    def drop_tags(self, pid: bytes) -> Collection[Dot]:
        """Drop the tags of a producer that are not in its look-up table any more; returns them."""
        shared = self.shared
        known = self.producers.tables.get(pid, {})
        table = shared.tags.get(pid)
        if table is None or len(table) <= len(known):
            return ()
        dropped = [dot for iid in list(table) if iid not in known for dot in table.pop(iid)]
        if not table:
            del shared.tags[pid]
        return dropped

    def check(self) -> None:
        """Assert every invariant of a stream."""
        for log in self.logs.values():
            log.check()
        self.shared.check(self)
        assert self.last_live_id <= self.last_id
        assert self.first_id <= self.last_live_id
        for group in self.groups.values():
            group.check()
            assert (group.progress.entries_read or 0) <= self.entries_added
        self.producers.check()
