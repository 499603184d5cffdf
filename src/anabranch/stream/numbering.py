"""The numbers of entries, for readers that need more than IDs.

Where several regions write, an entry has the number of the effect that added it. A server on its
own has no such numbers; there the position of an entry is its number, counted from the incarnation
of the stream. So the numbers of a stream that was deleted and made again are above all numbers that
it had.

In both cases the numbers of one replica ID ascend like its IDs, and no number is used twice for a
key. So a version vector (replica ID -> number) says exactly which entries a reader has seen,
whatever was deleted since, and however late the entries of other regions arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.stream import by_number
from anabranch.stream.block import Block
from anabranch.stream.merge import merge_labelled
from anabranch.stream.region_log import Span
from anabranch.stream.stream import Stream


def number_of(stream: Stream, block: Block, index: int) -> int:
    """The number of an entry of a block; numbers begin at 1."""
    return stream.incarnation + block.number(index)


def newest_position_number(stream: Stream) -> int:
    """The number of the newest entry that a server on its own ever added; 0: none."""
    return stream.incarnation + stream.local.next_position


def spans_behind(stream: Stream, seen: Mapping[int, int]) -> Iterator[tuple[int, Span]]:
    """``(replica_id, span)`` of live entries that a vector does not cover, ascending by ID."""
    sources = {}
    for replica_id in stream.ranked():
        log = stream.logs[replica_id]
        number = seen.get(replica_id, 0) - stream.incarnation
        if log.length and log.newest_number > number:
            sources[replica_id] = by_number.spans(log, number, log.newest_number)
    return merge_labelled(sources)


def has_behind(stream: Stream, seen: Mapping[int, int]) -> bool:
    """Whether an entry was ever added that a vector does not cover; it may be removed by now."""
    for replica_id, log in stream.logs.items():
        newest = log.newest_number
        if newest and stream.incarnation + newest > seen.get(replica_id, 0):
            return True
    return False


class Gaps:
    """Entries that were removed before a reader reached them, by their positions.

    A position is that of one entry, so none is missing or too many. What the reader has come to is
    counted from the incarnation, as numbers are on a server of its own: 1 is the first entry ever.
    """

    __slots__ = ("_reached", "_stream", "found")

    def __init__(self, stream: Stream, seen: Mapping[int, int], places: Mapping[int, int]) -> None:
        """``seen`` is the vector of the reader, empty if it begins: that cares for this stream.

        ``places`` are what it had come to.
        """
        self._stream = stream
        self._reached = dict(places)
        for replica_id, log in stream.logs.items():
            begin = stream.incarnation + (log.known_from if seen else log.base)
            self._reached[replica_id] = max(places.get(replica_id, 0), begin)
        self.found: list[tuple[int, int, int]] = []
        """Replica ID, the first and the last entry of each gap."""

    @property
    def reached(self) -> Mapping[int, int]:
        """What the reader has come to in each log."""
        return self._reached

    def reach(self, replica_id: int, block: Block, low: int, high: int) -> None:
        """The reader comes to these live entries next."""
        begin = self._stream.incarnation + 1
        if block.positions is None:
            self._come_to(replica_id, begin + block.position(low))
            self._reached[replica_id] = begin + block.position(high - 1)
            return
        for index in range(low, high):
            self._come_to(replica_id, begin + block.position(index))

    def _come_to(self, replica_id: int, entry: int) -> None:
        reached = self._reached[replica_id]
        if entry > reached + 1:
            self.found.append((replica_id, reached + 1, entry - 1))
        self._reached[replica_id] = entry

    def end(self) -> None:
        """There is no further live entry."""
        for replica_id, log in self._stream.logs.items():
            newest = self._stream.incarnation + log.next_position
            if newest > self._reached[replica_id]:
                self._come_to(replica_id, newest + 1)
                self._reached[replica_id] = newest


def places_of(stream: Stream, seen: Mapping[int, int]) -> dict[int, int]:
    """What a reader has come to in each log, if only its vector is known.

    It is the oldest entry that is left for it: what was removed before may have been read.
    """
    return {
        replica_id: stream.incarnation + by_number.position_above(log, seen.get(replica_id, 0))
        for replica_id, log in stream.logs.items()
    }
