"""Libraries of functions, which are part of the data of a server."""

from __future__ import annotations

from msgspec import Struct

__all__ = ["Library"]


class Library(Struct, frozen=True):
    """The source of a library, and its registered functions.

    A function is its name, its description (empty for none) and its flags.
    """

    name: bytes
    code: bytes
    functions: list[tuple[bytes, bytes, list[bytes]]]
