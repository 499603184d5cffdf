"""The offset of a query: how far each region of each stream has been read.

An entry of a slow region may arrive late with a low ID, so one ID cannot describe what was read.
But a region's log numbers its entries, and the numbers only grow. So the offset is a vector of such
positions, and the unread entries are the difference of two vectors.

Spark compares offsets as text and keeps them in checkpoints, so there is exactly one text for each
vector. Everything here is a pure function of its arguments: a batch that is replayed after a crash
must be cut into the same partitions as before.

A server without positions (plain Redis) is read by ID. Its cursors have `BY_ID` as incarnation;
their positions count the entries ever added and serve for limits and for noticing losses.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Final, Self, TypeVar

from anabranch.errors import AnabranchError
from anabranch.spark.reading.holes import Holes, Removal, Spans, joined, removals, within

BY_ID: Final = -1
"""Incarnation of a cursor on a server without positions."""

VERSION: Final = 1
_FORMER: Final = -1
_SEQ_MAX: Final = 2**64 - 1
_Old = TypeVar("_Old")
_New = TypeVar("_New")


class OffsetError(AnabranchError):
    """An offset is malformed; the text gives the reason."""


# -------------------------------------------------------------------------------------------- IDs


def parse_id(text: str) -> tuple[int, int]:
    """Milliseconds and sequence number of ``ms-seq`` or of ``ms``; raises `OffsetError`."""
    ms, dash, seq = text.partition("-")
    if not (ms.isascii() and ms.isdigit()) or (dash and not (seq.isascii() and seq.isdigit())):
        raise OffsetError(f"{text!r} is no entry ID (such as 1718000000000-0) and no time in ms")
    return int(ms), int(seq or 0)


def previous_id(text: str) -> str:
    """The greatest ID below one; 0-0 stays."""
    ms, seq = parse_id(text)
    if seq:
        return f"{ms}-{seq - 1}"
    return f"{ms - 1}-{_SEQ_MAX}" if ms else "0-0"


def next_id(text: str) -> str:
    """The least ID above one."""
    ms, seq = parse_id(text)
    return f"{ms}-{seq + 1}" if seq < _SEQ_MAX else f"{ms + 1}-0"


# ----------------------------------------------------------------------------------------- values


@dataclass(frozen=True, slots=True)
class LogCursor:
    """How far one region of one stream was read."""

    incarnation: int
    """First position of the log's present incarnation, or `BY_ID`."""
    position: int
    """Everything below is read."""
    last_id: str = "0-0"
    """The newest entry read: for messages, and the true cursor if `by_id`."""

    @property
    def by_id(self) -> bool:
        """Whether the ID counts, because the server has no positions."""
        return self.incarnation == BY_ID

    @property
    def at_begin(self) -> bool:
        """Whether nothing was read since the key was last deleted, and all before was."""
        return self.position == self.incarnation > 0

    def behind(self, other: LogCursor) -> bool:
        """Whether `other` has read more of the same log."""
        if self.by_id:
            return parse_id(self.last_id) < parse_id(other.last_id)
        return self.position < other.position


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The range of one region's log of a stream, as reported by the server."""

    incarnation: int
    first: int
    """Position of the first live entry; equals `next` if there is none."""
    next: int
    """Position that the next entry will get."""
    last_id: str
    """ID of the newest entry ever added."""
    trimmed: int = 0
    """Trimming has removed entries below this position."""
    known_from: int = 0
    """Every position from here on was that of an entry."""
    is_former: bool = False
    """Whether the stream was deleted: this is where its log ended."""
    live: int = 0
    """Number of live entries."""
    first_id: str | None = None
    """ID of the first live entry; known only where there are no positions."""
    until: LogCursor = LogCursor(BY_ID, 0)
    """How far a reader may read, if the server was given its place and a limit."""
    left: int = 0
    """Live entries from the reader's place on."""
    before_id: str = "0-0"
    """ID of the newest live entry below the reader's place."""

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> tuple[str, Self]:
        """The name of a region, and the bounds of its log, from a row of AB.OFFSETS."""
        name, incarnation, first, stop, last_id, live, trimmed, known_from, *reach = row
        former = live == _FORMER
        bounds = (incarnation, first, stop, last_id.decode(), trimmed, known_from)
        found = cls(*bounds, former, 0 if former else live)
        if reach:
            until, until_id, left, _kept, before_id = reach
            end = LogCursor(incarnation, until, until_id.decode())
            found = replace(found, until=end, left=left, before_id=before_id.decode())
        return name.decode(), found

    @property
    def end(self) -> LogCursor:
        """The cursor of a reader that has read everything."""
        return LogCursor(self.incarnation, self.next, self.last_id)

    def removed_below(self, position: int) -> int:
        """How many positions below the reader's place have no entry."""
        return position - (self.live - self.left)

    @property
    def begin(self) -> LogCursor:
        """The cursor of a reader that has read none of the present entries."""
        if self.incarnation == BY_ID:
            first = previous_id(self.first_id) if self.first_id is not None else self.last_id
            return LogCursor(BY_ID, self.first, first)
        return LogCursor(self.incarnation, self.first)


