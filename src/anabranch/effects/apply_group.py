"""Effects on consumer groups and their pending entries. No policy: only carrying out."""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.effects.apply_stream import stream_of
from anabranch.keyspace.keyspace import Keyspace
from anabranch.stream.group import Group

__all__ = ["group_of"]


def group_of(keyspace: Keyspace, db: int, key: bytes, name: bytes) -> Group:
    """The group an effect is about."""
    return stream_of(keyspace, db, key).groups[name]


def create_group(keyspace: Keyspace, effect: kinds.CreateGroup) -> None:
    """See :class:`kinds.CreateGroup`. Wakes nobody but readers of a group that was re-created."""
    stream = stream_of(keyspace, effect.db, effect.key)
    assert effect.start is not None
    stream.groups[effect.group] = Group(effect.start, effect.entries_read)


def set_group(keyspace: Keyspace, effect: kinds.SetGroup) -> None:
    """See :class:`kinds.SetGroup`."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    assert effect.last_id is not None
    group.last_delivered_id = effect.last_id
    group.entries_read = effect.entries_read


def advance_group(keyspace: Keyspace, effect: kinds.AdvanceGroup) -> None:
    """See :class:`kinds.AdvanceGroup`."""
    group_of(keyspace, effect.db, effect.key, effect.group).see(effect.last_id)


def destroy_group(keyspace: Keyspace, effect: kinds.DestroyGroup) -> None:
    """See :class:`kinds.DestroyGroup`. Its blocked readers must be told."""
    keyspace.deferred_free.add(stream_of(keyspace, effect.db, effect.key).groups.pop(effect.group))
    keyspace.databases[effect.db].signal(effect.key)


def create_consumer(keyspace: Keyspace, effect: kinds.CreateConsumer) -> None:
    """See :class:`kinds.CreateConsumer`."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    group.consumer(effect.consumer, effect.now_ms)


def see_consumer(keyspace: Keyspace, effect: kinds.SeeConsumer) -> None:
    """See :class:`kinds.SeeConsumer`."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    consumer = group.consumers[effect.consumer]
    consumer.seen_ms = effect.now_ms
    if effect.active:
        consumer.active_ms = effect.now_ms


def deliver(keyspace: Keyspace, effect: kinds.Deliver) -> None:
    """See :class:`kinds.Deliver`."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    consumer = group.consumers[effect.consumer]
    consumer.seen_ms = effect.now_ms
    if effect.pending:
        consumer.active_ms = effect.now_ms
        group.deliver(effect.region, effect.ids, consumer, effect.now_ms)
    group.see(effect.ids[-1])
    group.entries_read = effect.entries_read


def assign(keyspace: Keyspace, effect: kinds.Assign) -> None:
    """See :class:`kinds.Assign`. Releasing may serve readers that claim."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    owner = None if effect.consumer is None else group.consumers[effect.consumer]
    for entry_id, region, delivery_ms, count in effect.rows:
        group.assign(region, entry_id, owner, delivery_ms, count)
    if owner is None:
        keyspace.databases[effect.db].signal(effect.key)


def acknowledge(keyspace: Keyspace, effect: kinds.Acknowledge) -> None:
    """See :class:`kinds.Acknowledge`."""
    group = group_of(keyspace, effect.db, effect.key, effect.group)
    group.acknowledge(effect.ids)
