"""Killed at any moment: what was acknowledged is there, and nothing is half there.

Several connections write at once, each to keys of its own, until the process is killed. After the
restart every key must be what a server in memory makes of the same commands: of all that were
answered, and of the first few of those that were not.

``ANABRANCH_CRASH_ROUNDS`` asks for more kills, ``ANABRANCH_CRASH_SEED`` for others.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import AnabranchServer
from tests.support.streams import Streams
from tests.support.wire import (
    ConnectionLost,
    Reply,
    RespClient,
    encode_command,
    parse_reply,
)

ROUNDS = int(os.environ.get("ANABRANCH_CRASH_ROUNDS", "0"))
SEED = int(os.environ.get("ANABRANCH_CRASH_SEED", "1"))
WRITERS = 4
SECONDS = 60.0

SETTINGS = {
    "stream-node-max-entries": "4",
    "stream-idmp-duration": "86400",
    "stream-idmp-maxsize": "10000",
}
"""Small nodes, so that each of their ends is met; times that do not run out."""

SERVER = (
    *(part for name, value in SETTINGS.items() for part in (f"--{name}", value)),
    *("--auto-aof-rewrite-min-size", "30kb", "--oplog-segment-bytes", "4096"),
    *("--enable-debug-command", "yes", "--hz", "100"),
)

Line = list[str]
Request = tuple[Line, ...]
"""A command, or MULTI to EXEC: what happens as a whole or not at all."""

# {k} one of the streams, {id} the next ID, {old} {other} earlier ones, {n} a small number.
LINES = """
XADD {k} {id} payload {id}
XADD {k} {id} payload {id}
XADD {k} {id} payload {id} more {n}
XADD {k} MAXLEN ~ 9 {id} payload {id}
XADD {k} MAXLEN 9 {id} payload {id}
XADD {k} MINID {old} {id} payload {id}
XADD {k} {old} payload tooold
XIDMPRECORD {k} p {n} {old}
XDEL {k} {old} {other}
XDELEX {k} ACKED IDS 1 {old}
XACKDEL {k} g DELREF IDS 2 {old} {other}
XTRIM {k} MAXLEN ~ 1{n}
XTRIM {k} MINID {old}
XSETID {k} {id} ENTRIESADDED 1000 MAXDELETEDID {old}
XCFGSET {k} IDMP-MAXSIZE 9{n}
XGROUP CREATE {k} g 0 MKSTREAM
XGROUP CREATE {k} g $
XGROUP SETID {k} g {old}
XGROUP CREATECONSUMER {k} g c{n}
XGROUP DELCONSUMER {k} g c{n}
XREADGROUP GROUP g c{n} COUNT 3 STREAMS {k} >
XREADGROUP GROUP g c{n} COUNT 3 STREAMS {k} >
XREADGROUP GROUP g c{n} COUNT 1 NOACK STREAMS {k} >
XACK {k} g {old} {other}
XCLAIM {k} g c{n} 0 {old} {other} FORCE
XAUTOCLAIM {k} g c{n} 0 - COUNT 2
XNACK {k} g FAIL IDS 1 {old} FORCE
SET {s} {id}
INCR {c}
PEXPIREAT {k} 41024448{n}0000
PERSIST {k}
RENAME {k} {k2}
COPY {k} {k2} REPLACE
DEL {k2}
RPUSH {l} {id} {n}
LPOP {l}
""".strip().splitlines()

SNAPSHOTS = ("BGSAVE", "BGREWRITEAOF")


class Writer:
    """One connection, the keys that only it writes, and what they should hold."""

    def __init__(self, number: int, seed: int) -> None:
        self.rng = random.Random(f"{seed} {number}")
        self.number = number
        self.streams = [f"{name}{number}" for name in "xyz"]
        self.keys = [*self.streams, *(f"{name}{number}" for name in "scl")]
        self.events = f"i{number}"
        self.now_ms = time.time_ns() // 1_000_000
        self.model = Streams(self.now_ms)
        for name, value in SETTINGS.items():
            self.model.do("CONFIG", "SET", name, value)
        self.ids = 100
        self.answered: list[tuple[Request, Reply]] = []
        self.open: list[Request] = []
        self.produced: dict[str, bytes | None] = {}
        """What was sent with an idempotent ID, and the entry's ID once it is known."""

    # -- commands -----------------------------------------------------------------------------

    def request(self) -> Request:
        """Whatever comes next."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.01:
            return ([rng.choice(SNAPSHOTS)],)
        if roll < 0.1:
            return (["XADD", self.events, "IDMP", "p", str(len(self.produced)), "*", "f", "v"],)
        if roll < 0.3:
            one, other = rng.sample(self.streams, 2)
            return (["MULTI"], self._line("XADD", one), self._line("XADD", other), ["EXEC"])
        return (self._line(rng.choice(LINES)),)

    def _line(self, template: str, key: str | None = None) -> Line:
        rng = self.rng
        if template == "XADD":
            template = "XADD {k} {id} payload {id}"
        self.ids += 1
        first, second = rng.sample(self.streams, 2)
        return template.format(
            k=key or first, k2=second, n=rng.randint(0, 3), id=self._id(self.ids),
            old=self._id(self.ids - rng.randint(1, 30)),
            other=self._id(self.ids - rng.randint(1, 30)),
            s=self.keys[3], c=self.keys[4], l=self.keys[5],
        ).split()  # fmt: skip

    def _id(self, number: int) -> str:
        """Some IDs follow one another, some do not."""
        return f"{self.now_ms + number // 7}-{number}"

    def run(self, port: int, goes_on: Callable[[Writer], bool]) -> None:
        """Send and note until the connection breaks, or it is enough."""
        self.answered.clear()
        self.open.clear()
        try:
            with RespClient(port, timeout=SECONDS) as client:
                while True:
                    requests = [self.request() for _ in range(self.rng.choice((1, 1, 1, 3)))]
                    self.open.extend(requests)
                    for request in requests:
                        if request[0][0] == "XADD" and "IDMP" in request[0]:
                            self.produced.setdefault(request[0][4])
                    packet = [encode_command(line) for request in requests for line in request]
                    client.send_raw(b"".join(packet))
                    if not goes_on(self):
                        return
                    for request in requests:
                        for _ in request:
                            reply = client.read_reply()
                        self.answered.append((request, reply))
                        self.open.pop(0)
        except (ConnectionLost, OSError):
            pass

    # -- what should be there -----------------------------------------------------------------

    def check(self, client: RespClient) -> None:
        """Compare what is there with what a server in memory makes of the same commands."""
        for request, reply in self.answered:
            if request[0][0] == "XADD" and "IDMP" in request[0]:
                assert reply[0] == "$", reply
                self.produced[request[0][4]] = reply[1]
            elif request[0][0] not in SNAPSHOTS:
                assert self._in_memory(request) == reply, (request, reply)
        found = observed(client.call, self.keys)
        expected = self._observed()
        behind = list(self.open)
        while found != expected and behind:
            self._in_memory(behind.pop(0))
            expected = self._observed()
        assert found == expected, (
            f"writer {self.number}, not answered: {self.open}, {difference(found, expected)}"
        )
        self._check_events(client)

    def _in_memory(self, request: Request) -> Reply | None:
        if request[0][0] in SNAPSHOTS or request[0][1:2] == [self.events]:
            return None
        for line in request:
            raw = self.model.raw(*line)
        return parse_reply(raw)[0]

    def _observed(self) -> list[Any]:
        return observed(lambda *args: parse_reply(self.model.raw(*args))[0], self.keys)

    def _check_events(self, client: RespClient) -> None:
        """Each event is there once, under the ID that was answered, and is known when repeated."""
        entries = [row[1][0][1] for row in client.call("XRANGE", self.events, "-", "+")[1]]
        known = [entry_id for entry_id in self.produced.values() if entry_id is not None]
        assert set(known) <= set(entries)
        assert len(entries) == len(set(entries))
        assert len(entries) <= len(self.produced)
        for name in list(self.produced)[-5:]:
            reply = client.call("XADD", self.events, "IDMP", "p", name, "*", "f", "v")
            assert self.produced[name] in (None, reply[1])
            self.produced[name] = reply[1]
        length = client.call("XLEN", self.events)[1]
        assert length == len([entry_id for entry_id in self.produced.values() if entry_id])


def observed(call: Callable[..., Reply], keys: list[str]) -> list[Any]:
    """All that clients can see of some keys, but for times."""
    seen: list[Any] = []
    for key in keys:
        kind = call("TYPE", key)[1]
        seen += [kind, call("PEXPIRETIME", key)]
        if kind == b"stream":
            seen.append(timeless(call("XINFO", "STREAM", key, "FULL", "COUNT", 0)[1]))
        elif kind == b"string":
            seen.append(call("GET", key))
        elif kind == b"list":
            seen.append(call("LRANGE", key, 0, -1))
    return seen


def difference(found: Any, expected: Any) -> str:
    """The first place where two differ."""
    if isinstance(found, dict) and isinstance(expected, dict) and found.keys() == expected.keys():
        pairs = [(name, found[name], expected[name]) for name in found]
    elif (
        isinstance(found, list | tuple)
        and isinstance(expected, list | tuple)
        and len(found) == len(expected)
    ):
        pairs = [(index, *both) for index, both in enumerate(zip(found, expected, strict=True))]
    else:
        return f"{found!r} instead of {expected!r}"
    place, one, other = next(pair for pair in pairs if pair[1] != pair[2])
    return f"{place!r}: {difference(one, other)}"


def timeless(pairs: list[Reply]) -> dict[bytes, Any]:
    """A map of XINFO without the times in it."""
    fields = dict(zip([name for _, name in pairs[::2]], pairs[1::2], strict=True))
    seen: dict[bytes, Any] = {}
    for name, (kind, value) in fields.items():
        if name == b"seen-time":
            continue
        if name == b"active-time":
            seen[name] = value < 0
        elif name in {b"groups", b"consumers"}:
            seen[name] = [timeless(row) for _, row in value]
        elif name == b"pending":  # a time stands before the last column
            seen[name] = [row[:-2] + row[-1:] for _, row in value]
        else:
            seen[name] = kind, value
    return seen


class Crashes:
    """A directory, the servers that live and die in it, and who writes."""

    def __init__(self, directory: Path, seed: int, *extra: str) -> None:
        self.rng = random.Random(seed)
        self.server = AnabranchServer(directory, extra=(*SERVER, *extra))
        self.writers = [Writer(number, seed) for number in range(WRITERS)]
        self.acknowledged = 0
        self.unanswered = 0

    def round(self) -> None:
        """Write, kill, start, compare."""
        self._write_until_killed()
        if self.rng.random() < 0.15:
            self._kill_while_starting()
        self.server.start()
        with self.server.client() as client:
            for writer in self.writers:
                writer.check(client)
            exact = self._digest(client)
            if self.rng.random() < 0.4:
                assert client.call("DEBUG", "RELOAD") == ("+", b"OK")
                assert self._digest(client) == exact
            elif self.rng.random() < 0.3:
                assert client.call("DEBUG", "LOADAOF") == ("+", b"OK")
                assert self._digest(client) == exact
        if self.rng.random() < 0.2:
            self.server.kill()
            self.server.start()
            with self.server.client() as client:
                assert self._digest(client) == exact

    def _write_until_killed(self) -> None:
        process = self.server.process
        assert process is not None
        fatal = self.rng.randint(20, 600)
        delay_s = self.rng.choice((0, 0, self.rng.random() * 0.003))
        lock = threading.Lock()
        sent = 0

        def goes_on(_: Writer) -> bool:
            nonlocal sent
            with lock:
                sent += 1
                mine = sent == fatal
            if mine:
                time.sleep(delay_s)
                process.send_signal(signal.SIGKILL)
            return not mine

        threads = [
            threading.Thread(target=writer.run, args=(self.server.port, goes_on))
            for writer in self.writers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
            assert not thread.is_alive()
        self.server.kill()
        self.acknowledged += sum(len(writer.answered) for writer in self.writers)
        self.unanswered += sum(len(writer.open) for writer in self.writers)

    def _kill_while_starting(self) -> None:
        with self.server.log_path.open("ab") as log:
            process = subprocess.Popen(
                list(self.server.command()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.server.directory,
                env=dict(self.server.environment()),
            )
        try:
            process.wait(self.rng.uniform(0.2, 0.8))
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()

    def _digest(self, client: RespClient) -> bytes:
        kind, digest = client.call("DEBUG", "DIGEST", "EXACT")
        assert kind == "+"
        assert isinstance(digest, bytes)
        return digest


@pytest.mark.timeout(600 + 5 * ROUNDS)
@pytest.mark.parametrize(("policy", "rounds"), [("always", 5), ("everysec", 4)])
def test_a_kill_loses_nothing_that_was_answered_and_halves_nothing(
    tmp_path: Path, policy: str, rounds: int
) -> None:
    crashes = Crashes(tmp_path, SEED, "--appendfsync", policy)
    crashes.server.start()
    try:
        for _ in range(ROUNDS or rounds):
            crashes.round()
    finally:
        crashes.server.kill()
    log = crashes.server.log_text()
    assert "Traceback" not in log
    assert "internal_error" not in log
    assert crashes.acknowledged > 20 * rounds
    assert crashes.unanswered > rounds
    assert "snapshot.finished" in log
