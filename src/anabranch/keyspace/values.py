"""The small values beside streams that tools and tests expect: string, list and set."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from anabranch.compiling import mypyc_attr
from anabranch.keyspace.draw_order import DrawOrder
from anabranch.stream.shared import NOTHING_SHARED
from anabranch.stream.stream import Stream

__all__ = ["ListValue", "SetValue", "StringValue", "Value", "string_values"]


@mypyc_attr(acyclic=True)
class StringValue:
    """A binary-safe string."""

    __slots__ = ("accessed_ms", "counted_bytes", "data", "is_due")
    type_name: ClassVar = b"string"
    shared: ClassVar = NOTHING_SHARED  # a region alone has these

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.accessed_ms = 0
        self.counted_bytes = -1  # see accounting.py
        self.is_due = False


@mypyc_attr(acyclic=True)
class ListValue:
    """A list; a key whose list becomes empty is removed, as in Redis."""

    __slots__ = ("accessed_ms", "counted_bytes", "is_due", "items")
    type_name: ClassVar = b"list"
    shared: ClassVar = NOTHING_SHARED  # a region alone has these

    def __init__(self, items: Iterable[bytes] = ()) -> None:
        self.items: deque[bytes] = deque(items)
        self.accessed_ms = 0
        self.counted_bytes = -1  # see accounting.py
        self.is_due = False


@mypyc_attr(acyclic=True)
class SetValue:
    """An unordered set. ``order`` is there for random choices, after the first one."""

    __slots__ = ("accessed_ms", "counted_bytes", "is_due", "members", "order")
    type_name: ClassVar = b"set"
    shared: ClassVar = NOTHING_SHARED  # a region alone has these

    def __init__(self, members: Iterable[bytes] = ()) -> None:
        self.members: set[bytes] = set(members)
        self.order: DrawOrder | None = None
        self.accessed_ms = 0
        self.counted_bytes = -1  # see accounting.py
        self.is_due = False


def string_values(data: list[bytes]) -> list[StringValue]:
    """Several strings."""
    return [StringValue(each) for each in data]


Value = Stream | StringValue | ListValue | SetValue
