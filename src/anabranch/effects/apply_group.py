"""Applies effects on consumer groups and their pending entries; decides nothing.

Where several regions write, a removal of a group beats every creation that does not have the
removal in its context, whatever the order of arrival. So a removal leaves a tombstone until all
members have it.
"""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.effects.apply_homes import note_acknowledged
from anabranch.effects.streams import (
    begun_stream,
    bind_by_state,
    known_stream,
    stream_of,
    wake_held_back,
)
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import region_of
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending_list import Consumer
from anabranch.stream.groups.progress import Creation


def group_of(keyspace: Keyspace, db: int, key: bytes, name: bytes) -> Group:
    """The group of an effect."""
    return stream_of(keyspace, db, key).groups[name]


def is_beaten(keyspace: Keyspace, effect: kinds.CreateGroup) -> bool:
    """Whether a concurrent removal that arrived before this creation beats it."""
    replica = keyspace.replica
    for dot, database in replica.flushes.items():
        if database in (None, effect.db) and not replica.knows(dot):
            return True
    stream = known_stream(keyspace, effect.db, effect.key)
    return stream is not None and stream.shared.beats(effect.group, replica.knows)


def create_group(keyspace: Keyspace, effect: kinds.CreateGroup) -> None:
    """Make a consumer group, unless it exists; it replaces the creations in its context."""
    if is_beaten(keyspace, effect):
        return
    replica = keyspace.replica
    stream = begun_stream(keyspace, effect.db, effect.key)
    group = stream.groups.get(effect.group)
    if group is None:
        start = stream.last_id if effect.start is None else effect.start
        group = stream.groups[effect.group] = stream.new_group(start, None)
    creation = Creation(replica.context_now(), effect.start, effect.offset)
    group.progress.begin(stream, replica.dot, creation, effect.entries_read)
    bind_by_state(keyspace, effect.db, effect.key, stream)
    database = keyspace.databases[effect.db]
    if database.policies.rules:
        database.policies.bind_group(effect.key, effect.group, group)
    database.signal(effect.key)  # there may be more to deliver


def set_group(keyspace: Keyspace, effect: kinds.SetGroup) -> None:
    """Set the last-delivered-id and entries-read of a group (XGROUP SETID)."""
    stream = stream_of(keyspace, effect.db, effect.key)
    group = stream.groups[effect.group]
    group.restart(stream, keyspace.replica.vector, effect.last_id, effect.entries_read)
    keyspace.databases[effect.db].review(effect.key)  # there may be more to deliver
    if group.policed is not None:  # in Redis readers that are blocked stay so
        keyspace.databases[effect.db].signal(effect.key)


def advance_group(keyspace: Keyspace, effect: kinds.AdvanceGroup) -> None:
    """Raise the last-delivered-id of a group and leave entries-read (XCLAIM LASTID)."""
    stream = stream_of(keyspace, effect.db, effect.key)
    group = stream.groups[effect.group]
    group.advance(stream.logs, effect.last_id)
    wake_held_back(keyspace, effect.db, effect.key, group)


def destroy_group(keyspace: Keyspace, effect: kinds.DestroyGroup) -> None:
    """Remove a group and what it holds; its blocked readers get an error."""
    stream = begun_stream(keyspace, effect.db, effect.key)
    database = keyspace.databases[effect.db]
    # Causal delivery: a creation with this removal in its context arrives after the removal. So no
    # creation that is here has it in its context, and all of them are removed.
    gone = stream.groups.pop(effect.group, None)
    if gone is not None:
        keyspace.deferred_free.defer(gone)
    replica = keyspace.replica
    stream.shared.bury(replica.dot, effect.group, replica.unstable_tombstones.add)
    bind_by_state(keyspace, effect.db, effect.key, stream)
    database.review(effect.key)
    database.signal(effect.key)


