"""Applies effects on the members of the cluster and on epochs; decides nothing."""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Member, region_of
from anabranch.stream.shared import drop_covered
from anabranch.stream.stream import Stream

__all__: list[str] = []


def add_region(keyspace: Keyspace, effect: kinds.AddRegion) -> None:
    """Admit a region to the cluster, with its address."""
    replica = keyspace.replica
    dots = replica.admissions.setdefault(effect.region, {})
    drop_covered(dots, replica.knows)
    dots[replica.dot] = Member(effect.name, effect.host, effect.port)
    replica.renew_members()


def remove_region(keyspace: Keyspace, effect: kinds.RemoveRegion) -> None:
    """Remove a region from the cluster. A concurrent admission stays."""
    replica = keyspace.replica
    if (member := replica.members.get(effect.region)) is not None:
        replica.former_names[effect.region] = member.name
    drop_covered(replica.admissions.get(effect.region, {}), replica.knows)
    replica.renew_members()
    replica.removed[effect.region] = max(replica.removed.get(effect.region, 0), effect.epoch)


def enter_cluster(keyspace: Keyspace, effect: kinds.EnterCluster) -> None:
    """Note the members of the cluster that this region belongs to from now on."""
    replica = keyspace.replica
    replica.cluster_id = effect.cluster_id
    for region, name, host, port in effect.members:
        # Their admissions arrive later; the context of these contains this dot.
        replica.admissions.setdefault(region, {})[0, 0] = Member(name, host, port)
    for region, epoch in effect.removed:
        replica.removed[region] = max(replica.removed.get(region, 0), epoch)
    replica.renew_members()


def join_full_sync(keyspace: Keyspace, effect: kinds.JoinFullSync) -> None:
    """Do nothing: the caller has the file of the full sync and joins it (``join.py``)."""


def take_key(keyspace: Keyspace, effect: kinds.TakeKey) -> None:
    """Do nothing: the caller takes over the key from its file, as for a full sync."""


def open_epoch(keyspace: Keyspace, effect: kinds.OpenEpoch) -> None:
    """Begin a new epoch of a region. If we are that region we go on under the new name.

    What we did in a former epoch, and get back from others, changes nothing.
    """
    replica = keyspace.replica
    if region_of(replica.replica_id) == replica.region and replica.replica_id >= replica.own:
        replica.become(replica.replica_id)
        for database in keyspace.databases:
            for value in [*database.values.values(), *database.remembered.objects.values()]:
                if isinstance(value, Stream):
                    value.write_as(replica.own)
