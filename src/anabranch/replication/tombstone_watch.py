"""Reports for how long tombstones are kept, and when there are too many of them.

Tombstones use memory in every region until the last member has them on its disk. So an operator
must know when a member that stays away makes the others keep very many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from anabranch.keyspace.unstable_tombstones import UnstableTombstones
from anabranch.keyspace.version_vectors import covers_dot

AGAIN_MS: Final = 60_000.0
"""The interval between two reports of too many tombstones."""


class TombstoneWatch:
    """Observes the unstable tombstones of a region. Times are in ms."""

    def __init__(self) -> None:
        self._awaited: dict[
            int, int
        ] = {}  # what was applied when the oldest tombstone was first observed
        self._since_ms = 0.0
        self._reported_ms: float | None = (
            None  # the last report of too many, None if there are not too many
        )

    def observe(
        self,
        tombstones: UnstableTombstones,
        vector: Mapping[int, int],
        now_ms: float,
        most: int,
        report: Callable[[str, int], None],
    ) -> None:
        """Observe the tombstones of a region that has applied ``vector``.

        Calls ``report`` when there are more than ``most`` (0: no limit), once a minute while that
        lasts, and once when there are at most nine tenths of ``most`` again.
        """
        oldest = tombstones.oldest
        if oldest is None or not covers_dot(self._awaited, oldest):
            self._awaited, self._since_ms = dict(vector), now_ms
        if most and len(tombstones) > most:
            if self._reported_ms is None or now_ms - self._reported_ms >= AGAIN_MS:
                self._reported_ms = now_ms
                report("many_marks", len(tombstones))
        elif self._reported_ms is not None and (not most or len(tombstones) * 10 <= most * 9):
            self._reported_ms = None
            report("fewer_marks", len(tombstones))

    def oldest_ms(self, tombstones: UnstableTombstones, now_ms: float) -> float:
        """The age of the oldest tombstone since this process first observed it."""
        return now_ms - self._since_ms if tombstones else 0.0
