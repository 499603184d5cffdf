"""How long others wait while one client's long command runs: what a canary sees on both servers.

A stream with a million entries, all of them pending in one group, is made on both servers. Each
command runs alone while a canary (`canary.py`) pings each millisecond; what it waited longest, and
the server's CPU, are noted. Commands that change something get a copy of the stream first.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from anabranch.commands.extensions.bulk import IMPORT_ROWS_MAX

from .canary import Canary
from .load import Connection, RefusedError, Request, request, windows
from .measure import Spread, spread
from .servers import Recipe, Server, cpu_between
from .workloads import ADD_LINES, sensor_id

if TYPE_CHECKING:
    from collections.abc import Iterator

BASE, PLAIN = "long:base", "long:plain"
WORK, BULK = "long:work", "long:bulk"
GROUP, OWNER, HEIR = "readers", "owner", "heir"
KEYS_DB, SPARE_DB = 1, 2
FULL_ENTRIES = 1_000_000
MANY = 10
"""One of so many entries is named in a command with many IDs; a pipeline has as many commands."""
TIMES_REDIS, FLOOR_MS = 2.0, 20.0
"""The goal: no wait longer than so many times redis-server's, or than this."""
SAVE_LOOK_S = 0.02
CHUNK = 50_000
SETTLE_S = 0.05


@dataclass(frozen=True, slots=True)
class LongCommand:
    """One row: what is prepared, unmeasured, and what is sent while the canary pings."""

    name: str
    timed: Callable[[Stage], list[Request]]
    prepare: Callable[[Stage], object] | None = None
    ends: Callable[[Stage], None] | None = None
    """Returns when the command has ended, if that is not when its reply is here."""
    is_ours: bool = False
    """Redis has no such command."""


@dataclass(frozen=True, slots=True)
class Waits:
    """One server with one command: the canary's longest wait and the server's CPU."""

    worst_ms: Spread
    cpu_ms: Spread


@dataclass(frozen=True, slots=True)
class LongRow:
    """One command on both servers; without `baseline` where Redis has no such command."""

    name: str
    problem: str
    baseline: Waits | None
    subject: Waits | None
    at_most_ms: float
    passed: bool | None
    at_most_cpu_ms: float | None = None
    """None where the CPU is not judged."""