Logs = Mapping[str, Mapping[str, LogBounds]]
"""Stream to region to log; a stream that does not exist is missing."""


def known_log(logs: Mapping[str, LogBounds], region: str) -> LogBounds | None:
    """The log of a region, None if the server knows no entry that it ever had.

    A server has a row for its own region also before that has written to the key, and after it has
    forgotten the log of a deleted key. The row ends at 0 then; positions of regions begin above 0.
    """
    log = logs.get(region)
    return None if log is not None and region and not log.next else log


def place_of(stream: str, region: str) -> str:
    """The name of a region of a stream in messages."""
    return f"stream {stream}" + (f", region {region}" if region else "")


@dataclass(frozen=True, slots=True)
class Range:
    """A part of one region's log: positions ``[first, stop)`` or IDs ``(after, upto]``."""

    stream: str
    region: str
    incarnation: int
    first: int
    stop: int
    after: str
    upto: str
    reported: int = 0
    """Missing entries below this position were reported when the batch was planned."""
    removed: Spans = ()
    """Their entries were removed before the batch was planned; a region that lags has them yet."""

    @property
    def by_id(self) -> bool:
        """Whether the IDs count, because the server has no positions."""
        return self.incarnation == BY_ID

    @property
    def place(self) -> str:
        """For messages."""
        return place_of(self.stream, self.region)

    def __len__(self) -> int:
        return max(self.stop - self.first, 0)


# ----------------------------------------------------------------------------------------- vector


@dataclass(frozen=True, slots=True)
class BatchStart:
    """Where a batch begins in a log, if not at the end of the previous batch."""

    position: int
    last_id: str
    reported: int
    """Losses below this position were reported when the batch was planned."""

    @classmethod
    def of(cls, position: object, last_id: object, reported: object) -> Self:
        """From the values of a decoded offset; raises `ValueError` and `OffsetError`."""
        return cls(int(str(position)), _id(last_id), int(str(reported)))


