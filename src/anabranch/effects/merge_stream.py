"""Effects on entries, counters and idempotent producers where several regions write.

The same kinds as in ``apply_stream.py``. What an effect was made with knowledge of (its *context*)
decides what it takes away and what it replaces; what it did not know stays beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import ref

from anabranch.effects import kinds
from anabranch.effects.apply_stream import append_run
from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import region_of
from anabranch.stream.ledger import Accepted
from anabranch.stream.region_log import RegionLog
from anabranch.stream.shared import Limits, forget_covered
from anabranch.stream.stream import Stream

__all__ = [
    "add_to",
    "known_stream",
    "renew_producers",
    "settle",
    "shared_stream",
]


# -- the stream behind a key ------------------------------------------------------------------


def known_stream(keyspace: Keyspace, db: int, key: bytes) -> Stream | None:
    """The stream of a key, existing or only remembered."""
    database = keyspace.databases[db]
    value = database.values.get(key) or database.remembered.get(key)
    assert value is None or type(value) is Stream
    if value is not None and not value.is_due:
        keyspace.account.changed(value)
    return value


def shared_stream(keyspace: Keyspace, db: int, key: bytes) -> Stream:
    """The same, begun if there is none; it does not exist yet for anybody who looks."""
    stream = known_stream(keyspace, db, key)
    if stream is None:
        replica = keyspace.replica
        stream = Stream.of_regions(replica.own, *replica.default_limits())
        keyspace.databases[db].remembered[key] = stream
    return stream


def settle(keyspace: Keyspace, db: int, key: bytes, stream: Stream) -> None:
    """Bind the key to the stream, or unbind it, as what happened has it."""
    database = keyspace.databases[db]
    shared = stream.shared
    if shared.tombstones:
        keyspace.replica.tombstoned[db, key] = None
    if stream.exists:
        if database.remembered.pop(key, None) is not None:
            database.put(key, stream)
    else:
        if key in database.values:
            database.discard(key)
        if stream.is_blank:
            database.remembered.pop(key, None)
        else:
            database.remembered[key] = stream
        return
    deadline = shared.deadline_ms
    if deadline != database.deadlines.get(key):
        if deadline is None:
            database.deadlines.pop(key, None)
        else:
            database.deadlines[key] = deadline


def renew_producers(keyspace: Keyspace, stream: Stream) -> None:
    """Derive what XADD looks up from the tags."""
    stream.renew_producers(*keyspace.replica.default_limits())


# -- entries ----------------------------------------------------------------------------------


def _log(keyspace: Keyspace, stream: Stream, position: int) -> RegionLog:
    """The log that an addition goes to, ready for an entry of that position."""
    log = stream.log_of(keyspace.replica.replica_id)
    if position != log.next_position:
        stream.added_surplus -= position - log.next_position
        log.open_at(position)
    return log


def _added(keyspace: Keyspace, database: Database, key: bytes, stream: Stream, newest: int) -> None:
    if newest > stream.last_id:  # noqa: PLR1730 - max() takes three times as long
        stream.last_id = newest
    if database.remembered and key in database.remembered:
        settle(keyspace, database.index, key, stream)
    elif database.watchers or database.waiters:
        database.changed(key)


def _notice(keyspace: Keyspace, stream: Stream, ids: Sequence[int]) -> None:
    """Count entries, about to be added, whose IDs others have. ``ids`` ascend."""
    replica = keyspace.replica
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
    """See :class:`kinds.Add`."""
    stream = keyspace.databases[effect.db].values.get(effect.key)
    if stream is None:
        stream = shared_stream(keyspace, effect.db, effect.key)
    _notice(keyspace, stream, [effect.entry_id])  # type: ignore[arg-type]  # as below
    add_to(keyspace, stream, effect)  # type: ignore[arg-type]  # there are streams only


def add_to(keyspace: Keyspace, stream: Stream, effect: kinds.Add) -> None:
    """The same for a stream that has been looked up already.

    XADD calls this directly while nobody wants to hear of the effect.
    """
    database = keyspace.databases[effect.db]
    replica = keyspace.replica
    log = stream.logs.get(replica.replica_id)
    if log is None or log.next_position != effect.position:
        log = _log(keyspace, stream, effect.position)
    if effect.opens and log.tail is not None:
        database.unsealed.append(ref(log.tail))
    log.append(effect.entry_id, effect.fragment, effect.weight, effect.opens, replica.number)
    if not stream.is_due:
        keyspace.account.changed(stream)
    _added(keyspace, database, effect.key, stream, effect.entry_id)


def add_run(keyspace: Keyspace, effect: kinds.AddRun) -> None:
    """See :class:`kinds.AddRun`: the same as its additions one by one, a node's share at a time."""
    database = keyspace.databases[effect.db]
    stream = shared_stream(keyspace, effect.db, effect.key)
    log = _log(keyspace, stream, effect.position)
    _notice(keyspace, stream, effect.ids)
    append_run(database, log, effect, keyspace.replica.number)
    _added(keyspace, database, effect.key, stream, effect.ids[-1])


