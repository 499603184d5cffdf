"""Checks a full sync of another region as a whole, before any part of it is joined.

The full sync was loaded into a keyspace of its own. Joining has no errors. So this module checks
everything that joining relies on: types, ranges, and the invariants of logs, blocks and entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise, starmap
from operator import lt
from typing import Any, Final

from anabranch.keyspace.conflicts import CONFLICTS
from anabranch.keyspace.displaced_tags import DISPLACED
from anabranch.keyspace.held_tags import HeldTag
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import REPLICA, Replica, region_of
from anabranch.keyspace.timetables import GONE_MS, MISSED, Timetables
from anabranch.oplog.errors import CorruptLogError
from anabranch.oplog.snapshot import SENSELESS
from anabranch.region.sent import check_fields
from anabranch.stream import by_number
from anabranch.stream.block import Block
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.fields import (
    DOT,
    INTEGER,
    NUMBER,
    NUMBER_MAX,
    PLACE,
    REPLICA_ID,
    STAMP_MAX,
    VECTOR,
    FieldTable,
    keys,
    optional,
    require,
    row,
    several,
)
from anabranch.stream.frozen import GROUP, LEDGER, LOG, PRODUCERS, SHARED, STREAM
from anabranch.stream.region_log import RegionLog
from anabranch.stream.register import read_counts
from anabranch.stream.rows import check_fragments
from anabranch.stream.shared import Shared
from anabranch.stream.stream import Stream

_COUNT: Final = row(tuple, REPLICA_ID, NUMBER, NUMBER, optional(NUMBER), NUMBER)
_IDENTITY: Final = row(tuple, PLACE, REPLICA_ID)
_OCCURRENCE: Final = row(tuple, PLACE, REPLICA_ID, PLACE)
_BLOCK: Final = FieldTable(
    first_position=PLACE,
    gaps=PLACE,
    weight=PLACE,
    first_id=INTEGER,
    positions=optional(several(PLACE)),
    dead=keys(NUMBER),
)


def check_full_sync(theirs: Keyspace, shown: str) -> Iterator[None]:
    """Check a loaded full sync, in short steps; :class:`CorruptLogError` if it cannot be joined.

    ``shown`` is its name for messages.
    """
    replica = theirs.replica
    try:
        REPLICA.check(replica)
        yield from _check_conflicts(replica, len(theirs.databases))
        for database in theirs.databases:
            for key, value in chain(database.values.items(), database.remembered.items()):
                assert type(key) is bytes
                if type(value) is not Stream:
                    assert not value.shared.is_blank, "a value of a region alone"
                    yield from _check_shared(value.shared, replica)
                    continue
                yield from _check_stream(value, replica)
                assert key in database.values or not _has_entries(value), "entries of no key"
            yield from _check_scheduled(database.timetables)
    except SENSELESS as problem:
        raise CorruptLogError(
            shown, 0, f"a state that makes no sense ({type(problem).__name__}: {problem})"
        ) from None


def _check_scheduled(timetables: Timetables) -> Iterator[None]:
    """Check what is scheduled."""
    for entry in timetables.entries.values():
        require(entry.identity, _IDENTITY.kind)
        require(entry.ended, DOT.kind)
        assert 0 <= entry.at_ms <= GONE_MS, "a time out of range"
        if entry.at_ms != GONE_MS:
            check_fields(entry.fields)
        assert entry.recurrence is None or 0 <= entry.recurrence.missed < len(MISSED)
        yield
    for occurrence, addition in timetables.additions.items():
        require(occurrence[2:], _OCCURRENCE.kind)
        require(addition.dot, DOT.kind)
        yield


def check_order(ours: Keyspace, theirs: Keyspace, shown: str) -> Iterator[None]:
    """Check that new entries follow the entries that are here, in the log of every replica ID.

    In short steps; :class:`CorruptLogError` if they do not. Join the full sync at once.
    """
    last_effects = ours.replica.last_effects
    changed = last_effects.watch()
    try:
        for here, there in zip(ours.databases, theirs.databases, strict=True):
            for key in list(there.values):
                _check_order(ours, theirs, here.index, key, shown)
                yield
    finally:
        last_effects.unwatch(changed)
    for db, key in changed:
        _check_order(ours, theirs, db, key, shown)


def _has_entries(stream: Stream) -> bool:
    return any(log.blocks for log in stream.logs.values())


def _check_order(ours: Keyspace, theirs: Keyspace, db: int, key: bytes, shown: str) -> None:
    """Check the order of numbers of one key; only a stream that exists has entries."""
    stream = ours.databases[db].values.get(key)
    source = theirs.databases[db].values.get(key)
    if type(stream) is not Stream or type(source) is not Stream:
        return
    for replica_id, log in source.logs.items():
        known = stream.logs.get(replica_id)
        seen = ours.replica.vector.get(replica_id, 0)
        if known is not None and not _goes_on(known, log, seen):
            raise CorruptLogError(
                shown, 0, f"entries of replica ID {replica_id} that are not above ours"
            )


def _goes_on(ours: RegionLog, theirs: RegionLog, seen: int) -> bool:
    """Whether the new entries of the full sync follow the entries that stay here."""
    for block, low, _ in by_number.spans(theirs, seen, NUMBER_MAX):
        for stays in reversed(ours.blocks):
            newest = len(stays.ids) - 1
            live = chain.from_iterable(starmap(stays.numbers_of, stays.runs(0, newest + 1)))
            if any(by_number.find(theirs, number) for number in live):
                first = block.ids[low], block.position(low)
                return all(map(lt, (stays.ids[newest], stays.position(newest)), first))
        break
    return True


def _plain(value: Any) -> Any:
    """A value as plain tuples: :func:`msgspec.convert` trusts values of the right type."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _check_conflicts(replica: Replica, databases: int) -> Iterator[None]:
    conflicts = replica.conflicts
    CONFLICTS.check(conflicts)
    require(conflicts.displaced.written(), DISPLACED.kind)
    for replica_id, held in conflicts.held.items():
        newest = 0
        for tag in held:
            require(_plain(tag), HeldTag)
            assert tag.replica_id == replica_id
            assert 0 <= tag.db < databases
            assert newest < tag.number <= NUMBER_MAX
            assert 0 <= tag.entry_id <= MAX_ID
            assert 0 <= tag.at_ms <= STAMP_MAX
            newest = tag.number
        yield