@dataclass(frozen=True, slots=True)
class Vector:
    """Cursors of all regions of all streams, and into how many partitions to cut the way there."""

    cursors: Mapping[str, Mapping[str, LogCursor]]
    splits: int = 1
    initial: Vector | None = None
    """Where the query began, in the offsets up to the end of its first batch. Checkpoints keep only
    ends of batches, and ``latest`` is another place when the first batch is repeated."""
    begins: Mapping[str, Mapping[str, BatchStart]] = field(default_factory=dict)
    """Where this batch begins in the logs in which it skips lost entries."""
    frontier_ms: int | None = None
    """All entries with IDs up to this time are read, and a row says so; see `Frontier`."""
    holes: Mapping[str, Mapping[str, Holes]] = field(default_factory=dict)
    """Positions below the cursors without an entry; only of queries with ``changes``."""

    @classmethod
    def at_end(cls, logs: Logs) -> Self:
        """The vector of a reader that has read all entries."""
        return cls(_nested(logs, lambda log: log.end))

    def items(self) -> Iterator[tuple[str, str, LogCursor]]:
        """Stream, region and cursor of each log, in the order of the names."""
        for stream, regions in sorted(self.cursors.items()):
            for region, cursor in sorted(regions.items()):
                yield stream, region, cursor

    def get(self, stream: str, region: str) -> LogCursor | None:
        """The cursor of one region, None if the vector does not know it."""
        return self.cursors.get(stream, {}).get(region)

    def only(self, selects: Callable[[str, str], bool]) -> Vector:
        """The cursors and holes of the logs that are selected, by stream and region."""
        return Vector(
            _nested(self.cursors, lambda each: each, selects),
            holes=_nested(self.holes, lambda each: each, selects),
        )

    def to_dict(self) -> dict[str, Any]:
        """The form that Spark keeps; equal vectors give dictionaries in equal order."""
        begin: dict[str, Any] = {} if self.initial is None else {"b": self.initial.to_dict()}
        if self.begins:
            begin["f"] = _nested(self.begins, lambda each: [*astuple(each)])
        if self.frontier_ms is not None:
            begin["t"] = self.frontier_ms
        if self.holes:
            begin["h"] = _nested(self.holes, Holes.to_list)
        return begin | {
            "k": _nested(self.cursors, lambda each: each.incarnation),
            "p": self.splits,
            "s": _nested(self.cursors, lambda each: [each.position, each.last_id]),
            "v": VERSION,
        }

    def to_json(self) -> str:
        """The one text of this vector."""
        return json.dumps(self.to_dict(), separators=(",", ":"))

    @classmethod
    def parse(cls, source: str | Mapping[str, Any]) -> Self:
        """From text or from decoded JSON; unknown keys are ignored. Raises `OffsetError`."""
        try:
            found = json.loads(source) if isinstance(source, str) else source
            version = found["v"]
            if version != VERSION:
                raise OffsetError(
                    f"this offset has version {version}, and this package reads version {VERSION}: "
                    "the checkpoint was written by a newer anabranch; install that one"
                )
            cursors = {
                stream: {
                    region: LogCursor(int(found["k"][stream][region]), int(position), _id(last_id))
                    for region, (position, last_id) in regions.items()
                }
                for stream, regions in found["s"].items()
            }
            initial = cls.parse(found["b"]) if "b" in found else None
            begins = _nested(found.get("f", {}), lambda each: BatchStart.of(*each))
            frontier = int(found["t"]) if "t" in found else None
            holes = _nested(found.get("h", {}), lambda each: Holes.of(*each))
            return cls(cursors, int(found["p"]), initial, begins, frontier, holes)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OffsetError(
                f"this is no offset of an anabranch source: {source!r} ({error!r})"
            ) from None

    def ranges(self, start: Vector) -> list[Range]:
        """The ranges between `start` and this vector, by stream and region.

        A log that `start` does not contain is read from its first position on, and so is a log of a
        later incarnation: no existing entry is skipped. A log that ends before `start` has
        nothing to read. `begins` go before `start`.
        """
        found = []
        for stream, region, end in self.items():
            begin = start.get(stream, region)
            jump = self.begins.get(stream, {}).get(region)
            if jump is not None:
                begin = LogCursor(end.incarnation, jump.position, jump.last_id)
            elif begin is None or begin.by_id != end.by_id or begin.position < end.incarnation:
                begin = LogCursor(end.incarnation, 0 if end.by_id else end.incarnation)
            if begin.behind(end):
                positions = (begin.position, end.position)
                reported = 0 if jump is None else jump.reported
                ids = (begin.last_id, end.last_id)
                known = self.holes.get(stream, {}).get(region)
                removed = () if known is None else within(known.spans, *positions)
                about = (reported, removed)
                found.append(Range(stream, region, end.incarnation, *positions, *ids, *about))
        return found

    def removals(self, start: Vector) -> list[Removal]:
        """What was removed of what `start` has read, as far as both offsets know it."""
        found: list[Removal] = []
        for stream, regions in sorted(self.holes.items()):
            for region, seen in sorted(regions.items()):
                begin = start.get(stream, region)
                if begin is not None:
                    known = start.known_holes(stream, region, begin, seen)
                    below = self._read_below(stream, region, begin)
                    found += removals(stream, region, known, seen, below)
        return found

    def known_holes(self, stream: str, region: str, cursor: LogCursor, seen: Holes) -> Holes:
        """The holes of a log as this offset has them; `seen` are those of a later look.

        An offset of a query that did not follow changes has none. Then what was trimmed before the
        later look is not reported any more.
        """
        found = self.holes.get(stream, {}).get(region)
        if found is not None:
            return found
        known = cursor.incarnation
        if seen.deleted <= known:
            known = max(known, min(seen.trimmed, cursor.position))
        return Holes(cursor.incarnation, known, joined([(0, known)]))

    def _read_below(self, stream: str, region: str, begin: LogCursor) -> int:
        """The position below which `begin` has read what this server has."""
        jump = self.begins.get(stream, {}).get(region)
        return begin.position if jump is None else min(begin.position, jump.position)

    def jumped(self, begins: Mapping[str, Mapping[str, BatchStart]], end: Vector) -> Vector:
        """This vector behind the lost entries of logs that are read up to `end`."""
        cursors = {stream: dict(regions) for stream, regions in self.cursors.items()}
        for stream, some in begins.items():
            for region, jump in some.items():
                if (stop := end.get(stream, region)) is not None:
                    at = LogCursor(stop.incarnation, jump.position, jump.last_id)
                    cursors[stream][region] = at
        return replace(self, cursors=cursors)

    def not_before(self, start: Vector) -> Vector:
        """This vector, with the cursors of `start` where those are further in the same log."""
        cursors = {stream: dict(regions) for stream, regions in self.cursors.items()}
        for stream, region, end in self.items():
            begin = start.get(stream, region)
            if begin is not None and begin.by_id == end.by_id and end.behind(begin):
                cursors[stream][region] = begin
        return replace(self, cursors=cursors)

    def lag(self, start: Vector) -> int:
        """How many positions lie between `start` and this vector."""
        return sum(map(len, self.ranges(start)))


def _nested(
    values: Mapping[str, Mapping[str, _Old]],
    made: Callable[[_Old], _New],
    selects: Callable[[str, str], bool] = lambda _stream, _region: True,
) -> dict[str, dict[str, _New]]:
    """The same streams, and selected regions, in the order of their names, with new values."""
    return {
        stream: {
            region: made(each)
            for region, each in sorted(regions.items())
            if selects(stream, region)
        }
        for stream, regions in sorted(values.items())
    }


def _id(text: object) -> str:
    ms, seq = parse_id(str(text))
    return f"{ms}-{seq}"
