"""Libraries of functions, which are part of the data of a server."""

from __future__ import annotations

from sys import getsizeof
from typing import Final

from msgspec import Struct

from anabranch.metrics.holdings import bytes_of

LIBRARY_BYTES: Final = 500
"""What a library takes beside its texts."""


class Library(Struct, frozen=True, eq=False, weakref=True):
    """The source of a library, and its registered functions.

    A function is its name, its description (empty for none) and its flags. A library that is
    loaded again is another one, even if its source is the same: its functions begin anew.
    """

    name: bytes
    code: bytes
    functions: list[tuple[bytes, bytes, list[bytes]]]

    @property
    def used_bytes(self) -> int:
        """The memory that it takes, without the memory of Lua."""
        size = LIBRARY_BYTES + len(self.name) + len(self.code)
        for name, about, flags in self.functions:
            size += getsizeof((name, about, flags)) + bytes_of([name, about, *flags])
        return size
