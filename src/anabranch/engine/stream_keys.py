"""Where the keys of XREAD, XREADGROUP and AB.READ begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OPTION_WIDTH: Final = {
    b"COUNT": 2,
    b"MAXCOUNT": 2,
    b"MAXSIZE": 2,
    b"BLOCK": 2,
    b"CLAIM": 2,
    b"GROUP": 3,
}
"""The count of words of each option, its name included; one if it is not listed."""


def streams_at(args: Sequence[bytes]) -> int:
    """The index of the first key, by the syntax of the options; 0 without STREAMS.

    A group or a consumer may be called STREAMS, so options are stepped over, not searched.
    """
    index = 1
    while index < len(args):
        word = args[index].upper()
        if word == b"STREAMS":
            return index + 1 if index + 1 < len(args) else 0
        index += OPTION_WIDTH.get(word, 1)
    return 0
