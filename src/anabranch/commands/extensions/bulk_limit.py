"""FROM vector LIMIT n: how far a reader may read that takes so many entries at once.

The vector is JSON, ``[{"region": position, ...}, ...]`` with an object for each stream: everything
below these positions was read. The limit is shared among all regions of all streams in proportion
to their live entries from there on, so that none of them keeps a reader from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from anabranch.errors import CommandError
from anabranch.sharing import share
from anabranch.stream import by_position
from anabranch.stream.region_log import RegionLog

_NO_VECTOR: Final = (
    'ERR Invalid vector: it is JSON, [{"region": position, ...}, ...] with an object for each key'
)

_decode: Final = msgspec.json.Decoder(list[dict[str, int]]).decode

Logs = Mapping[bytes, tuple[int, RegionLog]]
"""The logs of a stream by the names of their regions, and where their positions begin."""


class Reach(NamedTuple):
    """The position up to which a reader may read in one log, and the entries that it finds."""

    until: int
    """The position behind the last entry to read."""
    until_id: int
    """The ID of the newest live entry below `until`; 0 if there is none."""
    left: int
    """Live entries from the reader's position on."""
    kept: int
    """Live entries below the position up to which others were trimmed."""
    before_id: int
    """The ID of the newest live entry below the reader's position; 0 if there is none."""


class Limit:
    """A vector, and the most entries between it and the answer."""

    def __init__(self, vector: bytes, entries: int) -> None:
        """Raises :class:`CommandError` for an invalid vector, and for a limit of 0."""
        try:
            self._cursors = _decode(vector)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise CommandError(_NO_VECTOR) from None
        if entries < 1:
            raise CommandError("ERR LIMIT must be a positive integer")
        self._entries = entries

    def reaches(self, streams: Sequence[Logs]) -> list[dict[bytes, Reach]]:
        """For each stream and region the position up to which a reader may read.

        In a log that the vector does not name, the reader begins at the first entry. A reader
        beyond the end of a log finds no entries.
        """
        if len(streams) != len(self._cursors):
            raise CommandError(_NO_VECTOR)
        starts: dict[tuple[int, bytes], int] = {}
        left: dict[tuple[int, bytes], int] = {}
        for index, logs in enumerate(streams):
            for name, (base, log) in logs.items():
                position = self._cursors[index].get(name.decode(), 0) - base
                starts[index, name] = position = min(max(position, 0), log.next_position)
                left[index, name] = log.length - by_position.live_below(log, position)
        shares = share(left, self._entries)
        found: list[dict[bytes, Reach]] = []
        for index, logs in enumerate(streams):
            found.append({})
            for name, (base, log) in logs.items():
                start, there = starts[index, name], left[index, name]
                until = by_position.position_after_live(log, start, shares[index, name])
                below = by_position.live_below(log, max(log.trimmed, start)) - (log.length - there)
                before, until_id = (
                    by_position.id_below(log, start),
                    by_position.id_below(log, until),
                )
                found[-1][name] = Reach(base + until, until_id, there, below, before)
        return found
