"""What scheduled entries cost, for docs/policies.md: ``python -m benchmarks.scheduled``.

A server gets a million scheduled entries. The program prints the bytes of each, the CPU of the
server at rest, and the longest wait of another client while 100,000 fall due together. That wait is
the CPU which the server spends between request and reply: what it would be on a machine without
other work. ``--entries`` makes it smaller.
"""

from __future__ import annotations

import argparse
import socket
import time
from typing import Any, Final

import redis

from benchmarks.leases import cpu_ms, longest_until, pid_of, rss_bytes
from benchmarks.shared.form import measured_form
from benchmarks.shared.thread_clock import ThreadClock
from tests.support.servers import AnabranchServer
from tests.support.wire import encode_command

ENTRIES: Final = 1_000_000
DUE: Final = 100_000
REST_S: Final = 20.0
_BATCH: Final = 5000
_HOUR_MS: Final = 3_600_000

WHEN: Final = {
    "`IN`, all for one key": ("s", "IN", str(24 * _HOUR_MS)),
    "`IN`, a key each": ("", "IN", str(24 * _HOUR_MS)),
    "`CRON`, all for one key": ("s", "CRON", "0 0 1 */6 *"),
}


def fill(client: redis.Redis, count: int, key: str, *when: str) -> None:
    """Schedule so many entries; without a key each for a key of its own."""
    port = client.connection_pool.connection_kwargs["port"]
    with socket.create_connection(("127.0.0.1", port)) as raw, raw.makefile("rb") as replies:
        for start in range(0, count, _BATCH):
            some = range(start, min(start + _BATCH, count))
            raw.sendall(
                b"".join(
                    encode_command(["AB.SCHEDULE", key or f"s{n}", *when, "task", str(n)])
                    for n in some
                )
            )
            for _ in range(2 * len(some)):  # a bulk string has two lines
                replies.readline()


def figure(client: redis.Redis, name: str) -> int:
    """A figure of INFO on scheduled entries."""
    found: Any = client.info("policies")
    return int(found[name])


def used_bytes(client: redis.Redis) -> int:
    """What the server holds, as it counts it."""
    found: Any = client.info("memory")
    return int(found["used_memory"])


def at_rest(name: str, entries: int) -> str:
    """Bytes of an entry, and CPU at rest with all of them."""
    with AnabranchServer(extra=["--save", ""]) as server, redis.Redis(port=server.port) as client:
        pid = pid_of(client)
        before, resident = used_bytes(client), rss_bytes(pid)
        began = cpu_ms(pid)
        fill(client, entries, *WHEN[name])
        spent = cpu_ms(pid) - began
        size, resident = used_bytes(client) - before, rss_bytes(pid) - resident
        began = cpu_ms(pid)
        time.sleep(REST_S)
        rest = (cpu_ms(pid) - began) / REST_S / 10
    each = f"{size / entries:.0f} | {resident / entries:.0f} | {spent / entries * 1000:.0f} µs"
    return f"| {name} | {each} | {rest:.2f} % |"


def longest_wait(entries: int, due: int, *, is_cron: bool) -> str:
    """Another client writes while many entries fall due together."""
    with (
        AnabranchServer(extra=["--save", ""]) as server,
        redis.Redis(port=server.port) as client,
        redis.Redis(port=server.port) as canary,
    ):
        pid = pid_of(client)
        fill(client, entries - due, "s", "IN", str(24 * _HOUR_MS))
        if is_cron:  # the next but one minute, so that all are scheduled before
            minute = time.gmtime(time.time() + 120).tm_min
            fill(client, due, "t", "CRON", f"{minute} * * * *")
        else:
            at_ms = int(time.time() * 1000) + 30_000
            fill(client, due, "t", "AT", str(at_ms))
        while figure(client, "scheduled_added") == 0:
            time.sleep(0.002)
        with ThreadClock(pid) as clock:
            longest, total = longest_until(
                lambda: figure(client, "scheduled_added") >= due, canary, clock
            )
    name = "`CRON`" if is_cron else "`AT`"
    return f"| {name} | {longest:.1f} ms | {total / due * 1000:.1f} µs |"


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    parser.add_argument("--only", choices=["rest", "waits"], help="one of the tables")
    chosen = parser.parse_args()
    print(f"anabranch {measured_form()}\n")
    due = min(DUE, chosen.entries // 2)
    if chosen.only != "waits":
        print(f"| {chosen.entries} scheduled | bytes each | resident | CPU to schedule | at rest |")
        print("|---|---:|---:|---:|---:|")
        for name in WHEN:
            print(at_rest(name, chosen.entries), flush=True)
    if chosen.only != "rest":
        print(f"\n| {due} fall due together | longest wait | CPU each |")
        print("|---|---:|---:|")
        for is_cron in (False, True):
            print(longest_wait(chosen.entries, due, is_cron=is_cron), flush=True)


if __name__ == "__main__":
    main()
