"""Batch reads, from our server by blocks and from Redis entry by entry."""

from __future__ import annotations

import gc
import json
import struct

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from anabranch.spark.reading.losses import DataLossError
from anabranch.spark.runtime import rounds
from anabranch.spark.writing.identity import WriterIdentity
from anabranch.spark.writing.plan import Plan
from anabranch.spark.writing.task import write
from tests.spark.reading import (
    base_of,
    batch,
    entries_of,
    fill,
    fill_at,
    fill_hostile,
    numbers,
    planned_and_read,
    talking,
    url,
    vector_at,
    xrange,
)

pytestmark = pytest.mark.usefixtures("spark")


def test_every_entry_is_read_as_xrange_gives_it(spark, server):
    fill_hostile(server, "s", 700, seed=5)
    with talking(server) as client:
        for entry_id, _ in xrange(server, "s")[::9]:
            client.xdel("s", entry_id)
    wanted = xrange(server, "s")
    for options in (
        *({}, {"minPartitions": 5}, {"maxBatchBytes": "4k"}),
        {"exportCodec": "zstd"},
    ):
        assert entries_of(batch(spark, server, subscribe="s", **options)) == wanted


def test_reserved_columns_tell_where_an_entry_comes_from(spark, ours, plain):
    for server in (ours, plain):
        fill_at(server, "s", [1_000, 2_000, 3_000])
        base = base_of(server, "s")
        positions = [None] * 3 if server is plain else [base, base + 1, base + 2]
        rows = batch(spark, server, subscribe="s").orderBy("ts").collect()
        assert [row.stream for row in rows] == ["s"] * 3
        assert [row.region for row in rows] == [""] * 3
        assert [row.ts.timestamp() for row in rows] == [1.0, 2.0, 3.0]
        assert [row.id for row in rows] == ["1000-0", "2000-0", "3000-0"]
        assert [row.position for row in rows] == positions


def test_ids_may_have_any_time_of_64_bits(spark, server):
    times = [5, 2**63 - 1, 2**63, 2**64 - 1]
    fill_at(server, "s", times)
    rows = batch(spark, server, subscribe="s").select("id", "ts").collect()
    assert sorted(row.id for row in rows) == sorted(f"{ms}-0" for ms in times)
    assert [row.id for row in rows if row.ts is not None] == ["5-0"]


def test_positions_outlive_deletion(spark, ours):
    ids = fill(ours, "s", 5)
    with talking(ours) as client:
        client.xdel("s", ids[0], ids[3])
    rows = batch(spark, ours, subscribe="s").collect()
    base = base_of(ours, "s")
    assert sorted(row.position - base for row in rows) == [1, 2, 4]


def test_columns_are_typed_by_the_schema(spark, server):
    with talking(server) as client:
        client.xadd("s", {"n": 7, "x": "2.5", "at": "2024-05-01T10:00:00Z", "ok": "true"})
        client.xadd("s", {"n": "seven", "d": "12.30"})
    schema = "n int, x double, at timestamp, ok boolean, d decimal(6,2), raw string"
    rows = batch(spark, server, schema, subscribe="s", fieldMapping='{"raw": "n"}').collect()
    first, second = sorted(rows, key=lambda row: row.n is None)
    assert (first.n, first.x, first.ok, first.raw) == (7, 2.5, True, "7")
    assert first["at"].isoformat().startswith("2024-05-01T10:00:00")
    assert (second.n, str(second.d), second.raw) == (None, "12.30", "seven")


def test_values_that_do_not_fit_follow_the_mode(spark, server):
    with talking(server) as client:
        for value in ("1", "two", "3"):
            client.xadd("s", {"n": value})
    drop = batch(spark, server, "n int", subscribe="s", mode="DROPMALFORMED")
    assert numbers(drop) == [1, 3]
    kept = batch(spark, server, "n int, bad string", subscribe="s", columnNameOfCorruptRecord="bad")
    assert {(row.n, row.bad) for row in kept.collect()} == {
        (1, None), (None, '[["n", "two"]]'), (3, None),
    }  # fmt: skip
    with pytest.raises(PySparkException, match="'two' in column n is no int32"):
        batch(spark, server, "n int", subscribe="s", mode="FAILFAST").collect()


