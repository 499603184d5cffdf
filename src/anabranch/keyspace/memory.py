"""Estimates of the memory of a key, from the sizes of its real structures.

Python reports the size of single objects; here they are added up. Parts that can be many (blocks,
consumers, producers, items) are measured on a sample that is spread evenly and scaled up, so that
the estimate for a huge key does not stop the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, pairwise
from sys import getsizeof
from typing import Any

from anabranch.keyspace.values import ListValue, StringValue, Value
from anabranch.stream import by_position
from anabranch.stream.block import Block
from anabranch.stream.elements import SET, Elements
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer, PendingList
from anabranch.stream.groups.runs import DeliveryRun, Runs
from anabranch.stream.groups.shared_progress import SharedProgress
from anabranch.stream.producer import Accepted, Producers
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog
from anabranch.stream.shared import BY_DOT, Shared, Tag
from anabranch.stream.stream import Stream

_ID_BYTES = -getsizeof(1 << 127) // 16 * -16  # rounded up, as it is when it is allocated
_OFFSET_BYTES = getsizeof(1 << 20)
_TIME_BYTES = getsizeof(1 << 41)
_PAIR_BYTES = getsizeof((0, 0))
_TUPLE_BYTES = getsizeof((0,))
_DOT_BYTES = _PAIR_BYTES + _OFFSET_BYTES
_HOME_BYTES = 1000
_SLOT_BYTES = 8
_DICT_SLOT_BYTES = 100  # an entry of a dictionary and its share of the free room
KEY_BYTES = 2 * _DICT_SLOT_BYTES  # of the databases' tables, for each key
_VALUE_BYTES = 100  # of the numbers that every value has: size, when it was looked at, where it is
_SPREAD_MAX = 1000  # samples of more items than this are the first ones
_GROUPS_LOOKED_AT = 100
_SORTED_SLOT_BYTES = 2 * _SLOT_BYTES + _DICT_SLOT_BYTES
_RUN_BYTES = getsizeof(DeliveryRun(0, 0, 0)) + 3 * _OFFSET_BYTES
_PUT_BYTES = _TUPLE_BYTES + _PAIR_BYTES + _DOT_BYTES
_PLACED_BYTES = _PUT_BYTES - _DOT_BYTES + getsizeof(bytes(25)) + _SLOT_BYTES
_NEIGHBOURS_LOOKED_AT = 100
_ELEMENTS_BYTES = getsizeof(Elements(SET)) + getsizeof({0: 0}) + _DOT_BYTES
_ORDER_BYTES = 500  # of a SortedList, beside a slot for each place
_RECORD_BYTES = getsizeof(Accepted(0, 0, 0, 0)) + 2 * _OFFSET_BYTES + _TIME_BYTES
_TAG_BYTES = getsizeof({0: 0}) + _DOT_BYTES + getsizeof(Tag(0, 0, False))
_PENDING_BYTES = getsizeof(PendingEntry(0, None, 0, 0, 0)) + _ID_BYTES + 2 * _OFFSET_BYTES


def key_bytes(key: bytes, value: Value, samples: int = 5) -> int:
    """Bytes of a key with its value; ``samples`` of 0 measures every part."""
    return getsizeof(key) + KEY_BYTES + value_bytes(value, samples)


def value_bytes(value: Value, samples: int = 5) -> int:
    """Bytes of a value without its key; ``samples`` as in :func:`key_bytes`."""
    size = getsizeof(value) + _VALUE_BYTES
    if isinstance(value, Stream):
        return size + _stream_bytes(value, samples)
    if isinstance(value, StringValue):
        size += _shared_tables_bytes(value.shared)
        if any(write.data is value.data for write in value.shared.writes.values()):
            return size  # it was counted with the write
        return size + value.content_bytes
    size += _shared_tables_bytes(value.shared)
    if isinstance(value, ListValue):
        return size + getsizeof(value.items) + scaled(value.items, getsizeof, samples)
    order = 0 if value.order is None else value.order.size_bytes
    return size + order + getsizeof(value.members) + scaled(value.members, getsizeof, samples)


def scaled(items: Iterable[Any], measure: Callable[[Any], int], samples: int) -> int:
    """The sum of ``measure`` over all items, measured on some of them."""
    count = len(items)  # type: ignore[arg-type]
    if not count:
        return 0
    if samples and count > _SPREAD_MAX:  # going through all of them takes time
        measured = [measure(item) for item in islice(items, samples)]
    else:
        step = 1 if not samples else -(-count // samples)
        measured = [measure(item) for item in islice(items, 0, None, step)]
    return sum(measured) * count // len(measured)


def _stream_bytes(stream: Stream, samples: int) -> int:
    size = getsizeof(stream.logs) + getsizeof(stream.groups)
    size += sum(_log_bytes(log, samples) for log in stream.logs.values())
    size += scaled(stream.groups.items(), lambda item: _group_bytes(item, samples), samples)
    size += getsizeof(stream.ledger.records)
    size += scaled(stream.ledger.records, getsizeof, samples)
    size += len(stream.ledger.records) * _RECORD_BYTES
    size += _shared_tables_bytes(stream.shared)
    size += _shared_tags_bytes(stream.shared, samples)
    return size + _producers_bytes(stream.producers, samples)


def stream_parts(stream: Stream, samples: int = 5) -> dict[str, int]:
    """The memory of a stream by cause, estimated in the same way; the causes are not quite all.

    ``groups`` is the memory of groups without pending entries and consumers. ``producers`` contains
    what several regions remember of idempotent IDs.
    """
    logs = stream.logs.values()
    groups = stream.groups.values()
    pending = _PENDING_BYTES * scaled(groups, lambda group: group.pending.count, _GROUPS_LOOKED_AT)

    def consumers_of(group: Group) -> int:
        return scaled(group.consumers.values(), _consumer_bytes, samples)

    consumers = scaled(groups, consumers_of, _GROUPS_LOOKED_AT)
    all_groups = scaled(stream.groups.items(), lambda item: _group_bytes(item, samples), samples)
    return {
        "entries": sum(_log_bytes(log, samples) - _compressed_bytes(log, samples) for log in logs),
        "compressed entries": sum(_compressed_bytes(log, samples) for log in logs),
        "pending": pending,
        "consumers": consumers,
        "groups": max(all_groups - pending - consumers, 0),
        "producers": _producers_bytes(stream.producers, samples)
        + _shared_tags_bytes(stream.shared, samples),
        "tombstones": _shared_tables_bytes(stream.shared),
    }


def _shared_tables_bytes(shared: Shared) -> int:
    """The memory of tombstones and settings of several regions; 0 in a region alone."""
    if shared.kept is None:
        return 0
    tables = [getattr(shared, name) for name in BY_DOT]
    # Empty tables are one object, which all streams have in common.
    size = getsizeof(shared) + sum(map(getsizeof, filter(None, tables)))
    if shared.removals is not None:
        size += getsizeof(shared.removals) + len(shared.removals) * _TUPLE_BYTES
    if shared.has_small:
        size += _small_bytes(shared)
    return size + sum(map(len, tables)) * (_DOT_BYTES + _ID_BYTES)


def _small_bytes(shared: Shared) -> int:
    """The memory of writes, increments and elements, beside their tables, members and items."""
    size = getsizeof(shared.counts)
    for elements in shared.elements.values():
        size += _ELEMENTS_BYTES + getsizeof(elements.puts) + _puts_bytes(elements)
        if elements.order is not None:
            size += _ORDER_BYTES
    for write in shared.writes.values():
        size += getsizeof(write) + getsizeof(write.data) + getsizeof(write.deadlines)
    return size


def _puts_bytes(elements: Elements) -> int:
    """The memory of what stands at places. Neighbours that came together have objects in common."""
    first: list[Any] = list(islice(elements.puts.values(), _NEIGHBOURS_LOOKED_AT))
    common = first if elements.order is None else [puts[0][0] for puts in first]
    own = sum(one is not other for one, other in pairwise(common)) + 1
    own_count = len(elements) * own // max(len(common), 1)
    if elements.order is None:
        return own_count * _PUT_BYTES
    return len(elements) * _PLACED_BYTES + own_count * _DOT_BYTES


def _shared_tags_bytes(shared: Shared, samples: int) -> int:
    """The memory of tags of idempotent producers of several regions; 0 in a region alone."""
    if shared.kept is None:
        return 0
    size = sum(map(getsizeof, filter(None, (shared.tags, shared.accepted))))

    def tags_bytes(item: tuple[bytes, dict[bytes, dict[Any, Any]]]) -> int:
        pid, table = item
        return getsizeof(pid) + getsizeof(table) + len(table) * _TAG_BYTES

    def accepted_bytes(item: tuple[bytes, dict[Any, Any]]) -> int:
        pid, records = item
        return getsizeof(pid) + getsizeof(records) + len(records) * (_DOT_BYTES + _RECORD_BYTES)

    size += scaled(shared.tags.items(), tags_bytes, samples)
    return size + scaled(shared.accepted.items(), accepted_bytes, samples)


def _log_bytes(log: RegionLog, samples: int) -> int:
    blocks = log.blocks
    count = len(blocks)
    if not count:
        return getsizeof(log) + getsizeof(blocks)
    spine = getsizeof(blocks) + count * _ID_BYTES
    return getsizeof(log) + spine + _scaled_by_place(log, _block_bytes, samples)


def _compressed_bytes(log: RegionLog, samples: int) -> int:
    """What compressed blocks take of :func:`_log_bytes`, measured on the same sample."""

    def measure(block: Block) -> int:
        return _block_bytes(block) if block.packed is not None else 0

    return _scaled_by_place(log, measure, samples)


def _scaled_by_place(log: RegionLog, measure: Callable[[Block], int], samples: int) -> int:
    """The sum over all blocks; those in a file and those in memory have samples of their own."""
    first, blocks = by_position.in_memory(log), log.blocks
    return _scaled_evenly(blocks, 0, first, measure, samples) + _scaled_evenly(
        blocks, first, len(blocks), measure, samples
    )


def _scaled_evenly(
    blocks: list[Block], low: int, high: int, measure: Callable[[Block], int], samples: int
) -> int:
    count = high - low
    step = 1 if not samples else -(-count // samples) or 1
    measured = [measure(blocks[index]) for index in range(low, high, step)]
    return sum(measured) * count // max(len(measured), 1)


def _block_bytes(block: Block) -> int:
    size = getsizeof(block) + 2 * _OFFSET_BYTES  # weight and first position
    if block.dead:
        size += getsizeof(block.dead)
    size += block.content_bytes
    if block.numbers is not None:
        size += getsizeof(block.numbers)
    if block.positions is not None:
        size += getsizeof(block.positions) + len(block.positions) * _OFFSET_BYTES
    return size


def _group_bytes(item: tuple[bytes, Group], samples: int) -> int:
    name, group = item
    pending = group.pending
    size = getsizeof(name) + getsizeof(group) + getsizeof(group.consumers)
    size += sum(map(getsizeof, (pending, pending.lists, pending.released)))
    size += _DICT_SLOT_BYTES + _ID_BYTES
    size += sum(_pending_bytes(each) for each in pending.lists.values())
    size += pending.count * _PENDING_BYTES
    if pending.by_age is not None:
        size += len(pending.by_age) * (_SORTED_SLOT_BYTES + getsizeof((0, 0, 0)))
    if pending.order is not None:
        size += pending.order.used_bytes
    size += getsizeof(group.progress) + _shared_progress_bytes(group.shared)
    size += _runs_bytes(group.runs)
    if group.home is not None:
        watch = group.home.watch
        size += _HOME_BYTES + len(group.home.repeated) * _ID_BYTES
        size += 0 if watch is None else _ranges_bytes(watch.taken)
    return size + scaled(group.consumers.values(), _consumer_bytes, samples)


def _shared_progress_bytes(shared: SharedProgress) -> int:
    if shared.is_blank:  # one object, which all groups of a region alone have in common
        return 0
    size = sum(map(getsizeof, (shared.creations, shared.acknowledged, shared.rewound)))
    for creation in shared.creations.values():
        size += _DOT_BYTES + getsizeof(creation) + getsizeof(creation.context) + _ID_BYTES
    tables = (shared.delivered, shared.hidden, *shared.acknowledged.values())
    return size + sum(map(_ranges_bytes, tables))


def _runs_bytes(runs: Runs) -> int:
    size = sum(map(getsizeof, (runs, runs.by_replica_id, runs.discarded)))
    size += sum(len(some) * _RUN_BYTES for some in runs.by_replica_id.values())
    return size + sum(map(getsizeof, runs.discarded.values()))


def _ranges_bytes(by_replica_id: dict[int, Ranges]) -> int:
    each = 2 * (_SLOT_BYTES + _OFFSET_BYTES)
    return getsizeof(by_replica_id) + sum(
        getsizeof(ranges) + 2 * getsizeof(ranges.lows) + len(ranges) * each
        for ranges in by_replica_id.values()
    )


def _consumer_bytes(consumer: Consumer) -> int:
    size = getsizeof(consumer) + getsizeof(consumer.name) + getsizeof(consumer.pending)
    return size + sum(_pending_bytes(pending) for pending in consumer.pending.values())


def _pending_bytes(pending: PendingList) -> int:
    """The memory of the containers only: group and consumer share the pending entries."""
    return getsizeof(pending) + getsizeof(pending.entries) + len(pending) * _SLOT_BYTES


def _producers_bytes(producers: Producers, samples: int) -> int:
    size = getsizeof(producers) + getsizeof(producers.tables)

    def table_bytes(item: tuple[bytes, dict[bytes, tuple[int, int]]]) -> int:
        pid, table = item
        pair = getsizeof((0, 0)) + _ID_BYTES + _OFFSET_BYTES
        total = getsizeof(pid) + getsizeof(table) + len(table) * pair
        return total + scaled(table, getsizeof, samples)

    return size + scaled(producers.tables.items(), table_bytes, samples)
