"""Whether a region that lost its disk has got back the effects of its former epochs.

One member alone may know fewer of them than another, because it was down or cut off itself. So
every member is asked: a member with a link must have sent its first row, and all effects of former
epochs of this region that its row shows must be applied here. A member without a link is waited for
during :data:`ANSWER_MS`; after that it counts only while other members hear from it.
"""

from __future__ import annotations

from typing import Final

from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.keyspace.version_vectors import covers
from anabranch.replication.links import Links

ANSWER_MS: Final = 10_000.0
"""For so long a member without a link is waited for; as long as the longest pause of a dialler."""


class FormerEpochs:
    """The former epochs of this region, as far as other members have effects of them."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._without_link_ms: dict[int, float] = {}  # by member, since when

    def waits_for(self, now_ms: float) -> list[int]:
        """The members that have not answered, or have effects that are missing here.

        Call this with every tick: it also measures for how long members had no link.
        """
        waited_for = [each for each in self._links.membership.others() if self._waits(each, now_ms)]
        # There is no epoch before epoch 0.
        return waited_for if epoch_of(self._links.replica_id) else []

    def _waits(self, region: int, now_ms: float) -> bool:
        links = self._links
        session = links.session_of(region)
        if session is not None:
            self._without_link_ms[region] = now_ms
            if session.met is None:
                return True
        elif now_ms - self._without_link_ms.setdefault(region, now_ms) < ANSWER_MS:
            return True
        elif not links.rows.is_alive(region, now_ms):
            return False
        row = links.rows.rows.get(region)
        return row is not None and not covers(links.local.vector, self._former(row.applied))

    def _former(self, vector: dict[int, int]) -> dict[int, int]:
        """The part of a vector that former epochs of this region have written."""
        own, region = self._links.replica_id, self._links.region
        return {each: n for each, n in vector.items() if each < own and region_of(each) == region}