def test_begin_and_end_by_id_by_time_by_group_and_by_vector(spark, server):
    fill_at(server, "s", list(range(1_000, 101_000, 1_000)))  # n is seconds - 1

    def read(**options):
        return numbers(batch(spark, server, "n int", subscribe="s", **options))

    assert read(startingOffsets='{"s": "50000-0"}') == list(range(49, 100))
    assert read(startingOffsets='{"s": "50000-1"}') == list(range(50, 100))
    assert read(endingOffsets='{"s": "50000-0"}') == list(range(49))
    assert read(startingTimestamp=98_500) == [98, 99]
    assert read(endingTimestamp=3_000) == [0, 1]
    assert read(startingOffsets='{"s": "50000"}', endingOffsets='{"s": {"": "52000"}}') == [49, 50]
    assert read(startingOffsets="latest") == []
    assert read(startingTimestamp=60_000, endingTimestamp=50_000) == []
    with talking(server) as client:
        client.xgroup_create("s", "g", "97000-0")
    assert read(startingOffsets="group:g") == [97, 98, 99]
    vector = vector_at(server, "s", 95, "95000-0")
    assert read(startingOffsets=vector) == list(range(95, 100))


def test_streams_may_be_called_like_the_parts_of_an_offset(server):
    fill(server, "s", 3)
    fill(server, "v", 2, first=3)
    options = {"url": url(server), "subscribe": "s,v"}
    assert planned_and_read({**options, "startingOffsets": '{"s": "latest", "v": "0"}'}) == [3, 4]


def test_several_streams_and_patterns(spark, server):
    fill(server, "a:1", 3)
    fill(server, "a:2", 4, first=3)
    fill(server, "b", 5)
    with talking(server) as client:
        client.set("a:3", "no stream")
    found = batch(spark, server, "stream string, n int", subscribePattern="a:*")
    assert numbers(found) == list(range(7))
    assert {row.stream for row in found.collect()} == {"a:1", "a:2"}
    assert batch(spark, server, subscribe="a:1, b").count() == 8
    assert batch(spark, server, assign='{"a:2": [""]}').count() == 4
    assert batch(spark, server, subscribe="a:1", regions="").count() == 3
    assert batch(spark, server, subscribePattern="none*").count() == 0


def test_a_read_is_cut_into_the_pieces_asked_for(spark, ours):
    fill(ours, "s", 1_000)
    whole = batch(spark, ours, "n int", subscribe="s")
    assert whole.rdd.getNumPartitions() == 1
    cut = batch(spark, ours, "n int", subscribe="s", minPartitions=4)
    assert cut.groupBy(sf.spark_partition_id()).count().collect() == [
        (each, 250) for each in range(4)
    ]
    small = batch(spark, ours, "n int", subscribe="s", maxRecordsPerPartition=300)
    assert small.rdd.getNumPartitions() == 4
    assert numbers(small) == list(range(1_000))


def test_one_load_answers_each_question_as_a_fresh_load_does(spark, ours):
    fill_at(ours, "s", list(range(1_000, 91_000, 1_000)))
    fill_at(ours, "t", list(range(50_000, 140_000, 1_000)))
    schema = "stream string, ts timestamp, n int"

    def load():
        return batch(spark, ours, schema, subscribe="s,t")

    def halves(table):
        return table.where("stream = 's'"), table.where("stream = 't'")

    def view(table):
        table.createOrReplaceTempView("asked")
        return spark.sql(
            "select (select count(*) from asked where stream = 's' and n < 7), "
            "(select count(*) from asked where ts >= timestamp_seconds(100)), "
            "(select count(*) from asked)"
        )

    questions = [
        lambda table: table.where("stream = 's'").groupBy().count(),
        lambda table: table.groupBy().count(),
        lambda table: table.where("ts < timestamp_seconds(10)").groupBy().count(),
        lambda table: halves(table)[0].union(halves(table)[1]).groupBy().count(),
        lambda table: halves(table)[0].join(halves(table)[1], "ts").groupBy().count(),
        lambda table: table.alias("a").join(table.alias("b"), "n").groupBy().count(),
        view,
        lambda table: table.where("n = 7").select("stream").orderBy("stream"),
        lambda table: table.groupBy("stream").count().orderBy("stream"),
        lambda table: table.where("stream = 'u'").groupBy().count(),
    ]
    wanted = [question(load()).collect() for question in questions]
    assert [row[0] for row in wanted[:6]] == [(90,), (180,), (9,), (180,), (41,), (360,)]
    assert wanted[6] == [(7, 40, 180)]
    one = load()
    assert [question(one).collect() for question in questions] == wanted


