"""How entries are numbered for those who read by more than IDs.

Where several regions write, an entry has the number of the effect that added it. A server on its
own has no such numbers; there the entry's position stands in, from the stream's incarnation on,
so that the numbers of a stream that was deleted and made again lie above all that it had.

Either way the numbers of one replica ID ascend as its IDs do, and none is used twice for a key. So
a *vector* (replica ID -> number) says exactly which entries somebody has seen, whatever was deleted
since, and however late other regions' entries arrive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from anabranch.stream.block import Block
from anabranch.stream.merge import merge_labelled
from anabranch.stream.region_log import Span
from anabranch.stream.stream import Stream

__all__ = ["newest_position_number", "number_of", "spans_behind"]


def number_of(stream: Stream, block: Block, index: int) -> int:
    """The number of a block's entry; numbers begin at 1."""
    return stream.incarnation + block.number(index)


def newest_position_number(stream: Stream) -> int:
    """The number of the newest entry that a server on its own ever added; 0 if there was none."""
    return stream.incarnation + stream.local.next_position


def spans_behind(stream: Stream, seen: Mapping[int, int]) -> Iterator[tuple[int, Span]]:
    """``(replica_id, span)`` of live entries that a vector does not cover, ascending by ID."""
    sources = {}
    for replica_id in stream.ranked():
        log = stream.logs[replica_id]
        number = seen.get(replica_id, 0) - stream.incarnation
        if log.length and log.newest_number > number:
            sources[replica_id] = log.spans_numbered(number, log.newest_number)
    return merge_labelled(sources)
