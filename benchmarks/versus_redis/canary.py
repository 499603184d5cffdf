"""A client that sends PING each millisecond from a process of its own and knows its longest wait.

`Canary` starts the process and asks it; run as a program this module is that process:
`python -m benchmarks.versus_redis.canary PORT`. Each line that it reads is the end of one period
and the beginning of the next: it answers with the longest wait of the period in microseconds and
the number of its pings. A ping under way when a line arrives belongs to the period that ends.
"""

from __future__ import annotations

import gc
import select
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

PERIOD_S = 0.001
ASK_TIMEOUT_S = 60.0
PING, PONG = b"PING\r\n", b"+PONG\r\n"


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a canary saw in one period."""

    worst_ms: float
    pings: int


class Canary:
    """A canary beside one server; a context manager."""

    def __init__(self, port: int) -> None:
        """Start the process; it pings the server on this port of this machine."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.versus_redis.canary", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Canary:
        """Wait until it pings."""
        self.look()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def look(self) -> Sighting:
        """End a period and begin the next; what was seen in the one that ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        if not select.select([self._process.stdout], [], [], ASK_TIMEOUT_S)[0]:
            raise TimeoutError("the canary got no answer to its ping")
        worst_us, pings = self._process.stdout.readline().split()
        return Sighting(int(worst_us) / 1000, int(pings))


def main(port: int) -> None:
    """Ping until standard input ends."""
    gc.disable()  # its own pauses are not the server's
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        worst_ns = pings = 0
        due = time.perf_counter()
        while True:
            began = time.perf_counter_ns()
            client.sendall(PING)
            if client.recv(64) != PONG:
                raise SystemExit("the server did not answer PONG")
            worst_ns = max(worst_ns, time.perf_counter_ns() - began)
            pings += 1
            due = max(due + PERIOD_S, time.perf_counter())
            while select.select([sys.stdin], [], [], max(due - time.perf_counter(), 0))[0]:
                if not sys.stdin.readline():
                    return
                print(worst_ns // 1000, pings, flush=True)
                worst_ns = pings = 0


if __name__ == "__main__":
    main(int(sys.argv[1]))
