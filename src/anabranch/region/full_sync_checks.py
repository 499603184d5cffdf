"""Checks a full sync of another region as a whole, before any part of it is joined.

The full sync was loaded into a keyspace of its own. Joining has no errors. So this module checks
everything that joining relies on: types, ranges, and the invariants of logs, blocks and entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise, starmap
from operator import lt
from typing import Annotated, Any, Final

import msgspec

from anabranch.keyspace.held_tags import HeldTag
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Member, Replica, region_of
from anabranch.keyspace.timetables import GONE_MS, MISSED, Timetables
from anabranch.oplog.batch import NUMBER_MAX
from anabranch.oplog.errors import CorruptLogError
from anabranch.region.sent import STAMP_MAX, check_fields
from anabranch.stream import by_number
from anabranch.stream.block import Block
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.ledger import Accepted
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog
from anabranch.stream.register import read_counts
from anabranch.stream.rows import check_fragments
from anabranch.stream.shared import Limits, Shared, Tag
from anabranch.stream.stream import Stream

_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_Place = Annotated[int, msgspec.Meta(ge=0, le=STAMP_MAX)]
_ReplicaId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
_Region = Annotated[int, msgspec.Meta(ge=1, le=255)]
_Dot = tuple[_ReplicaId, _Number]
_Span = tuple[_ReplicaId, _Number, _Number]
_Creation = tuple[dict[int, int], int | None, int]
"""The fields of :class:`anabranch.stream.groups.progress.Creation`: a compiled module loses their
types."""

_REPLICA: Final[dict[str, Any]] = {
    "vector": dict[_ReplicaId, _Number],
    "removed": dict[_Region, _Number],
    "hybrid_ms": _Place,
    "flushes": dict[_Dot, _Number | None],
    "former_names": dict[_Region, str],
    "admissions": dict[_Region, dict[_Dot, Member]],
}
_STREAM: Final[dict[str, Any]] = dict.fromkeys(
    ("last_id", "max_deleted_id", "added_surplus", "incarnation"), int
)
_PRODUCERS: Final[dict[str, Any]] = dict.fromkeys(
    ("duration_s", "maxsize", "iids_added", "duplicates"), _Number
)
_SHARED: Final[dict[str, Any]] = {
    "tombstones": dict[_Dot, bytes | bool],
    "deadlines": dict[_Dot, _Number | None],
    "last_ids": dict[_Dot, int],
    "deleted_ids": dict[_Dot, int],
    "surpluses": dict[_Dot, _Number],
    "limits": dict[_Dot, Limits],
    "tags": dict[bytes, dict[bytes, dict[_Dot, Tag]]],
    "accepted": dict[bytes, dict[_Dot, Accepted]],
    "writes": dict[_Dot, tuple[_Place, bytes, dict[_Dot, _Number | None]]],
    "counts": bytes,
}
_COUNT: Final = tuple[_ReplicaId, _Number, _Number, _Number | None, _Number]
_LOG: Final[dict[str, Any]] = {
    **dict.fromkeys(("next_position", "trimmed", "base"), _Place),
    **dict.fromkeys(("floor", "newest_number", "deleted_number"), _Number),
    **dict.fromkeys(("newest_id", "deleted_id"), int),
}
_BLOCK: Final[dict[str, Any]] = {
    **dict.fromkeys(("first_position", "gaps", "weight"), _Place),
    "first_id": int,
    "positions": list[_Place] | None,
}
"""Attributes of each part, and their types."""


def check_full_sync(theirs: Keyspace, shown: str) -> Iterator[None]:
    """Check a loaded full sync, in short steps; :class:`CorruptLogError` if it cannot be joined.

    ``shown`` is its name for messages.
    """
    replica = theirs.replica
    try:
        _check(replica, _REPLICA)
        yield from _check_conflicts(replica, len(theirs.databases))
        for database in theirs.databases:
            for key, value in chain(database.values.items(), database.remembered.items()):
                assert type(key) is bytes
                if type(value) is not Stream:
                    assert not value.shared.is_blank, "a value of a region alone"
                    _check_shared(value.shared, replica)
                    continue
                yield from _check_stream(value, replica)
                assert key in database.values or not _has_entries(value), "entries of no key"
            yield from _check_scheduled(database.timetables)
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as problem:
        raise CorruptLogError(
            shown, 0, f"a state that makes no sense ({type(problem).__name__}: {problem})"
        ) from None


def _check_scheduled(timetables: Timetables) -> Iterator[None]:
    """Check what is scheduled."""
    for entry in timetables.entries.values():
        _require(entry.identity, tuple[_Place, _ReplicaId])
        _require(entry.ended, _Dot)
        assert 0 <= entry.at_ms <= GONE_MS, "a time out of range"
        if entry.at_ms != GONE_MS:
            check_fields(entry.fields)
        assert entry.recurrence is None or 0 <= entry.recurrence.missed < len(MISSED)
        yield
    for occurrence, addition in timetables.additions.items():
        _require(occurrence[2:], tuple[_Place, _ReplicaId, _Place])
        _require(addition.dot, _Dot)
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


def _check(part: object, types: dict[str, Any]) -> None:
    for name, kind in types.items():
        _require(_plain(getattr(part, name)), kind)


def _require(value: object, kind: Any) -> None:
    """Assert that a value has this type; without ``builtin_types`` text counts as bytes."""
    msgspec.convert(value, kind, builtin_types=(bytes,))


def _plain(value: Any) -> Any:
    """A value as plain tuples: :func:`msgspec.convert` trusts values of the right type."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _check_conflicts(replica: Replica, databases: int) -> Iterator[None]:
    conflicts = replica.conflicts
    _require(conflicts.stable, dict[_ReplicaId, tuple[_Number, _Number]])
    _require(conflicts.beaten, dict[_Dot, tuple[int, _Region, _ReplicaId, _Number]])
    displaced = [tuple(row) for row in conflicts.displaced.written()]
    _require(displaced, list[tuple[int, bytes, bytes, list[_Span]]])
    for replica_id, held in conflicts.held.items():
        newest = 0
        for tag in held:
            _require(_plain(tag), HeldTag)
            assert tag.replica_id == replica_id
            assert 0 <= tag.db < databases
            assert newest < tag.number <= NUMBER_MAX
            assert 0 <= tag.entry_id <= MAX_ID
            assert 0 <= tag.at_ms <= STAMP_MAX
            newest = tag.number
        yield