def create_consumer(keyspace: Keyspace, effect: kinds.CreateConsumer) -> None:
    """Make a consumer of a group, unless it exists."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    group.consumer(effect.consumer, effect.now_ms)


def _see(consumer: Consumer, now_ms: int, active: bool) -> None:
    consumer.seen_ms = now_ms
    if active:
        consumer.active_ms = now_ms


def delete_consumer(keyspace: Keyspace, effect: kinds.DeleteConsumer) -> None:
    """Remove a consumer and its pending entries."""
    stream = stream_of(keyspace, effect.db, effect.key)
    group = stream.groups[effect.group]
    group.discard_consumer(effect.consumer, stream.logs)
    wake_held_back(keyspace, effect.db, effect.key, group)
    keyspace.databases[effect.db].review(effect.key)  # a blocked reader makes it again


def deliver(keyspace: Keyspace, effect: kinds.Deliver) -> None:
    """Note that a consumer has got new entries, as pending ones or with NOACK without."""
    stream = stream_of(keyspace, effect.db, effect.key)
    group = stream.groups[effect.group]
    if group.home is not None:
        group.home.delivers(effect.replica_id, effect.numbers)
    if group.policed is not None and group.pending.reaches(effect.replica_id, effect.ids[0]):
        wake_held_back(keyspace, effect.db, effect.key, group)  # it may be taken from somebody
    consumer = group.consumers[effect.consumer]
    now_ms, pending = effect.now_ms, effect.pending
    _see(consumer, now_ms, pending)
    if not pending:
        where = effect.db, effect.key, effect.group
        keyspace.replica.conflicts.record_processed(where, effect.replica_id, effect.numbers)
    group.hand_out(
        stream.logs[effect.replica_id],
        effect.replica_id,
        effect.ids,
        effect.numbers,
        consumer,
        now_ms,
        effect.entries_read,
        pending=pending,
    )


def assign(keyspace: Keyspace, effect: kinds.Assign) -> None:
    """Give pending entries to a consumer, or release them, which may serve readers that claim."""
    stream = stream_of(keyspace, effect.db, effect.key)
    group = stream.groups[effect.group]
    owner = None if effect.consumer is None else group.consumers[effect.consumer]
    for entry_id, replica_id, delivery_ms, count in effect.rows:
        group.claim(stream.logs, replica_id, entry_id, owner, delivery_ms, count)
    if owner is None:
        keyspace.databases[effect.db].signal(effect.key)
    else:
        if group.policed is not None:
            wake_held_back(keyspace, effect.db, effect.key, group)
        if effect.now_ms:
            _see(owner, effect.now_ms, effect.active)


def acknowledge(keyspace: Keyspace, effect: kinds.Acknowledge) -> None:
    """Remove entries from the pending list of a group."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    conflicts = keyspace.replica.conflicts
    if conflicts.held:
        where = effect.db, effect.key, effect.group
        for entry_id in effect.ids:
            for replica_id, entry in group.pending.with_id(entry_id):
                conflicts.record_processed(where, replica_id, (entry.number,))
    group.pending.acknowledge(effect.ids)
    if effect.dots:
        group.drop_dots(effect.dots)
    if group.policed is not None:
        wake_held_back(keyspace, effect.db, effect.key, group)


def acknowledge_runs(keyspace: Keyspace, effect: kinds.AcknowledgeRuns) -> None:
    """Note what other regions have acknowledged; a group that was made again is left alone."""
    replica = keyspace.replica
    stream = known_stream(keyspace, effect.db, effect.key)
    group = None if stream is None else stream.groups.get(effect.group)
    if stream is not None and group is not None:
        if group.home is not None:
            note_acknowledged(group, group.home, stream.logs, effect.ranges, replica)
        ours = region_of(replica.replica_id) == replica.region
        logs = stream.logs if ours else None
        group.acknowledge_runs(effect.creations, effect.ranges, effect.greatest, logs)
        if not ours:
            replica.untold[effect.db, effect.key] = None
        wake_held_back(keyspace, effect.db, effect.key, group)


def adopt_group(keyspace: Keyspace, effect: kinds.AdoptGroup) -> None:
    """Take over the progress that a group had in its former stream (RESTORE, COPY)."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    group.adopt(effect.last_id, effect.delivered, effect.open)
    owners: list[Consumer | None] = []
    for name, seen_ms, active_ms in effect.consumers:
        owners.append(group.consumers.setdefault(name, Consumer(name, seen_ms, active_ms)))
    owners.append(None)  # at -1
    group.pending.adopt(effect.pending, owners)
    group.shared.begin_to_count(stream_of(keyspace, effect.db, effect.key), effect.entries_read)
    group.policed = None  # what was released is new to it
    keyspace.databases[effect.db].policies.bind_group(effect.key, effect.group, group)
