"""What order per key costs, for docs/policies.md: ``python -m benchmarks.ordered``.

Drives one region without sockets, in this process. The program prints the CPU of a read and of the
acknowledgement of what it gave, for each entry, with and without the policy ``key-field``; and the
CPU of the longest read while one slow key has many entries behind it. ``--entries`` makes both
smaller. To measure the compiled form, put it first on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Final

import hiredis

from benchmarks.shared.form import measured_form
from tests.support.region_harness import Harness

ENTRIES: Final = 100_000
COUNTS: Final = (1, 10, 100)
POLICIES: Final = ((), ("key-field", "k"))


def server_with(keys: Iterator[str], entries: int, policies: tuple[str, ...]) -> Harness:
    """A group that has read nothing of so many entries, three fields each."""
    server = Harness()
    server.raw("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    if policies:
        server.raw("AB.POLICY", "SET", "s", *policies)
    for number in range(1, entries + 1):
        server.raw("XADD", "s", f"{number}-0", "a", "some text", "k", next(keys), "n", number)
    return server


def read(server: Harness, count: int) -> list[str]:
    """The IDs that one read gives."""
    raw = server.raw("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", "s", ">")
    reader = hiredis.Reader()
    reader.feed(raw)
    reply = reader.gets()
    return [row[0] for row in reply[0][1]] if reply else []


def spent_us(act: Callable[[], object]) -> float:
    """The CPU time of a call."""
    begin = time.process_time_ns()
    act()
    return (time.process_time_ns() - begin) / 1000


def rounds(server: Harness, count: int, entries: int) -> tuple[float, float]:
    """Microseconds of an entry that is read, and of one that is acknowledged."""
    of_reads = of_acks = 0.0
    done = 0
    request = (b"XREADGROUP GROUP g c COUNT %d STREAMS s >" % count).split()
    while done < entries:
        of_reads += spent_us(lambda: server.region.execute(server.session, [request]))
        reader = hiredis.Reader()
        reader.feed(server.received(server.session))
        ids = [row[0] for row in reader.gets()[0][1]]
        acks = [b"XACK", b"s", b"g", *ids]
        of_acks += spent_us(lambda words=acks: server.region.execute(server.session, [words]))
        server.received(server.session)
        done += len(ids)
    return of_reads / done, of_acks / done


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=ENTRIES)
    entries = parser.parse_args().entries
    print(f"anabranch {measured_form()}\n")
    gc.disable()
    print("| COUNT | Policy | Read, µs an entry | XACK, µs an entry |\n|---|---|---:|---:|")
    for count in COUNTS:
        for policies in POLICIES:
            some = max(entries * count // 100, 1000)
            keys = cycle(f"customer-{number}" for number in range(100_000))
            server = server_with(keys, some, policies)
            figures = rounds(server, count, some)
            name = " ".join(policies) or "none"
            print(f"| {count} | {name} | {figures[0]:.2f} | {figures[1]:.2f} |")
    server = server_with(cycle(["slow"]), entries, POLICIES[1])
    spans = [spent_us(lambda: read(server, 100)) for _ in range(20)]
    group = server.region.keyspace.databases[0].values[b"s"].groups[b"g"]  # type: ignore[union-attr]
    waiting = len(group.pending.released)
    print(f"\nlongest read {max(spans) / 1000:.1f} ms, {waiting} entries wait")


if __name__ == "__main__":
    main()
