"""Names that clients give themselves, restricted so that CLIENT LIST stays one line each."""

from __future__ import annotations

from typing import Final

from anabranch.errors import CommandError

_PRINTABLE: Final = bytes(range(0x21, 0x7F))


def checked_name(raw: bytes, what: str) -> bytes:
    """A name of printable ASCII without blanks, or empty; ``what`` begins the error text."""
    if not raw.translate(None, _PRINTABLE):
        return raw
    raise CommandError(f"ERR {what} cannot contain spaces, newlines or special characters.")
