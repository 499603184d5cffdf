"""Separators of configuration text: those that Redis has, and no others.

``str.split`` and ``str.splitlines`` know many more (U+001F, U+0085, U+2003, U+2028 ...). Where one
of these stands inside an ACL rule, splitting there would make several rules out of one.
"""

from __future__ import annotations

import re
from typing import Final

BLANKS: Final = " \t\n\v\f\r"

_BLANKS: Final = re.compile(f"[{BLANKS}]+")


def split_blanks(text: str) -> list[str]:
    """The words of a text, without quotes and escapes."""
    return [word for word in _BLANKS.split(text) if word]


def split_lines(text: str) -> list[str]:
    """The lines of a file; a carriage return before the end of a line stays in it."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines
