"""Members of which nobody has heard for long, and which region is to remove them.

A region that stays away holds back what all others could forget. The others may agree to go on
without it, and must not do so on both sides of a partition: only a side with more than half of the
members decides, of two halves the one with the lowest number, and on that side its lowest number
issues the removal. Members that one hears of by way of others are on one's side.
"""

from __future__ import annotations

from typing import Final

from anabranch.replication.links import Links

__all__ = ["Absence"]

HEARD_MS: Final = 10_000.0
"""Who was heard of since then is on our side; rows come every second."""

EXPIRE_MS_MIN: Final = 60_000.0
"""A shorter time is none in which all of one side stop hearing of the other."""


class Absence:
    """Since when members are away, as this process has seen it."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._first_ms: dict[int, float] = {}  # since when we know of them, in this process

    def to_remove(self, now_ms: float, limit_ms: float) -> list[int]:
        """The members that we are to remove, having been away for longer than this."""
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
