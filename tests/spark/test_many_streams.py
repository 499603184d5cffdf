"""Many small streams beside large ones: few tasks, the same rows, whatever happens meanwhile."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType

from anabranch.spark.connection.client import ServerClient, ServerRefused
from anabranch.spark.decoding.columns import ColumnError, Projection
from anabranch.spark.options import ReadOptions
from anabranch.spark.reading.executor import read_partition
from anabranch.spark.reading.losses import DataLossError
from anabranch.spark.reading.readers import batch_reader
from tests.spark.accidents import broken_source
from tests.spark.reading import (
    batch,
    entries_of,
    fill,
    fill_hostile,
    finish,
    streaming,
    talking,
    to_parquet,
    url,
    xrange,
)
from tests.spark.test_crash_windows import accidents
from tests.spark.test_sink import start, values
from tests.support.inspection import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.region_processes import RegionProcesses
    from tests.support.servers import AnabranchServer, ServerProcess

NAMES = ("eu", "us", "ap")
SIZES = [0, 1, 2, 3, 5, 40, 99, 100, 101, 700]
LISTED = pa.list_(pa.struct([("field", pa.binary()), ("value", pa.binary())]))


def fill_many(server: ServerProcess, count: int, seed: int, prefix: str = "m:") -> list[str]:
    """Streams of many sizes; returns those that exist."""
    rng = random.Random(seed)
    sizes = [rng.choice(SIZES) for _ in range(count)]
    for number, size in enumerate(sizes):
        if size:
            fill_hostile(server, f"{prefix}{number:03d}", size, seed + number)
    return [f"{prefix}{number:03d}" for number, size in enumerate(sizes) if size]


def pieces_of(server: ServerProcess, **options: str) -> list[Any]:
    """The partitions that Spark would get."""
    given = {"url": url(server), "subscribePattern": "m:*", **options}
    schema = StructType([StructField("n", LongType())])
    return [each.value for each in batch_reader(given, schema).partitions()]


def rows_of(server: ServerProcess, partition: Any, **options: str) -> list[Any]:
    """What a task yields, in its order."""
    schema = pa.schema([("stream", pa.string()), ("id", pa.string()), ("fields", LISTED)])
    given = {"url": url(server), "subscribePattern": "m:*", **options}
    return [
        (row["stream"], row["id"], [(pair["field"], pair["value"]) for pair in row["fields"]])
        for each in read_partition(partition, ReadOptions.parse(given), Projection(schema))
        for row in each.to_pylist()
    ]


# ------------------------------------------------------------------------------------ without Spark


@pytest.mark.parametrize("seed", range(3))
def test_tasks_yield_each_stream_as_xrange_gives_it_and_in_one_order(
    server: ServerProcess, seed: int
) -> None:
    streams = fill_many(server, 40, seed)
    with talking(server) as client:  # holes, in some of them up to nothing
        for number, stream in enumerate(streams):
            ids = [entry_id for entry_id, _ in xrange(server, stream)]
            gone = ids if number % 11 == 5 else ids[:: 7 if number % 3 else len(ids) + 1]
            if gone:
                client.xdel(stream, *gone)
    wanted = [(stream, *entry) for stream in streams for entry in xrange(server, stream)]
    by_cut = []
    for count in (1, 2, 7, 60):
        pieces = pieces_of(server, minPartitions=str(count))
        assert len(pieces) <= max(count, 8)
        found = [row for piece in pieces for row in rows_of(server, piece)]
        assert found == wanted
        by_cut.append(pieces)
    # A task that is tried again may get its replies in other portions.
    for piece in by_cut[1]:
        rows = rows_of(server, piece)
        for given in ({"maxBatchBytes": "300"}, {"maxBatchBytes": "9k"}, {"exportCodec": "zstd"}):
            assert rows_of(server, piece, **given) == rows


def test_large_values_in_many_streams_do_not_come_at_once(server: ServerProcess) -> None:
    with talking(server) as client:
        for number in range(30):
            client.xadd(f"m:{number:02d}", {"n": number})
        for number in range(30, 60):
            for _ in range(3):
                client.xadd(f"m:{number:02d}", {"n": b"%d" % number, "pad": b"x" * 300_000})
    (piece,) = pieces_of(server)
    found = rows_of(server, piece)
    assert [row[0] for row in found] == [
        *(f"m:{number:02d}" for number in range(30)),
        *(f"m:{number:02d}" for number in range(30, 60) for _ in range(3)),
    ]


def test_round_trips_do_not_grow_with_streams(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        fill(server, f"m:{number:03d}", 3)
    (piece,) = pieces_of(server)
    sent = []
    send = ServerClient.send

    def counted(self: ServerClient, packed: Any) -> None:
        sent.append(1)
        send(self, packed)

    monkeypatch.setattr(ServerClient, "send", counted)
    assert len(rows_of(server, piece)) == 900
    assert len(sent) < 15
    with talking(server) as client:  # which no ID tells: the stream is read alone, not its group
        client.xdel("m:250", *(each for each, _ in xrange(server, "m:250")[1:]))
    sent.clear()
    assert len(rows_of(server, piece)) == 898
    assert len(sent) < 40


def test_an_error_names_the_stream_that_has_it(server: ServerProcess) -> None:
    for number in range(40):
        fill(server, f"m:{number:02d}", 3)
    (piece,) = pieces_of(server)
    with talking(server) as client:
        bad = client.xadd("m:33", {"n": "many"})
    options = ReadOptions.parse({"url": url(server), "subscribePattern": "m:*", "mode": "FAILFAST"})
    (longer,) = pieces_of(server)
    projection = Projection(pa.schema([("n", pa.int64())]), "FAILFAST")
    with pytest.raises(ColumnError, match=rf"^stream m:33: entry {bad.decode()}: 'many' in col"):
        list(read_partition(longer, options, projection))
    with talking(server) as client:
        client.delete("m:07")
        client.set("m:07", "no stream")
    told = ServerRefused, r"^stream m:07: .* no stream"
    if server.name == "anabranch":  # it knows that there was one
        told = DataLossError, r"^stream m:07: 3 entries \(.*\) were deleted with the key"
    with pytest.raises(told[0], match=told[1]):
        list(read_partition(piece, options, projection))


def test_what_is_trimmed_or_deleted_after_planning_is_a_loss_in_its_stream_alone(
    server: ServerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(60):
        fill(server, f"m:{number:02d}", 4)
    (piece,) = pieces_of(server)
    with talking(server) as client:
        client.xtrim("m:50", maxlen=1, approximate=False)
        wanted = [
            (stream, *entry)
            for stream in (f"m:{number:02d}" for number in range(60))
            if stream != "m:20"
            for entry in xrange(server, stream)
        ]
        with pytest.raises(DataLossError, match=r"stream m:50.* trimmed before they were read"):
            rows_of(server, piece)
        client.delete("m:20")
    with pytest.raises(DataLossError, match=r"stream m:20"):
        rows_of(server, piece)
    assert rows_of(server, piece, failOnDataLoss="false") == wanted
    said = {each.message.split(":", 2)[1].split()[0].strip(",") for each in caplog.records}
    assert said == {"20", "50"}
    assert len(caplog.records) == 2, caplog.messages


# --------------------------------------------------------------------------------------- with Spark


def test_regions_of_many_streams_are_few_tasks(
    spark: SparkSession, regions: RegionProcesses
) -> None:
    for server in regions.servers:
        with talking(server) as client:
            pipe = client.pipeline(transaction=False)
            for number in range(200):
                pipe.xadd(f"m:{number:03d}", {"n": number})
            pipe.execute()
    wait_until(regions.converged, "all have the entries of all", 300)
    eu, *_ = regions.servers
    table = batch(spark, eu, "stream string, region string, n int", subscribePattern="m:*")
    assert table.rdd.getNumPartitions() == 1
    assert sorted((row.stream, row.region, row.n) for row in table.collect()) == [
        (f"m:{number:03d}", str(server.number), number)
        for number in range(200)
        for server in regions.servers
    ]
    three = batch(spark, eu, "n int", subscribePattern="m:*", minPartitions=3)
    assert three.groupBy(sf.spark_partition_id()).count().collect() == [
        (each, 200) for each in range(3)
    ]
    one = batch(spark, eu, "region string, n int", subscribePattern="m:*", regions="us")
    assert sorted(row.n for row in one.collect()) == list(range(200))
    assert {row.region for row in one.collect()} == {str(regions.servers[1].number)}


def test_one_load_of_three_regions_is_asked_many_questions(
    spark: SparkSession, regions: RegionProcesses
) -> None:
    for server in regions.servers:
        fill(server, "s", 300)
    wait_until(regions.converged, "all have the entries of all", 300)
    table = batch(spark, regions.servers[0], "region string, n int", subscribe="s")
    one, two = (table.where(f"region = '{each}'") for each in (1, 2))
    assert (one.count(), table.count(), one.union(two).count()) == (300, 900, 600)
    assert one.alias("a").join(two.alias("b"), sf.expr("a.n % 20 = b.n % 20")).count() == 4_500
    table.createOrReplaceTempView("asked")
    wheres = ("where region = '1'", "where region = '2'", "")
    counts = (f"(select count(*) from asked {each})" for each in wheres)
    assert spark.sql(f"select {', '.join(counts)}").first() == (300, 300, 900)


def test_a_large_stream_is_cut_without_being_told(spark: SparkSession, ours: ServerProcess) -> None:
    fill(ours, "m:0", 14_000)
    fill(ours, "m:1", 4_000)
    fill(ours, "m:2", 2_000)
    table = batch(spark, ours, "n int", subscribePattern="m:*")
    count = min(2 * (os.cpu_count() or 1), 4)
    sizes = [row[1] for row in table.groupBy(sf.spark_partition_id()).count().collect()]
    assert len(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert sorted(row.n for row in table.collect()) == sorted(
        number for size in (14_000, 4_000, 2_000) for number in range(size)
    )


def test_a_query_over_many_streams_goes_on_where_it_was(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    def run(**options: Any) -> list[int]:
        frame = streaming(
            spark, server, subscribePattern="m:*", discoveryIntervalMs=0, minPartitions=3, **options
        ).select("stream", "id", "fields")
        out, check = tmp_path / "out", tmp_path / "check"
        return finish(to_parquet(frame, out, check, availableNow=True))

    streams = set(fill_many(server, 60, 1))
    run(maxEntriesPerTrigger=900)
    streams |= {*fill_many(server, 60, 2), *fill_many(server, 20, 3, "m:late:")}
    newest = max((tmp_path / "check" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()  # the last batch is done again
    run(maxEntriesPerTrigger=2_000)
    found = spark.read.parquet(str(tmp_path / "out"))
    for stream in sorted(streams):
        assert entries_of(found.where(sf.col("stream") == stream)) == xrange(server, stream), stream
    assert found.count() == sum(len(xrange(server, each)) for each in streams)


@pytest.mark.parametrize("kind", ["kill", "error"])
def test_a_task_that_dies_among_many_streams_writes_each_row_once(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, kind: str
) -> None:
    spark.dataSource.register(broken_source(kind, ours.port, 300))
    for number in range(100):
        fill(ours, f"m:{number:02d}", 20, first=20 * number)
    reader = spark.readStream.format("anabranch").option("url", url(ours))
    reader = reader.options(subscribePattern="m:*", startingOffsets="earliest", minPartitions=2)
    start(reader.load().select("fields"), ours, tmp_path, "broken", stream="t").awaitTermination()
    assert accidents(ours) == 2
    found = values(ours, "t")
    assert sorted(found) == list(range(2_000))
    for task in (range(1_000), range(1_000, 2_000)):
        assert [each for each in found if each in task] == list(task)
