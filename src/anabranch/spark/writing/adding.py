"""One XADD per row, pipelined: for servers without a ledger, and for entries that keep their IDs.

A repeated row is recognised by its idempotent ID (Redis 8.6: ``XADD ... IDMP``), which is made from
the row's place in the batch; or by the entry's own ID; or not at all. A server remembers at most
10,000 idempotent IDs for each producer. So the rows of a task are distributed over enough producer
IDs that the server remembers the whole batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import redis

from anabranch.spark.connection.client import (
    ServerClient,
    ServerRefused,
    ServerUnreachable,
    explained,
    facts_of,
    shown,
)
from anabranch.spark.reading.offsets import parse_id
from anabranch.spark.writing.encode import EncodedRows, RowBytes, bulk, runs_by_lane
from anabranch.spark.writing.identity import WriteFailed

ROWS_PER_PRODUCER: Final = 8_000
"""Rows per producer ID of one batch: a server that remembers 10,000 remembers them all."""

_CHUNK_BYTES: Final = 1 << 20
_MAXSIZE: Final = 10_000
_DURATION_LEAST_S: Final = 3_600
_DURATION_S: Final = 86_400  # the greatest value
_ATTEMPTS: Final = 10
_MAKER: Final = "spark-makes-this-stream"
"""A group that makes a stream without entries. In a region it also keeps it, until rows are there.
"""


@dataclass(frozen=True, slots=True)
class MarkedRows:
    """Packed commands for one stream, and the rows that they add."""

    key: bytes
    commands: RowBytes
    rows: EncodedRows

    def slice(self, start: int, stop: int) -> MarkedRows:
        """Rows start ... stop - 1; nothing is copied."""
        return MarkedRows(self.key, self.commands.slice(start, stop), self.rows.slice(start, stop))


class Marks:
    """How repeated rows of a task are recognised, which is the `way`.

    position
        by batch and number of the row in its task, stream and lane
    id
        by the entry's own ID
    none
        not at all: a repeated task adds its rows twice
    """

    def __init__(self, way: str, producer: str, batch: int, trim: Sequence[bytes] = ()) -> None:
        """`trim`: trimming options of XADD."""
        self.repeatable = way != "none"
        """Whether rows whose replies were lost may be sent again."""
        self.windowed = way == "position"
        """Whether the server must remember idempotent IDs."""
        self.name = f"batch {batch} of {producer}"
        """For messages."""
        self._producer = producer
        self._batch = batch
        self._trim = trim
        self._next: defaultdict[tuple[bytes, str], int] = defaultdict(int)

    def mark(self, key: bytes, rows: EncodedRows) -> Iterator[MarkedRows]:
        """The commands that add rows."""
        if not self.windowed:
            ids = [b"*"] if rows.ids is None else [rows.ids]
            yield MarkedRows(key, rows.commands(*_command(key, *self._trim), ids), rows)
            return
        for lane, start, stop in runs_by_lane(rows):
            producer = self._producer if lane is None else f"{self._producer}/{lane}"
            yield from self._by_position(key, producer, rows.slice(start, stop))

    def _by_position(self, key: bytes, producer: str, rows: EncodedRows) -> Iterator[MarkedRows]:
        """Cut where the producer ID changes."""
        at = 0
        while at < len(rows):
            number = self._next[key, producer]
            nth, within = divmod(number, ROWS_PER_PRODUCER)
            size = min(len(rows) - at, ROWS_PER_PRODUCER - within)
            some = rows.slice(at, at + size)
            tokens = pc.binary_join_element_wise(
                pa.scalar(b"%d" % self._batch, pa.binary()),
                pa.array(np.arange(number, number + size)).cast(pa.string()).cast(pa.binary()),
                pa.scalar(b"-", pa.binary()),
            )
            before = _command(key, b"IDMP", f"{producer}/{nth}".encode())
            yield MarkedRows(key, some.commands(*before, [tokens, *self._trim, b"*"]), some)
            self._next[key, producer] += size
            at += size


def _command(key: bytes, *more: bytes) -> tuple[bytes, int]:
    words = (b"XADD", key, *more)
    return b"".join(map(bulk, words)), len(words)


def _wire_of(fields: Sequence[bytes]) -> bytes:
    """The fields and values of an entry as they are sent."""
    return b"*%d\r\n" % len(fields) + b"".join(map(bulk, fields))


# --------------------------------------------------------------------------------------- sending


class Adder:
    """The writing side of one attempt of one task."""

    def __init__(self, client: ServerClient, marks: Marks, *, rows_max: int = 2048) -> None:
        """Nothing is sent yet."""
        self._client = client
        self._marks = marks
        self._rows_max = rows_max
        self._checked: dict[bytes, tuple[int, int]] = {}  # the last ID of a stream at first
        self._grows: set[bytes] = set()  # streams of which all present rows were skipped
        self._waiting: MarkedRows | None = None
        self.appended = 0
        """Sent rows, whether or not the server had them: its replies do not show it."""
        self.known: int | None = None if marks.windowed else 0
        """Rows that the stream had already; None where the server does not report it."""
        self.memory_s: int | None = None
        """For how long all streams remember idempotent IDs; None if that does not matter."""

    def append(self, key: bytes, rows: EncodedRows) -> None:
        """Add rows to a stream; raises `WriteFailed` and `ServerUnreachable`."""
        for run in self._marks.mark(key, rows):
            if self._marks.windowed and run.key not in self._checked:
                self._collect()
                found, last_id = require_window(self._client, run.key)
                self.memory_s = found if self.memory_s is None else min(self.memory_s, found)
                self._checked[run.key] = last_id
            at = 0
            while at < len(run.commands):
                some = run.slice(at, run.commands.reach(at, self._rows_max, _CHUNK_BYTES))
                self._collect()
                if run.rows.ids is not None and run.key not in self._grows:
                    at += self._pass(some)
                else:
                    self._launch(some)
                    at += len(some.rows)

    def finish(self, _expected: bytes | None = None) -> None:
        """Wait for all replies. A stream without rows needs no check, as with a ledger."""
        self._collect()
        if self._checked:
            # An earlier attempt may have made the stream.
            ends = [("XGROUP", "DESTROY", key, _MAKER) for key in self._checked]
            self._client.pipeline(ends, repeatable=True)

    def _launch(self, run: MarkedRows) -> None:
        self._waiting = run
        # Where rows may be sent again, the missing replies will report it once more.
        with suppress(*((ServerUnreachable,) if self._marks.repeatable else ())):
            self._client.send([run.commands.between(0, len(run.rows))])

    def _replies(self, run: MarkedRows) -> list[Any]:
        """All replies; after a broken connection the rows are sent again if that is safe."""

        def received() -> list[Any]:
            return [self._client.receive() for _ in range(len(run.rows))]

        def again() -> None:
            self._client.revive()
            with suppress(ServerUnreachable):  # what is missing then is noticed
                self._client.send([run.commands.between(0, len(run.rows))])

        return self._client.tried(received, repeatable=self._marks.repeatable, between=again)

    def _collect(self) -> None:
        """Process the replies to the rows that were sent."""
        run, self._waiting = self._waiting, None
        if run is None:
            return
        taken: list[int] = []
        known: list[tuple[int, bytes]] = []
        before = self._checked.get(run.key, (0, 0))
        for number, reply in enumerate(self._replies(run)):
            if not isinstance(reply, redis.RedisError):
                self.appended += 1
                if self._marks.windowed and parse_id(reply.decode()) <= before:
                    known.append((number, reply))
            elif run.rows.ids is not None and "equal or smaller" in str(reply):
                taken.append(number)
            else:
                raise WriteFailed(
                    f"stream {shown(run.key)} at {self._client.address} refused a row: "
                    f"{explained(reply)}"
                )
        self._require_equal(run, known)
        if taken:
            self._require_same(run, taken)
            self.known = (self.known or 0) + len(taken)

    def _require_equal(self, run: MarkedRows, known: Sequence[tuple[int, bytes]]) -> None:
        """Rows that the server has recognised, with their IDs, must be those of the first attempt.

        What is trimmed or deleted since is not compared.
        """
        parts = list(run.rows.parts().each(0, len(run.rows))) if known else []
        pages = self._client.ask([("XRANGE", run.key, at, at) for _, at in known]) if known else []
        for (number, at), page in zip(known, pages, strict=True):
            if page and parts[number] != _wire_of(page[0][1]):
                raise WriteFailed(
                    f"{self._marks.name} was replayed with different rows: stream "
                    f"{shown(run.key)} has another one as {shown(at)}, from an earlier attempt or "
                    "another run under the same name and number. Such rows are not added, and what "
                    "follows may be there twice. Either the source changed in between, or the "
                    "order of its rows is not fixed, or two sinks of one query, or two copies of a "
                    "checkpoint, write to this stream. Begin with a new stream and a new "
                    "checkpoint, and there with deterministicOrder=sort, or with a sinkId for each "
                    "sink"
                )

    def _pass(self, run: MarkedRows) -> int:
        """Skip rows that exist with their IDs; returns how many, from the first on."""
        same = self._same(run)
        self.known = (self.known or 0) + same
        if same < len(run.rows):
            self._grows.add(run.key)
        return same

    def _same(self, run: MarkedRows) -> int:
        """How many rows, from the first on, exist unchanged."""
        assert run.rows.ids is not None
        ids = run.rows.ids.to_pylist()
        page = self._client.command(
            *("XRANGE", run.key, ids[0], "+", "COUNT", len(ids)), repeatable=True
        )
        parts = run.rows.parts().each(0, len(ids))
        same = 0
        for wanted, part, (found, fields) in zip(ids, parts, page, strict=False):
            if wanted != found or part != _wire_of(fields):
                break
            same += 1
        return same

    def _require_same(self, run: MarkedRows, taken: list[int]) -> None:
        """The IDs exist: check whether the entries are these rows, from an earlier attempt."""
        assert run.rows.ids is not None
        for number in taken:
            if not self._same(run.slice(number, number + 1)):
                raise WriteFailed(
                    f"ID {shown(run.rows.ids[number].as_py())} cannot be kept: stream "
                    f"{shown(run.key)} holds another entry there, or is behind it already. Rows "
                    "with IDs must arrive in order, all rows of a stream in one partition: "
                    'repartition("stream").sortWithinPartitions(...) by time and sequence'
                )


def require_window(client: ServerClient, key: bytes) -> tuple[int, tuple[int, int]]:
    """Make the stream remember a batch for long enough, without dropping remembered IDs.

    Returns for how many seconds it remembers, and the last ID. Settings are raised only while no
    producer is tracked, because a change drops remembered IDs; otherwise raises `WriteFailed` with
    the command.
    """
    for _ in range(_ATTEMPTS):
        try:
            *_, reply = client.ask([("WATCH", key), ("XINFO", "STREAM", key)])
        except ServerRefused as error:
            raise WriteFailed(f"stream {shown(key)} at {client.address}: {error}") from None
        about = {} if reply is None else facts_of(reply)
        duration, maxsize = (int(about.get(f"idmp-{name}", 0)) for name in ("duration", "maxsize"))
        if duration >= _DURATION_LEAST_S and maxsize >= _MAXSIZE:
            client.command("UNWATCH")
            return duration, parse_id(about["last-generated-id"].decode())
        wanted = duration if duration >= _DURATION_LEAST_S else _DURATION_S
        change = ("XCFGSET", key, "IDMP-DURATION", wanted, "IDMP-MAXSIZE", _MAXSIZE)
        if about.get("pids-tracked", 0):
            client.command("UNWATCH")
            given = " ".join(map(str, ("XCFGSET", shown(key), *change[2:])))
            raise WriteFailed(
                f"stream {shown(key)} remembers {maxsize} idempotent IDs of a producer for "
                f"{duration} s, which is not enough to recognise a repeated batch, and changing "
                "that makes it forget the IDs of all producers. When they may be forgotten, give: "
                f"{given} (idempotence=none goes on without)"
            )
        # Only an existing stream can be configured; `Adder.finish` removes the group that makes it.
        make = [] if about else [("XGROUP", "CREATE", key, _MAKER, "$", "MKSTREAM")]
        *_, done = client.pipeline([("MULTI",), *make, change, ("EXEC",)])
        for reply in done if isinstance(done, list) else [done]:
            if isinstance(reply, redis.RedisError):
                raise WriteFailed(f"stream {shown(key)} at {client.address}: {explained(reply)}")
    raise WriteFailed(f"stream {shown(key)} changes too fast to be configured; try again")
