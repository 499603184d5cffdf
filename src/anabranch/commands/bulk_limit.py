"""FROM vector LIMIT n: how far a reader gets that takes so many entries at once.

The vector is JSON, ``[{"region": position, ...}, ...]`` with an object for each stream: everything
below these positions was read. What lies between there and the heads is shared out among all
regions of all streams, in proportion, so that none of them keeps a reader from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from anabranch.errors import CommandError
from anabranch.sharing import share

__all__ = ["Head", "Limit"]

_NO_VECTOR: Final = (
    'ERR Invalid vector: it is JSON, [{"region": position, ...}, ...] with an object for each key'
)

_decode: Final = msgspec.json.Decoder(list[dict[str, int]]).decode

Place = tuple[int, bytes]
"""Which stream, and the name of a region."""


class Head(NamedTuple):
    """Positions of a log: of its first live entry, and of the next to come."""

    first: int
    next: int


class Limit:
    """A vector, and how many entries may lie between it and what it is answered with."""

    def __init__(self, vector: bytes, entries: int) -> None:
        """Raises :class:`CommandError` for what is no vector, and for no entries."""
        try:
            self._cursors = _decode(vector)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CommandError(_NO_VECTOR) from None
        if entries < 1:
            raise CommandError("ERR LIMIT must be a positive integer")
        self._entries = entries

    def stops(self, heads: Sequence[Mapping[bytes, Head]]) -> list[dict[bytes, int]]:
        """For each stream and region the position up to which a reader may go."""
        if len(heads) != len(self._cursors):
            raise CommandError(_NO_VECTOR)
        starts = {
            (index, name): _start(self._cursors[index].get(name.decode()), head)
            for index, regions in enumerate(heads)
            for name, head in regions.items()
        }
        backlogs = {
            place: heads[place[0]][place[1]].next - start for place, start in starts.items()
        }
        shares = share(backlogs, self._entries)
        return [
            {name: starts[index, name] + shares[index, name] for name in regions}
            for index, regions in enumerate(heads)
        ]


def _start(cursor: int | None, head: Head) -> int:
    """Where a reader goes on.

    What it does not know it reads from the first entry on. So it does with a log that began anew
    since, or lost its end: positions below all entries or beyond the end are of another life.
    """
    if cursor is None or cursor > head.next:
        return head.first
    return max(cursor, head.first)
