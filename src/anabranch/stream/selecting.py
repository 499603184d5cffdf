r"""Which entries have a field with a value: looked for in blocks, without reading each entry.

In a fragment a field with its value is ``$5\r\nfield\r\n$5\r\nvalue\r\n``. These bytes may also be
inside of a value, so whatever is found is checked by going through the fields of its entry. Bytes
that are not found need no look at an entry. What belongs together in a block that was written as
columns is compared there (:mod:`anabranch.stream.columnar`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from anabranch.compiling import mypyc_attr
from anabranch.stream.scanning import number_at

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

_LONG_BYTES: Final = 4096
"""In longer entries, going from field to field costs less than looking at each byte."""


@mypyc_attr(acyclic=True)
class Where:
    """A condition: some field of this name has this value, or one that begins so."""

    __slots__ = ("_needle", "field", "is_prefix", "value")

    def __init__(self, field: bytes, value: bytes, *, is_prefix: bool) -> None:
        self.field = field
        self.value = value
        self.is_prefix = is_prefix
        name = b"$%d\r\n%b\r\n$" % (len(field), field)
        if not is_prefix:
            self._needle = b"%b%d\r\n%b\r\n" % (name, len(value), value)
        elif value:
            self._needle = b"\r\n" + value
        else:
            self._needle = name

    def holds_for(self, data: bytes, at: i64) -> bool:
        """Whether the condition holds for the entry whose fragment begins at this place."""
        size, at = number_at(data, at + len(b"*2\r\n$"))
        words, at = number_at(data, at + size + len(b"\r\n*"))
        name_size: i64 = len(self.field)
        value_size: i64 = len(self.value)
        while words:
            size, at = number_at(data, at + 1)
            is_it = size == name_size and data[at : at + size] == self.field
            size, at = number_at(data, at + size + len(b"\r\n$"))
            if (
                is_it
                and (size >= value_size if self.is_prefix else size == value_size)
                and data[at : at + value_size] == self.value
            ):
                return True
            at += size + len(b"\r\n")
            words -= 2
        return False

    def among_parts(self, parts: list[bytes], low: int, high: int) -> list[int]:
        """The indexes in ``[low, high)`` of fragments for which it holds."""
        found: list[int] = []
        needle = self._needle
        for index in range(low, high):
            part = parts[index]
            if (len(part) > _LONG_BYTES or needle in part) and self.holds_for(part, 0):
                found.append(index)
        return found

    def among(self, data: bytes, ends: array[int], low: int, high: int) -> list[int]:
        """The same for the fragments that end at ``ends`` in ``data``."""
        found: list[int] = []
        begin = ends[low - 1] if low else 0
        end = ends[high - 1]
        if end - begin > _LONG_BYTES * (high - low):
            for index in range(low, high):
                if self.holds_for(data, begin):
                    found.append(index)
                begin = ends[index]
            return found
        needle = self._needle
        at = data.find(needle, begin, end)
        while at >= 0:
            low = bisect_right(ends, at, low, high)
            if self.holds_for(data, ends[low - 1] if low else 0):
                found.append(low)
            at = data.find(needle, ends[low], end)
            low += 1
        return found
