"""Measures how far regions are behind: for own effects in bytes and time, for a peer's in time.

A position in the log shows neither. So this module keeps samples: the end of an own batch with the
count of bytes up to there and the time of writing. The latest batches have a sample each, older
ones share a sample of two batches, then four, and so on. That makes about a hundred samples, and an
error of a few percent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from anabranch.compiling import mypyc_attr

SAMPLES_PER_LEVEL: Final = 64


@mypyc_attr(acyclic=True)
class _LagSample:
    def __init__(self, number: int, bytes_before: int, wall_ms: int) -> None:
        self.number = number
        self.bytes_before = bytes_before
        self.wall_ms = wall_ms
        """When the first effect of the sample was written."""


class SendLag:
    """Samples of own batches; what was written before the first sample is estimated."""

    def __init__(self, number: int) -> None:
        """``number`` is the last effect before this process began."""
        self.number = number
        self._first = number
        self._bytes = 0
        self._levels: list[deque[_LagSample]] = [
            deque()
        ]  # a sample of level n stands for 2 ** n batches

    def record(self, last: int, size: int, wall_ms: int) -> None:
        """Add a sample for a batch that was written."""
        sample = _LagSample(last, self._bytes, wall_ms)
        self._bytes += size
        self.number = last
        for level in self._levels:
            level.append(sample)
            if len(level) <= SAMPLES_PER_LEVEL:
                return
            older = level.popleft()
            sample = _LagSample(level.popleft().number, older.bytes_before, older.wall_ms)
        self._levels.append(deque([sample]))

    def after(self, confirmed: int, wall_ms: int) -> tuple[int, float]:
        """Bytes after a number, and seconds since the first effect after it was written."""
        sample = next(
            (sample for sample in self._oldest_first() if sample.number > confirmed), None
        )
        if sample is None:
            return 0, 0.0
        size = self._bytes - sample.bytes_before
        if confirmed < self._first:
            size += size * (self._first - confirmed) // max(1, self.number - self._first)
        return size, max(0.0, (wall_ms - sample.wall_ms) / 1000)

    def _oldest_first(self) -> Iterator[_LagSample]:
        for level in reversed(self._levels):
            yield from level


class ReceiveLag:
    """For how long effects of a peer have been known here without being applied.

    One effect is watched at a time, so the result is never too great, and grows as long as the
    watched effect does not arrive.
    """

    def __init__(self) -> None:
        self._replica_id = 0
        self._awaited = 0
        self._since_ms = 0.0

    def reported(self, replica_id: int, theirs: int, ours: int, now_ms: float) -> None:
        """The peer has ``theirs`` effects of its replica ID; ``ours`` of them are applied here."""
        if replica_id != self._replica_id or ours >= self._awaited:
            self._replica_id = replica_id
            self._awaited = theirs
            self._since_ms = now_ms

    def seconds(self, ours: int, now_ms: float) -> float:
        """The lag in seconds; 0 if the watched effect was applied."""
        return 0.0 if ours >= self._awaited else max(0.0, (now_ms - self._since_ms) / 1000)