def remove_numbers(keyspace: Keyspace, effect: kinds.RemoveNumbers) -> None:
    """See :class:`kinds.RemoveNumbers`. What is gone already is left alone."""
    stream = known_stream(keyspace, effect.db, effect.key)
    if stream is None:  # deleted, and forgotten by all
        return
    for replica_id, edges in effect.ranges:
        log = stream.log_of(replica_id)
        for low, high in zip(edges[::2], edges[1::2], strict=True):
            if effect.trimmed:
                log.trimmed = max(log.trimmed, log.position_behind(high))
            for group in stream.groups.values():
                group.keep_place(replica_id, log, high)
            keyspace.deferred_free.add(log.remove_numbered(low, high))
            if effect.dereferenced:
                for group in stream.groups.values():
                    group.drop_between(replica_id, low, high)
    for replica_id, number, entry_id in effect.deleted:
        stream.log_of(replica_id).note_deleted(number, entry_id)
    stream.recount()
    keyspace.databases[effect.db].touch(effect.key)


def dereference(keyspace: Keyspace, effect: kinds.Dereference) -> None:
    """See :class:`kinds.Dereference`. An entry that still exists here keeps its references."""
    stream = known_stream(keyspace, effect.db, effect.key)
    if stream is not None:
        for entry_id in effect.ids:
            if stream.find(entry_id) is None:
                stream.drop_references(entry_id)


def set_last_id(keyspace: Keyspace, effect: kinds.SetLastId) -> None:
    """See :class:`kinds.SetLastId`."""
    dot = keyspace.replica.dot
    stream = shared_stream(keyspace, effect.db, effect.key)
    shared = stream.shared
    shared.last_ids[dot] = effect.last_id
    if effect.entries_added:
        shared.surpluses[dot] = effect.entries_added
    if effect.max_deleted_id is not None:
        shared.deleted_ids[dot] = effect.max_deleted_id
    stream.recount()
    settle(keyspace, effect.db, effect.key, stream)


# -- idempotent producers ---------------------------------------------------------------------


def count_duplicate(keyspace: Keyspace, effect: kinds.CountDuplicate) -> None:
    """See :class:`kinds.CountDuplicate`."""
    producers = shared_stream(keyspace, effect.db, effect.key).producers
    producers.duplicates += effect.count
    producers.iids_added += effect.accepted


def configure_producers(keyspace: Keyspace, effect: kinds.ConfigureProducers) -> None:
    """See :class:`kinds.ConfigureProducers`. It forgets the pairs it has seen."""
    replica = keyspace.replica
    replica.hybrid_ms = max(replica.hybrid_ms, effect.stamp_ms)
    stream = shared_stream(keyspace, effect.db, effect.key)
    shared = stream.shared
    forget_covered(shared.limits, replica.knows)
    shared.limits[replica.dot] = Limits(
        effect.stamp_ms, region_of(replica.replica_id), effect.duration_s, effect.maxsize
    )
    shared.forget_tags(replica.knows)
    renew_producers(keyspace, stream)
    settle(keyspace, effect.db, effect.key, stream)


def forget_producers(keyspace: Keyspace, effect: kinds.ForgetProducers) -> None:
    """See :class:`kinds.ForgetProducers`."""
    stream = shared_stream(keyspace, effect.db, effect.key)
    stream.producers.forget(effect.pid, effect.count)
    stream.forget_tags(effect.pid)


def accept(keyspace: Keyspace, effect: kinds.Accept) -> None:
    """See :class:`kinds.Accept`. Of concurrent records the furthest one counts."""
    replica = keyspace.replica
    stream = shared_stream(keyspace, effect.db, effect.key)
    records = stream.shared.accepted.setdefault(effect.pid, {})
    forget_covered(records, replica.knows)
    records[replica.dot] = Accepted(effect.batch, effect.rows, effect.crc, effect.at_ms)
    stream.ledger.accept(effect.pid, max(records.values()))


def drop_records(keyspace: Keyspace, effect: kinds.DropRecords) -> None:
    """See :class:`kinds.DropRecords`. What was accepted without its knowledge stays."""
    replica = keyspace.replica
    stream = shared_stream(keyspace, effect.db, effect.key)
    accepted, ledger = stream.shared.accepted, stream.ledger
    for pid in effect.pids:
        records = accepted.get(pid)
        if records is None:  # another region has dropped it at the same time
            continue
        forget_covered(records, replica.knows)
        if records:
            ledger.accept(pid, max(records.values()))
        else:
            del accepted[pid], ledger.records[pid]
