"""Libraries of functions, which are part of the data of a server."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Library"]


class Library(Struct, frozen=True, eq=False, weakref=True):
    """The source of a library, and its registered functions.

    A function is its name, its description (empty for none) and its flags. A library that is
    loaded again is another one, even if its source is the same: its functions begin anew.
    """

    name: bytes
    code: bytes
    functions: list[tuple[bytes, bytes, list[bytes]]]
