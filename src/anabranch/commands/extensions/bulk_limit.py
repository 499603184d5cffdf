"""FROM vector LIMIT n: how far a reader gets that takes so many entries at once.

The vector is JSON, ``[{"region": position, ...}, ...]`` with an object for each stream: everything
below these positions was read. The live entries from there on are shared out among all regions of
all streams, in proportion, so that none of them keeps a reader from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from anabranch.errors import CommandError
from anabranch.sharing import share
from anabranch.stream.region_log import RegionLog

__all__ = ["Limit", "Reach"]

_NO_VECTOR: Final = (
    'ERR Invalid vector: it is JSON, [{"region": position, ...}, ...] with an object for each key'
)

_decode: Final = msgspec.json.Decoder(list[dict[str, int]]).decode

Logs = Mapping[bytes, tuple[int, RegionLog]]
"""The logs of a stream by the names of their regions, and where their positions begin."""


class Reach(NamedTuple):
    """How far a reader gets in one log, and what is there for it."""

    until: int
    """It reads up to below this position."""
    until_id: int
    """Of the newest live entry below `until`; 0 if there is none."""
    left: int
    """Live entries from the reader's position on."""
    kept: int
    """Those of them below the position up to which entries were trimmed."""
    before_id: int
    """Of the newest live entry below the reader's position; 0 if there is none."""


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

    def reaches(self, streams: Sequence[Logs]) -> list[dict[bytes, Reach]]:
        """For each stream and region how far a reader gets.

        A reader begins at the first entry of a log that it does not know. In front of a reader
        that is beyond the end of a log there is nothing.
        """
        if len(streams) != len(self._cursors):
            raise CommandError(_NO_VECTOR)
        starts: dict[tuple[int, bytes], int] = {}
        left: dict[tuple[int, bytes], int] = {}
        for index, logs in enumerate(streams):
            for name, (base, log) in logs.items():
                position = self._cursors[index].get(name.decode(), 0) - base
                starts[index, name] = position = min(max(position, 0), log.next_position)
                left[index, name] = log.length - log.live_below(position)
        shares = share(left, self._entries)
        found: list[dict[bytes, Reach]] = []
        for index, logs in enumerate(streams):
            found.append({})
            for name, (base, log) in logs.items():
                start, there = starts[index, name], left[index, name]
                until = log.position_behind_live(start, shares[index, name])
                below = log.live_below(max(log.trimmed, start)) - (log.length - there)
                before, until_id = log.id_below(start), log.id_below(until)
                found[-1][name] = Reach(base + until, until_id, there, below, before)
        return found