def _check_stream(stream: Stream, replica: Replica) -> Iterator[None]:
    STREAM.check(stream)
    PRODUCERS.check(stream.producers)
    require(LEDGER.write(stream.ledger.records), LEDGER.kind)
    assert all(map(region_of, stream.logs)), "entries of no region"
    yield from _check_shared(stream.shared, replica)
    ids = [stream.last_id, stream.max_deleted_id, *stream.shared.last_ids.values()]
    ids += stream.shared.deleted_ids.values()
    assert all(0 <= each <= MAX_ID for each in ids)
    for limits in stream.shared.limits.values():
        assert limits.duration_s > 0
        assert limits.maxsize > 0
    yield
    for replica_id, log in stream.logs.items():
        yield from _check_log(log)
        newest = max(log.newest_number, log.deleted_number, log.floor)
        assert newest <= replica.vector.get(replica_id, 0), "effects that were not applied"
    for name, group in stream.groups.items():
        assert type(name) is bytes
        assert group.shared.creations
        GROUP.check(group)
        group.shared.check()
        yield


def _check_shared(shared: Shared, replica: Replica) -> Iterator[None]:
    """Check what regions share of a key; what was written and added must have been applied."""
    SHARED.check(shared)
    counts = read_counts(shared.counts)
    for replica_id, count in counts.items():
        require([replica_id, *count[:2], *count[3:5]], _COUNT.kind)
        assert 0 < count.since <= count.number, "increments out of order"
    newest = chain.from_iterable(each.newest.items() for each in shared.elements.values())
    for elements in shared.elements.values():
        yield from elements.check_steps()
        require(VECTOR.write(elements.newest), VECTOR.kind)
    written = ((each, count.number) for each, count in counts.items())
    for dot in [*shared.writes, *written, *newest]:
        assert dot[1] <= replica.vector.get(dot[0], 0), "effects that were not applied"
    yield


def _check_log(log: RegionLog) -> Iterator[None]:
    LOG.check(log)
    for block in log.blocks:
        _check_block(block)
        yield
    log.check_spine()
    if log.tail is not None:
        assert log.floor < log.tail.number(len(log.tail.ids) - 1), "entries that were deleted"
    yield


def _check_block(block: Block) -> None:
    _BLOCK.check(block)
    block.check()
    ids = list(block.ids)
    assert 0 <= ids[0] <= ids[-1] <= MAX_ID
    ends = block.end_offsets()
    sizes = [high - low for low, high in pairwise([0, *ends])]
    assert min(sizes) > 0
    data = b"".join(block.parts) if block.parts is not None else block.data
    check_fragments(ids, sizes, data)
