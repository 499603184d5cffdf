"""Effects on entries, counters and idempotent producers. No policy: only carrying out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from weakref import ref

from anabranch.effects import kinds
from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.values import Value
from anabranch.stream.ledger import Accepted
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream

__all__ = ["append_entry", "append_run", "node_shares", "stream_of"]


def stream_of(keyspace: Keyspace, db: int, key: bytes) -> Stream:
    """The stream an effect is about; its absence is a bug, never the client's fault."""
    value: Value = keyspace.databases[db].values[key]
    assert type(value) is Stream
    if not value.is_due:  # for whoever looks it up means to change it
        keyspace.account.changed(value)
    return value


def create_stream(keyspace: Keyspace, effect: kinds.CreateStream) -> None:
    """See :class:`kinds.CreateStream`."""
    stream = Stream(effect.idmp_duration_s, effect.idmp_maxsize)
    stream.incarnation = effect.incarnation
    keyspace.databases[effect.db].put(effect.key, stream)


def append_entry(
    database: Database,
    key: bytes,
    stream: Stream,
    entry_id: int,
    fragment: bytes,
    weight: int,
    opens: bool,
) -> None:
    """Carry out an :class:`kinds.Add` on a stream that has been looked up already.

    XADD calls this directly while nobody wants a record of the effect.
    """
    log = stream.local
    tail = log.tail
    if opens or tail is None:
        if tail is not None:
            database.unsealed.append(ref(tail))
        log.append(entry_id, fragment, weight, True)
        if not stream.is_due:
            database.account.changed(stream)
    elif tail.positions is not None:
        log.append(entry_id, fragment, weight, False)
    else:  # RegionLog.append written out for the usual case: this runs once per entry ever added
        tail.parts.append(fragment)  # type: ignore[union-attr]  # the tail is open
        tail.ids.append(entry_id)  # type: ignore[union-attr]
        tail.weight += weight
        log.next_position += 1
    stream.last_id = entry_id
    if database.watchers or database.waiters:
        database.changed(key)


def add(keyspace: Keyspace, effect: kinds.Add) -> None:
    """See :class:`kinds.Add`."""
    database = keyspace.databases[effect.db]
    stream = stream_of(keyspace, effect.db, effect.key)
    append_entry(
        database,
        effect.key,
        stream,
        effect.entry_id,
        effect.fragment,
        effect.weight,
        effect.opens,
    )


def append_run(database: Database, log: RegionLog, effect: kinds.AddRun, number: int = 0) -> None:
    """Put the entries into their log; ``number`` is that of the first, if they have numbers."""
    nodes, effect.nodes = effect.nodes, None
    for node in nodes or ():
        if log.tail is not None:
            database.unsealed.append(ref(log.tail))
        log.append_block(node, number)
        number = number and number + len(node.ids)
    if nodes:
        return
    ids, last = effect.ids, len(effect.ids)
    for low, high, data, ends, opens in node_shares(effect):
        weight = sum(effect.weights[low:high])
        if opens and log.tail is not None:
            database.unsealed.append(ref(log.tail))
        first = number and number + low
        if opens and high < last:
            log.append_full(ids[low:high], data, ends, weight, first)
        else:
            fragments = [data[start:end] for start, end in pairwise([0, *ends])]
            log.append(ids[low], fragments[0], weight, opens, first)
            log.extend(ids[low + 1 : high], fragments[1:], 0, first and first + 1)


def node_shares(effect: kinds.AddRun) -> Iterator[tuple[int, int, bytes, list[int], bool]]:
    """Which of its entries belong to one node: from, to, their bytes, where each ends, opens it.

    To a node that it opens and that another one follows, nobody adds any more.
    """
    opening = set(effect.opens)
    begin = 0
    for low, high in pairwise(sorted({0, *opening, len(effect.ids)})):
        ends = list(accumulate(effect.sizes[low:high]))
        yield low, high, effect.data[begin : begin + ends[-1]], ends, low in opening
        begin += ends[-1]


def add_run(keyspace: Keyspace, effect: kinds.AddRun) -> None:
    """See :class:`kinds.AddRun`: the same as its additions one by one, a node's share at a time."""
    database = keyspace.databases[effect.db]
    stream = stream_of(keyspace, effect.db, effect.key)
    append_run(database, stream.local, effect)
    stream.last_id = effect.ids[-1]
    database.changed(effect.key)


def trim(keyspace: Keyspace, effect: kinds.Trim) -> None:
    """See :class:`kinds.Trim`."""
    stream = stream_of(keyspace, effect.db, effect.key)
    for region, position in effect.below:
        keyspace.deferred_free.add(stream.trim(region, position))
    keyspace.databases[effect.db].touch(effect.key)


def remove(keyspace: Keyspace, effect: kinds.Remove) -> None:
    """See :class:`kinds.Remove`."""
    stream = stream_of(keyspace, effect.db, effect.key)
    gone = stream.remove_all(effect.ids)
    if effect.counted and gone:
        stream.max_deleted_id = max([stream.max_deleted_id, *gone])
    if effect.dereferenced:
        for entry_id in effect.ids:
            stream.drop_references(entry_id)
    keyspace.databases[effect.db].touch(effect.key)


def set_last_id(keyspace: Keyspace, effect: kinds.SetLastId) -> None:
    """See :class:`kinds.SetLastId`. A lowered entries-added clamps what groups have read."""
    stream = stream_of(keyspace, effect.db, effect.key)
    stream.set_last_id(effect.last_id)
    if effect.entries_added is not None:
        stream.entries_added = effect.entries_added
        for group in stream.groups.values():
            if group.entries_read is not None:
                group.entries_read = min(group.entries_read, effect.entries_added)
    if effect.max_deleted_id is not None:
        stream.max_deleted_id = effect.max_deleted_id


def remember(keyspace: Keyspace, effect: kinds.Remember) -> None:
    """See :class:`kinds.Remember`."""
    stream = stream_of(keyspace, effect.db, effect.key)
    stream.producers.remember(effect.pid, effect.iid, effect.entry_id, effect.at_ms)


def configure_producers(keyspace: Keyspace, effect: kinds.ConfigureProducers) -> None:
    """See :class:`kinds.ConfigureProducers`."""
    stream = stream_of(keyspace, effect.db, effect.key)
    stream.producers.configure(effect.duration_s, effect.maxsize)


def accept(keyspace: Keyspace, effect: kinds.Accept) -> None:
    """See :class:`kinds.Accept`."""
    ledger = stream_of(keyspace, effect.db, effect.key).ledger
    ledger.accept(effect.pid, Accepted(effect.batch, effect.rows, effect.crc, effect.at_ms))


def drop_records(keyspace: Keyspace, effect: kinds.DropRecords) -> None:
    """See :class:`kinds.DropRecords`."""
    records = stream_of(keyspace, effect.db, effect.key).ledger.records
    for pid in effect.pids:
        del records[pid]