def _check_stream(stream: Stream, replica: Replica) -> Iterator[None]:
    _check(stream, _STREAM)
    _check(stream.producers, _PRODUCERS)
    assert all(map(region_of, stream.logs)), "entries of no region"
    _check_shared(stream.shared, replica)
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
        shared = group.shared
        assert shared.creations
        _require(_plain(shared.creations), dict[_Dot, _Creation])
        for by_replica_id in (shared.delivered, shared.hidden, *shared.acknowledged.values()):
            for ranges in by_replica_id.values():
                _check_ranges(ranges)
        shared.check()
        yield


def _check_shared(shared: Shared, replica: Replica) -> None:
    """Check what regions share of a key; what was written and added must have been applied."""
    _check(shared, _SHARED)
    counts = read_counts(shared.counts)
    for replica_id, row in counts.items():
        msgspec.convert([replica_id, *row[:2], *row[3:5]], _COUNT)
        assert 0 < row.since <= row.number, "increments out of order"
    newest = chain.from_iterable(each.newest.items() for each in shared.elements.values())
    for elements in shared.elements.values():
        elements.check()
        _require(tuple(elements.newest.items()), tuple[_Dot, ...])
    for dot in [*shared.writes, *((each, row.number) for each, row in counts.items()), *newest]:
        assert dot[1] <= replica.vector.get(dot[0], 0), "effects that were not applied"


def _check_ranges(ranges: Ranges) -> None:
    _require(ranges.lows, list[_Number])
    _require(ranges.highs, list[_Number])
    assert len(ranges.lows) == len(ranges.highs)


def _check_log(log: RegionLog) -> Iterator[None]:
    _check(log, _LOG)
    for block in log.blocks:
        _check_block(block)
        yield
    log.check_spine()
    if log.tail is not None:
        assert log.floor < log.tail.number(len(log.tail.ids) - 1), "entries that were deleted"
    yield


def _check_block(block: Block) -> None:
    _check(block, _BLOCK)
    _require(list(block.dead), list[_Number])
    block.check()
    ids = list(block.ids)
    assert 0 <= ids[0] <= ids[-1] <= MAX_ID
    ends = block.end_offsets()
    sizes = [high - low for low, high in pairwise([0, *ends])]
    assert min(sizes) > 0
    data = b"".join(block.parts) if block.parts is not None else block.data
    check_fragments(ids, sizes, data)
