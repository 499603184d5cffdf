"""Exactly once by the ledger of the stream: rows are appended only if both sides count alike.

For each producer the stream keeps one record: batch, accepted rows, and a CRC-32 of them. Every
chunk contains the expected count and CRC. If the server has more rows, an earlier attempt added
them; this attempt then skips its own rows up to there and compares the CRC. So attempts of one task
may fail, be repeated or run at the same time: every row is appended once, in order, and rows that
differ from those of an earlier attempt are detected.

Chunks are sent before the replies to earlier chunks arrive. That is safe because the server refuses
a chunk that does not fit exactly: if it refuses one, it refuses the later ones, too, and they are
sent again in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import redis

from anabranch.spark.connection.client import ServerClient, ServerUnreachable, explained, shown
from anabranch.spark.writing.encode import EncodedRows, RowBytes, bulk, runs_by_lane
from anabranch.spark.writing.identity import WriteFailed

CHUNK_BYTES: Final = 1 << 20
"""Bytes of one AB.IMPORT, small enough not to delay other clients."""

_FLIGHTS_MAX: Final = 32
_FLIGHTS_OF_A_STREAM: Final = 2  # one is applied while the next one is transmitted
_ROWS_MAX: Final = 10_000
"""Rows that a server takes in one AB.IMPORT."""
_FLIGHT_BYTES_MAX: Final = 4 << 20


class ChangedReplay(WriteFailed):
    """The rows of a repeated batch are not those of the first attempt."""


class Superseded(WriteFailed):
    """The stream has accepted a later batch of this producer already."""


@dataclass(slots=True)
class _StreamProgress:
    """The progress of this attempt in one stream."""

    key: bytes
    producer: str
    rows: int = 0
    """Own rows that were sent or skipped."""
    crc: int = 0
    """Of all of them."""
    confirmed: int = 0
    """Rows of the batch that the server has confirmed."""
    goal: tuple[int, int] | None = None
    """Rows and CRC of the server, while it has more rows than this attempt."""
    waiting: int = 0
    """Chunks without a reply."""
    over: bool = False
    """The batch is an old one: nothing more is sent."""


@dataclass(slots=True)
class _Flight:
    """A chunk of rows, and the count and CRC that the server must have before."""

    tally: _StreamProgress
    parts: RowBytes
    start: int
    stop: int
    rows: int
    crc: int
    crc_after: int
    """The count, or CRC, after these rows."""

    @property
    def nbytes(self) -> int:
        """Bytes of the rows."""
        return len(self.parts.between(self.start, self.stop))

    @property
    def rows_after(self) -> int:
        """The count, or CRC, after these rows."""
        return self.rows + self.stop - self.start

    def crc_at(self, rows: int) -> int:
        """The own CRC of the batch up to a count of rows."""
        if rows == self.rows_after:
            return self.crc_after
        return self.parts.crc(self.start, self.start + rows - self.rows, self.crc)


class LedgerWriter:
    """The writing side of one attempt of one task."""

    def __init__(
        self,
        client: ServerClient,
        *,
        producer: str,
        batch: int,
        trim: Sequence[bytes] = (),
        rows_max: int = 2048,
        skip_old: bool = False,
    ) -> None:
        """`trim`: trimming options of AB.IMPORT; `skip_old`: a superseded batch is a success."""
        self._client = client
        self._producer = producer
        self._batch = batch
        self._trim = tuple(trim)
        self._rows_max = min(rows_max, _ROWS_MAX)
        self._skip_old = skip_old
        self._tallies: dict[tuple[bytes, str | None], _StreamProgress] = {}
        self._flights: deque[_Flight] = deque()
        self.appended = 0
        """Rows that this attempt has added."""
        self.known = 0
        """Rows that the stream had already."""
        self.memory_s = None
        """Records of producers do not depend on time, as idempotent IDs do."""

    def append(self, key: bytes, rows: EncodedRows) -> None:
        """Append rows to a stream. The last chunks may be without a reply when this returns.

        Rows of each lane are counted separately, as if they had a producer of their own. Raises
        `ChangedReplay`, `Superseded`, `WriteFailed` and `ServerUnreachable`.
        """
        parts = rows.parts()
        for lane, start, stop in runs_by_lane(rows):
            if start < stop:
                self._append(key, parts.slice(start, stop), lane)

    def _append(self, key: bytes, parts: RowBytes, lane: str | None) -> None:
        at = 0
        with self._nothing_left_behind():
            tally = self._tally(key, lane)
            while at < len(parts):
                self._make_room(tally)
                at = self._walk(tally, parts, at, len(parts))
                if at < len(parts):
                    stop = parts.reach(at, self._rows_max, CHUNK_BYTES)
                    rows, crc = tally.rows, tally.crc
                    self._pass(tally, parts, at, stop)
                    self._launch(_Flight(tally, parts, at, stop, rows, crc, tally.crc))
                    at = stop

    def finish(self, expected: bytes | None = None) -> None:
        """Wait for all replies; raises as `append` does.

        `expected` is a stream to check even if there was no row for it: an earlier attempt may have
        added some.
        """
        if expected is not None and (expected, None) not in self._tallies:
            self._ask(self._tally(expected, None))
        with self._nothing_left_behind():
            while self._flights:
                self._land()
        for tally in self._tallies.values():
            if tally.goal is not None and not tally.over:
                raise self._changed(tally, f"it has only {tally.rows} rows now")

    def _tally(self, key: bytes, lane: str | None) -> _StreamProgress:
        found = self._tallies.get((key, lane))
        if found is not None:
            return found
        producer = self._producer if lane is None else f"{self._producer}/{lane}"
        made = self._tallies[key, lane] = _StreamProgress(key, producer)
        if lane is not None:
            # If the stream has some of the rows already, the others are sent again, and rows of
            # other lanes would be added before them. So ask first how many it has.
            self._ask(made)
            while self._flights:
                self._land()
        return made

    # ----------------------------------------------------------------------------------- sending

    def _ask(self, tally: _StreamProgress) -> None:
        """Send no rows: the reply contains the count of the server."""
        self._launch(_Flight(tally, RowBytes.none(), 0, 0, 0, 0, 0))

    def _make_room(self, tally: _StreamProgress) -> None:
        """Process replies until another chunk of a stream may be sent."""
        while self._flights and (
            tally.waiting >= _FLIGHTS_OF_A_STREAM
            or len(self._flights) >= _FLIGHTS_MAX
            or sum(each.nbytes for each in self._flights) + CHUNK_BYTES > _FLIGHT_BYTES_MAX
        ):
            self._land()

    def _launch(self, flight: _Flight) -> None:
        flight.tally.waiting += 1
        self._flights.append(flight)
        try:
            self._client.send(self._packed(flight))
        except ServerUnreachable:
            self._again()

    def _packed(self, flight: _Flight) -> list[bytes]:
        payload = flight.parts.payload(flight.start, flight.stop)
        words = [
            *(b"AB.IMPORT", flight.tally.key, b"PRODUCER", flight.tally.producer.encode()),
            *(b"BATCH", b"%d" % self._batch),
            *(b"EXPECT", b"%d" % flight.rows, b"CRC", b"%d" % flight.crc),
            *self._trim,
        ]
        head = b"".join((b"*%d\r\n" % (len(words) + 1), *map(bulk, words)))
        return [head + b"$%d\r\n" % len(payload), payload, b"\r\n"]

    def _again(self) -> None:
        """After a broken connection: send all chunks without a reply; rows are recognised."""

        def sent() -> None:
            for flight in self._flights:
                self._client.send(self._packed(flight))

        self._client.revive()
        self._client.tried(sent)

    # ----------------------------------------------------------------------------------- replies

    def _land(self) -> None:
        """Process one reply; the rows of a refused chunk are skipped or sent again."""
        reply = self._client.tried(self._client.receive, between=self._again)
        flight = self._flights.popleft()
        flight.tally.waiting -= 1
        if isinstance(reply, redis.RedisError):
            raise WriteFailed(
                f"stream {shown(flight.tally.key)} at {self._client.address} refused rows: "
                f"{explained(reply)}"
            )
        self._judge(flight, *reply[:3])

    @contextmanager
    def _nothing_left_behind(self) -> Iterator[None]:
        """After a failure wait for all replies; their contents do not matter."""
        try:
            yield
        except WriteFailed:
            with suppress(ServerUnreachable):
                while self._flights:
                    self._flights.popleft()
                    self._client.receive()
            raise

    def _judge(self, flight: _Flight, verdict: int, rows: int, crc: int) -> None:
        tally = flight.tally
        if verdict < 0:
            if not self._skip_old:
                raise self._superseded(tally)
            tally.over = True
            tally.goal = None
            self.known += flight.stop - flight.start
            return
        if rows < tally.confirmed:
            raise WriteFailed(
                f"stream {shown(tally.key)} had accepted {tally.confirmed} rows of batch "
                f"{self._batch} and now knows of {rows}: it was deleted, or the server lost what "
                "it had confirmed (appendfsync always prevents that). The task begins again"
            )
        tally.confirmed = rows
        if verdict > 0:
            self.appended += flight.stop - flight.start
            if (rows, crc) != (flight.rows_after, flight.crc_at(rows)):
                raise self._changed(tally, "the rows of the two do not fit together")
        elif rows < flight.rows:
            self._launch(flight)  # an earlier chunk was refused, and was sent again
        elif rows <= flight.rows_after:
            if crc != flight.crc_at(rows):
                raise self._changed(tally, f"its first {rows} rows are others")
            known = rows - flight.rows
            self.known += known
            if rows < flight.rows_after:
                start = flight.start + known
                self._launch(replace(flight, start=start, rows=rows, crc=crc))
        else:
            self.known += flight.stop - flight.start
            if rows > tally.rows:
                tally.goal = (rows, crc)
            # Otherwise it follows a chunk without a reply, which will show the count.

    def _walk(self, tally: _StreamProgress, parts: RowBytes, at: int, stop: int) -> int:
        """Skip rows that the stream has; at their end the CRC must be the same."""
        if tally.over:
            self.known += self._pass(tally, parts, at, stop)
            return stop
        if tally.goal is None:
            return at
        rows, crc = tally.goal
        end = min(stop, at + rows - tally.rows)
        self.known += self._pass(tally, parts, at, end)
        if tally.rows == rows:
            tally.goal = None
            if tally.crc != crc:
                raise self._changed(tally, f"its first {rows} rows are others")
        return end

    def _pass(self, tally: _StreamProgress, parts: RowBytes, start: int, stop: int) -> int:
        tally.crc = parts.crc(start, stop, tally.crc)
        tally.rows += stop - start
        return stop - start

    # ------------------------------------------------------------------------------------ errors

    def _changed(self, tally: _StreamProgress, how: str) -> ChangedReplay:
        return ChangedReplay(
            f"batch {self._batch} of {tally.producer} was replayed with different rows: stream "
            f"{shown(tally.key)} took rows of it from an earlier attempt, and {how}. This "
            "partition adds nothing. Either the source changed in between, or the order of its "
            "rows is not fixed, or two sinks of one query write to this stream. Begin with a new "
            "stream and a new checkpoint, and there with deterministicOrder=sort, or with a sinkId "
            "for each sink"
        )

    def _superseded(self, tally: _StreamProgress) -> Superseded:
        return Superseded(
            f"batch {self._batch} of {tally.producer} comes too late: stream {shown(tally.key)} "
            "has accepted rows of a later batch. If this is no leftover of an old attempt, the "
            "checkpoint was set back or made anew: go on with the newest one, or write to a new "
            "stream"
        )
