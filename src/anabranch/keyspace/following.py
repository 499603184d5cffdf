"""Which keys match the patterns of readers that follow all streams of a pattern.

The names of a pattern are looked up once, in steps; from then on each new stream is compared with
the patterns that are in use. A name stays when its key is deleted: whoever reads the names drops
those that are not streams any more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from sys import getsizeof
from typing import Final

from anabranch.keyspace.scan import KeyOrder
from anabranch.keyspace.waiter import Waiter
from anabranch.pattern import compile_glob, matcher_bytes

PATTERNS_MAX: Final = 64
"""Patterns of a database whose names are kept: those that were used last, and those that readers
wait for."""

_PAGE: Final = 1000
"""Keys that are compared in one step: well under a millisecond."""


class FollowedPattern:
    """A pattern, and the names that match it."""

    __slots__ = ("_matches", "_steps", "keys", "waiters")

    def __init__(self, glob: bytes, order: KeyOrder) -> None:
        """``order`` has the keys that exist. CommandError if the pattern is too long."""
        self._matches = compile_glob(glob)
        self.keys: dict[bytes, None] = {}
        """The names; all of them when :meth:`grow` says so."""
        self.waiters: dict[Waiter, None] = {}
        """Those who wait for an entry of one of these streams."""
        self._steps: Iterator[None] | None = self._looking(order)

    def grow(self) -> bool:
        """Compare some of the keys that there were at first; returns whether others are left."""
        if self._steps is not None and next(self._steps, self) is self:
            self._steps = None
        return self._steps is not None

    def _looking(self, order: KeyOrder) -> Iterator[None]:
        changes = order.changes
        while not order.is_settled_upto(changes):
            order.settle()
            yield
        for page in order.pages(_PAGE):
            for key in page:
                self.added(key)
            yield

    def added(self, key: bytes) -> bool:
        """A key exists; returns whether its name matches, and is new."""
        if key in self.keys or not self._matches(key):
            return False
        self.keys[key] = None
        return True

    @property
    def used_bytes(self) -> int:
        """About how much memory it takes; the database has the names anyway."""
        return matcher_bytes(self._matches) + getsizeof(self.keys)


class Following:
    """The patterns of one database that are in use."""

    def __init__(self) -> None:
        self.patterns: OrderedDict[bytes, FollowedPattern] = OrderedDict()
        """By their text; the one that was used last is the last one."""
        self.wait: Callable[[Waiter, Iterable[bytes]], None] = _nobody_waits
        """Lets a waiter wait for more keys."""

    def of(self, glob: bytes, order: KeyOrder) -> FollowedPattern:
        """The names of a pattern, which is kept from now on."""
        patterns = self.patterns
        pattern = patterns.get(glob)
        if pattern is None:
            pattern = patterns[glob] = FollowedPattern(glob, order)
            if len(patterns) > PATTERNS_MAX:
                for each in patterns:
                    if not patterns[each].waiters:
                        del patterns[each]
                        break
        else:
            patterns.move_to_end(glob)
        return pattern

    def added(self, key: bytes) -> None:
        """A stream has been bound to a key."""
        for pattern in self.patterns.values():
            if pattern.added(key):
                for waiter in pattern.waiters:
                    self.wait(waiter, (key,))

    def renew(self, order: KeyOrder) -> None:
        """The database has other keys now: look at all of them, at once if a reader waits."""
        for glob, pattern in list(self.patterns.items()):
            if not pattern.waiters:
                del self.patterns[glob]
                continue
            renewed = self.patterns[glob] = FollowedPattern(glob, order)
            renewed.waiters = pattern.waiters
            while renewed.grow():
                pass
            for waiter in renewed.waiters:
                self.wait(waiter, renewed.keys)

    @property
    def used_bytes(self) -> int:
        """About how much memory this takes."""
        return sum([each.used_bytes for each in self.patterns.values()])


def _nobody_waits(_waiter: Waiter, _keys: Iterable[bytes]) -> None:
    """There are no waiters yet."""
