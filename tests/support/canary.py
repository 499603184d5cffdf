"""A well-behaved client that keeps working while something terrible goes on, and times it."""

from __future__ import annotations

import threading
import time
from typing import Self

from tests.support.wire import RespClient, encode

PAUSE_SECONDS = 0.005  # between two round trips, so that the canary is not the load


class Canary:
    """PING, then XADD and XRANGE of the new entry in one transaction, again and again."""

    def __init__(self, port: int, *, timeout: float = 30.0) -> None:
        """A reply that does not come within `timeout` ends the song."""
        self._port = port
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
            f"another client waited {self.worst_seconds:.3f} s"
        )

    def _sing(self) -> None:
        try:
            with RespClient(self._port, timeout=self._timeout) as client:
                while not self._stop.is_set():
                    started = time.monotonic()
                    self._round_trip(client)
                    self.worst_seconds = max(self.worst_seconds, time.monotonic() - started)
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
