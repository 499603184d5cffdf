"""Who belongs to the cluster, where they can be dialled, and in which epoch each of them lives.

Who is a member is told by effects (:attr:`Local.members`); addresses and epochs may be heard of
earlier than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.replication.interface import Address, Local

__all__ = ["Membership"]


class Membership:
    """What one region knows of all."""

    def __init__(self, local: Local) -> None:
        self._local = local
        self._latest: dict[int, int] = {}
        self._addresses: dict[int, Address] = {}
        self._removals: dict[int, dict[int, int]] = {}
        self._seen: set[int] = set()  # removed regions that have been met since
        self.has_news = False
        """A newer epoch was heard of, and nothing has been done about it yet."""
        self.notice_removals()

    @property
    def region(self) -> int:
        """Our own number."""
        return region_of(self._local.replica_id)

    def others(self) -> list[int]:
        """Members other than us."""
        own = self.region
        return [region for region in self._local.members if region != own]

    def is_member(self, region: int) -> bool:
        """Whether it belongs to the cluster."""
        return region in self._local.members

    def was_removed(self, region: int) -> bool:
        """Whether it belonged to the cluster once, and does not any more."""
        return region in self._local.removed and region not in self._local.members

    def is_known(self, region: int) -> bool:
        """Whether its effects may exist: a member, or one that was."""
        return region in self._local.members or region in self._local.removed

    def name(self, region: int) -> str:
        """Its name, or something that can be shown."""
        member = self._local.members.get(region)
        return member.name if member is not None else f"region {region}"

    def address(self, region: int) -> Address:
        """Where to dial a member: what it told last, or what its admission says."""
        member = self._local.members[region]
        return self._addresses.get(region, (member.host, member.port))

    def moved(self, region: int, host: str, port: int) -> None:
        """It has told where it can be dialled."""
        if host and port:
            self._addresses[region] = (host, port)

    # -- epochs -------------------------------------------------------------------------------

    def hear(self, replica_ids: Iterable[int]) -> None:
        """Replica IDs that somebody has named."""
        for replica_id in replica_ids:
            region = region_of(replica_id)
            if replica_id > self._latest.get(region, -1):
                self._latest[region] = replica_id
                self.has_news = True

    def known_epoch(self, region: int) -> int:
        """The newest epoch of a region that was heard of or removed; -1 if there is none."""
        latest = self._latest.get(region)
        return max(-1 if latest is None else epoch_of(latest), self._local.removed.get(region, -1))

    def lived_epoch(self, region: int) -> int:
        """The newest epoch in which it may have numbered effects; -1 if it was never admitted."""
        return max(self.known_epoch(region), 0 if self.is_member(region) else -1)

    def is_over(self, replica_id: int) -> bool:
        """Whether it will tell nothing more: its region opened a later epoch, or was removed."""
        return self.is_former(replica_id) or self.was_removed(region_of(replica_id))

    def is_former(self, replica_id: int) -> bool:
        """Whether its region has opened a later epoch."""
        return replica_id < self._latest.get(region_of(replica_id), replica_id)

    def opened(self, regions: Iterable[int]) -> list[int]:
        """Their newest replica IDs, as far as these begin with an effect of their own."""
        return [
            replica_id
            for region in regions
            if (replica_id := self._latest.get(region)) is not None and epoch_of(replica_id)
        ]

    # -- removals -----------------------------------------------------------------------------

    def notice_removals(self) -> bool:
        """Remember what we had applied when a region was seen to be removed; whether one is new."""
        before = len(self._removals)
        for region, member in self._local.members.items():
            self._addresses.setdefault(region, (member.host, member.port))
        for region in self._local.removed:
            if not self.is_member(region):
                self._removals.setdefault(region, dict(self._local.vector))
            else:
                self._removals.pop(region, None)
                self._seen.discard(region)
        return len(self._removals) > before

    def removals(self) -> Mapping[int, Mapping[int, int]]:
        """Removed regions, and a vector that contains their removal."""
        return self._removals

    def to_look_for(self) -> list[Address]:
        """Where removed regions were that may not know it, and may have removed us likewise."""
        taken = {self.address(region) for region in self._local.members}
        return [
            address
            for region in self._removals
            if region not in self._seen
            and (address := self._addresses.get(region)) is not None
            and address not in taken
        ]

    def met(self, region: int) -> None:
        """A removed region goes by what we know, or is told when it dials us."""
        self._seen.add(region)
