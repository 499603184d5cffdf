"""Libraries of functions."""

from __future__ import annotations

from anabranch.effects.kinds.base import Effect


class SetLibrary(Effect, tag=63):
    """A library was loaded or replaced: its name, its source, and what it has registered.

    A function is its name, its description (empty for none) and its flags.
    """

    local = True

    name: bytes
    code: bytes
    functions: list[tuple[bytes, bytes, list[bytes]]]


class DropLibrary(Effect, tag=64):
    """Removes a library."""

    local = True

    name: bytes
