"""The random numbers of scripts: those of Redis, the same in every run."""

from __future__ import annotations

from typing import Final

__all__ = ["Drand48"]

_FACTOR: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1
_BOUND: Final = (1 << 31) - 1


class Drand48:
    """The generator of lrand48()."""

    def __init__(self) -> None:
        self._state = 0
        self.seed(0)

    def seed(self, value: float) -> None:
        """Begin a sequence."""
        self._state = ((int(value) & 0xFFFFFFFF) << 16) + 0x330E

    def next(self) -> float:
        """At least 0 and below 1."""
        self._state = (self._state * _FACTOR + 0xB) & _MASK
        return (self._state >> 17) % _BOUND / _BOUND
