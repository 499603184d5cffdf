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
    """Entries of a server on its own that were removed before a reader reached them.

    There each number is that of an entry, so none is missing or too many.
    """

    __slots__ = ("_reached", "_stream", "found")

    def __init__(self, stream: Stream, seen: Mapping[int, int]) -> None:
        """``seen`` is the vector of the reader; one that begins cares for this stream alone."""
        log = stream.local
        number = seen.get(stream.own, 0)
        begin = stream.incarnation + (log.known_from if number else log.base)
        self._stream = stream
        self._reached = max(number, begin)
        self.found: list[tuple[int, int]] = []
        """The first and the last number of each gap."""

    def reach(self, block: Block, low: int, high: int) -> None:
        """The reader is given these live entries next."""
        incarnation = self._stream.incarnation
        for number in block.numbers_of(low, high):
            self._come_to(incarnation + number)

    def _come_to(self, number: int) -> None:
        if number > self._reached + 1:
            self.found.append((self._reached + 1, number - 1))
        self._reached = number

    def end(self) -> None:
        """There is no further live entry."""
        newest = newest_position_number(self._stream)
        if newest > self._reached:
            self._come_to(newest + 1)
