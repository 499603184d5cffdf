"""What the tests of reading share: filled streams, short ways to read, and what XRANGE says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import redis
from pyspark.sql.types import LongType, StructField, StructType

from anabranch.spark.reading.readers import batch_reader
from tests.support.servers import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def url(server: ServerProcess) -> str:
    """The address for the option."""
    return f"redis://127.0.0.1:{server.port}"


@contextmanager
def talking(server: ServerProcess) -> Iterator[redis.Redis]:
    """A client of a server."""
    with redis.Redis(port=server.port, protocol=2) as client:
        yield client


def fill(server: ServerProcess, key: str, count: int, first: int = 0) -> list[str]:
    """Add entries ``n=0``, ``n=1`` ... with IDs the server makes; returns the IDs."""
    with talking(server) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(first, first + count):
            pipe.execute_command("XADD", key, "*", "n", number, "word", f"w{number % 7}")
        return [each.decode() for each in pipe.execute()]


def fill_at(server: ServerProcess, key: str, times: list[int]) -> None:
    """Add one entry at each millisecond, ``n`` counting from 0."""
    with talking(server) as client:
        for number, ms in enumerate(times):
            client.execute_command("XADD", key, f"{ms}-0", "n", number)


def fill_hostile(server: ServerProcess, key: str, count: int, seed: int) -> None:
    """Entries of many shapes with all kinds of bytes."""
    rng = random.Random(seed)
    pool = [b"", b"\r\n", b"$3\r\nabc\r\n", b"*2\r\n", b"\x00\xff", b"plain", b"x" * 300]
    names = [b"a", b"b", b"", b"a\r\n", b"n"]
    with talking(server) as client:
        pipe = client.pipeline(transaction=False)
        for _ in range(count):
            words = [
                rng.choice(names if at % 2 == 0 else pool) for at in range(2 * rng.randint(1, 5))
            ]
            pipe.execute_command("XADD", key, "*", *words)
        pipe.execute()


def xrange(server: ServerProcess, key: str, low: str = "-", high: str = "+") -> list[Any]:
    """ID and pairs of all entries, as the server gives them one by one."""
    with redis.Redis(port=server.port, protocol=2) as client:
        client.response_callbacks.clear()
        reply = client.execute_command("XRANGE", key, low, high)
    return [
        (entry[0].decode(), list(zip(entry[1][::2], entry[1][1::2], strict=True)))
        for entry in reply
    ]


def vector_at(server: ServerProcess, key: str, count: int, last_id: str) -> str:
    """The offset of a reader that has read the first `count` entries ever added."""
    with talking(server) as client:
        if server.name == "redis-server":
            incarnation, base = -1, 0
        else:
            ((row,),) = client.execute_command("AB.OFFSETS", "STREAMS", key)
            incarnation = base = row[1]
    cursors = {key: {"": [base + count, last_id]}}
    return json.dumps({"k": {key: {"": incarnation}}, "p": 1, "s": cursors, "v": 1})


def base_of(server: ServerProcess, key: str) -> int:
    """The first position of a stream of our server."""
    base: int = json.loads(vector_at(server, key, 0, "0-0"))["s"][key][""][0]
    return base


def batch(spark: SparkSession, server: ServerProcess, schema: str | None = None, **options: Any):
    """A batch read."""
    reader = spark.read.format("anabranch").option("url", url(server))
    reader = reader.options(**{name: str(value) for name, value in options.items()})
    return (reader.schema(schema) if schema else reader).load()


def planned_and_read(options: dict[str, str]) -> list[int]:
    """Column ``n`` of a batch read, sorted, without Spark around it."""
    reader = batch_reader(options, StructType([StructField("n", LongType())]))
    return sorted(
        number
        for piece in reader.partitions()
        for each in reader.read(piece)
        for number in each.column(0).to_pylist()
    )


def streaming(
    spark: SparkSession, server: ServerProcess, schema: str | None = None, **options: Any
) -> DataFrame:
    """A streaming read, from the beginning unless told otherwise."""
    reader = spark.readStream.format("anabranch").option("url", url(server))
    given = {"startingOffsets": "earliest", **options}
    if "startingTimestamp" in given:
        del given["startingOffsets"]
    reader = reader.options(**{name: str(value) for name, value in given.items()})
    return (reader.schema(schema) if schema else reader).load()


def entries_of(frame: DataFrame) -> list[Any]:
    """ID and pairs of all rows, in the order of the IDs."""
    rows = [
        (row.id, [(bytes(each.field), bytes(each.value)) for each in row.fields])
        for row in frame.select("id", "fields").collect()
    ]
    return sorted(rows, key=lambda row: tuple(map(int, row[0].split("-"))))


def numbers(frame: DataFrame) -> list[int]:
    """Column ``n``, sorted."""
    return sorted(row.n for row in frame.select("n").collect())


def to_memory(frame: DataFrame, name: str, checkpoint: object = None, **trigger: Any):
    """Start a query into a table in memory."""
    writer = frame.writeStream.format("memory").queryName(name)
    if checkpoint is not None:
        writer = writer.option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger).start() if trigger else writer.start()


def to_parquet(frame: DataFrame, place: object, checkpoint: object, **trigger: Any):
    """Start a query into files; what a batch wrote twice counts once there."""
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start(str(place))


def finish(query: StreamingQuery) -> list[int]:
    """Wait for a query that ends by itself; returns the sizes of its batches."""
    query.awaitTermination()
    return [each.numInputRows for each in query.recentProgress if each.numInputRows]
