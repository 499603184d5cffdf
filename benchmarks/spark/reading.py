"""Batch reads by Spark, beside a loop of redis-py and beside a source that yields tuples.

Each round reads the same stream every way, one right after the other; ratios are taken within a
round. Of tuples the better of one and two partitions counts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis.load import Connection, request, windows
from benchmarks.versus_redis.servers import Server, redis_recipe
from benchmarks.versus_redis.workloads import ADD_LINES

from .data import DEPTH, ROWS, SCHEMA, TWO_MORE, WARM_UP, fill, fill_by_xadd, optional, rare
from .local import counted, cpu_below, drained, jvm, serving, spark, url
from .loop import PAGE, looped
from .plain import PlainSpark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader

KEY = "bench:read"
ENTRIES, QUICK_ENTRIES = 1_000_000, 100_000
MORE_ENTRIES = 4_000_000
ROUNDS, QUICK_ROUNDS = 5, 2
STREAMS, QUICK_STREAMS, STREAM_ENTRIES = 1_000, 200, 100
PARTITIONS = (1, 2)
OPTIONAL = (4, 8, 10, 20)
RARE = 5_000
WAYS: dict[str, Callable[[DataFrameReader], DataFrame]] = {
    "typed": lambda reader: reader.schema(SCHEMA).load(),
    "fields": lambda reader: reader.load().select("ts", "seq", "fields"),
}


def batch(*, quick: bool) -> list[Figure]:
    """Typed columns, whole entries, tuples and a loop, all from our server."""
    entries = QUICK_ENTRIES if quick else ENTRIES
    loops: list[tuple[float, float]] = []
    tuples: list[float] = []
    reads: dict[tuple[str, int], list[tuple[float, float]]] = {
        (name, parts): [] for name in WAYS for parts in PARTITIONS
    }
    with serving() as server, PlainSpark() as plain:
        with Connection(server.port) as connection:
            fill(connection, KEY, entries)
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            loops.append(looped(server.port, KEY))
            for (name, parts), some in reads.items():
                some.append(_read(WAYS[name](_source(server, parts))))
            tuples.append(min(plain.tuples(server.port, KEY, parts) for parts in PARTITIONS))
            if turn < WARM_UP:
                for each in (loops, tuples, *reads.values()):
                    each.clear()
    note = (
        f"{entries:,} entries of two fields, redis-py with COUNT {PAGE:,} in a process of its own"
    )
    figures = []
    for (name, parts), some in reads.items():
        title = f"batch read, {name}, {counted(parts)}"
        ratios = [loop[0] / one[0] for loop, one in zip(loops, some, strict=True)]
        figures.append(of_rounds(title, ratios, "x redis-py", note, is_less=quick))
    for (name, parts), some in reads.items():
        title = f"processor time, {name}, {counted(parts)}"
        figures.append(of_rounds(title, [one[1] for one in some], "s", "Spark and its workers"))
    typed = zip(*(reads["typed", parts] for parts in PARTITIONS), strict=True)
    best = [min(one[0] for one in several) for several in typed]
    beside = [other / one for other, one in zip(tuples, best, strict=True)]
    return [
        *figures,
        of_rounds("processor time, redis-py", [each[1] for each in loops], "s"),
        of_rounds("batch read, typed, beside tuples", beside, "x tuples", note, is_less=quick),
        of_rounds("entries read, typed", [entries / each for each in best], "per second"),
        of_rounds("entries read, tuples", [entries / each for each in tuples], "per second"),
        of_rounds("entries read, redis-py", [entries / each[0] for each in loops], "per second"),
    ]


def more(*, quick: bool) -> list[Figure]:
    """More entries, and nearly none: a job of Spark takes a tenth of a second by itself."""
    entries = QUICK_ENTRIES if quick else MORE_ENTRIES
    jobs: list[float] = []
    ratios: dict[tuple[str, int], list[float]] = {
        (name, parts): [] for name in WAYS for parts in PARTITIONS
    }
    with serving() as server:
        with Connection(server.port) as connection:
            fill(connection, KEY, 1)
        for turn in range(WARM_UP + ROUNDS):
            seconds, _ = _read(WAYS["typed"](_source(server, 1)))
            if turn >= WARM_UP:
                jobs.append(seconds)
        with Connection(server.port) as connection:
            fill(connection, KEY, entries - 1)
        for turn in range(1 + QUICK_ROUNDS):
            loop, _ = looped(server.port, KEY)
            for (name, parts), some in ratios.items():
                seconds, _ = _read(WAYS[name](_source(server, parts)))
                if turn:
                    some.append(loop / seconds)
    note = f"{entries:,} entries; see the read of {ENTRIES:,}"
    return [
        of_rounds("a job for one entry", jobs, "s", "most of it is Spark's own"),
        *(
            of_rounds(
                f"batch read of more, {name}, {counted(parts)}",
                some,
                "x redis-py",
                note,
                is_less=quick,
            )
            for (name, parts), some in ratios.items()
        ),
    ]


def column(*, quick: bool) -> list[Figure]:
    """One column of entries of four fields, beside the loop."""
    entries = QUICK_ENTRIES if quick else ENTRIES
    ratios: dict[int, list[float]] = {parts: [] for parts in PARTITIONS}
    with serving() as server:
        with Connection(server.port) as connection:
            fill(connection, KEY, entries, TWO_MORE)
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            loop, _ = looped(server.port, KEY)
            for parts, some in ratios.items():
                seconds, _ = _read(_source(server, parts).schema("temp double").load())
                if turn >= WARM_UP:
                    some.append(loop / seconds)
    note = f"{entries:,} entries of four fields, of which one is read"
    name = "batch read, one column"
    return [
        of_rounds(f"{name}, {counted(parts)}", some, "x redis-py", note, is_less=quick)
        for parts, some in ratios.items()
    ]


def shapes(*, quick: bool) -> list[Figure]:
    """All of many optional fields, beside the loop; and few of many names, beside few names."""
    batches = (QUICK_ENTRIES if quick else ENTRIES // 4) // ROWS
    ratios: dict[int, list[float]] = {number: [] for number in OPTIONAL}
    beside = []
    with serving() as server:
        with Connection(server.port) as connection:
            keys = {f"{KEY}:{number}": optional(number) for number in OPTIONAL}
            keys |= {f"{KEY}:names:{number}": rare(number) for number in (1, RARE)}
            for key, payload in keys.items():
                for _ in range(batches):
                    connection.ask("AB.IMPORT", key, payload)
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            for number, some in ratios.items():
                key = f"{KEY}:{number}"
                loop, _ = looped(server.port, key)
                schema = f"{SCHEMA}, " + ", ".join(f"f{each} int" for each in range(number))
                seconds, _ = _read(_source(server, 1, key).schema(schema).load())
                if turn >= WARM_UP:
                    some.append(loop / seconds)
            schema = "sensor string, temp double, hall string"
            few, many = (
                _read(_source(server, 1, f"{KEY}:names:{number}").schema(schema).load())[1]
                for number in (1, RARE)
            )
            if turn >= WARM_UP:
                beside.append(many / few)
    note = f"{batches * ROWS:,} entries, half of the fields in each; all columns are read"
    return [
        *(
            of_rounds(
                f"batch read, {number} optional fields", some, "x redis-py", note, is_less=quick
            )
            for number, some in ratios.items()
        ),
        of_rounds(
            f"processor time, three of {RARE:,} names", beside, "x three of four names",
            f"{batches * ROWS:,} entries of five fields",
        ),
    ]  # fmt: skip


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
            loop = looped(server.port, KEY)
            read = _read(_source(server, 1).schema(SCHEMA).load())
            if turn >= WARM_UP:
                ratios.append(loop[0] / read[0])
    note = f"{entries:,} entries, XRANGE"
    return [of_rounds("batch read of Redis", ratios, "x redis-py", note, is_less=quick)]


def many(*, quick: bool) -> list[Figure]:
    """Many small streams beside one stream with all their entries."""
    streams = QUICK_STREAMS if quick else STREAMS
    ratios = []
    with serving() as server:
        with Connection(server.port) as connection:
            for number in range(streams):
                fill(connection, f"{KEY}:{number}", STREAM_ENTRIES)
            fill(connection, KEY, streams * STREAM_ENTRIES)
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            source = spark().read.format("anabranch").option("url", url(server)).schema(SCHEMA)
            one = drained(source.option("subscribe", KEY).load())
            source = spark().read.format("anabranch").option("url", url(server)).schema(SCHEMA)
            several = drained(source.option("subscribePattern", f"{KEY}:*").load())
            if turn >= WARM_UP:
                ratios.append(several / one)
    note = f"{streams:,} streams of {STREAM_ENTRIES} entries"
    return [of_rounds("batch read of many streams", ratios, "x one stream", note, is_less=quick)]


def casts(*, quick: bool) -> list[Figure]:
    """The processor time of a read with impossible dates beside one of possible ones."""
    entries = (QUICK_ENTRIES if quick else ENTRIES) // ROWS * ROWS
    ratios = []
    with serving() as server:
        with Connection(server.port) as connection:
            for key, bad in ((KEY, 0), (f"{KEY}:bad", ROWS // 10)):
                adds = [
                    request(
                        "XADD",
                        key,
                        "*",
                        b"at",
                        b"2024-%02d-%02dT10:00:00.%06dZ" % each,
                        lines=ADD_LINES,
                    )
                    for each in _days(bad)
                ]
                script = windows(adds, DEPTH)
                for _ in range(entries // ROWS):
                    connection.replay(script)
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            good, bad = (
                _read(_source(server, 1, key).schema("at timestamp").load())[1]
                for key in (KEY, f"{KEY}:bad")
            )
            if turn >= WARM_UP:
                ratios.append(bad / good)
    note = f"{entries:,} entries of one timestamp; February 30 in 10 % of them"
    return [of_rounds("processor time, 10 % bad values", ratios, "x good values", note)]


def _days(bad: int) -> list[tuple[int, int, int]]:
    """Month, day, microsecond of each row; `bad` of them, evenly spread, are no days."""
    return [
        (2, 30, row)
        if row * bad // ROWS < (row + 1) * bad // ROWS
        else (row % 12 + 1, row % 28 + 1, row)
        for row in range(ROWS)
    ]


def _read(frame: DataFrame) -> tuple[float, float]:
    """Read all and drop it; return the seconds that it took, and the processor's."""
    before = cpu_below(jvm())
    seconds = drained(frame)
    return seconds, cpu_below(jvm()) - before


def _source(server: Server, parts: int, key: str = KEY) -> DataFrameReader:
    return (
        spark()
        .read.format("anabranch")
        .option("url", url(server))
        .option("subscribe", key)
        .option("minPartitions", parts)
    )
