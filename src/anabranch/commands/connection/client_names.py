"""Names that clients give themselves, restricted so that CLIENT LIST stays one line each."""

from __future__ import annotations

from anabranch.errors import CommandError

__all__ = ["checked_name"]


def checked_name(raw: bytes, what: str) -> bytes:
    """A name of printable ASCII without blanks, or empty; ``what`` begins the error text."""
    if all(0x21 <= code <= 0x7E for code in raw):
        return raw
    raise CommandError(f"ERR {what} cannot contain spaces, newlines or special characters.")
