"""The status rows of all regions, and the watermark that follows from them.

A status row reports the version vectors of a region: what it has applied, and what is on its disk.
The watermark is the version vector of what every member has on its disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.keyspace.replica import region_of
from anabranch.keyspace.version_vectors import covers
from anabranch.replication.frames import StatusRow
from anabranch.replication.membership import Membership

ALIVE_MS: Final = 3000
"""Three heartbeats: a region that was heard of since then, by whatever way, is alive."""


class StatusTable:
    """The newest row of every other region, and its newest row that the watermark may use."""

    def __init__(self) -> None:
        self.rows: dict[int, StatusRow] = {}
        self.heard_ms: dict[int, float] = {}
        """When the newest row arrived, directly or by way of another region."""
        self._vouched: dict[int, Mapping[int, int]] = {}
        # the durable vectors of the newest rows that the watermark may use

    def update(self, row: StatusRow, now_ms: float) -> None:
        """Take over a row if it is newer."""
        known = self.rows.get(row.region)
        if known is not None and (row.replica_id, row.version) <= (known.replica_id, known.version):
            return
        self.rows[row.region] = row
        self.heard_ms[row.region] = now_ms

    def is_alive(self, region: int, now_ms: float) -> bool:
        """Whether a new row of a region arrived within :data:`ALIVE_MS`."""
        heard_ms = self.heard_ms.get(region)
        return heard_ms is not None and now_ms - heard_ms <= ALIVE_MS

    def watermark(
        self,
        vector: Mapping[int, int],
        durable: Mapping[int, int],
        membership: Membership,
    ) -> dict[int, int]:
        """What every member certainly has on its disk; empty if that is unknown.

        A row may be used if (a) everything that its region has is applied here, so that no effect
        concurrent to the row's durable effects can still arrive, and (b) the effects that opened
        the newest epochs are on its disk: a region that has them accepts no more effects of former
        epochs, of which their own region, having lost its newest effects, does not know all. A
        region that has the removal of another one accepts no more of its effects either.

        A removed region counts until a row of each other region that may be used has its removal:
        before it has the removal on its disk, a member may still accept new effects from it.
        """
        waited_for = [*membership.others(), *self._removed_waited_for(durable, membership)]
        beginnings = membership.opened([membership.region, *waited_for])
        removals = membership.removals()
        for region, row in self.rows.items():
            if _has_begun(row.durable, beginnings, removals) and covers(vector, row.have):
                self._vouched[region] = row.durable
        vouched = [durable]
        for region in waited_for:
            known = self._vouched.get(region)
            if known is None or not _has_begun(known, beginnings, removals):
                return {}
            vouched.append(known)
        if not _has_begun(durable, beginnings, removals):
            return {}
        watermark = {o: min(known.get(o, 0) for known in vouched) for o in durable}
        return {replica_id: number for replica_id, number in watermark.items() if number}

    def _removed_waited_for(
        self, durable: Mapping[int, int], membership: Membership
    ) -> dict[int, list[int]]:
        """Removed regions that still count, and the members that may lack the removal."""
        on_disk = {**self._vouched, membership.region: durable}
        members = [membership.region, *membership.others()]
        lacking = {
            region: [
                each
                for each in members
                if (known := on_disk.get(each)) is None or not covers(known, removal)
            ]
            for region, removal in membership.removals().items()
        }
        return {region: some for region, some in lacking.items() if some}

    def holding_back(
        self,
        effects: Mapping[int, int],
        durable: Mapping[int, int],
        membership: Membership,
    ) -> list[int]:
        """The members, maybe this one, that keep these effects above the :meth:`watermark`."""
        removed = self._removed_waited_for(durable, membership)
        others = membership.others()
        beginnings = membership.opened([membership.region, *others, *removed])

        def lacks(known: Mapping[int, int] | None) -> bool:
            return known is None or not (
                covers(known, effects) and _has_begun(known, beginnings, membership.removals())
            )

        found = {region for region in others if lacks(self._vouched.get(region))}
        if lacks(durable):
            found.add(membership.region)
        for region, members in removed.items():
            if lacks(self._vouched.get(region)):
                found.update(members)
        return sorted(found)


def _has_begun(
    vector: Mapping[int, int],
    replica_ids: Iterable[int],
    removals: Mapping[int, Mapping[int, int]],
) -> bool:
    """Whether a region that has this on its disk has begun with these epochs.

    No member gets the beginning of an epoch that a removed region opened: the removal counts.
    """
    for replica_id in replica_ids:
        if vector.get(replica_id, 0) < 1:
            removal = removals.get(region_of(replica_id))
            if removal is None or not covers(vector, removal):
                return False
    return True
