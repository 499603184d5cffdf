"""Cursor and options of SCAN and SSCAN."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from anabranch.engine import texts
from anabranch.engine.arguments import integer, options_of
from anabranch.errors import CommandError
from anabranch.pattern import compile_glob

_INVALID_CURSOR = "ERR invalid cursor"
_CURSOR_MAX = (1 << 64) - 1
_CURSOR_DIGITS_MAX = 20
_PAGE_DEFAULT = 10


class ScanOptions(NamedTuple):
    """What one page of an iteration contains."""

    page_size: int
    matches: Callable[[bytes], object] | None
    """Whether a name matches; None if all do."""
    type_name: bytes | None
    """The type that keys must have, lower case."""


def cursor(raw: bytes) -> int:
    """The cursor that a client sends back; raises unless it is a decimal of 64 bits."""
    if not raw.isdigit() or len(raw) > _CURSOR_DIGITS_MAX or int(raw) > _CURSOR_MAX:
        raise CommandError(_INVALID_CURSOR)
    return int(raw)


def scan_options(words: list[bytes], *, over_keys: bool) -> ScanOptions:
    """The words after the cursor; only an iteration over keys has TYPE."""
    count = _PAGE_DEFAULT
    matches = None
    type_name = None
    widths = {b"COUNT": 1, b"MATCH": 1, **({b"TYPE": 1} if over_keys else {})}
    for name, (raw,) in options_of(words, widths):
        if name == b"COUNT":
            count = integer(raw)
            if count < 1:
                raise CommandError(texts.SYNTAX)
        elif name == b"MATCH":
            matches = None if raw == b"*" else compile_glob(raw)
        else:
            type_name = raw.lower()
    return ScanOptions(count, matches, type_name)
