"""The members of the cluster, their addresses and their epochs.

Effects decide who is a member (:attr:`Local.members`). Addresses and epochs may become known
earlier, by status rows and handshakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.replication.interface import Address, Local


class Membership:
    """What one region knows of all regions."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._replica = local.replica
        self._latest: dict[int, int] = {}
        self._addresses: dict[int, Address] = dict(local.addresses)
        self._noted = dict(local.addresses)
        self.region = self._replica.region
        self._removals: dict[int, dict[int, int]] = {}
        self._seen: set[int] = set()  # removed regions that had a link since
        self.has_changed = False
        """Whether a newer epoch became known that was not handled yet."""
        self.notice_removals()

    def others(self) -> list[int]:
        """Members other than this region."""
        own = self.region
        return [region for region in self._replica.members if region != own]

    def is_member(self, region: int) -> bool:
        """Whether a region belongs to the cluster."""
        return region in self._replica.members

    def was_removed(self, region: int) -> bool:
        """Whether a region was a member and was removed."""
        return region in self._replica.removed and region not in self._replica.members

    def is_left(self, *, is_behind: bool) -> bool:
        """Whether this region was removed; ``is_behind`` if it lacks effects of the others.

        Such a region may only have come to the removal of a former epoch: its admission follows.
        """
        own, removed = self.region, self._replica.removed
        return self.was_removed(own) and not (is_behind and removed[own] < self._replica.epoch)

    def is_known(self, region: int) -> bool:
        """Whether effects of a region may exist: it is, or was, a member."""
        return region in self._replica.members or region in self._replica.removed

    def name(self, region: int) -> str:
        """The name of a region, or a substitute that can be shown."""
        member = self._replica.members.get(region)
        return member.name if member is not None else f"region {region}"

    def address(self, region: int) -> Address:
        """The address of a member: the one that it reported last, or that of its admission."""
        member = self._replica.members[region]
        return self._addresses.get(region, (member.host, member.port))

    def moved(self, region: int, host: str, port: int) -> None:
        """A region has reported its address. It is noted for later processes."""
        if host and port:
            self._addresses[region] = (host, port)
        moved = {
            region: address
            for region, member in self._replica.members.items()
            if (address := self._addresses.get(region)) is not None
            and address != (member.host, member.port)
        }
        if moved != self._noted:
            self._noted = moved
            self._local.note_addresses(moved)

    # -- epochs -------------------------------------------------------------------------------

    def learn(self, replica_ids: Iterable[int]) -> None:
        """Take over epochs from replica IDs that another region has named."""
        for replica_id in replica_ids:
            region = region_of(replica_id)
            if replica_id > self._latest.get(region, -1):
                self._latest[region] = replica_id
                self.has_changed = True

    def known_epoch(self, region: int) -> int:
        """The newest epoch of a region that is known or was removed; -1 if there is none."""
        latest = self._latest.get(region)
        return max(
            -1 if latest is None else epoch_of(latest), self._replica.removed.get(region, -1)
        )

    def lived_epoch(self, region: int) -> int:
        """The newest epoch in which it may have numbered effects; -1 if it was never admitted."""
        return max(self.known_epoch(region), 0 if self.is_member(region) else -1)

    def is_over(self, replica_id: int) -> bool:
        """Whether a replica ID issues no more effects: the epoch has ended, or the region."""
        return self.is_former(replica_id) or self.was_removed(region_of(replica_id))

    def is_former(self, replica_id: int) -> bool:
        """Whether the region of a replica ID has opened a later epoch."""
        return replica_id < self._latest.get(region_of(replica_id), replica_id)

    def opened(self, regions: Iterable[int]) -> list[int]:
        """The newest replica IDs of regions, as far as these begin with an effect of their own."""
        return [
            replica_id
            for region in regions
            if (replica_id := self._latest.get(region)) is not None and epoch_of(replica_id)
        ]

    # -- removals -----------------------------------------------------------------------------

    def notice_removals(self) -> bool:
        """Record what was applied when a removal became known; returns whether one is new."""
        before = len(self._removals)
        for region, member in self._replica.members.items():
            self._addresses.setdefault(region, (member.host, member.port))
        for region in self._replica.removed:
            if not self.is_member(region):
                self._removals.setdefault(region, dict(self._local.vector))
            else:
                self._removals.pop(region, None)
                self._seen.discard(region)
        return len(self._removals) > before

    def removals(self) -> Mapping[int, Mapping[int, int]]:
        """Removed regions, and a version vector that contains the removal."""
        return self._removals

    def to_look_for(self) -> list[Address]:
        """Addresses of removed regions that may not know it, and may have removed this one."""
        taken = {self.address(region) for region in self._replica.members}
        return [
            address
            for region in self._removals
            if region not in self._seen
            and (address := self._addresses.get(region)) is not None
            and address not in taken
        ]

    def met(self, region: int) -> None:
        """A removed region knows of its removal, or learns it when it dials."""
        self._seen.add(region)