def test_a_table_is_planned_once_and_load_reads_anew(spark, ours):
    fill(ours, "s", 10)
    table = batch(spark, ours, "n int", subscribe="s")
    assert table.count() == 10
    fill(ours, "s", 5)
    assert (table.count(), table.where("n >= 0").count()) == (10, 10)
    assert batch(spark, ours, "n int", subscribe="s").count() == 15
    with talking(ours) as client:
        client.xtrim("s", maxlen=3, approximate=False)
    told = (
        r"between positions.*were trimmed before they were read\. Spark planned this table at its "
    )
    with pytest.raises(PySparkException, match=rf"{told}.*load it again: .*\.load\(\)\. Set fail"):
        table.count()


def test_a_table_in_sql_takes_its_options_from_the_query(spark, ours):
    fill(ours, "s", 10)
    given = f"url '{url(ours)}', subscribe 's'"
    spark.sql(f"create table told (n int) using anabranch options ({given})")
    spark.sql(f"create table targets (stream string, n int) using anabranch options ({given})")
    try:
        with pytest.raises(PySparkException, match=r"no option came.*FROM table WITH \(url = "):
            spark.sql("select * from told").collect()
        chosen = f"told with (url = '{url(ours)}', subscribe = 's')"
        spark.sql(f"create temporary view newest as select sum(n) as total from {chosen}")
        assert spark.sql(f"select count(*) from {chosen}").first()[0] == 10
        assert spark.sql("select total from newest").first()[0] == 45
        fill(ours, "s", 1, first=10)
        assert spark.sql(f"select count(*) from {chosen}").first()[0] == 11
        assert spark.sql("select total from newest").first()[0] == 55
        row = spark.sql("select 'made' as stream, 7 as n")  # else it would go to a default server
        for write in (lambda: row.write.option("url", url(ours)).insertInto("targets"),
                      lambda: spark.sql("insert into targets values ('made', 7)")):  # fmt: skip
            with pytest.raises(PySparkException, match=r"no option came.*INSERT INTO table WITH"):
                write()
        spark.sql(f"insert into targets with (url = '{url(ours)}') values ('made', 8)")
        row.writeTo("targets").option("url", url(ours)).append()
        assert [each.n for each in batch(spark, ours, "n int", subscribe="made").collect()] == [
            8,
            7,
        ]
    finally:
        spark.sql("drop table targets")
        spark.sql("drop view if exists newest")
        spark.sql("drop table told")


def test_corrupt_records_are_kept_where_sparks_readers_keep_them(spark, ours):
    with talking(ours) as client:
        client.xadd("s", {"n": "1", "_corrupt_record": "mine"})
        client.xadd("s", {"n": "one"})
    schema = "n int, _corrupt_record string"
    rows = batch(spark, ours, schema, subscribe="s").orderBy("n").collect()
    assert rows == [(None, '[["n", "one"]]'), (1, None)]
    mapping = '{"_corrupt_record": "_corrupt_record"}'
    rows = batch(spark, ours, schema, subscribe="s", fieldMapping=mapping).orderBy("n").collect()
    assert rows == [(None, None), (1, "mine")]


def test_a_view_in_sql(spark, ours):
    fill(ours, "s", 10)
    spark.sql(
        f"create or replace temporary view v (n int) using anabranch "
        f"options (url '{url(ours)}', subscribe 's')"
    )
    assert spark.sql("select sum(n) from v").first()[0] == 45


