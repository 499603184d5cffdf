"""A stream in the state of one moment, written piece by piece, and a stream from these pieces.

Freezing copies the small parts (counters, groups, producers, the newest block) and marks every
other block as *shared*: only its entries may die, and a region log that must change a shared block
otherwise replaces it by a copy. Pending lists pass on entries before they change them
(:class:`FrozenPending`). So freezing takes little time for a stream of any length, and it can be
read while clients are served.

The records are plain arrays (integers, bytes, lists), ready for msgpack:

- the head ``[counters, producers, logs, groups, ledger, shared]``, once, the last being what
  several regions share, if there are any; of the elements of a set or a list only the first ones;
- ``[group index, replica ID, ...]`` columns of pending entries, some thousand of one group and log;
- ``[replica ID, blocks]``, a few blocks at a time, ascending.

Unlike :class:`StreamImage`, which shows what Redis knows of a stream, nothing is left out here.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from itertools import islice
from operator import lt
from typing import Any, Final

from sortedcontainers import SortedDict

from anabranch.stream.block import Block
from anabranch.stream.elements import PLACES_A_STEP, Elements
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS, make, split
from anabranch.stream.fields import (
    BOOL,
    BYTES,
    DOT,
    ID,
    INTEGER,
    NUMBER,
    PLACE,
    RANGES,
    REPLICA_ID,
    VECTOR,
    FieldTable,
    Form,
    keys,
    nested,
    optional,
    pair,
    plain,
    record,
    row,
    several,
    table,
)
from anabranch.stream.groups.frozen_pending import FrozenPending
from anabranch.stream.groups.group import LOCAL_REPLICA_ID, Group
from anabranch.stream.groups.home import NOWHERE, GroupHome, HomeEpoch, TakeWatch
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer, PendingList
from anabranch.stream.groups.progress import Creation
from anabranch.stream.groups.runs import DeliveryRun
from anabranch.stream.groups.shared_progress import Passed
from anabranch.stream.packed_ids import PackedIds
from anabranch.stream.producer import Accepted
from anabranch.stream.region_log import RegionLog
from anabranch.stream.register import Write
from anabranch.stream.shared import Limits, Shared, Tag
from anabranch.stream.stream import Stream

BLOCKS_A_RECORD: Final = 32
"""Some 3,000 entries."""

_RELEASED: Final = -1

_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 64) - 1
"""The integers that a record can hold."""


_SWAP: Final = sys.byteorder != "little"


def _ascending(numbers: list[int]) -> SortedDict[int, None]:
    return SortedDict(dict.fromkeys(numbers))


def _puts(elements: dict[str, Elements]) -> dict[str, Any]:
    return {kind: dict(islice(each.puts.items(), PLACES_A_STEP)) for kind, each in elements.items()}


def further_elements(shared: Shared) -> list[tuple[str, list[Any]]]:
    """The elements of this moment that are too many for one record, by kind, without the first."""
    return [
        (kind, list(islice(each.puts.items(), PLACES_A_STEP, None)))
        for kind, each in shared.elements.items()
        if len(each) > PLACES_A_STEP
    ]


def _elements(puts: dict[str, Any]) -> dict[str, Elements]:
    return {kind: Elements.restored(kind, rows) for kind, rows in puts.items()}


def _former_home() -> GroupHome:
    home = GroupHome()
    home.is_incomplete = True  # whether pieces of a hand-over were missing is not written
    return home


_ACCEPTED: Final = row(Accepted, INTEGER, INTEGER, INTEGER, INTEGER)
_DEADLINES: Final = table(DOT, optional(NUMBER))
_EPOCH: Final = row(HomeEpoch, INTEGER, INTEGER, BOOL)
_NUMBERS: Final = table(REPLICA_ID, RANGES)  # numbers of entries
_WATCH: Final = FieldTable(
    home=_EPOCH,
    closed=Form(sorted, set, list[int]),
    taken=_NUMBERS,
    told=table(DOT, DOT),
    passed=_NUMBERS,
)
HOME: Final = optional(
    record(
        _former_home,
        FieldTable(
            epochs=table(DOT, _EPOCH),
            begun=_EPOCH,
            leaving=optional(_EPOCH),
            closed=_EPOCH,
            moved=_EPOCH,
            has_handed_over=BOOL,
            watch=optional(record(lambda: TakeWatch(NOWHERE), _WATCH)),
            repeated=keys(ID),
            adopted=_NUMBERS,
            twice=several(DOT),
        ),
    )
)
_RUN: Final = FieldTable(low=INTEGER, sent=INTEGER, last=INTEGER, closed=BOOL)
GROUP: Final = FieldTable(
    **{
        "shared.creations": table(DOT, row(Creation, VECTOR, optional(ID), INTEGER)),
        "shared.acknowledged": nested(DOT, _NUMBERS),
        "shared.delivered": _NUMBERS,
        "shared.hidden": _NUMBERS,
        "shared.rewound": keys(REPLICA_ID),
        "runs.discarded": table(REPLICA_ID, Form(list, _ascending, list[int])),
        "runs.by_replica_id": nested(
            REPLICA_ID, several(record(lambda: DeliveryRun(0, 0, 0), _RUN))
        ),
        "shared.places": table(REPLICA_ID, row(Passed, INTEGER, INTEGER)),
        "shared.offset": optional(INTEGER),
        "home": HOME,
    }
)
LOG: Final = FieldTable(
    **dict.fromkeys(("next_position", "trimmed", "base"), PLACE),
    floor=NUMBER,
    newest_number=NUMBER,
    newest_id=ID,
    deleted_number=NUMBER,
    deleted_id=ID,
    known_from=INTEGER,
)
LEDGER: Final = table(BYTES, _ACCEPTED)
SHARED: Final = FieldTable(
    tombstones=table(DOT, plain(bytes | bool)),
    deadlines=_DEADLINES,
    last_ids=table(DOT, ID),
    deleted_ids=table(DOT, ID),
    surpluses=table(DOT, NUMBER),
    limits=table(DOT, row(Limits, INTEGER, INTEGER, INTEGER, INTEGER)),
    tags=nested(BYTES, nested(BYTES, table(DOT, row(Tag, ID, INTEGER, BOOL, ID)))),
    accepted=nested(BYTES, table(DOT, _ACCEPTED)),
    writes=table(DOT, row(Write, PLACE, BYTES, _DEADLINES)),
    counts=BYTES,
    elements=Form(_puts, _elements, dict[str, Any]),
)
KEPT: Final = optional(record(Shared, SHARED))
PRODUCERS: Final = FieldTable(
    **dict.fromkeys(("duration_s", "maxsize", "iids_added", "duplicates"), NUMBER),
    tables=table(BYTES, table(BYTES, row(pair, ID, INTEGER))),
)
STREAM: Final = FieldTable(
    last_id=ID,
    max_deleted_id=ID,
    added_surplus=Form(lambda count: min(max(count, _LOWEST), _HIGHEST), int, int),
    incarnation=INTEGER,
)
"""What is kept of a stream and of its parts, beside entries, pending entries and consumers."""


def head_of(stream: Stream) -> list[Any]:
    """Everything of a stream but its blocks and pending entries."""
    return [
        STREAM.write(stream),
        PRODUCERS.write(stream.producers),
        [[replica_id, *LOG.write(log)] for replica_id, log in stream.logs.items()],
        [_group_head(name, group) for name, group in stream.groups.items()],
        LEDGER.write(stream.ledger.records),
        KEPT.write(stream.shared.kept),
    ]


def copied(stream: Stream) -> Stream:
    """An independent copy of a stream of a region alone.

    Where several regions write, the entries get new numbers (``effects/rewriting.py``).
    """
    twin = StreamBuilder(head_of(stream)).stream
    for replica_id, log in stream.logs.items():
        mine = twin.logs[replica_id]
        for block in log.blocks:
            mine.restore(block.copy())
        mine.full, mine.compressed, mine.dense = log.full, log.compressed, log.dense
    for name, group in stream.groups.items():
        other = twin.groups[name]
        other.pending = group.pending.copied(other.consumers)
    return twin


class FrozenStream:
    """The contents of a stream at the moment when this object was made. Read or release it soon."""

    def __init__(self, stream: Stream) -> None:
        self.head = head_of(stream)
        self._pending = [
            (index, replica_id, list(group.consumers), FrozenPending(pending))
            for index, group in enumerate(stream.groups.values())
            for replica_id, pending in group.pending.lists.items()
            if pending.entries
        ]
        self._blocks: list[tuple[int, Block]] = []
        self._tails: list[tuple[int, list[Any]]] = []
        for replica_id, log in stream.logs.items():
            for block in log.blocks:
                if block is log.tail:
                    self._tails.append((replica_id, _block_array(replica_id, block)))
                else:
                    block.shared += 1
                    self._blocks.append((replica_id, block))

    def pending(self) -> Iterator[list[Any]]:
        """The records of pending entries, some thousand each."""
        for index, replica_id, names, frozen in self._pending:
            for piece in frozen.pieces():
                yield [index, replica_id, *_pending_columns(names, piece)]

    def blocks(self) -> Iterator[list[Any] | None]:
        """The records of blocks, and None after each block: opening one takes up to a millisecond.

        A block that was read need not be preserved any more.
        """
        blocks = self._blocks
        blocks.reverse()  # so that each block can be released once it was read
        while blocks:
            replica_id = blocks[-1][0]
            arrays: list[list[Any]] = []
            while blocks and blocks[-1][0] == replica_id and len(arrays) < BLOCKS_A_RECORD:
                _, block = blocks.pop()
                arrays.append(_block_array(replica_id, block))
                block.shared -= 1
                yield None
            yield [replica_id, arrays]
        for replica_id, tail in self._tails:
            yield [replica_id, [tail]]

    def release(self) -> None:
        """Release what was not read."""
        for _, block in self._blocks:
            block.shared -= 1
        self._blocks.clear()
        for *_, frozen in self._pending:
            frozen.release()


class StreamBuilder:
    """Builds a stream from records."""

    def __init__(self, head: list[Any], own: int = LOCAL_REPLICA_ID) -> None:
        """``own`` is the replica ID of this region where several regions write."""
        counters, producers, logs, groups, ledger, shared = head
        limits = producers[:2]
        stream = Stream(*limits)
        if shared is not None:  # written where several regions share it
            stream = Stream.of_regions(own, *limits)
            stream.shared = KEPT.read(shared)
        self.stream = stream
        STREAM.restore(stream, counters)
        stream.ledger.records = LEDGER.read(ledger)
        PRODUCERS.restore(stream.producers, producers)
        stream.producers.tracked = sum(map(len, stream.producers.tables.values()))
        for replica_id, *values in logs:
            _restore_log(stream.log_of(replica_id), values)
        if stream.added_surplus in (_LOWEST, _HIGHEST):
            stream.recount()  # several regions have raised entries-added beyond these
        self._groups: list[Group] = []
        for name, cursors, entries_read, stamp, consumers, _, *progress in groups:
            group = stream.new_group(max(make(*pair) for _, pair in cursors), entries_read)
            if group.progress is group.shared:
                GROUP.restore(group, progress)
            group.pending.stamp = stamp
            group.consumers = {row[0]: Consumer(*row) for row in consumers}
            stream.groups[name] = group
            self._groups.append(group)

    def add_pending(self, record: list[Any]) -> None:
        """Add the pending entries of a record, which :meth:`FrozenStream.pending` has made."""
        (
            index,
            replica_id,
            names,
            milliseconds,
            sequences,
            owners,
            times,
            counts,
            stamps,
            numbers,
        ) = record
        group = self._groups[index]
        consumers = [group.consumers[name] for name in names]
        own: list[dict[int, PendingEntry]] = [{} for _ in consumers]
        fresh: dict[int, PendingEntry] = {}
        released: list[PendingEntry] = []
        for ms, seq, owner, time_ms, count, stamp, number in zip(
            milliseconds, sequences, owners, times, counts, stamps, numbers, strict=True
        ):
            entry_id = (ms << SEQ_BITS) | seq
            if owner == _RELEASED:
                entry = PendingEntry(entry_id, None, time_ms, count, stamp, number)
                released.append(entry)
            else:
                entry = PendingEntry(entry_id, consumers[owner], time_ms, count, stamp, number)
                own[owner][entry_id] = entry
            fresh[entry_id] = entry
        pending = group.pending
        if released:  # an entry that was released later has a higher stamp
            released.sort(key=_stamp)
            before = next(reversed(pending.released), None)
            pending.released.update(dict.fromkeys(released))
            if before is not None and before.stamp > released[0].stamp:
                pending.released = dict.fromkeys(sorted(pending.released, key=_stamp))
        pending.lists.setdefault(replica_id, PendingList()).extend(
            list(fresh), list(fresh.values())
        )
        for consumer, entries in zip(consumers, own, strict=True):
            if entries:
                consumer.pending.setdefault(replica_id, PendingList()).extend(
                    list(entries), list(entries.values())
                )

    def add_blocks(self, record: list[Any]) -> None:
        """Add the blocks of a record, which :meth:`FrozenStream.blocks` has made."""
        replica_id, arrays = record
        log = self.stream.logs[replica_id]
        for block in arrays:
            log.restore(_block_of(block))


def _stamp(entry: PendingEntry) -> int:
    return entry.stamp


def _group_head(name: bytes, group: Group) -> list[Any]:
    return [
        name,
        [[LOCAL_REPLICA_ID, split(group.progress.last_delivered_id)]],
        group.progress.entries_read,
        group.pending.stamp,
        [[each.name, each.seen_ms, each.active_ms] for each in group.consumers.values()],
        [split(entry.entry_id) for entry in group.pending.released],  # redundant, see the stamps
        *GROUP.write(group),
    ]


def _restore_log(log: RegionLog, values: list[Any]) -> None:
    added, log.trimmed, log.base, log.floor, number, newest, *rest = LOG.read(values)
    log.skip_positions(added)
    log.record_newest(number, newest)
    log.deleted_number, log.deleted_id, log.known_from = rest


def _pending_columns(names: list[bytes], entries: list[PendingEntry]) -> list[Any]:
    """Names of consumers, then a column for each property; a consumer is an index, -1 for none."""
    index_of: dict[bytes | None, int] = {name: index for index, name in enumerate(names)}
    index_of[None] = _RELEASED
    return [
        names,
        [entry.entry_id >> SEQ_BITS for entry in entries],
        [entry.entry_id & MAX_SEQ for entry in entries],
        [index_of[entry.consumer.name if entry.consumer else None] for entry in entries],
        [entry.delivery_ms for entry in entries],
        [entry.delivery_count for entry in entries],
        [entry.stamp for entry in entries],
        [entry.number for entry in entries],
    ]


# -- blocks -----------------------------------------------------------------------------------


def _block_array(replica_id: int, block: Block) -> list[Any]:
    ids, ends, data = block.contents()
    return [
        split(block.first_id),
        block.first_position,
        [ids.base_ms, ids.words]
        if isinstance(ids, PackedIds)
        else [[entry_id >> SEQ_BITS for entry_id in ids], [entry_id & MAX_SEQ for entry_id in ids]],
        data,
        ends.typecode != "H",
        little(ends),
        sorted(block.dead),
        block.gaps,
        block.weight,
        None if block.positions is None else block.positions[:],  # an open block adds to them
        block.is_open,
        _numbers_array(block) if replica_id else None,
    ]


def _numbers_array(block: Block) -> list[int] | bytes:
    if block.numbers is None and block.positions is None:
        first = block.number(0)
        return [first, first + block.count]
    return little(array("Q", block.numbers_of(0, block.count)))


def _restore_numbers(block: Block, written: list[int] | bytes | None) -> None:
    """Restore the numbers of a block; None: they follow from its positions."""
    if isinstance(written, bytes):
        block.store_numbers(_native("Q", written))
    elif written is not None:
        first, stop = written
        if stop - first != block.count:  # before a list of so many is made
            raise ValueError(f"{stop - first} numbers of {block.count} entries")
        block.shift = first - block.position(0)
        if stop - 1 - block.position(block.count - 1) != block.shift:
            block.store_numbers(array("Q", range(first, stop)))


def _block_of(fields: list[Any]) -> Block:
    (
        first,
        first_position,
        ids,
        data,
        wide,
        ends,
        dead,
        gaps,
        weight,
        positions,
        is_open,
        numbers,
    ) = fields
    block = Block(make(*first), first_position)
    block_ids: list[int] | PackedIds
    if isinstance(ids[0], int):
        block_ids = PackedIds(*ids)
    else:
        plain = [(ms << SEQ_BITS) | seq for ms, seq in zip(*ids, strict=True)]
        ascend = plain[0] >= 0 and all(map(lt, plain, plain[1:]))  # what is sent may be wrong
        block_ids = (ascend and PackedIds.pack(plain)) or plain
    block.hold(block_ids, _native("Q" if wide else "H", ends), data)
    if dead:
        block.dead = set(dead)
    block.gaps = gaps
    block.weight = weight
    block.positions = positions
    _restore_numbers(block, numbers)
    if is_open:
        # Machine code has no slice of a negative length.
        if any(size < 0 for size in block.sizes(0, block.count)):
            raise ValueError("fragments that end before they begin")
        block.reopen()
    return block


def little(numbers: array[int]) -> bytes:
    """The numbers in little-endian form."""
    if _SWAP:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _native(typecode: str, data: bytes) -> array[int]:
    numbers = array(typecode)
    numbers.frombytes(data)
    if _SWAP:
        numbers.byteswap()
    return numbers
