"""Type bytes of values, by the word that the command TYPE has for them.

A value of one kind has been written in many encodings; each has a byte of its own.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

MODULE_PRELIMINARY: Final = 6
"""Values of modules before Redis 4.0 was finished: only the module itself knows where one ends."""
MODULE: Final = 7

KINDS: Final = {
    0: "string",
    1: "list",
    2: "set",
    3: "zset",  # scores as text
    4: "hash",
    5: "zset",
    MODULE_PRELIMINARY: "module",
    MODULE: "module",
    9: "hash",  # zipmap
    10: "list",  # ziplist
    11: "set",  # intset
    12: "zset",  # ziplist
    13: "hash",  # ziplist
    14: "list",  # quicklist of ziplists
    15: "stream",
    16: "hash",  # listpack
    17: "zset",  # listpack
    18: "list",  # quicklist of listpacks
    19: "stream",
    20: "set",  # listpack
    21: "stream",
    22: "hash",  # fields that expire; a release candidate's form
    23: "hash",  # the same as listpack
    24: "hash",  # fields that expire
    25: "hash",  # the same as listpack
    26: "stream",
    27: "stream",
    28: "array",
}

SUPPORTED: Final = frozenset(("string", "list", "set", "stream"))
"""The kinds whose values can be decoded."""

_NAME_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_NAME_LENGTH: Final = 9
_VERSION_BITS: Final = 10


def module_name(module_id: int) -> str:
    """The name of a module's type: nine characters of six bits each, above ten bits of version."""
    bits = module_id >> _VERSION_BITS
    indexes = [bits >> 6 * place & 0x3F for place in reversed(range(_NAME_LENGTH))]
    return "".join(_NAME_ALPHABET[index] for index in indexes)


# -- the five generations of stream payloads and what each added ------------------------------


class StreamType(IntEnum):
    """The type byte of a stream value; later ones hold all that earlier ones hold."""

    V1 = 15  # Redis 5: entries and groups
    V2 = 19  # Redis 7.0 (RDB 10): counters
    V3 = 21  # Redis 7.2 (RDB 11): active time of consumers
    V4 = 26  # Redis 8.6 (RDB 13): idempotent producers
    V5 = 27  # Redis 8.8 (RDB 14): NACKed entries

    @property
    def has_counters(self) -> bool:
        """First ID, highest deleted ID, entries added, entries read."""
        return self >= StreamType.V2

    @property
    def has_active_time(self) -> bool:
        """A consumer's last successful read, beside its last attempt."""
        return self >= StreamType.V3

    @property
    def has_producers(self) -> bool:
        """Settings and memory of idempotent production."""
        return self >= StreamType.V4

    @property
    def has_nacked(self) -> bool:
        """Pending entries without owner, in order."""
        return self >= StreamType.V5