def test_what_was_trimmed_before_a_given_start_is_a_loss(spark, server):
    fill_at(server, "s", list(range(1_000, 101_000, 1_000)))
    vector = vector_at(server, "s", 40, "40000-0")
    low = json.loads(vector)["s"]["s"][""][0]
    with talking(server) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", 10)
    options = {"subscribe": "s", "startingOffsets": vector}
    with pytest.raises(PySparkException) as caught:
        batch(spark, server, "n int", **options).collect()
    assert (
        f"stream s: 50 entries after 40000-0 (positions {low}\N{EN DASH}{low + 49}) were trimmed "
        "before they were read; first kept is 91000-0. Set failOnDataLoss=false"
    ) in str(caught.value)
    rest = batch(spark, server, "n int", failOnDataLoss="false", **options)
    assert numbers(rest) == list(range(90, 100))


def test_an_end_beyond_the_log_is_a_loss(ours):
    fill(ours, "s", 20)
    end = vector_at(ours, "s", 25, "9-0")
    options = {"url": url(ours), "subscribe": "s"}
    low = base_of(ours, "s")
    with pytest.raises(DataLossError, match=f"at position {low + 20}, and .* up to {low + 25}:"):
        planned_and_read({**options, "endingOffsets": end})
    given = {**options, "endingOffsets": end, "failOnDataLoss": "false"}
    assert planned_and_read(given) == list(range(20))
    with talking(ours) as client:
        client.delete("s")
    assert planned_and_read(given) == []


def test_a_time_is_found_behind_a_long_stretch_of_deleted_entries(ours):
    count, pieces = 10_000, 14
    row = b"*2\r\n$1\r\nn\r\n$1\r\n0\r\n"
    ends = [len(row) * at for at in range(1, count + 1)]
    payload = struct.pack(f"<{count + 1}I", count, *ends) + row * count
    with talking(ours) as client:
        for piece in range(pieces):
            _, _, _, first, _ = client.execute_command("AB.IMPORT", "s", payload)
            ms, seq = map(int, first.decode().split("-"))
            client.xdel("s", *(f"{ms}-{seq + at}" for at in range(not piece, count)))
        client.xadd("s", {"n": 1}, id=f"{ms + 1000}-0")
    given = {"url": url(ours), "subscribe": "s", "startingTimestamp": str(ms + 500)}
    assert planned_and_read(given) == [1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "nothing"}, "no such stream: nothing"),
        ({"subscribe": "string"}, "holds something that is no stream"),
        ({"subscribe": "s", "minPartition": 3}, "did you mean minPartitions"),
        ({"subscribe": "s", "startingOffsets": "earlyest"}, "earliest, latest, group:<name>"),
        (
            {"subscribe": "s", "maxEntriesPerTrigger": 2},
            "maxEntriesPerTrigger is for streaming",
        ),
        ({"subscribe": "s", "commitGroup": "g"}, "option commitGroup is for streaming reads"),
        ({"subscribe": "s", "regions": "eu"}, "no region is called 'eu': the server at .* has no"),
        ({"subscribe": "s", "startingOffsets": "group:no"}, "no consumer group 'no'"),
        ({"subscribe": "s", "password": "secret"}, "check the options username and password"),
        (
            {"subscribe": "s", "url": "redis://127.0.0.1:1", "retries": 0},
            "no server at 127.0.0.1:1",
        ),
    ],
)
def test_failures_say_what_to_do(spark, ours, options, text):
    fill(ours, "s", 1)
    with talking(ours) as client:
        client.set("string", "x")
    with pytest.raises(PySparkException, match=text) as caught:
        batch(spark, ours, **options).collect()
    assert "secret" not in str(caught.value)


def test_collections_of_a_worker_leave_out_what_it_has_imported(server, monkeypatch):
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(gc.isenabled()))
    fill(server, "s", 10)
    options = {"url": url(server), "subscribe": "s"}
    rounds.leave_imports_alone.cache_clear()
    assert planned_and_read(options) == planned_and_read(options) == list(range(10))
    assert frozen == [True]
    rounds.leave_imports_alone.cache_clear()
    plan = Plan.of({"url": url(server), "stream": "t"}, StructType().add("n", "long"))
    monkeypatch.setattr(WriterIdentity, "of_task", dict)  # there is no task of Spark
    with pytest.raises(TypeError):
        write(plan, iter([]))
    assert frozen == [True, True]
