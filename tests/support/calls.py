"""How much work something is: the interpreter counts the calls."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

__all__ = ["calls_of"]


def calls_of(act: Callable[[], object]) -> int:
    """How many functions are called, of Python and of C; machine code calls nothing that counts."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count
