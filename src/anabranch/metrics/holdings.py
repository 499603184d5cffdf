"""The bytes that a server holds beside its keys and values, by holder.

Who begins or ceases to hold something says by how many bytes that changes the sum; so a change
costs two additions, and the sum is there at any time. What changes too often or elsewhere (output
in the buffers of the system, the memory of Lua) is measured some times a second. Sizes are
estimates of the memory that the objects take, not of what the client has sent: a name of ten bytes
among many takes about four hundred.

docs/limits.md#what-maxmemory-counts lists all holders.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import Final

CLIENT_HOLDERS: Final = (
    "connections",
    "requests",
    "replies",
    "output",
    "names",
    "watched",
    "subscriptions",
    "waiting",
)
"""What a client holds as long as it is connected; INFO shows the sum as mem_clients_normal."""

HOLDERS: Final = (
    *CLIENT_HOLDERS,
    *("handshakes", "users", "logs", "scripts", "lua", "settings", "deadlines", "scheduled"),
    *("tombstones", "positions", "followed", "unwritten", "recent", "causal", "full-sync"),
)
"""All of them, in the order of the table in the docs."""

OBJECT_BYTES: Final = 16
"""What the allocator and the garbage collector add to an object, on average."""

NAME_BYTES: Final = getsizeof(b"") + OBJECT_BYTES // 2
"""Of a bytes object beside its contents."""

_LIST_BYTES: Final = getsizeof([])
_POINTER_BYTES: Final = getsizeof([None]) - _LIST_BYTES
DICT_BYTES: Final = getsizeof({b"": None})
SET_BYTES: Final = getsizeof({b""})
DICT_SLOT_BYTES: Final = 50
SET_SLOT_BYTES: Final = 60
"""A place in a table with many, and its share of the free ones: a table is half full on average."""

PAIR_BYTES: Final = getsizeof((0, b""))


def bytes_of(args: list[bytes]) -> int:
    """The memory of a list of bytes objects."""
    size = _LIST_BYTES + (NAME_BYTES + _POINTER_BYTES) * len(args)
    for arg in args:  # in machine code a tenth of what sum() takes
        size += len(arg)
    return size


class Holdings:
    """The bytes that clients make one server hold, by holder."""

    def __init__(self) -> None:
        self.by_holder = dict.fromkeys(HOLDERS, 0)
        self.replies = 0
        """Of the replies that wait for the disk: apart, because every write changes it."""
        self.measured: dict[str, Callable[[], int]] = {}
        """Holders that do not report changes."""
        self._total = 0

    @property
    def used_bytes(self) -> int:
        """The bytes of all holders together."""
        return self._total + self.replies

    @property
    def client_bytes(self) -> int:
        """What goes when all clients go."""
        return self.replies + sum([self.by_holder[holder] for holder in CLIENT_HOLDERS])

    def change(self, holder: str, size: int) -> None:
        """A holder holds so many bytes more, or less if negative."""
        self.by_holder[holder] += size
        self._total += size

    def measure(self) -> None:
        """Ask the holders that do not report changes."""
        for holder, size_of in self.measured.items():
            self.change(holder, size_of() - self.by_holder[holder])

    def rows(self) -> dict[str, int]:
        """The bytes by holder."""
        return {**self.by_holder, "replies": self.replies}
