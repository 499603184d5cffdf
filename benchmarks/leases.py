"""What leases cost, for docs/policies.md: ``python -m benchmarks.leases``.

A server has a group with a million pending entries, without and with a lease. The program prints
the bytes of each, the CPU of the server at rest, and the longest wait of another client while
100,000 entries fall due together. That wait is the CPU which the server spends between request and
reply: what it would be on a machine without other work. ``--entries`` makes it smaller.
"""

from __future__ import annotations

import argparse
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import redis

from benchmarks.shared.form import measured_form
from benchmarks.shared.thread_clock import ThreadClock, at_once
from tests.support.servers import AnabranchServer
from tests.support.wire import encode_command

ENTRIES: Final = 1_000_000
DUE: Final = 100_000
CONSUMERS: Final = 10
REST_S: Final = 20.0

LEASES: Final = ("none", "connection:100ms", "heartbeat:1h", "time:1h")


def cpu_ms(pid: int) -> float:
    """The running time of the thread that serves clients."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e6


def pid_of(client: redis.Redis) -> int:
    """The process of the server."""
    found: Any = client.info("server")
    return int(found["process_id"])


def fill(client: redis.Redis, entries: int) -> None:
    """Entries that nobody has been given."""
    port = client.connection_pool.connection_kwargs["port"]
    with socket.create_connection(("127.0.0.1", port)) as raw, raw.makefile("rb") as replies:
        for start in range(0, entries, 10_000):
            count = min(10_000, entries - start)
            raw.sendall(encode_command(["XADD", "s", "*", "task", "x"]) * count)
            for _ in range(2 * count):  # a bulk string has two lines
                replies.readline()
    client.xgroup_create("s", "g", "0")


def take(client: redis.Redis, consumer: str, count: int) -> None:
    """One consumer is given so many entries."""
    for start in range(0, count, 10_000):
        client.xreadgroup("g", consumer, {"s": ">"}, count=min(10_000, count - start))


def used_bytes(client: redis.Redis) -> int:
    """What the keys of the server take."""
    found: Any = client.info("memory")
    return int(found["used_memory_dataset"])


def at_rest(lease: str, entries: int) -> str:
    """Bytes of a pending entry, and CPU at rest with all of them."""
    with AnabranchServer(extra=["--save", ""]) as server, redis.Redis(port=server.port) as client:
        pid = pid_of(client)
        fill(client, entries)
        if lease != "none":
            client.execute_command("AB.POLICY", "SET", "s", "lease", lease)
        before, resident = used_bytes(client), rss_bytes(pid)
        for number in range(CONSUMERS):
            take(client, f"c{number}", entries // CONSUMERS)
        size, resident = used_bytes(client) - before, rss_bytes(pid) - resident
        began = cpu_ms(pid)
        time.sleep(REST_S)
        rest = (cpu_ms(pid) - began) / REST_S / 10
    return f"| `{lease}` | {size / entries:.0f} | {resident / entries:.0f} | {rest:.2f} % |"


def rss_bytes(pid: int) -> int:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def longest_wait(lease: str, entries: int, due: int) -> str:
    """Another client reads and writes while many entries of one consumer are released together."""
    with (
        AnabranchServer(extra=["--save", ""]) as server,
        redis.Redis(port=server.port) as client,
        redis.Redis(port=server.port) as canary,
        redis.Redis(port=server.port, single_connection_client=True) as worker,
    ):
        pid = pid_of(client)
        fill(client, entries)
        client.execute_command("AB.POLICY", "SET", "s", "lease", lease)
        for number in range(CONSUMERS - 1):
            take(client, f"c{number}", (entries - due) // (CONSUMERS - 1))
        take(worker, "w", due)
        ends: Callable[[], object] = worker.close
        if lease.startswith("time"):  # what the worker has is over now
            ends = lambda: client.execute_command("AB.RENEW", "s", "g", "w", "1ms")  # noqa: E731
        ends()
        with ThreadClock(pid) as clock:
            longest, total = longest_until(lambda: released(client) >= due, canary, clock)
    return f"| `{lease}` | {longest:.1f} ms | {total / due * 1000:.1f} µs |"


def longest_until(
    is_done: Callable[[], bool], canary: redis.Redis, clock: ThreadClock
) -> tuple[float, float]:
    """The longest wait of a canary, and all that the server works, in ms of its processor."""
    canary.ping()  # to connect takes several requests
    longest, began = 0.0, clock.ms()
    with at_once():
        while not is_done():
            before = clock.ms()
            canary.xadd("other", {"f": "v"}, maxlen=100)
            longest = max(longest, clock.ms() - before)
            time.sleep(0.001)
    return longest, clock.ms() - began


def released(client: redis.Redis) -> int:
    """How many entries a policy has released."""
    found: Any = client.info("policies")
    return int(found["policy_released"])


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--waits", action="store_true", help="only the longest wait")
    chosen = parser.parse_args()
    due = min(DUE, chosen.entries // 2)
    print(f"anabranch {measured_form()}\n")
    print(f"| lease, {chosen.entries} pending | bytes each | resident | CPU of a core at rest |")
    print("|---|---:|---:|---:|")
    for lease in () if chosen.waits else LEASES:
        print(at_rest(lease, chosen.entries), flush=True)
    print(f"\n| {due} fall due together | longest wait | CPU each |")
    print("|---|---:|---:|")
    for lease in ("connection:0", "time:1h"):
        print(longest_wait(lease, chosen.entries, due), flush=True)


if __name__ == "__main__":
    main()
