"""The members of a set in a list, so that any of them can be drawn by its number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from sys import getsizeof

from anabranch.compiling import mypyc_attr


@mypyc_attr(acyclic=True)
class DrawOrder:
    """A set's members for random choices; it must be told of each change.

    A removed member stays in the list until a draw meets it, or until a third of the list was
    removed. So adding, removing and drawing take the same time in sets of all sizes.
    """

    __slots__ = ("_members", "_removed")

    def __init__(self, members: Iterable[bytes]) -> None:
        self._members = sorted(members)  # equal seeds draw the same
        self._removed: set[bytes] = set()

    @property
    def size_bytes(self) -> int:
        """Its memory, without the members themselves."""
        return getsizeof(self._members) + getsizeof(self._removed)

    def add(self, members: Iterable[bytes]) -> None:
        """Add members that the set does not have."""
        for member in members:
            if member in self._removed:
                self._removed.discard(member)
            else:
                self._members.append(member)

    def remove(self, members: Collection[bytes]) -> None:
        """Remove members that the set has."""
        self._removed.update(members)
        if len(self._removed) * 3 > len(self._members):
            removed = self._removed
            self._members = [each for each in self._members if each not in removed]
            self._removed = set()

    def draw(self, random_below: Callable[[int], int]) -> bytes:
        """A member; each of them is equally likely. There must be one."""
        while True:
            at = random_below(len(self._members))
            member = self._members[at]
            if member not in self._removed:
                return member
            self._removed.discard(member)
            last = self._members.pop()
            if last is not member:
                self._members[at] = last
