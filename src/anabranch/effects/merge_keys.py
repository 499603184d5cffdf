"""Effects on keys as a whole, and on the cluster, where several regions write."""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.effects.merge_stream import (
    renew_producers,
    settle,
    shared_stream,
)
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Member, region_of
from anabranch.stream.group import MAX_DELIVERIES, NO_REPLICA_ID
from anabranch.stream.shared import ALL_GROUPS, NO_GROUP, forget_covered

__all__: list[str] = []


def delete(keyspace: Keyspace, effect: kinds.Delete) -> None:
    """See :class:`kinds.Delete`: everything that it knew of is gone.

    DEL beats groups that it has not seen; expiry, which any region may repeat, does not.
    """
    replica = keyspace.replica
    stream = shared_stream(keyspace, effect.db, effect.key)
    context = replica.context_now()
    positions = dict(effect.positions)
    for replica_id, log in stream.logs.items():
        gone = log.clear_upto(context.get(replica_id, 0), positions.get(replica_id, 0))
        keyspace.deferred_free.add(gone)
    shared = stream.shared
    shared.clear(replica.knows)
    for name, group in list(stream.groups.items()):
        for dot in list(group.creations):
            if not effect.expired or replica.knows(dot):
                group.forget_creation(dot)
        if not group.creations:
            del stream.groups[name]
            keyspace.deferred_free.add(group)
        else:
            for replica_id in stream.logs:
                group.drop_between(replica_id, 0, context.get(replica_id, 0))
            group.drop_between(NO_REPLICA_ID, 0, MAX_DELIVERIES)
    dot = replica.dot
    shared.tombstones[dot] = NO_GROUP if effect.expired else ALL_GROUPS
    replica.unstable_tombstones[dot] = None
    stream.recount()
    renew_producers(keyspace, stream)
    if (
        not stream.exists
    ):  # counters of this region alone begin anew, whenever the rest is forgotten
        stream.producers.iids_added = stream.producers.duplicates = 0
    settle(keyspace, effect.db, effect.key, stream)
    keyspace.databases[effect.db].changed(effect.key)


def expire(keyspace: Keyspace, effect: kinds.Expire) -> None:
    """See :class:`kinds.Expire`. It replaces the deadlines it has seen."""
    replica = keyspace.replica
    stream = shared_stream(keyspace, effect.db, effect.key)
    deadlines = stream.shared.deadlines
    forget_covered(deadlines, replica.knows)
    deadlines[replica.dot] = effect.at_ms
    settle(keyspace, effect.db, effect.key, stream)
    keyspace.databases[effect.db].touch(effect.key)


def flush(keyspace: Keyspace, effect: kinds.Flush) -> None:
    """See :class:`kinds.Flush`: groups that it did not know of go as well."""
    replica = keyspace.replica
    dot = replica.dot
    replica.flushes[dot] = effect.db
    replica.unstable_tombstones[dot] = None
    replica.last_effects.note_all({replica.replica_id: replica.number})
    for database in keyspace.databases:
        if effect.db is None or effect.db == database.index:
            for key, value in list(database.values.items()):
                if value.groups:  # type: ignore[union-attr]  # there are streams only
                    value.groups.clear()  # type: ignore[union-attr]
                    settle(keyspace, database.index, key, value)  # type: ignore[arg-type]
                    replica.last_effects.mark((database.index, key))
                    database.changed(key)


def add_region(keyspace: Keyspace, effect: kinds.AddRegion) -> None:
    """See :class:`kinds.AddRegion`."""
    replica = keyspace.replica
    dots = replica.admissions.setdefault(effect.region, {})
    forget_covered(dots, replica.knows)
    dots[replica.dot] = Member(effect.name, effect.host, effect.port)
    replica.renew_members()


def remove_region(keyspace: Keyspace, effect: kinds.RemoveRegion) -> None:
    """See :class:`kinds.RemoveRegion`. An admission that it did not know of stays."""
    replica = keyspace.replica
    if (member := replica.members.get(effect.region)) is not None:
        replica.former_names[effect.region] = member.name
    forget_covered(replica.admissions.get(effect.region, {}), replica.knows)
    replica.renew_members()
    replica.removed[effect.region] = max(replica.removed.get(effect.region, 0), effect.epoch)
    replica.conflicts.is_stale = True


def enter_cluster(keyspace: Keyspace, effect: kinds.EnterCluster) -> None:
    """See :class:`kinds.EnterCluster`."""
    replica = keyspace.replica
    replica.cluster_id = effect.cluster_id
    for region, name, host, port in effect.members:
        # Their admissions are on the way; whatever tells of them has seen this dot.
        replica.admissions.setdefault(region, {})[0, 0] = Member(name, host, port)
    for region, epoch in effect.removed:
        replica.removed[region] = max(replica.removed.get(region, 0), epoch)
    replica.renew_members()


def join_full_sync(keyspace: Keyspace, effect: kinds.JoinFullSync) -> None:
    """See :class:`kinds.JoinFullSync`: who has the file does it (:mod:`anabranch.effects.join`)."""


def take_key(keyspace: Keyspace, effect: kinds.TakeKey) -> None:
    """See :class:`kinds.TakeKey`; the same."""


def open_epoch(keyspace: Keyspace, effect: kinds.OpenEpoch) -> None:
    """See :class:`kinds.OpenEpoch`. If we are that region we go on under the new name.

    What we did in a former epoch, and get back from others, changes nothing.
    """
    replica = keyspace.replica
    if region_of(replica.replica_id) == replica.region and replica.replica_id >= replica.own:
        replica.own = replica.replica_id
        for database in keyspace.databases:
            for stream in [*database.values.values(), *database.remembered.values()]:
                stream.write_as(replica.own)  # type: ignore[union-attr]  # there are streams only
