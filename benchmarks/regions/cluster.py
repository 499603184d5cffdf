"""Regions as real processes on one machine, and what the benchmarks ask of them.

The first region runs on the last core; the others share the core before that, if there is one: a
region has a machine of its own in life, and what is measured is mostly one against one.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks.versus_redis.load import Connection
from benchmarks.versus_redis.servers import CpuReading, Recipe, Server, cpu_between

if TYPE_CHECKING:
    from collections.abc import Callable

ENTER_TIMEOUT_S = 60.0
LOOK_S = 0.005
WAIT_MS = 5000
"""One AB.WAITFOR; shorter than what a connection waits for a reply."""

Peer = dict[str, object]


class Region:
    """One region: a process that keeps its ports, and a connection to it."""

    def __init__(self, number: int, ports: tuple[int, int], entry: tuple[str, ...]) -> None:
        """Start the process; `entry` is what makes it a region among others."""
        self.number = number
        port, self.gossip_port = ports
        words = [
            *("--region-id", str(number), "--gossip-port", str(self.gossip_port)),
            *("--enable-debug-command", "yes", "--xadd-id-uniqueness-mode", "semi-strict"),
            *("--auto-aof-rewrite-percentage", "0", *entry),
        ]

        def command(port: int, directory: Path) -> list[str]:
            serve = ["serve", "--port", str(port), "--dir", str(directory)]
            return [sys.executable, "-m", "anabranch", *serve, *words]

        core = _core_of(number)
        self.server = Server(Recipe(f"region {number}", command), port=port, core=core)
        self._connection: Connection | None = None
        self._is_stopped = False

    @property
    def connection(self) -> Connection:
        """A connection that stays open while the process lives."""
        if self._connection is None:
            self._connection = Connection(self.server.port)
        return self._connection

    def ask(self, *words: str | int | bytes) -> object:
        """Send one command; an error reply is raised."""
        return self.connection.ask(*words)

    def end(self) -> None:
        """End the process in an orderly way; its data stay."""
        self._disconnect()
        self.server.end()

    def kill(self) -> None:
        """End the process at once; its data stay."""
        self._disconnect()
        self.server.send_signal(signal.SIGKILL)
        self.server.end()

    def freeze(self) -> None:
        """Stop the process where it is, its connections open."""
        self._is_stopped = True
        self.server.send_signal(signal.SIGSTOP)

    def stop(self) -> None:
        """End the process for good."""
        self._disconnect()
        if self._is_stopped:
            self.server.send_signal(signal.SIGCONT)
        self.server.stop()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def cpu(self) -> CpuReading:
        """Return what its threads have run so far."""
        return self.server.cpu()

    def cpu_s(self, since: CpuReading) -> float:
        """Return the seconds its threads have run since a reading."""
        return cpu_between(since, self.server.cpu()) / 1e9

    def peer(self, number: int) -> Peer:
        """Return the fields of AB.PEERS about another region; empty if it knows of none."""
        rows = self.ask("AB.PEERS")
        assert isinstance(rows, list)
        for row in rows:
            fields = dict(zip(map(_text, row[::2]), row[1::2], strict=True))
            if fields["region"] == number:
                return fields
        return {}

    def count(self, number: int, field: str) -> int:
        """Return one number of AB.PEERS about another region."""
        value = self.peer(number)[field]
        assert isinstance(value, int)
        return value

    def takes_writes(self) -> bool:
        """Return whether it has got what the others had when it joined."""
        facts = self.ask("INFO", "replication")
        assert isinstance(facts, bytes)
        return b"caught_up:1" in facts

    def token(self) -> bytes:
        """Return the token of all that it has applied."""
        token = self.ask("AB.TOKEN")
        assert isinstance(token, bytes)
        return token

    def wait_for(self, token: bytes) -> None:
        """Return when it has applied all that a token tells of."""
        while self.ask("AB.WAITFOR", token, WAIT_MS) != b"OK":
            self.server.check()

    def rewrite(self) -> None:
        """Take a snapshot and drop the log that it stands for."""
        self.ask("BGREWRITEAOF")
        while True:
            facts = self.ask("INFO", "persistence")
            assert isinstance(facts, bytes)
            if b"aof_rewrite_in_progress:0" in facts and b"aof_rewrite_scheduled:0" in facts:
                return
            time.sleep(LOOK_S)

    def stored_bytes(self) -> int:
        """Return the size of all its files."""
        files = (path for path in self.server.data.rglob("*") if path.is_file())
        return sum(path.stat().st_size for path in files)


class Cluster:
    """Some regions that have found each other; a context manager."""

    def __init__(self, count: int, *options: str) -> None:
        """`options` are settings of all regions."""
        self._count = count
        self._options = options
        self._stack = ExitStack()
        self.regions: list[Region] = []

    def __enter__(self) -> Self:
        """Start them, and return when every one is connected with all others."""
        ports = quiet_ports(2 * self._count)
        first = ports[1]
        with ExitStack() as stack:
            for number in range(1, self._count + 1):
                entry = ("--join", f"127.0.0.1:{first}")
                if number == 1:
                    entry = ("--cluster-create", "yes")
                pair = ports[2 * number - 2], ports[2 * number - 1]
                region = Region(number, pair, (*entry, *self._options))
                stack.callback(region.stop)
                self.regions.append(region)
            for region in self.regions:
                region.server.wait_until_ready()
            wait_until(self._is_whole, "the regions have found each other")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all of them."""
        self._stack.close()

    def _is_whole(self) -> bool:
        return all(region.takes_writes() for region in self.regions) and all(
            region.peer(other.number).get("state") == b"in_sync"
            for region in self.regions
            for other in self.regions
            if other is not region
        )

    def converge(self) -> None:
        """Return when every region has applied what all have now."""
        for token in [region.token() for region in self.regions]:
            for region in self.regions:
                region.wait_for(token)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Return as soon as something holds; RuntimeError after a minute."""
    deadline = time.monotonic() + ENTER_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"it did not come to this in {ENTER_TIMEOUT_S:g} s: {what}")
        time.sleep(LOOK_S)


def quiet_ports(count: int) -> list[int]:
    """Return ports that nobody has, nor is given while a region is down and others dial it."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(12_000, low)  # noqa: S311 - nothing here is secret
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


def _core_of(number: int) -> int | None:
    """Return where a region runs; None is the core of the servers, which we have left to them."""
    return None if number == 1 else max(os.sched_getaffinity(0))


def _text(raw: object) -> str:
    assert isinstance(raw, bytes)
    return raw.decode()
