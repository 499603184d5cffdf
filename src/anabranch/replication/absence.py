"""Members that are absent for long, and the decision which region removes them.

An absent member keeps all others from forgetting tombstones and tags. The others may remove it, but
not on both sides of a partition: only the side with more than half of the members decides. Of two
equal halves the side with the lowest region number decides. On the deciding side the region with
the lowest number issues the removal. Members that are heard of through others belong to the same
side.
"""

from __future__ import annotations

from typing import Final

from anabranch.replication.links import Links

HEARD_MS: Final = 10_000.0
"""A member that was heard of within this time is on our side; rows come every second."""

EXPIRE_MS_MIN: Final = 60_000.0
"""The least time of absence: within less, not all regions of a side notice a partition."""


class AbsenceLimit:
    """Since when members are absent, as this process has observed it."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._first_ms: dict[int, float] = {}  # since when this process knows them

    def to_remove(self, now_ms: float, limit_ms: float) -> list[int]:
        """The members that this region must remove because they were absent for longer."""
        links = self._links
        others = links.membership.others()
        if not limit_ms or not links.membership.is_member(links.region):
            return []
        away_ms = {
            region: now_ms
            - links.rows.heard_ms.get(region, self._first_ms.setdefault(region, now_ms))
            for region in others
        }
        side = [links.region, *(each for each in others if away_ms[each] <= HEARD_MS)]
        everybody = [links.region, *others]
        decides = 2 * len(side) > len(everybody) or (
            2 * len(side) == len(everybody) and min(everybody) in side
        )
        if not decides or min(side) != links.region:
            return []
        limit_ms = max(limit_ms, EXPIRE_MS_MIN)
        return [region for region in others if away_ms[region] > limit_ms]
