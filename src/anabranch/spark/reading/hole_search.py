"""Finds the holes of logs by counting: where a part has no more of them than is known, none is new.

Counting live entries is cheap for the server (AB.OFFSETS), so the parts with new holes are halved
often and quickly, and only the last small parts are read to see which positions they have. Without
new deletions it is one command; at most it costs what reading the log costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from anabranch.spark.connection.client import ServerClient, stream_key
from anabranch.spark.decoding.exports import parse_export
from anabranch.spark.reading.holes import Holes, Spans, joined, size_of, within
from anabranch.spark.reading.offsets import LogBounds, LogCursor, Vector, place_of

_PIECES: Final = 16  # into which a part is cut
_SMALL: Final = 256  # positions of a part that is read
_COUNTED: Final = 128  # parts of one command, which takes the server a few milliseconds
_EXPORTED: Final = 64  # parts that are read by one round trip

_Part = tuple[int, int]


def has_new_holes(start: Vector, stream: str, region: str, log: LogBounds) -> bool:
    """Whether something was removed of what was read; `log` was asked for at that place."""
    cursor = start.get(stream, region)
    if cursor is None or cursor.by_id or log.next < cursor.position:
        return False
    known = start.known_holes(stream, region, cursor, Holes(log.incarnation, log.trimmed, ()))
    return log.removed_below(cursor.position) > size_of(within(known.spans, 0, cursor.position))


def holes_at(
    client: ServerClient, end: Vector, start: Vector | None
) -> Mapping[str, Mapping[str, Holes]]:
    """The holes below all cursors of a vector; `start` is the vector before, if there is one.

    Where the server has less than was read, or nothing, they are those of `start`. Raises
    `OptionError` if they are too many.
    """
    names = [name for name in end.cursors if end.cursors[name]]
    logs = client.logs(names, [end.cursors[name] for name in names]) if names else []
    found: dict[str, dict[str, Holes]] = {}
    for name, regions in zip(names, logs, strict=True):
        for region, cursor in end.cursors[name].items():
            log = (regions or {}).get(region)
            known = None if start is None else start.holes.get(name, {}).get(region)
            if log is None or log.next < cursor.position:
                if known is not None:
                    found.setdefault(name, {})[region] = known
                continue
            spans = known.spans if known is not None else ()
            jump = end.begins.get(name, {}).get(region)
            if jump is not None and known is not None:
                spans = within(spans, 0, jump.position)  # others are at these positions now
            if log.removed_below(cursor.position) > size_of(within(spans, 0, cursor.position)):
                low = min(log.first, cursor.position)
                search = _HoleSearch(client, name, region, spans)
                spans = joined([(0, low), *spans, *search.within(low, cursor.position)])
            seen = Holes(log.incarnation, log.trimmed, spans)
            seen.check(place_of(name, region))
            found.setdefault(name, {})[region] = seen
    return found


class _HoleSearch:
    """For new holes in one log."""

    def __init__(self, client: ServerClient, stream: str, region: str, known: Spans) -> None:
        self._client = client
        self._stream = stream
        self._region = region
        self._known = known

    def within(self, low: int, high: int) -> Iterator[_Part]:
        """The holes between two positions; those that are known may be missing."""
        unsure = [(low, high)] if low < high else []
        while unsure:
            parts = [part for each in unsure for part in _pieces(*each)]
            unsure = []
            small: list[_Part] = []
            for at in range(0, len(parts), _COUNTED):
                some = parts[at : at + _COUNTED]
                for (first, stop), holes in zip(some, self._holes_of(some), strict=True):
                    if holes <= size_of(within(self._known, first, stop)):
                        continue
                    if holes == stop - first:
                        yield first, stop
                    elif stop - first <= _SMALL:
                        small.append((first, stop))
                    else:
                        unsure.append((first, stop))
            for at in range(0, len(small), _EXPORTED):
                yield from self._read(small[at : at + _EXPORTED])

    def _holes_of(self, parts: Sequence[_Part]) -> Iterator[int]:
        """How many holes each part has; all are counted at one moment."""
        places = sorted({end for part in parts for end in part})
        rows = self._client.logs(
            [self._stream] * len(places), [{self._region: LogCursor(0, each)} for each in places]
        )
        left = {
            place: row[self._region].left if row and self._region in row else 0
            for place, row in zip(places, rows, strict=True)
        }
        for first, stop in parts:
            yield stop - first - (left[first] - left[stop])

    def _read(self, parts: Sequence[_Part]) -> Iterator[_Part]:
        """The holes of small parts, by what is there."""
        key = stream_key(self._stream)
        replies = self._client.ask(
            [("AB.EXPORT", key, self._region, *part, "CODEC", "nodes") for part in parts]
        )
        for (low, high), payload in zip(parts, replies, strict=True):
            if payload is None:
                continue  # the key is gone; the next look finds that
            export = parse_export(payload)
            at = low
            for position in export.positions.tolist():
                yield at, position
                at = position + 1
            yield at, min(export.next_position, high)
            if low < export.next_position < high:  # large entries: the reply was limited
                yield from self._read([(export.next_position, high)])


def _pieces(low: int, high: int) -> Iterator[_Part]:
    """A part in some pieces, none of them smaller than needed."""
    size = max(-(-(high - low) // _PIECES), min(_SMALL, high - low))
    for first in range(low, high, size):
        yield first, min(first + size, high)
