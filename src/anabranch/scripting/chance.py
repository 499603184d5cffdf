"""The random numbers of scripts: those of Redis, the same in every run."""

from __future__ import annotations

from math import floor
from typing import Final

from anabranch.scripting.failures import ArgumentError, number_of

_FACTOR: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1
_BOUND: Final = (1 << 31) - 1
_WHOLE_MAX: Final = 1 << 31
_SEED_MAX: Final = 1 << 63


class Drand48:
    """The generator of lrand48()."""

    def __init__(self) -> None:
        self._state = 0
        self.seed(0)

    def seed(self, *args: object) -> tuple[()]:
        """math.randomseed(number): begin a sequence."""
        number = number_of(args, 1)
        whole = int(number) if abs(number) < _SEED_MAX else 0
        self._state = ((whole & 0xFFFFFFFF) << 16) + 0x330E
        return ()

    def next(self) -> float:
        """The next random number, at least 0 and below 1."""
        self._state = (self._state * _FACTOR + 0xB) & _MASK
        return (self._state >> 17) % _BOUND / _BOUND

    def random(self, *args: object) -> float:
        """math.random([[low,] high]): whole numbers within bounds, if there are any."""
        if not args:
            return self.next()
        if len(args) > 2:
            raise ValueError("wrong number of arguments")
        low = _whole(number_of(args, 1)) if len(args) == 2 else 1
        high = _whole(number_of(args, len(args)))
        if low > high:
            raise ArgumentError(len(args), "interval is empty")
        return floor(self.next() * (high - low + 1)) + low


def _whole(number: float) -> int:
    return int(number) if abs(number) < _WHOLE_MAX else 0
