"""Streams of two short fields, the same for all servers.

Rows are encoded once; what is sent repeats them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from struct import pack

from benchmarks.versus_redis.load import Connection, request, windows
from benchmarks.versus_redis.workloads import ADD_LINES

ROWS = 2048
"""Rows of one AB.IMPORT, as the sink sends them."""

DEPTH = 1024
WARM_UP = 3
"""Rounds that do not count: Java compiles what it runs for some seconds."""

SCHEMA = "ts timestamp, seq bigint, sensor string, temp double"
"""The typed columns that are read."""


@cache
def rows() -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Return rows as names and values."""
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    return [
        (b"sensor", b"s%d" % chance.randrange(100), b"temp", b"%.2f" % chance.uniform(0, 40))
        for _ in range(ROWS)
    ]


TWO_MORE: tuple[bytes, ...] = (b"hall", b"north", b"state", b"open")
"""Names and values that make four fields of two."""


@cache
def payload(count: int = ROWS, more: tuple[bytes, ...] = ()) -> bytes:
    """Return some rows, each with `more` behind it, as AB.IMPORT takes them."""
    return packed([row + more for row in rows()[:count]])


def packed(entries: Sequence[tuple[bytes, ...]]) -> bytes:
    """Return entries, each as names and values, as AB.IMPORT takes them."""
    parts = [
        b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)
        for words in entries
    ]
    return pack(f"<{len(parts) + 1}I", len(parts), *accumulate(map(len, parts))) + b"".join(parts)


@cache
def optional(fields: int) -> bytes:
    """Return `ROWS` entries, each with two fields and about half of so many others, for AB.IMPORT.

    So hardly two of them have the same names.
    """
    chance = random.Random(fields)  # noqa: S311 - nothing here is secret
    others = [(b"f%d" % number, b"%d" % number) for number in range(fields)]
    return packed(
        [row + sum((each for each in others if chance.random() < 0.5), ()) for row in rows()]
    )


@cache
def rare(names: int) -> bytes:
    """Return `ROWS` entries, each with three usual fields and two of so many others."""
    chance = random.Random(names)  # noqa: S311 - nothing here is secret
    return packed(
        [
            (*row, b"hall", b"north", b"f%d" % chance.randrange(names), b"1", b"f0", b"2")
            for row in rows()
        ]
    )


def fill(connection: Connection, key: str, entries: int, more: tuple[bytes, ...] = ()) -> None:
    """Add entries to a stream of our server."""
    whole, rest = divmod(entries, ROWS)
    for _ in range(whole):
        connection.ask("AB.IMPORT", key, payload(more=more))
    if rest:
        connection.ask("AB.IMPORT", key, payload(rest, more))


def fill_by_xadd(connection: Connection, key: str, entries: int) -> None:
    """Add the same entries to a stream of any server."""
    whole, rest = divmod(entries, ROWS)
    adds = [request("XADD", key, "*", *row, lines=ADD_LINES) for row in rows()]
    script = windows(adds, DEPTH)
    for _ in range(whole):
        connection.replay(script)
    connection.replay(windows(adds[:rest], DEPTH))
