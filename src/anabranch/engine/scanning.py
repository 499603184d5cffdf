"""Cursor and options of SCAN and SSCAN."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from anabranch.engine import texts
from anabranch.engine.arguments import integer
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
    for index in range(0, len(words), 2):
        word = words[index].upper()
        if index + 1 == len(words):
            raise CommandError(texts.SYNTAX)
        raw = words[index + 1]
        if word == b"COUNT":
            count = integer(raw)
            if count < 1:
                raise CommandError(texts.SYNTAX)
        elif word == b"MATCH":
            matches = None if raw == b"*" else compile_glob(raw)
        elif word == b"TYPE" and over_keys:
            type_name = raw.lower()
        else:
            raise CommandError(texts.SYNTAX)
    return ScanOptions(count, matches, type_name)
