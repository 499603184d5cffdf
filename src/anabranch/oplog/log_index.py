"""An index of the effects of each replica ID in the log, from which peers get them.

The newest batches are in memory. Of older batches one position is kept every so many bytes, and the
log is read from there on. So a peer that lags costs a few numbers and no queue.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from anabranch.oplog.batch import SentBatch, fingerprint, is_local, sent_batch, wire_form
from anabranch.oplog.errors import CorruptLogError
from anabranch.oplog.log import OpLog, Segment
from anabranch.oplog.segment import stored_batches
from anabranch.oplog.storage import Storage

NOTED_EVERY_BYTES: Final = 64 * 1024
"""The most bytes of the log that are read in vain to find a batch."""

_BATCH_BYTES: Final = 400
"""What a batch that is kept in memory takes beside its bytes."""


class _BatchIndex:
    """The batches of one replica ID, ascending."""

    def __init__(self, begin: int) -> None:
        self.begin = begin  # numbers up to this one are not in the log
        self.last = begin
        self.newest: bytes | None = None  # the fingerprint of the last batch
        self.durable = begin
        self.firsts = array("Q")  # first numbers of noted batches
        self.positions = array("Q")  # positions of noted batches
        self.recent: deque[SentBatch] = deque()


class LogIndex:
    """The batches of all replica IDs in one log."""

    def __init__(self, storage: Storage, *, recent_bytes: int) -> None:
        """``recent_bytes`` of the newest batches are kept in memory."""
        self._storage = storage
        self._recent_max = recent_bytes
        self._recent_bytes = 0
        self._indexes: dict[int, _BatchIndex] = {}
        self._order: deque[int] = deque()  # replica IDs of recent batches, the oldest first
        self._unsynced: deque[tuple[int, int, int]] = deque()  # (position behind, replica ID, last)
        self.ages = Ages()
        self.on_damage: Callable[[OSError | CorruptLogError], None] = lambda _problem: None
        """Called for each place of the log that could not be read, or is damaged."""

    # -- what is written ----------------------------------------------------------------------

    def record(self, data: bytes, position: int) -> None:
        """Record the position of a numbered batch, before or after it is written."""
        batch = sent_batch(wire_form(data), position + len(data))
        replica_id, first = batch.replica_id, batch.first
        self.ages.record(position, batch.wall_ms)
        known = self._indexes.get(replica_id)
        if known is None or known.last != first - 1:
            known = self._begin(replica_id, first - 1)
        if not known.positions or position - known.positions[-1] >= NOTED_EVERY_BYTES:
            known.firsts.append(first)
            known.positions.append(position)
        known.last = batch.last
        known.newest = fingerprint(batch.data)
        known.recent.append(batch)
        self._order.append(replica_id)
        self._recent_bytes += len(data)
        self._unsynced.append((batch.end, replica_id, batch.last))
        self._trim_recent()

    def keep_recent(self, recent_bytes: int) -> None:
        """Set how many bytes of the newest batches are kept in memory."""
        self._recent_max = recent_bytes
        self._trim_recent()

    def _trim_recent(self) -> None:
        while self._recent_bytes > self._recent_max and len(self._order) > 1:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        oldest = self._indexes.get(self._order.popleft())
        if oldest is not None and oldest.recent:
            self._recent_bytes -= len(oldest.recent.popleft().data)

    @property
    def used_bytes(self) -> int:
        """The memory of the batches that are kept in memory."""
        return self._recent_bytes + len(self._order) * _BATCH_BYTES

    def prune(self, watermark: Mapping[int, int]) -> None:
        """Drop batches below the watermark from memory."""
        while self._order:
            replica_id = self._order[0]
            oldest = self._indexes.get(replica_id)
            if oldest is not None and oldest.recent:
                batch = oldest.recent[0]
                if batch.last > watermark.get(replica_id, 0):
                    return
            self._drop_oldest()

    def _begin(self, replica_id: int, number: int) -> _BatchIndex:
        """Begin the index of a replica ID behind a number; drop its older batches."""
        before = self._indexes.get(replica_id)
        if before is not None and before.recent:
            self._recent_bytes -= sum(len(batch.data) for batch in before.recent)
            self._order = deque([each for each in self._order if each != replica_id])
        known = self._indexes[replica_id] = _BatchIndex(number)
        return known

    def scan(self, segments: list[Segment], durable: Mapping[int, int]) -> None:
        """Index the existing log, which is synced; ``durable`` is the version vector of its end.

        Recovery does not read the part of the log that the snapshot covers.
        """
        for segment in segments:
            try:
                first, end = segment.first, segment.end
                for position, data in stored_batches(self._storage, first, end, first):
                    if not is_local(data):
                        self.record(data, position)
            except CorruptLogError as problem:
                self.on_damage(problem)
        self._unsynced.clear()
        for replica_id, number in durable.items():
            known = self._indexes.setdefault(replica_id, _BatchIndex(number))
            known.durable = number
            if known.last != number:  # a full sync was joined after the last batch in the log
                self._begin(replica_id, number).durable = number

    def joined(self, vector: Mapping[int, int]) -> None:
        """A full sync brought effects that are not in this log: they cannot be read from it."""
        for replica_id, number in vector.items():
            known = self._indexes.get(replica_id)
            if known is None or known.last < number:
                durable = 0 if known is None else known.durable
                self._begin(replica_id, number).durable = durable

    def synced(self, position: int) -> None:
        """The log was synced up to a position."""
        unsynced = self._unsynced
        while unsynced and unsynced[0][0] <= position:
            _, replica_id, last = unsynced.popleft()
            known = self._indexes.get(replica_id)
            if known is not None and last <= known.last:
                known.durable = max(known.durable, last)

    def told_by(self, vector: Mapping[int, int], position: int) -> None:
        """A joined full sync contains these effects; the log records it before a position."""
        for replica_id, number in vector.items():
            self._unsynced.append((position, replica_id, number))

    @property
    def durable(self) -> dict[int, int]:
        """The version vector of the effects that are applied and on the disk."""
        return {
            replica_id: known.durable
            for replica_id, known in self._indexes.items()
            if known.durable
        }

    # -- what is read -------------------------------------------------------------------------

    def read(
        self, log: OpLog, replica_id: int, after: int, max_bytes: int, visible: int
    ) -> list[SentBatch] | None:
        """Batches from number ``after + 1`` on that end before the position ``visible``.

        See :meth:`anabranch.replication.interface.Local.read`.
        """
        known = self._indexes.get(replica_id)
        if known is None:
            return []
        if after < known.begin:
            return None
        if after >= known.last:
            return []
        recent = known.recent
        if recent and recent[0].first <= after + 1:
            found: list[SentBatch] = []
            size = 0
            for index in range(_first_beyond(recent, after), len(recent)):
                batch = recent[index]
                if batch.end > visible or size >= max_bytes:
                    break
                found.append(batch)
                size += len(batch.data)
            return found
        return self._read_log(log, known, replica_id, after, max_bytes, visible)

    def fingerprint(self, log: OpLog, replica_id: int, number: int) -> bytes | None:
        """The fingerprint of the batch of a replica ID that ends with a number.

        Empty if none ends there; None if the log does not reach back that far.
        """
        known = self._indexes.get(replica_id)
        if known is None or not known.begin < number <= known.last:
            return None
        if number == known.last:
            return known.newest
        batches = self.read(log, replica_id, number - 1, 1, log.end)
        if not batches:
            return None
        return fingerprint(batches[0].data) if batches[0].last == number else b""

    def _read_log(
        self,
        log: OpLog,
        known: _BatchIndex,
        replica_id: int,
        after: int,
        max_bytes: int,
        visible: int,
    ) -> list[SentBatch] | None:
        at = bisect_right(known.firsts, after + 1) - 1
        position = known.positions[max(at, 0)]
        if not log.segments or position < log.segments[0].first:
            return None
        found: list[SentBatch] = []
        size = 0
        try:
            for begin, data in log.batches_from(position):
                if begin + len(data) > visible:
                    break
                if is_local(data):
                    continue
                batch = sent_batch(wire_form(data), begin + len(data))
                if batch.replica_id == replica_id and batch.last > after:
                    found.append(batch)
                    size += len(data)
                    if size >= max_bytes:  # before the next batch is read, which may be long
                        break
        except (OSError, CorruptLogError) as problem:
            # Later batches cannot be read from the log; the peer gets a full sync instead.
            self.on_damage(problem)
            return found or None
        return found

    def needed_from(self, log: OpLog, watermark: Mapping[int, int]) -> int:
        """The position of the first batch that some member does not have on its disk."""
        needed = log.end
        for replica_id, known in self._indexes.items():
            number = watermark.get(replica_id, 0)
            if number < known.last and known.positions:
                at = max(bisect_right(known.firsts, number + 1) - 1, 0)
                needed = min(needed, known.positions[at])
        return needed


def _first_beyond(recent: deque[SentBatch], after: int) -> int:
    """The index of the first batch whose last number is greater than ``after``.

    The search begins at the end: most peers lack only the newest batches, and getting an item from
    the middle of a long deque takes long.
    """
    count = len(recent)
    back = 1
    while back <= count and recent[-back].last > after:
        back *= 2
    low, high = max(count - back, -1) + 1, count - back // 2
    while low < high:
        middle = (low + high) // 2
        if recent[middle].last > after:
            high = middle
        else:
            low = middle + 1
    return low


# -- the approximate age of parts of the log, to find those that are older than a limit -------


NOTED_EVERY_MS: Final = 60_000
"""The resolution: so much more than the limit may be kept."""


class Ages:
    """Positions of the log, and for each the newest time of a batch up to there.

    Times are by the clocks of the batches' regions. A batch never counts as older than an earlier
    batch in the log, so a clock that is ahead keeps more of the log than necessary, never less.
    """

    def __init__(self) -> None:
        self._positions = array("Q")
        self._times = array("Q")
        self._newest_ms = 0

    def record(self, position: int, wall_ms: int) -> None:
        """Record the time of a batch at the end of the log."""
        self._newest_ms = max(self._newest_ms, wall_ms)
        if not self._times or self._newest_ms - self._times[-1] >= NOTED_EVERY_MS:
            self._positions.append(position)
            self._times.append(self._newest_ms)

    def prune(self, position: int) -> None:
        """The log begins at this position now: drop older records."""
        gone = bisect_left(self._positions, position)
        del self._positions[:gone], self._times[:gone]

    def older_than(self, wall_ms: int, end: int) -> int:
        """A position before which all batches are older than a time; ``end`` is that of the log."""
        if self._newest_ms < wall_ms:
            return end
        at = bisect_left(self._times, wall_ms) - 1
        return self._positions[at] if at >= 0 else 0
