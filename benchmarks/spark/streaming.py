"""Streaming queries: how long an entry takes through one, and what one costs that is idle.

The query reads one stream and writes another, with the default trigger. An entry is through when
XREAD has it from the second stream.
"""

from __future__ import annotations

import random
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks.shared.figures import Figure, of_rounds, percentile
from benchmarks.versus_redis.load import Connection
from benchmarks.versus_redis.servers import Server

from .data import fill
from .local import jvm, serving, share_of_a_core, spark, url

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

IN, OUT = "bench:in", "bench:out"
SAMPLES, QUICK_SAMPLES = 100, 15
WARM_UP = 5
PAUSE_S = 0.4
"""At most so long between two entries; where in its round the query is then is chance."""

SETTLE_S = 3.0
IDLE_S, QUICK_IDLE_S = 30.0, 5.0
XREAD_MS = 15_000
BACKLOG, QUICK_BACKLOG = 500_000, 100_000
LIMIT = 10_000
FIRST_BATCHES = 3


def latency(*, quick: bool) -> list[Figure]:
    """Single entries through an idle query; then CPU and commands of one that stays idle."""
    samples = QUICK_SAMPLES if quick else SAMPLES
    idle_s = QUICK_IDLE_S if quick else IDLE_S
    chance = random.Random(1)  # noqa: S311 - nothing here is secret
    with serving() as server, Connection(server.port) as connection:
        for key in (IN, OUT):
            fill(connection, key, 1)
        with tempfile.TemporaryDirectory() as checkpoint:
            query = _copying(server, checkpoint)
            try:
                last, taken = "$", []
                for _ in range(WARM_UP + samples):
                    time.sleep(chance.uniform(0, PAUSE_S))
                    last, seconds = _through(connection, last)
                    taken.append(seconds * 1e3)
                time.sleep(SETTLE_S)
                commands, began = _commands(connection), time.monotonic()
                share = share_of_a_core(jvm(), idle_s)
                asked = (_commands(connection) - commands - 1) / (time.monotonic() - began)
            finally:
                query.stop()
    taken = taken[WARM_UP:]
    note = f"{samples} entries"
    return [
        Figure("from XADD through a query, p50", percentile(taken, 0.5), "ms", note=note),
        Figure("from XADD through a query, p95", percentile(taken, 0.95), "ms", note=note),
        Figure("CPU of an idle query", share * 100, "% of a core", note="JVM and its workers"),
        Figure("commands of an idle query", asked, "per second"),
    ]


def _copying(server: Server, checkpoint: str) -> StreamingQuery:
    options = {"url": url(server), "subscribe": IN}
    frame = spark().readStream.format("anabranch").options(**options).load().select("fields")
    options = {"url": url(server), "stream": OUT, "checkpointLocation": checkpoint}
    query = frame.writeStream.format("anabranch").options(**options).start()
    while query.lastProgress is None:
        time.sleep(0.1)
        if query.exception() is not None:
            raise RuntimeError(str(query.exception()))
    return query


def _through(connection: Connection, last: str) -> tuple[str, float]:
    if last == "$":
        newest = connection.ask("XREVRANGE", OUT, "+", "-", "COUNT", 1)
        assert isinstance(newest, list)
        last = newest[0][0].decode()
    began = time.perf_counter()
    connection.ask("XADD", IN, "*", "sensor", "s1", "temp", "1.0")
    reply: Any = connection.ask("XREAD", "BLOCK", XREAD_MS, "STREAMS", OUT, last)
    if reply is None:
        raise RuntimeError("an entry did not come through the query")
    return reply[0][1][-1][0].decode(), time.perf_counter() - began


def _commands(connection: Connection) -> int:
    facts = connection.ask("INFO", "stats")
    assert isinstance(facts, bytes)
    for line in facts.decode().splitlines():
        name, _, value = line.partition(":")
        if name == "total_commands_processed":
            return int(value)
    raise RuntimeError("INFO does not tell how many commands were processed")


def limit(*, quick: bool) -> list[Figure]:
    """What it takes the driver to find the end of a batch of limited size."""
    backlog = QUICK_BACKLOG if quick else BACKLOG
    with serving() as server, tempfile.TemporaryDirectory() as checkpoint:
        with Connection(server.port) as connection:
            fill(connection, IN, backlog)
        options = {
            "url": url(server),
            "subscribe": IN,
            "startingOffsets": "earliest",
            "maxEntriesPerTrigger": str(LIMIT),
        }
        frame = spark().readStream.format("anabranch").options(**options).load().select("seq")
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        progress = query.recentProgress
    taken = [
        float(each.durationMs["latestOffset"])
        for each in progress[FIRST_BATCHES:]
        if each.numInputRows
    ]
    note = f"latestOffset of batches of {LIMIT:,}"
    made = of_rounds("maxEntriesPerTrigger, per batch", taken, "ms", note)
    assert made.value == median(taken)
    return [made]
