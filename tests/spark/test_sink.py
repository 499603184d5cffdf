"""Tables into streams through Spark: what arrives, and that it arrives once."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.accidents import broken_source
from tests.spark.cutting import ReturningServer
from tests.support.servers import AnabranchServer, RedisServer, ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS = 3000
Entry = tuple[str, list[bytes]]


def entries(server: ServerProcess, key: str) -> list[Entry]:
    with server.client() as client:
        _, found = client.call("XRANGE", key, "-", "+")
    return [(entry[0][1].decode(), [word for _, word in entry[1][1]]) for _, entry in found]


def values(server: ServerProcess, key: str) -> list[int]:
    return [int(words[1]) for _, words in entries(server, key)]


def accidents(server: ServerProcess) -> int:
    with server.client() as client:
        return int(client.call("GET", "accidents")[1] or 0)


def url(server: ServerProcess) -> str:
    return f"redis://127.0.0.1:{server.port}"


def save(table: DataFrame, server: ServerProcess, kind: str = "anabranch", **options: Any) -> None:
    writer = table.write.format(kind).option("url", url(server)).mode("append")
    writer.options(**options).save()


def load(
    spark: SparkSession, server: ServerProcess, key: str, schema: str | None = None
) -> DataFrame:
    reader = spark.readStream.format("anabranch").option("url", url(server))
    reader = reader if schema is None else reader.schema(schema)
    return reader.option("subscribe", key).option("startingOffsets", "earliest").load()


def start(
    table: DataFrame, server: ServerProcess, place: Path, kind: str = "anabranch", **options: Any
) -> StreamingQuery:
    writer = table.writeStream.format(kind).option("url", url(server)).options(**options)
    writer = writer.option("checkpointLocation", str(place)).option("retryIntervalMs", "50")
    return writer.trigger(availableNow=True).start()


def fill(server: ServerProcess, key: str, rows: int) -> None:
    with server.client(timeout=60) as client:
        for at in range(0, rows, 1000):
            client.pipeline(
                [("XADD", key, "*", "n", str(each)) for each in range(at, min(at + 1000, rows))]
            )


# ---------------------------------------------------------------------------------- what arrives


def test_all_types_come_back_as_they_went(spark: SparkSession, ours: AnabranchServer) -> None:
    schema = (
        "b binary, s string, t boolean, i8 tinyint, i16 smallint, i32 int, i64 bigint, f float, "
        "d double, m decimal(20,8), day date, at timestamp"
    )
    moment = datetime.datetime(2024, 2, 29, 1, 2, 3, 456789)  # noqa: DTZ001 - the session's zone
    rows: list[tuple[Any, ...]] = [
        (bytearray(b"\r\n\x00"), "ü", True, -1, 2, -3, 2**62, 0.1, 1e300, Decimal("0.00000001"),
         datetime.date(1969, 1, 1), moment),
        (bytearray(b""), "", False, 0, 0, 0, 0, float("inf"), float("-inf"), Decimal(10**11),
         datetime.date(2100, 1, 1), moment.replace(microsecond=0)),
        (None, "only", None, None, None, None, None, None, 1e7, None, None, None),
    ]  # fmt: skip
    table = spark.createDataFrame(rows, schema).coalesce(1)
    save(table, ours, stream="s")
    reader = spark.read.format("anabranch").option("url", url(ours)).option("subscribe", "s")
    assert reader.schema(schema).load().collect() == table.collect()


def test_values_are_spelled_as_sparks_cast_to_string_does(
    spark: SparkSession, ours: AnabranchServer
) -> None:
    numbers = "0.0D, -0.0D, 1.0D, 0.001D, 0.00099D, 9999999.0D, 1.0E7D, 123456.789D, 1.0E-300D"
    more = "1.5F, 1.0E10F, 16777216.0F, 3.4E38F, 0.3F"
    table = spark.sql(f"select explode(array({numbers})) d").unionByName(
        spark.sql(f"select explode(array({more})) d")
    )
    floats = spark.sql(f"select explode(array({more})) d")
    for key, each in (("doubles", table), ("floats", floats)):
        expected = [row.d for row in each.selectExpr("cast(d as string) d").collect()]
        save(each.coalesce(1), ours, stream=key)
        assert [words[1].decode() for _, words in entries(ours, key)] == expected


def test_a_copy_of_a_stream_is_the_same(spark: SparkSession, ours: AnabranchServer) -> None:
    with ours.client() as client:
        client.call("XADD", "s", "1-1", "a", "1", "b", "", "a", "2", "", "\r\n$3\r\n")
        client.call("XADD", "s", "1-2", "z", "9")
    source = spark.read.format("anabranch").option("url", url(ours)).option("subscribe", "s")
    table = source.load()
    save(table.drop("stream"), ours, stream="copy")
    assert [words for _, words in entries(ours, "copy")] == [
        words for _, words in entries(ours, "s")
    ]
    for _ in range(2):
        save(table.drop("stream"), ours, stream="twin", preserveIds="true")
    assert entries(ours, "twin") == entries(ours, "s")


def test_each_row_goes_to_the_stream_it_names(spark: SparkSession, ours: AnabranchServer) -> None:
    table = spark.range(0, 300, 1, 2).selectExpr(
        "if(id % 3 = 0, null, concat('s', id % 3)) as stream", "id as n"
    )
    save(table, ours, stream="rest")
    for key, rest in (("rest", 0), ("s1", 1), ("s2", 2)):
        assert sorted(values(ours, key)) == list(range(rest, 300, 3))


def test_null_leaves_a_field_out_or_becomes_what_is_asked_for(
    spark: SparkSession, ours: AnabranchServer
) -> None:
    table = spark.sql("select 1 a, cast(null as string) b").coalesce(1)
    save(table, ours, stream="s", fieldMapping='{"a": "first"}')
    save(table, ours, stream="s", nullValue="NULL", maxLen="1", trim="=")
    assert [words for _, words in entries(ours, "s")] == [[b"a", b"1", b"b", b"NULL"]]


# ------------------------------------------------------------------------------------ accidents


@pytest.mark.parametrize("kind", ["error", "kill"])
def test_a_batch_whose_task_dies_is_written_once(
    spark: SparkSession, ours: AnabranchServer, kind: str
) -> None:
    spark.dataSource.register(broken_source(kind, ours.port, 1500))
    table = spark.range(0, ROWS, 1, 1).selectExpr("id as n")
    save(table, ours, "broken", stream="t", maxRowsInFlight=70)
    assert accidents(ours) == 1
    assert values(ours, "t") == list(range(ROWS))


def test_25000_rows_by_position_survive_a_death(spark: SparkSession, ours: AnabranchServer) -> None:
    spark.dataSource.register(broken_source("kill", ours.port, 12_000))
    table = spark.range(0, 25_000, 1, 1).selectExpr("id as n")
    save(table, ours, "broken", stream="t", idempotence="position")
    assert accidents(ours) == 1
    assert values(ours, "t") == list(range(25_000))


def test_without_idempotence_the_same_death_doubles_rows(
    spark: SparkSession, ours: AnabranchServer
) -> None:
    spark.dataSource.register(broken_source("kill", ours.port, 1500))
    table = spark.range(0, ROWS, 1, 1).selectExpr("id as n")
    save(table, ours, "broken", stream="t", maxRowsInFlight=70, idempotence="none")
    assert len(values(ours, "t")) > ROWS + 1000


def test_rows_in_another_order_are_refused_or_sorted(
    spark: SparkSession, ours: AnabranchServer
) -> None:
    spark.dataSource.register(broken_source("shuffled", ours.port, 600))
    table = spark.range(0, 1000, 1, 1).selectExpr("id as n")
    with pytest.raises(Exception, match="replayed with different rows"):
        save(table, ours, "broken", stream="trusted", maxRowsInFlight=70)
    assert accidents(ours) == 1
    rows = values(ours, "trusted")
    assert len(rows) == len(set(rows)) >= 400
    # What has to see all rows first writes none before the accident: so a job is run twice.
    job = {"stream": "sorted", "producerId": "job", "batchId": 1, "deterministicOrder": "sort"}
    for several in (table, table.orderBy("n", ascending=False).coalesce(1)):
        save(several, ours, **job)
    assert sorted(values(ours, "sorted")) == list(range(1000))
    odd = spark.sql("select 1 as `.c`, 2 as `[0]`, 3 as `a.b` union all select 0, 5, 5").coalesce(1)
    save(odd, ours, stream="odd", deterministicOrder="sort")
    words = [b".c", b"0", b"[0]", b"5", b"a.b", b"5"]
    assert entries(ours, "odd")[0][1] == words


@pytest.mark.parametrize("kind", [pytest.param("error", marks=pytest.mark.long), "kill"])
def test_a_streaming_task_that_dies_is_written_once(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, kind: str
) -> None:
    spark.dataSource.register(broken_source(kind, ours.port, 1500))
    fill(ours, "s", ROWS)
    table = load(spark, ours, "s", "n bigint")
    start(table, ours, tmp_path, "broken", stream="t", maxRowsInFlight=70).awaitTermination()
    assert accidents(ours) == 1
    assert values(ours, "t") == list(range(ROWS))


def run_in_batches(spark: SparkSession, server: ServerProcess, place: Path, **more: Any) -> None:
    reader = spark.readStream.format("anabranch").option("url", url(server))
    table = (
        reader.options(subscribe="s", startingOffsets="earliest", maxEntriesPerTrigger=1000)
        .load()
        .select("fields")
    )
    start(table, server, place, stream="t", **more).awaitTermination()


def forget_last(place: Path, log: str) -> int:
    """Delete the newest file of a log of the checkpoint; which batch it was about."""
    newest = max(int(each.name) for each in (place / log).iterdir() if each.name.isdigit())
    (place / log / str(newest)).unlink()
    (place / log / f".{newest}.crc").unlink(missing_ok=True)
    return newest


def test_a_checkpoint_that_was_set_back_is_noticed(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    run_in_batches(spark, ours, tmp_path)
    for log in ("offsets", "commits", "commits"):
        forget_last(tmp_path, log)
    with pytest.raises(Exception, match=r"comes too late: stream t .* set back"):
        run_in_batches(spark, ours, tmp_path)
    assert values(ours, "t") == list(range(ROWS))


def test_the_last_batch_replayed_with_other_chunks_adds_nothing(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    run_in_batches(spark, ours, tmp_path)
    for chunk in (33, 999):
        forget_last(tmp_path, "commits")
        run_in_batches(spark, ours, tmp_path, maxRowsInFlight=chunk)
    fill(ours, "s", 10)
    run_in_batches(spark, ours, tmp_path)
    assert values(ours, "t") == [*range(ROWS), *range(10)]


def test_a_changed_replay_fails_and_says_so(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    run_in_batches(spark, ours, tmp_path)
    batch = forget_last(tmp_path, "commits")
    with ours.client() as client:
        client.call("XDEL", "s", entries(ours, "s")[-5][0])
    with pytest.raises(Exception, match=f"batch {batch} of .* was replayed with different rows"):
        run_in_batches(spark, ours, tmp_path)
    assert values(ours, "t") == list(range(ROWS))


def test_a_server_that_is_killed_in_mid_batch_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    import threading

    from tests.spark.test_ledger import kill_at

    extra = ["--appendfsync", "always"]
    with ReturningServer(tmp_path / "server", extra) as server:
        table = spark.range(0, ROWS, 1, 2).selectExpr("id as n")
        killer = threading.Thread(target=kill_at, args=(server, [300, 1500], "t"))
        killer.start()
        save(table, server, stream="t", maxRowsInFlight=20, retryIntervalMs=50, retries=9)
        killer.join()
        assert server.starts == 3
        found = values(server, "t")
    assert sorted(found) == list(range(ROWS))
    for half in (range(ROWS // 2), range(ROWS // 2, ROWS)):
        assert [each for each in found if each in half] == list(half)


# -------------------------------------------------------------------------------- who is a task


def test_foreach_batch_is_covered_and_two_writes_need_names(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", 50)

    def twice(table: DataFrame, batch: int) -> None:
        save(table.select("fields"), ours, stream="t", sinkId="a")
        save(table.select("fields").limit(10), ours, stream="t", sinkId="b")
        if not (tmp_path / "failed").exists():
            (tmp_path / "failed").touch()
            raise RuntimeError("between two writes and the commit")

    def run(what: Any, place: str) -> None:
        query = load(spark, ours, "s").writeStream.foreachBatch(what)
        query = query.option("checkpointLocation", str(tmp_path / place))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="between two writes"):
        run(twice, "one")
    run(twice, "one")
    assert values(ours, "t") == [*range(50), *range(10)]

    def unnamed(table: DataFrame, batch: int) -> None:
        save(table.select("fields"), ours, stream="u")
        save(table.selectExpr("id as other", "seq as one").limit(10), ours, stream="u")

    with pytest.raises(Exception, match=r"a sinkId for each sink"):
        run(unnamed, "two")


def test_a_job_with_a_name_can_be_run_again(spark: SparkSession, ours: AnabranchServer) -> None:
    table = spark.range(0, 100, 1, 2).selectExpr("id as n")
    for _ in range(2):
        save(table, ours, stream="t", producerId="nightly", batchId=7)
    assert sorted(values(ours, "t")) == list(range(100))
    save(table, ours, stream="t", producerId="nightly", batchId=6)  # an old one
    assert len(values(ours, "t")) == 100
    save(table, ours, stream="t", producerId="nightly", batchId=8)
    save(table, ours, stream="t")
    assert len(values(ours, "t")) == 300


def test_a_job_with_a_name_needs_a_number_unless_a_query_has_it(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    table = spark.range(0, 10, 1, 1).selectExpr("id as n")
    for way in ({}, {"idempotence": "position"}):
        with pytest.raises(Exception, match="names a job and not its run: give batchId as well"):
            save(table, ours, stream="t", producerId="nightly", **way)
        with pytest.raises(Exception, match="numbers a run and names no job: give producerId as"):
            save(table, ours, stream="t", batchId=7, **way)
    assert values(ours, "t") == []
    save(table, ours, stream="t", producerId="nightly", idempotence="none")
    assert values(ours, "t") == [*range(10)]

    def named(batch: DataFrame, _: int) -> None:
        save(batch, ours, stream="u", producerId="nightly")

    fill(ours, "s", 30)
    query = load(spark, ours, "s", "n bigint").writeStream.foreachBatch(named)
    query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    query.start().awaitTermination()
    fill(ours, "s", 30)
    query.start().awaitTermination()
    assert sorted(values(ours, "u")) == sorted([*range(30)] * 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "where to\\?"),
        ({"stream": "t", "idempotenec": "none"}, "did you mean idempotence"),
        ({"stream": "t", "idempotence": "content"}, "ledger or position or none is needed"),
        ({"stream": "t", "preserveIds": "true"}, "column id"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_written(
    spark: SparkSession, ours: AnabranchServer, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        save(spark.range(3).selectExpr("id as n"), ours, **options)
    assert entries(ours, "t") == []


def test_modes_that_would_delete_are_refused(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    table = spark.range(3).selectExpr("id as n")
    writer = table.write.format("anabranch").options(url=url(ours), stream="t")
    with pytest.raises(Exception, match="delete the key yourself"):
        writer.mode("overwrite").save()
    counts = load(spark, ours, "s").groupBy("region").count().drop("region")
    query = counts.writeStream.format("anabranch").outputMode("complete")
    query = query.options(url=url(ours), stream="t", checkpointLocation=str(tmp_path))
    told = r'only grows: use outputMode\("append"\), with withWatermark.*"update"\)\.foreachBatch'
    with pytest.raises(Exception, match=told):
        query.trigger(availableNow=True).start().awaitTermination()

    def write(rows: DataFrame, number: int) -> None:  # as the error says
        writer = rows.write.format("anabranch").options(url=url(ours), stream="counts")
        writer.options(producerId="counts", batchId=number).mode("append").save()

    with ours.client() as client:
        client.pipeline([("XADD", "s", "*", "n", str(each)) for each in range(4)])
    query = counts.writeStream.option("checkpointLocation", str(tmp_path / "u"))
    query = query.outputMode("update").foreachBatch(write).trigger(availableNow=True)
    query.start().awaitTermination()
    assert [fields for _, fields in entries(ours, "counts")] == [[b"count", b"4"]]
    with pytest.raises(Exception, match="batchId is for batch writes"):
        start(
            load(spark, ours, "s"), ours, tmp_path / "b", stream="t", batchId=1
        ).awaitTermination()


def test_a_server_that_cannot_recognise_repetitions_needs_a_plain_word(
    spark: SparkSession, plain: RedisServer
) -> None:
    table = spark.range(0, 100, 1, 1).selectExpr("id as n")
    with pytest.raises(Exception, match="idempotence=none to accept that"):
        save(table, plain, stream="t")
    with pytest.raises(Exception, match=r"idempotence=ledger needs AB\.IMPORT"):
        save(table, plain, stream="t", idempotence="ledger")
    save(table, plain, stream="t", idempotence="none")
    assert values(plain, "t") == list(range(100))
