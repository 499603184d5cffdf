"""Applies effects on entries and counters; decides nothing.

The *context* of an effect determines what the effect removes and replaces; what is not in its
context stays beside it. In a region alone everything is in the context of every effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise

from anabranch.effects import kinds
from anabranch.effects.streams import begun_stream, bind_by_state, known_stream, stream_of
from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.stream import by_number
from anabranch.stream.block import full_block
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream


def create_stream(keyspace: Keyspace, effect: kinds.CreateStream) -> None:
    """Bind a key to a new, empty stream."""
    stream = Stream(effect.idmp_duration_s, effect.idmp_maxsize)
    database = keyspace.databases[effect.db]
    database.put(effect.key, stream)
    database.begin(effect.key, stream, effect.incarnation)


def append_entry(
    database: Database,
    stream: Stream,
    log: RegionLog,
    entry_id: int,
    fragment: bytes,
    weight: int,
    opens: bool,
    shift: int,
) -> None:
    """Add an entry to a log of a stream; every addition of a single entry ends here.

    ``shift`` is that of the log (:func:`log_at`). The caller then calls :func:`tell_observers`, and
    sets the last ID of the stream.
    """
    tail = log.tail
    if (
        opens
        or tail is None
        or tail.parts is None
        or tail.positions is not None
        or tail.shift != shift
    ):
        if opens and tail is not None and tail.parts is not None:
            database.account.block_filled(sum(map(len, tail.parts)))
        log.append(entry_id, fragment, weight, opens, shift)
        if not stream.is_due:
            database.account.changed(stream)
    else:  # RegionLog.append inlined for the usual case: this runs once for each added entry
        tail.parts.append(fragment)
        tail.open_ids.append(entry_id)
        tail.weight += weight
        log.next_position += 1
        if len(fragment) > stream.long_bytes and not stream.is_due:
            database.account.changed(stream)


def tell_observers(keyspace: Keyspace, database: Database, key: bytes, stream: Stream) -> None:
    """Entries were added: the key exists now, and clients may wait for the entries."""
    if database.values.get(key) is not stream:
        bind_by_state(keyspace, database.index, key, stream)
    else:
        database.grown(key)


def log_at(stream: Stream, replica: Replica, position: int) -> tuple[RegionLog, int]:
    """The log of the replica ID whose effect is applied, ready for an entry, and its shift.

    The entry comes to ``position``; -1: the next one. The shift is the difference between its
    number and its position.
    """
    log = stream.log_of(replica.replica_id)
    if position not in (-1, log.next_position):
        stream.added_surplus -= position - log.next_position
        log.open_at(position, replica.number)
    return log, replica.shift(log.next_position)


def _count_duplicates(replica: Replica, stream: Stream, ids: Sequence[int]) -> None:
    """Count entries that are about to be added and have an ID that another entry has.

    ``ids`` ascend.
    """
    stats = replica.apply_stats
    stats.newest_id = max(stats.newest_id, ids[-1])
    if ids[0] > stream.last_id:
        return
    wanted = set(ids)
    equal: set[int] = set()
    for replica_id, log in stream.logs.items():
        if replica_id != replica.replica_id and log.length:
            for block, low, high in log.spans(ids[0], ids[-1]):
                equal.update(wanted.intersection(block.ids[low:high]))
    stats.duplicate_ids += len(equal)


def add(keyspace: Keyspace, effect: kinds.Add) -> None:
    """Append an entry to the log of the region that has added it."""
    replica = keyspace.replica
    stream = begun_stream(keyspace, effect.db, effect.key)
    entry_id = effect.entry_id
    _count_duplicates(replica, stream, [entry_id])
    log, shift = log_at(stream, replica, effect.position)
    database = keyspace.databases[effect.db]
    append_entry(
        database, stream, log, entry_id, effect.fragment, effect.weight, effect.opens, shift
    )
    tell_observers(keyspace, database, effect.key, stream)
    stream.last_id = max(stream.last_id, entry_id)  # entries of other regions may come late


def append_run(log: RegionLog, effect: kinds.AddRun, shift: int = 1) -> None:
    """Add the entries to their log; ``shift`` is as in :func:`append_entry`."""
    nodes, effect.nodes = effect.nodes, None
    if nodes:
        log.append_blocks(nodes, shift)
        return
    ids, last = effect.ids, len(effect.ids)
    for low, high, data, ends, opens in node_shares(effect):
        weight = sum(effect.weights[low:high])
        if opens and high < last:
            log.append_blocks([full_block(ids[low:high], data, ends, weight)], shift)
        else:
            fragments = [data[start:end] for start, end in pairwise([0, *ends])]
            log.append(ids[low], fragments[0], weight, opens, shift)
            log.extend(ids[low + 1 : high], fragments[1:], 0, shift)


def node_shares(effect: kinds.AddRun) -> Iterator[tuple[int, int, bytes, list[int], bool]]:
    """The nodes of a run: from, to, bytes, end offsets, whether the entries open a node.

    No entries are added to a node that another one follows.
    """
    opening = set(effect.opens)
    begin = 0
    for low, high in pairwise(sorted({0, *opening, len(effect.ids)})):
        ends = list(accumulate(effect.sizes[low:high]))
        yield low, high, effect.data[begin : begin + ends[-1]], ends, low in opening
        begin += ends[-1]


def add_run(keyspace: Keyspace, effect: kinds.AddRun) -> None:
    """Append many entries, as their additions one by one would, a node's share at a time."""
    replica = keyspace.replica
    stream = begun_stream(keyspace, effect.db, effect.key)
    log, shift = log_at(stream, replica, effect.position)
    _count_duplicates(replica, stream, effect.ids)
    database = keyspace.databases[effect.db]
    append_run(log, effect, shift)
    keyspace.block_cache.filled += len(effect.data)
    stream.last_id = max(stream.last_id, effect.ids[-1])
    tell_observers(keyspace, database, effect.key, stream)


