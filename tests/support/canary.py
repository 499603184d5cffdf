"""A well-behaved client that keeps working while something terrible goes on, and times it.

What it waits is told in the CPU that the server uses meanwhile: it does not depend on what else the
machine does.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from benchmarks.versus_redis.canary import cpu_clock
from tests.support.wire import RespClient, encode

if TYPE_CHECKING:
    from tests.support.servers import ServerProcess

PAUSE_SECONDS = 0.005  # between two round trips, so that the canary is not the load


class Canary:
    """PING, then XADD and XRANGE of the new entry in one transaction, again and again."""

    def __init__(self, server: ServerProcess, *, timeout: float = 60.0) -> None:
        """A reply that does not come within `timeout` ends the song."""
        assert server.process is not None
        self._port = server.port
        self._server_cpu = cpu_clock(server.process.pid)
        self._timeout = timeout
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sing, name="canary")
        self.round_trips = 0
        self.worst_seconds = 0.0
        self.failure: BaseException | None = None

    def __enter__(self) -> Self:
        """Singing."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Silent; look at `failure`, or call `check`."""
        self._stop.set()
        self._thread.join()

    def check(self, worst_seconds: float) -> None:
        """Fail unless everything was answered rightly and in time."""
        if self.failure is not None:
            raise AssertionError("another client was not served") from self.failure
        assert self.round_trips, "the canary never sang"
        assert self.worst_seconds < worst_seconds, (
            f"another client waited {self.worst_seconds:.3f} s of the server's CPU"
        )

    def _sing(self) -> None:
        try:
            with RespClient(self._port, timeout=self._timeout) as client:
                while not self._stop.is_set():
                    before = time.clock_gettime(self._server_cpu)
                    self._round_trip(client)
                    seconds = time.clock_gettime(self._server_cpu) - before
                    self.worst_seconds = max(self.worst_seconds, seconds)
                    self.round_trips += 1
                    self._stop.wait(PAUSE_SECONDS)
        except BaseException as failure:
            self.failure = failure

    def _round_trip(self, client: RespClient) -> None:
        assert client.call("PING") == ("+", b"PONG")
        value = encode(self.round_trips)
        last = client.pipeline(
            [
                ("MULTI",),
                ("DEL", "canary"),
                ("XADD", "canary", "MAXLEN", 10, "*", "song", value),
                ("XREVRANGE", "canary", "+", "-", "COUNT", 1),
                ("EXEC",),
            ]
        )[-1]
        kind, replies = last
        assert kind == "*", last
        added, read = replies[1], replies[2]
        assert read == ("*", [("*", [added, ("*", [("$", b"song"), ("$", value)])])]), last
