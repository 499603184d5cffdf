"""Members of the cluster, epochs, full syncs, repair, and the record of a sync."""

from __future__ import annotations

from msgspec import field

from anabranch.effects.kinds.base import Effect, KeyEffect


class AddRegion(Effect, tag=70):
    """Admits a region to the cluster, with its address."""

    region: int
    name: str
    host: str
    port: int


class RemoveRegion(Effect, tag=71):
    """Removes a region from the cluster; ``epoch`` was its last."""

    region: int
    epoch: int


class JoinFullSync(Effect, tag=73):
    """A full sync was joined; its snapshot is in a file beside the log.

    If it is ``partial``, keys that are not in it stay as they are.
    """

    local = True

    file: str
    partial: bool = False


class TakeKey(KeyEffect, tag=75):
    """Repair: the shared state of a key was taken over from a file beside the log.

    It repairs a key that differs although both regions had applied the same effects.
    """

    local = True

    file: str


class EnterCluster(Effect, tag=74):
    """This region belongs to a cluster of these members: ``(region, name, host, port)``.

    ``removed`` are regions that were members, and their last epochs.
    """

    local = True

    cluster_id: str
    members: list[tuple[int, str, str, int]]
    removed: list[tuple[int, int]] = field(default_factory=list)


class Synced(Effect, tag=76):
    """The log was on the disk up to this position."""

    local = True

    position: int


class OpenEpoch(Effect, tag=72):
    """The first effect of a new epoch, of a region that may have lost effects."""

    previous: int
