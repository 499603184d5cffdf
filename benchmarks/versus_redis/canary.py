"""A client that sends PING each millisecond from a process of its own and knows its longest wait.

`Canary` starts the process and asks it; run as a program this module is that process:
`python -m benchmarks.versus_redis.canary PORT PID`. Each line that it reads is the end of one
period and the beginning of the next: it answers with the longest wait of the period, by the clock
and by the server's CPU, both in microseconds, and the number of its pings. A ping under way when a
line arrives belongs to the period that ends.

A wait by the server's CPU is what the threads of the server ran between a ping and its answer. It
does not depend on what else the machine does, so a test can have a bound for it.
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
CPU_OF_PROCESS = 2
"""The kind of a CPU clock that the kernel's scheduler keeps, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a canary saw in one period."""

    worst_ms: float
    worst_cpu_ms: float
    """What the server's threads ran during one ping at most."""
    pings: int


class Canary:
    """A canary beside one server; a context manager."""

    def __init__(self, port: int, server_pid: int) -> None:
        """Start the process; it pings the server on this port of this machine."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.versus_redis.canary", str(port), str(server_pid)],
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
        worst_us, worst_cpu_us, pings = map(int, self._process.stdout.readline().split())
        return Sighting(worst_us / 1000, worst_cpu_us / 1000, pings)


def cpu_clock(pid: int) -> int:
    """Return the clock of the CPU time of all threads of a process, as Linux numbers it."""
    return ~pid << 3 | CPU_OF_PROCESS


def main(port: int, server_pid: int) -> None:
    """Ping until standard input ends."""
    gc.disable()  # its own pauses are not the server's
    server_cpu = cpu_clock(server_pid)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        worst_ns = worst_cpu_ns = pings = 0
        due = time.perf_counter()
        while True:
            cpu_before = time.clock_gettime_ns(server_cpu)
            began = time.perf_counter_ns()
            client.sendall(PING)
            if client.recv(64) != PONG:
                raise SystemExit("the server did not answer PONG")
            worst_ns = max(worst_ns, time.perf_counter_ns() - began)
            worst_cpu_ns = max(worst_cpu_ns, time.clock_gettime_ns(server_cpu) - cpu_before)
            pings += 1
            due = max(due + PERIOD_S, time.perf_counter())
            while select.select([sys.stdin], [], [], max(due - time.perf_counter(), 0))[0]:
                if not sys.stdin.readline():
                    return
                print(worst_ns // 1000, worst_cpu_ns // 1000, pings, flush=True)
                worst_ns = worst_cpu_ns = pings = 0


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
