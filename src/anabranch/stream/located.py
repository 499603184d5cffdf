"""Where many entries of a stream are: looked up in short steps, while the stream may change.

Finding an ID in a compressed block opens the block; whoever knows block and index can remove the
entry without opening it. So a command with many IDs looks them up in steps, and then needs one
short moment only: :meth:`LocatedEntries.update` checks what has changed since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.scheduling import Steps
from anabranch.stream import by_position
from anabranch.stream.block import Block
from anabranch.stream.packed_ids import between
from anabranch.stream.region_log import RegionLog, Share
from anabranch.stream.stream import Stream

LOCATED_AT_ONCE: Final = 100
"""IDs that are looked up in one step: opening as many blocks takes one or two milliseconds."""

_Found = dict[tuple[Block, int], tuple[list[int], list[int]]]
"""Indexes and IDs by the block and its ``gaps``: a rewrite changes both gaps and indexes."""


class LocatedEntries:
    """The live entries of a stream that have some of these distinct IDs."""

    def __init__(self, stream: Stream, ids: list[int]) -> None:
        self._stream = stream
        self._ids = ids
        self._found: dict[RegionLog, _Found] = {log: {} for log in stream.logs.values()}
        self._ends = {log: log.next_position for log in self._found}
        self.shares: list[Share] = []
        """The entries, as :meth:`update` found them; each block occurs once."""
        self.live: dict[int, None] = {}
        """Their IDs."""

    def steps(self) -> Steps[None]:
        """Look all IDs up; the stream may change between the steps."""
        for at in range(0, len(self._ids), LOCATED_AT_ONCE):
            some = self._ids[at : at + LOCATED_AT_ONCE]
            for log, found in self._found.items():
                _look_up(log, some, found)
            yield

    def update(self) -> None:
        """Set :attr:`shares` and :attr:`live` to what is true at this moment."""
        self.shares = []
        for replica_id, log in self._stream.logs.items():
            for (block, _), (indexes, ids) in self._present(log).items():
                self.shares.append((replica_id, block, indexes, ids))
        self.live = dict.fromkeys([each for share in self.shares for each in share[3]])

    def _present(self, log: RegionLog) -> _Found:
        """What is live now in one log."""
        present: _Found = {}
        if log not in self._found:  # a log that is new
            _look_up(log, self._ids, present)
            return present
        again: list[int] = []
        for (block, gaps), (indexes, ids) in self._found[log].items():
            if block.gaps != gaps or not log.holds(block):
                again += ids
            elif block.dead.isdisjoint(indexes):
                present[block, gaps] = indexes, ids
            else:
                pairs = zip(indexes, ids, strict=True)
                left = [pair for pair in pairs if pair[0] not in block.dead]
                if left:
                    present[block, gaps] = [pair[0] for pair in left], [pair[1] for pair in left]
        _look_up(log, again, present)
        if log.next_position > self._ends[log]:
            _look_up(log, self._added(log, present), present)
        return present

    def _added(self, log: RegionLog, present: _Found) -> list[int]:
        """The IDs that entries have which were added since the first step."""
        unknown = set(self._ids).difference(*[ids for _, ids in present.values()])
        return [
            entry_id
            for block, low, high in by_position.spans(log, self._ends[log], log.next_position)
            for entry_id in between(block.ids, low, high)
            if entry_id in unknown
        ]

    def among(self, ids: Iterable[int]) -> list[Share]:
        """The shares of those entries that have one of these IDs."""
        wanted = set(ids)
        if self.live.keys() <= wanted:
            return self.shares
        some: list[Share] = []
        for replica_id, block, indexes, known in self.shares:
            pairs = zip(indexes, known, strict=True)
            left = [pair for pair in pairs if pair[1] in wanted]
            if left:
                columns = [pair[0] for pair in left], [pair[1] for pair in left]
                some.append((replica_id, block, *columns))
        return some


def _look_up(log: RegionLog, ids: list[int], found: _Found) -> None:
    """Add the live entries of a log that have these IDs."""
    for block, indexes, live in log.located(ids):
        known = found.setdefault((block, block.gaps), ([], []))
        known[0].extend(indexes)
        known[1].extend(live)