def trim(keyspace: Keyspace, effect: kinds.Trim) -> None:
    """Remove the entries below a position of each region."""
    stream = stream_of(keyspace, effect.db, effect.key)
    for replica_id, position in effect.below:
        keyspace.deferred_free.defer(stream.trim(replica_id, position))
    database = keyspace.databases[effect.db]
    database.touch(effect.key)
    if database.policies.rules:  # a nested function here would cost time without rules, too
        _let_go_trimmed(database, effect.key, stream)


def _let_go_trimmed(database: Database, key: bytes, stream: Stream) -> None:
    """Entries were trimmed: those that had stopped their keys stop them no more."""
    first_id = stream.local.first_id if stream.local.length else MAX_ID
    _let_go(database, key, stream, lambda group: group.halted_below(first_id))


def _let_go_removed(database: Database, stream: Stream, effect: kinds.Remove) -> None:
    """Single entries were removed."""
    _let_go(
        database,
        effect.key,
        stream,
        lambda group: group.pending.with_ids(effect.ids),
        dereferenced=effect.dereferenced,
    )


def _let_go(
    database: Database,
    key: bytes,
    stream: Stream,
    gone_of: Callable[[Group], Iterable[PendingEntry]],
    *,
    dereferenced: bool = False,
) -> None:
    """Entries were removed, and perhaps were pending: by a policy, readers may wait for that."""
    for group in stream.groups.values():
        order = group.pending.order
        if order is not None:
            order.deleted(gone_of(group))
        policed = group.policed
        if policed is not None and policed.holds_back and (dereferenced or order is not None):
            database.signal(key)


def remove(keyspace: Keyspace, effect: kinds.Remove) -> None:
    """Remove single entries of one region."""
    stream = stream_of(keyspace, effect.db, effect.key)
    gone: Sequence[int] = effect.ids
    if effect.located is None:
        gone = stream.remove_all(effect.ids)
    else:
        stream.remove_located(effect.located)
    if effect.counted and gone:
        newest = gone[0] if len(gone) == 1 else max(gone)
        stream.max_deleted_id = max(stream.max_deleted_id, newest)
    if effect.dereferenced:
        stream.drop_references(effect.ids)
    database = keyspace.databases[effect.db]
    database.touch(effect.key)
    if database.policies.rules:
        _let_go_removed(database, stream, effect)


def remove_numbers(keyspace: Keyspace, effect: kinds.RemoveNumbers) -> None:
    """Remove entries by the numbers of their effects. What is gone already is left alone."""
    stream = known_stream(keyspace, effect.db, effect.key)
    if stream is None:  # deleted, and forgotten by all
        return
    database = keyspace.databases[effect.db]
    for replica_id, edges in effect.ranges:
        log = stream.log_of(replica_id)
        gone = Ranges(zip(edges[::2], edges[1::2], strict=True))
        for low, high in gone:
            if effect.trimmed:
                log.trimmed = max(log.trimmed, by_number.newest_slot_upto(log, high)[1])
            stream.keep_places(replica_id, log, high)
            keyspace.deferred_free.defer(by_number.remove(log, low, high))
        if effect.dereferenced:
            for group in stream.groups.values():
                group.drop_numbers(replica_id, gone)
        if database.policies.rules:
            numbered = partial(_numbered, replica_id, gone)
            _let_go(database, effect.key, stream, numbered, dereferenced=effect.dereferenced)
    for replica_id, number, entry_id in effect.deleted:
        stream.log_of(replica_id).record_deleted(number, entry_id)
    if stream.groups:
        keyspace.replica.untold[effect.db, effect.key] = None
    stream.recount()
    database.touch(effect.key)


def _numbered(replica_id: int, numbers: Ranges, group: Group) -> list[PendingEntry]:
    """The pending entries of a group that have these numbers."""
    pending = group.pending.lists.get(replica_id)
    return [] if pending is None else pending.numbered(numbers)


def dereference(keyspace: Keyspace, effect: kinds.Dereference) -> None:
    """Drop pending entries of entries that are gone. One that still exists here keeps them."""
    stream = known_stream(keyspace, effect.db, effect.key)
    if stream is not None:
        stream.drop_references([each for each in effect.ids if stream.find(each) is None])
        database = keyspace.databases[effect.db]
        _let_go(database, effect.key, stream, lambda _group: (), dereferenced=True)


def set_last_id(keyspace: Keyspace, effect: kinds.SetLastId) -> None:
    """Set the last ID, entries-added and max-deleted-entry-id as far as they are given."""
    stream = begun_stream(keyspace, effect.db, effect.key)
    stream.shared.set_ids(
        stream,
        keyspace.replica.dot,
        effect.last_id,
        effect.entries_added,
        effect.max_deleted_id,
        keyspace.replica.knows,
    )
    database = keyspace.databases[effect.db]
    if database.values.get(effect.key) is not stream:
        bind_by_state(keyspace, effect.db, effect.key, stream)
    elif stream.is_sealed:
        database.grown(effect.key)  # readers need not wait any more
