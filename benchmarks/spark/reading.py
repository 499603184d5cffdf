"""Batch reads by Spark, beside a loop of redis-py and beside a source that yields tuples.

Each round reads the same stream every way, one right after the other; ratios are taken within a
round. Of Spark's ways the better of one and two partitions counts.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis.load import Connection
from benchmarks.versus_redis.servers import Server, redis_recipe

from .data import SCHEMA, WARM_UP, fill, fill_by_xadd
from .local import drained, serving, spark, timed, url
from .naive import loop
from .plain import PlainSpark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader

KEY = "bench:read"
ENTRIES, QUICK_ENTRIES = 1_000_000, 100_000
ROUNDS, QUICK_ROUNDS = 5, 2
PARTITIONS = (1, 2)


def batch(*, quick: bool) -> list[Figure]:
    """Typed columns, whole entries, tuples and a loop, all from our server."""
    entries = QUICK_ENTRIES if quick else ENTRIES
    rounds: list[list[float]] = []
    with serving() as server, PlainSpark() as plain:
        with Connection(server.port) as connection:
            fill(connection, KEY, entries)
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            seconds = [
                _looped(server),
                _best(lambda parts: _source(server, parts).schema(SCHEMA).load()),
                _best(lambda parts: _source(server, parts).load().select("ts", "seq", "fields")),
                min(plain.tuples(server.port, KEY, parts) for parts in PARTITIONS),
            ]
            if turn >= WARM_UP:
                rounds.append(seconds)
    note = f"{entries:,} entries of two fields"
    made = [
        ("batch read, typed columns", "x redis-py", [one[0] / one[1] for one in rounds]),
        ("batch read, fields as they are", "x redis-py", [one[0] / one[2] for one in rounds]),
        ("batch read, typed, beside tuples", "x tuples", [one[3] / one[1] for one in rounds]),
    ]
    figures = [of_rounds(name, values, unit, note, is_less=quick) for name, unit, values in made]
    rates = [("typed", 1), ("fields", 2), ("tuples", 3), ("redis-py", 0)]
    return [
        *figures,
        *(
            of_rounds(f"entries read, {name}", [entries / one[at] for one in rounds], "per second")
            for name, at in rates
        ),
    ]


def fallback(*, quick: bool) -> list[Figure]:
    """The source without bulk commands beside the loop, both from redis-server."""
    if shutil.which("redis-server") is None:
        raise RuntimeError("redis-server is not on the path")
    entries = QUICK_ENTRIES if quick else ENTRIES
    ratios = []
    with serving(redis_recipe()) as server:
        with Connection(server.port) as connection:
            fill_by_xadd(connection, KEY, entries)
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            looped = _looped(server)
            read = drained(_source(server, 1).schema(SCHEMA).load())
            if turn >= WARM_UP:
                ratios.append(looped / read)
    note = f"{entries:,} entries, XRANGE"
    return [of_rounds("batch read of Redis", ratios, "x redis-py", note, is_less=quick)]


def _looped(server: Server) -> float:
    return timed(lambda: deque(loop(server.port, KEY), maxlen=0))


def _best(frame: Callable[[int], DataFrame]) -> float:
    return min(drained(frame(parts)) for parts in PARTITIONS)


def _source(server: Server, parts: int) -> DataFrameReader:
    return (
        spark()
        .read.format("anabranch")
        .option("url", url(server))
        .option("subscribe", KEY)
        .option("minPartitions", parts)
    )