class Stage:
    """One server with its base stream, a connection to it and a canary."""

    def __init__(self, server: Server, entries: int) -> None:
        """Connect to a running server, and fill it."""
        self.server = server
        self.entries = entries
        self.many = max(1, entries // MANY)
        self.connection = Connection(server.port)
        self._fill()

    def ask(self, *words: bytes | str | int) -> object:
        """Send one command and return its reply."""
        return self.connection.ask(*words)

    def copy(self, db: int = 0) -> None:
        """Make the stream that a command may change."""
        self.ask("COPY", BASE, WORK, "DB", db, "REPLACE")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _fill(self) -> None:
        for first in range(0, self.entries, CHUNK):
            adds = [
                request("XADD", BASE, sensor_id(index), "v", f"{index:08}", lines=ADD_LINES)
                for index in range(first, min(first + CHUNK, self.entries))
            ]
            self.connection.replay(windows(adds, 256))
        self.ask("COPY", BASE, PLAIN)
        self.ask("XGROUP", "CREATE", BASE, GROUP, 0)
        self.ask(*_read_as(OWNER, "COUNT", self.entries, "STREAMS", BASE, ">"))
        self.ask("SELECT", KEYS_DB)
        keys = [request("SET", f"key:{index}", "v") for index in range(self.many)]
        self.connection.replay(windows(keys, 256))
        self.ask("SELECT", 0)


def run_long_commands(
    baseline: Recipe, subject: Recipe, wanted: list[LongCommand], entries: int, rounds: int
) -> Iterator[LongRow]:
    """Run each of the commands on both servers, in turns."""
    with ExitStack() as stack:
        stages = []
        for recipe in (baseline, subject):
            server = stack.enter_context(Server(recipe))
            stage = stack.enter_context(closing(Stage(server, entries)))
            stages.append((stage, stack.enter_context(Canary(server.port, server.pid))))
        for command in wanted:
            yield _row(command, stages, rounds)


def _row(command: LongCommand, stages: list[tuple[Stage, Canary]], rounds: int) -> LongRow:
    taken: list[list[tuple[float, float]]] = [[] for _ in stages]
    skipped = 1 if command.is_ours else 0
    try:
        for _ in range(rounds):
            for side, (stage, canary) in enumerate(stages):
                if side >= skipped:
                    taken[side].append(_sample(command, stage, canary))
    except (RefusedError, OSError) as error:
        return LongRow(command.name, str(error), None, None, FLOOR_MS, None)
    theirs, ours = (waits(samples) if samples else None for samples in taken)
    at_most_ms = FLOOR_MS
    if theirs is not None:
        at_most_ms = max(FLOOR_MS, TIMES_REDIS * theirs.worst_ms.median)
    assert ours is not None
    return LongRow(command.name, "", theirs, ours, at_most_ms, ours.worst_ms.median <= at_most_ms)


def waits(samples: list[tuple[float, float]]) -> Waits:
    """Return what samples of a canary's wait and the server's CPU, in milliseconds, amount to."""
    worst, cpu = zip(*samples, strict=True)
    return Waits(spread(worst), spread(cpu))


def _sample(command: LongCommand, stage: Stage, canary: Canary) -> tuple[float, float]:
    """Milliseconds: the canary's longest wait, and the server's CPU."""
    if command.prepare is not None:
        command.prepare(stage)
    requests = command.timed(stage)
    payload = b"".join(one.payload for one in requests)
    before = stage.server.cpu()
    canary.look()
    stage.connection.send_and_skim(payload)
    if command.ends is not None:
        command.ends(stage)
    time.sleep(SETTLE_S)
    worst_ms = canary.look().worst_ms
    cpu_ms = cpu_between(before, stage.server.cpu()) / 1e6
    stage.ask("DEL", WORK, BULK)
    return worst_ms, cpu_ms


# -- the commands -----------------------------------------------------------------------------


def long_commands() -> list[LongCommand]:
    """Return all of them in the order in which they are run and listed."""
    return [
        _reading("XRANGE - +", "XRANGE", BASE, "-", "+"),
        _reading("XREVRANGE + -", "XREVRANGE", BASE, "+", "-"),
        _reading("XREAD from 0", "XREAD", "STREAMS", BASE, "0"),
        LongCommand(
            "XPENDING - + over all",
            lambda stage: [request("XPENDING", BASE, GROUP, "-", "+", stage.entries)],
        ),
        _reading("XINFO STREAM FULL COUNT 0", "XINFO", "STREAM", BASE, "FULL", "COUNT", "0"),
        LongCommand(
            "XREADGROUP, all new",
            lambda stage: [request(*_read_as(HEIR, "STREAMS", WORK, ">"))],
            lambda stage: (stage.copy(), stage.ask("XGROUP", "SETID", WORK, GROUP, 0)),
        ),
        LongCommand(
            "XREADGROUP, history",
            lambda stage: [request(*_read_as(OWNER, "STREAMS", WORK, 0))],
            Stage.copy,
        ),
        LongCommand(
            "XAUTOCLAIM of all",
            lambda stage: [
                request("XAUTOCLAIM", WORK, GROUP, HEIR, 0, "-", "COUNT", stage.entries)
            ],
            Stage.copy,
        ),
        LongCommand(
            "XAUTOCLAIM of all for one who has some",
            lambda stage: [
                request("XAUTOCLAIM", WORK, GROUP, HEIR, 0, "-", "COUNT", stage.entries)
            ],
            lambda stage: (
                stage.copy(),
                stage.ask(
                    *("XCLAIM", WORK, GROUP, HEIR, 0),
                    *map(sensor_id, range(0, stage.entries, MANY)),
                    "JUSTID",
                ),
            ),
        ),
        _of_many("XCLAIM", GROUP, HEIR, 0),
        _of_many("XACK", GROUP),
        _of_many("XDEL"),
        LongCommand(
            "XDEL of every tenth entry",
            lambda stage: [
                request("XDEL", WORK, *map(sensor_id, range(0, stage.entries, MANY))),
            ],
            Stage.copy,
        ),
        _changing("XGROUP DELCONSUMER", "XGROUP", "DELCONSUMER", WORK, GROUP, OWNER),
        _changing("XGROUP DESTROY", "XGROUP", "DESTROY", WORK, GROUP),
        _changing("XTRIM MAXLEN 0", "XTRIM", WORK, "MAXLEN", 0),
        _changing("XTRIM MAXLEN = 1000", "XTRIM", WORK, "MAXLEN", "=", 1000),
        _reading("DUMP without groups", "DUMP", PLAIN),
        _reading("DUMP", "DUMP", BASE),
        _restoring("RESTORE without groups", PLAIN),
        _restoring("RESTORE", BASE),
        _reading("COPY", "COPY", BASE, WORK),
        _changing("RENAME", "RENAME", WORK, BULK),
        _changing("DEL", "DEL", WORK),
        _changing("UNLINK", "UNLINK", WORK),
        LongCommand(
            "FLUSHDB",
            lambda _: [request("SELECT", SPARE_DB), request("FLUSHDB"), request("SELECT", 0)],
            lambda stage: stage.copy(SPARE_DB),
        ),
        _of_many_names("EXISTS"),
        _of_many_names("MGET", keys_exist=True),
        _of_many_names("SADD"),
        _of_many_names("MSET"),
        _of_many_names("MSET", "existing keys", keys_exist=True),
        _of_many_names("DEL", keys_exist=True),
        _of_many_names("SUBSCRIBE"),
        _of_many_names("XREAD"),
        LongCommand(
            "KEYS *, a tenth as many keys",
            lambda _: [request("SELECT", KEYS_DB), request("KEYS", "*"), request("SELECT", 0)],
        ),
        _reading("SAVE", "SAVE"),
        LongCommand("BGSAVE", lambda _: [request("BGSAVE")], ends=_saved),
        LongCommand(
            "a pipeline of a tenth as many XADD",
            lambda stage: [request("XADD", BULK, "*", "v", "1")] * stage.many,
        ),
        _transaction("XADD", BULK, "*", "v", "1"),
        _transaction("SET", BULK, "v"),
        _reading("AB.DIGEST", "AB.DIGEST", BASE, is_ours=True),
        LongCommand(
            "AB.EXPORT of all",
            lambda stage: [request("AB.EXPORT", BASE, "", 0, stage.entries, "MAXBYTES", 1 << 30)],
            is_ours=True,
        ),
        LongCommand(
            "AB.IMPORT of as many rows as it takes",
            lambda _: [request("AB.IMPORT", BULK, _rows(IMPORT_ROWS_MAX))],
            is_ours=True,
        ),
    ]


def _read_as(consumer: str, *words: str | int) -> tuple[str | int, ...]:
    return ("XREADGROUP", "GROUP", GROUP, consumer, *words)


def _reading(name: str, *words: str, is_ours: bool = False) -> LongCommand:
    return LongCommand(name, lambda _: [request(*words)], is_ours=is_ours)


def _changing(name: str, *words: str | int) -> LongCommand:
    return LongCommand(name, lambda _: [request(*words)], Stage.copy)


def _of_many(name: str, *words: str | int) -> LongCommand:
    """A command with many IDs, the oldest of the stream."""

    def timed(stage: Stage) -> list[Request]:
        return [request(name, WORK, *words, *map(sensor_id, range(stage.many)))]

    return LongCommand(f"{name} of a tenth of the IDs", timed, Stage.copy)


def _of_many_names(name: str, arguments: str = "names", *, keys_exist: bool = False) -> LongCommand:
    """A command with many arguments; the names are those of keys, with values for MSET."""

    def timed(stage: Stage) -> list[Request]:
        names = [f"key:{index}" for index in range(stage.many)]
        words = [BULK, *names] if name == "SADD" else names
        if name == "XREAD":
            words = ["STREAMS", *names, *["0-1"] * stage.many]
        if name == "MSET":
            words = [word for each in names for word in (each, "v")]
        # With RESP3 a PING is answered in the same way while there are subscriptions.
        return [request("HELLO", 3), request("SELECT", SPARE_DB), request(name, *words),
                request("RESET")]  # fmt: skip

    def prepare(stage: Stage) -> None:
        stage.ask("SELECT", SPARE_DB)
        stage.ask("FLUSHDB")
        if keys_exist:
            keys = [request("SET", f"key:{index}", "v") for index in range(stage.many)]
            stage.connection.replay(windows(keys, 256))
        stage.ask("SELECT", 0)

    return LongCommand(f"{name} of a tenth as many {arguments}", timed, prepare)


def _transaction(*words: str) -> LongCommand:
    def timed(stage: Stage) -> list[Request]:
        return [request("MULTI"), *[request(*words)] * stage.many, request("EXEC")]

    return LongCommand(f"a transaction of a tenth as many {words[0]}", timed)


def _restoring(name: str, source: str) -> LongCommand:
    def timed(stage: Stage) -> list[Request]:
        payload = stage.ask("DUMP", source)
        assert isinstance(payload, bytes)
        return [request("RESTORE", WORK, 0, payload)]

    return LongCommand(name, timed)


def _saved(stage: Stage) -> None:
    while b"rdb_bgsave_in_progress:0" not in stage.ask("INFO", "persistence"):  # type: ignore[operator]
        time.sleep(SAVE_LOOK_S)


def _rows(count: int) -> bytes:
    rows = [b"*2\r\n$1\r\nv\r\n$8\r\n%08d\r\n" % index for index in range(count)]
    return b"".join([struct.pack(f"<I{count}I", count, *accumulate(map(len, rows))), *rows])
