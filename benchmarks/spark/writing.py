"""Writing from Spark: bulk with a ledger beside XADD of each row, and what the ledger costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.spark.connection.client import ServerClient, connect
from anabranch.spark.options import ServerOptions, WriteOptions
from anabranch.spark.writing.encode import encode
from anabranch.spark.writing.layout import Layout
from anabranch.spark.writing.ledger import LedgerWriter
from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis.load import Connection
from benchmarks.versus_redis.servers import Server, cpu_between

from .data import ROWS, WARM_UP, rows
from .local import counted, serving, spark, timed, url
from .loop import PAGE, looped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = "bench:write"
ENTRIES, QUICK_ENTRIES = 1_000_000, 100_000
ROUNDS, QUICK_ROUNDS = 5, 2
PARTITIONS = (1, 2)
WAYS = ("ledger", "none")
IMPORTS, QUICK_IMPORTS = 60, 20


def batch(*, quick: bool) -> list[Figure]:
    """As many rows by AB.IMPORT with a ledger, by XADD from Spark, and by XADD from redis-py."""
    entries = QUICK_ENTRIES if quick else ENTRIES
    ratios: dict[int, list[float]] = {parts: [] for parts in PARTITIONS}
    beside: dict[int, list[float]] = {parts: [] for parts in PARTITIONS}
    rates: dict[str, list[float]] = {way: [] for way in (*WAYS, "redis-py")}
    costs = []
    with serving() as server, Connection(server.port) as connection:
        frames = {parts: _rows(entries, parts) for parts in PARTITIONS}
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            for parts, frame in frames.items():
                seconds, cpu = {}, {}
                for way in WAYS:
                    before = server.cpu()
                    seconds[way] = _write(frame, server, way)
                    cpu[way] = cpu_between(before, server.cpu())
                    connection.ask("DEL", KEY)
                if turn < WARM_UP:
                    continue
                seconds["redis-py"], _ = looped(server.port, KEY, entries)
                connection.ask("DEL", KEY)
                ratios[parts].append(seconds["redis-py"] / seconds["ledger"])
                beside[parts].append(seconds["none"] / seconds["ledger"])
                costs.append(cpu["ledger"] / cpu["none"])
                for way, some in rates.items():
                    some.append(entries / seconds[way])
        for frame in frames.values():
            frame.unpersist()
    note = f"{entries:,} rows of two columns"
    loop = f"{note}, redis-py with {PAGE:,} XADD in a pipeline, in a process of its own"
    return [
        *(
            of_rounds(
                f"sink with ledger, {counted(parts)}", some, "x redis-py", loop, is_less=quick
            )
            for parts, some in ratios.items()
        ),
        *(
            of_rounds(f"sink with ledger beside XADD, {counted(each)}", some, "x XADD", note)
            for each, some in beside.items()
        ),
        of_rounds("server CPU of a row by AB.IMPORT", costs, "of XADD", note),
        of_rounds("rows written, ledger", rates["ledger"], "per second"),
        of_rounds("rows written, XADD", rates["none"], "per second"),
        of_rounds("rows written, redis-py", rates["redis-py"], "per second"),
    ]


def _rows(entries: int, parts: int) -> DataFrame:
    frame = (
        spark()
        .range(0, entries, 1, parts)
        .selectExpr(
            "concat('s', id % 100) as sensor", "format_string('%.2f', rand(1) * 40) as temp"
        )
        .cache()
    )
    frame.count()
    return frame


def _write(frame: DataFrame, server: Server, way: str) -> float:
    writer = frame.write.format("anabranch").mode("append")
    for option, value in (("url", url(server)), ("stream", KEY), ("idempotence", way)):
        writer = writer.option(option, value)
    return timed(writer.save)


def exactly_once(*, quick: bool) -> list[Figure]:
    """The same imports with a producer and without, by one process: the CPU of it and the server.

    Inverted, as a rate would be: 0.9 is a tenth more CPU.
    """
    imports = QUICK_IMPORTS if quick else IMPORTS
    columns = {
        name: [row[at].decode() for row in rows()] for name, at in (("sensor", 1), ("temp", 3))
    }
    table = pa.RecordBatch.from_pydict(columns)
    ratios = []
    with serving() as server, connect(ServerOptions(url=url(server))) as client:
        for turn in range(WARM_UP + (QUICK_ROUNDS if quick else ROUNDS)):
            spent = {}
            for marked in (False, True):
                before, began = server.cpu(), time.process_time()
                _bring(client, table, imports, turn if marked else None)
                spent[marked] = time.process_time() - began
                spent[marked] += cpu_between(before, server.cpu()) / 1e9
                client.command("DEL", KEY)
            if turn >= WARM_UP:
                ratios.append(spent[False] / spent[True])
    return [of_rounds("exactly once beside not", ratios, "x", f"{imports * ROWS:,} rows, CPU")]


def _bring(client: ServerClient, table: pa.RecordBatch, imports: int, batch: int | None) -> None:
    layout = Layout.of(table.schema.names, WriteOptions(ServerOptions()))
    ledger = None if batch is None else LedgerWriter(client, producer="bench", batch=batch)
    for _ in range(imports):
        rows = encode(table, layout)
        if ledger is None:
            parts = rows.parts()
            client.command("AB.IMPORT", KEY, parts.payload(0, len(parts)))
        else:
            ledger.append(KEY.encode(), rows)
    if ledger is not None:
        ledger.finish()
