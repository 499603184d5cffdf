"""The small values beside streams that tools and tests expect: string, list and set."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from collections.abc import Set as AbstractSet
from io import BytesIO
from itertools import islice
from sys import getsizeof
from typing import ClassVar, Final

from anabranch.compiling import mypyc_attr
from anabranch.stream.elements import LIST, SET, Items
from anabranch.stream.shared import NOTHING_SHARED, Shared
from anabranch.stream.stream import Stream

_SORTED_MAX: Final = 1000
"""Larger sets have no order."""

PLAIN: Final = 0
TEXT: Final = 1
RAW: Final = 2

_GROWS_FROM_BYTES: Final = 4096
"""A shorter string is made anew when it is overwritten: that takes less memory than a buffer."""


@mypyc_attr(acyclic=True)
class StringValue:
    """A binary-safe string.

    A long one is overwritten in place. ``BytesIO`` does that without a copy, unless somebody has
    the present ``data``: then it copies before it writes, so what somebody has never changes.
    """

    type_name: ClassVar = b"string"

    def __init__(self, data: bytes, form: int = PLAIN, shared: Shared = NOTHING_SHARED) -> None:
        self._data = data
        self._buffer: BytesIO | None = None  # has the contents instead, once it was overwritten
        self.form = form
        """What Redis would keep: an ``int`` if possible (PLAIN), a text, a raw string.

        Short texts are ``embstr``. Only OBJECT ENCODING shows it.
        """
        self.shared = shared
        """Where several regions write, what they share of the key: the string follows from it."""
        self.accessed_ms = 0
        self.counted_bytes = -1  # see accounting.py
        self.is_due = False

    @property
    def data(self) -> bytes:
        """The contents. Keep them no longer than needed: a change copies them meanwhile."""
        return self._data if self._buffer is None else self._buffer.getvalue()

    @property
    def size(self) -> int:
        """How many bytes the string has."""
        return len(self._data) if self._buffer is None else self._buffer.seek(0, 2)

    @property
    def content_bytes(self) -> int:
        """The memory of the contents."""
        return getsizeof(self._data) if self._buffer is None else getsizeof(self._buffer)

    def replace(self, data: bytes) -> None:
        """Have other contents."""
        self._data, self._buffer = data, None

    def overwrite(self, at: int, data: bytes) -> None:
        """Replace bytes from a position on; zeros fill a gap before it."""
        self.form = RAW
        buffer = self._buffer
        if buffer is None:
            end = at + len(data)
            if max(len(self._data), end) < _GROWS_FROM_BYTES:
                self._data = self._data[:at].ljust(at, b"\0") + data + self._data[end:]
                return
            buffer = self._buffer = BytesIO(self._data)
            self._data = b""  # the buffer must be the only one that has it
        buffer.seek(at)
        buffer.write(data)


@mypyc_attr(acyclic=True)
class ListValue:
    """A list; a key whose list becomes empty is removed, as in Redis."""

    type_name: ClassVar = b"list"

    def __init__(self, items: Iterable[bytes] = (), shared: Shared = NOTHING_SHARED) -> None:
        is_shared = LIST in shared.elements
        self.items: deque[bytes] | Items = (
            Items(shared.elements[LIST]) if is_shared else deque(items)
        )
        """Where several regions write, a view of what they share of the key."""
        self.shared = shared
        self.accessed_ms = 0
        self.counted_bytes = -1  # see accounting.py
        self.is_due = False

    def part(self, first: int, end: int) -> list[bytes]:
        """The items from one index up to another, which is excluded."""
        if isinstance(self.items, Items):
            return self.items.part(first, end)
        return list(islice(self.items, first, end))


@mypyc_attr(acyclic=True)
class SetValue:
    """An unordered set. ``order`` is there for random choices, after the first one."""

    type_name: ClassVar = b"set"

    def __init__(self, members: Iterable[bytes] = (), shared: Shared = NOTHING_SHARED) -> None:
        is_shared = SET in shared.elements
        self.members: AbstractSet[bytes] = (
            shared.elements[SET].puts.keys() if is_shared else set(members)
        )
        """Where several regions write, a view of what they share of the key."""
        self.shared = shared
        self.order: DrawOrder | None = None
        self.accessed_ms = 0
        self.counted_bytes = -1  # see accounting.py
        self.is_due = False


def string_values(data: list[bytes]) -> list[StringValue]:
    """Several strings."""
    return [StringValue(each) for each in data]


Value = Stream | StringValue | ListValue | SetValue


def in_order(members: Collection[bytes]) -> list[bytes]:
    """The members of a set, always in the same order, so that equal seeds draw the same.

    The order of a large set is any: Redis has none, and sorting a million takes a second.
    """
    return sorted(members) if len(members) <= _SORTED_MAX else list(members)


@mypyc_attr(acyclic=True)
class DrawOrder:
    """A set's members for random choices; it must be told of each change.

    A removed member stays in the list until a draw meets it, or until a third of the list was
    removed. So adding, removing and drawing take the same time in sets of all sizes.
    """

    def __init__(self, members: Collection[bytes]) -> None:
        self._members = in_order(members)
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
