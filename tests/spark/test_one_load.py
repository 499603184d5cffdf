"""A table that is loaded once and asked everything, beside one that is loaded for each question."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import permutations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.window import Window

from tests.spark.reading import batch, talking
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses

pytestmark = pytest.mark.long

NAMES = ("eu", "us", "ap")
SCHEMA = (
    "stream string, region string, id string, ts timestamp, position bigint, n int, temp double"
)
STREAMS = ("a", "b", "p:1", "p:2", "p:3")
COUNT = 150  # of each stream in each region

Question = Callable[[DataFrame], DataFrame]


def in_sql(text: str) -> Question:
    """A question in SQL about the view `asked`."""

    def ask(table: DataFrame) -> DataFrame:
        table.createOrReplaceTempView("asked")
        return table.sparkSession.sql(text)

    return ask


def cached(table: DataFrame) -> DataFrame:
    """Through Spark's cache, which is filled by one question and answers another one."""
    some = table.where("n % 3 = 0").cache()
    try:
        assert some.count() == len(some.collect())
        return table.sparkSession.createDataFrame(
            some.groupBy("region").count().collect(), "region string, count bigint"
        )
    finally:
        some.unpersist(blocking=True)


QUESTIONS: dict[str, Question] = {
    "all": lambda t: t,
    "count": lambda t: t.groupBy().count(),
    "a region": lambda t: t.where("region = '1'").groupBy().count(),
    "another region": lambda t: t.where("region = '3'").select("id", "n"),
    "no region": lambda t: t.where("region = '7'"),
    "a stream": lambda t: t.where("stream like '%1' or stream = 'a'").select("stream", "n"),
    "a span of time": lambda t: t.where(
        "ts >= timestamp_seconds(120) and ts < timestamp_seconds(200)"
    ).groupBy("region").agg(f.count("*"), f.min("id"), f.max("id")),
    "null": lambda t: t.where("temp is null").select("id"),
    "one column": lambda t: t.select("temp").agg(f.sum("temp"), f.count("temp")),
    "self-join": lambda t: t.alias("x").join(
        t.alias("y"), f.expr("x.n = y.n and x.region < y.region")
    ).groupBy("x.region", "y.region").count(),
    "join of filters": lambda t: t.where("region = '1'").join(
        t.where("region = '2'"), ["stream", "n"]
    ).groupBy("stream").count(),
    "union of filters": lambda t: t.where("region = '1'").union(t.where("region <> '1'")).groupBy()
    .count(),
    "difference": lambda t: t.select("id").exceptAll(t.where("n < 50").select("id")),
    "intersection": lambda t: t.where("n < 90").select("n").intersect(
        t.where("n > 60").select("n")
    ),
    "anti-join": lambda t: t.join(
        t.where("region = '2'").select(f.col("n").alias("m")), f.col("n") == f.col("m"), "left_anti"
    ).select("region", "n"),
    "ranks": lambda t: t.withColumn(
        "rank", f.row_number().over(Window.partitionBy("stream", "region").orderBy("position"))
    ).where("rank <= 2").select("stream", "region", "rank", "id"),
    "cube": lambda t: t.cube("stream", "region").agg(f.count("*"), f.max("position")),
    "first ones": lambda t: t.orderBy("ts", "region", "stream").limit(17).select("id", "region"),
    "repartitioned": lambda t: t.repartition(5, "n").groupBy("n").count().where("count > 2"),
    "cached": cached,
    "sub-selects": in_sql(
        "select (select count(*) from asked where region = '1'), (select count(*) from asked), "
        "(select max(n) from asked where region = '2'), "
        "(select count(distinct stream) from asked where ts > timestamp_seconds(150))"
    ),
    "in": in_sql(
        "select region, n from asked where n in (select n from asked where region = '3' and n > 99)"
    ),
    "exists": in_sql(
        "select x.id from asked x where exists (select 1 from asked y where y.n = x.n + 1 "
        "and y.region = x.region and y.stream = x.stream and y.temp > 20)"
    ),
    "with": in_sql(
        "with x as (select stream, avg(temp) m from asked group by stream) "
        "select asked.stream, count(*) from asked join x on x.stream = asked.stream "
        "where temp > m group by asked.stream"
    ),
}  # fmt: skip

ASSIGNED = json.dumps({"a": ["1"], "b": ["2", "3"]})
LOADS: dict[str, dict[str, str]] = {
    "streams": {"subscribe": "a,b"},
    "a pattern": {"subscribePattern": "p:*"},
    "all keys": {"subscribePattern": "*", "minPartitions": "7"},
    "regions": {"subscribe": "a,b", "regions": "1,ap"},
    "assigned": {"assign": ASSIGNED},
    "a span of time": {
        "subscribe": "a,b",
        "startingTimestamp": "110000",
        "endingTimestamp": "190000",
    },
}


def answer(question: Question, table: DataFrame) -> Counter[str]:
    """The rows of an answer, in any order."""
    return Counter(map(str, question(table).collect()))


def write(regions: RegionProcesses) -> None:
    """The same times and numbers in all regions; then streams are deleted, and one made again."""
    for here, there in permutations(regions.servers, 2):  # else their times would ascend
        assert regions.call(here, "AB.LINK", there.number, "PAUSE") == ("+", b"OK")
    for number, server in enumerate(regions.servers, 1):
        with talking(server) as client:
            for stream in STREAMS:
                pipe = client.pipeline(transaction=False)
                for n in range(COUNT):
                    words = ("n", n, "temp", "-" if n % 29 == 7 else n / 4 + number)
                    pipe.execute_command("XADD", stream, f"{100_000 + n * 1000}-*", *words)
                pipe.execute()
    regions.heal()
    wait_until(regions.converged, "all have applied the same", 300)
    with talking(regions.servers[1]) as client:
        client.delete("p:2", "p:3")
        client.execute_command("XADD", "p:3", "300000", "n", 1, "temp", 1)
        first = client.xrange("a", count=5)
        client.xdel("a", *(entry for entry, _ in first))
    wait_until(regions.converged, "all have applied the same", 300)


def test_no_answer_depends_on_what_else_the_same_load_is_asked(
    spark: SparkSession, regions: RegionProcesses
) -> None:
    write(regions)
    rng = random.Random(4)
    for name, options in LOADS.items():
        server = rng.choice(regions.servers)

        def load() -> DataFrame:
            return batch(spark, server, SCHEMA, **options)  # noqa: B023 - called in this round

        wanted = {each: answer(question, load()) for each, question in QUESTIONS.items()}
        assert wanted["count"] == Counter([f"Row(count={sum(wanted['all'].values())})"])
        one = load()
        order = [*QUESTIONS, *rng.sample([*QUESTIONS], 8)]
        rng.shuffle(order)
        for each in order:
            assert answer(QUESTIONS[each], one) == wanted[each], (name, each)
    rows = batch(spark, regions.servers[2], SCHEMA, subscribePattern="*")
    counts = {row.stream: row["count"] for row in rows.groupBy("stream").count().collect()}
    assert counts == {"a": 3 * COUNT - 5, "b": 3 * COUNT, "p:1": 3 * COUNT, "p:3": 1}


def test_a_load_that_lost_its_stream_answers_no_question_wrongly(
    spark: SparkSession, regions: RegionProcesses
) -> None:
    write(regions)
    server = regions.servers[0]
    one = batch(spark, server, SCHEMA, subscribePattern="p:*")
    before = {each: answer(question, one) for each, question in QUESTIONS.items()}
    with talking(server) as client:
        client.delete("p:1")
    refused: dict[str, str] = {}
    for each, question in QUESTIONS.items():
        try:
            found = answer(question, one)
        except (PySparkException, Py4JJavaError) as error:  # the second one is that of a sub-select
            refused[each] = str(error)
        else:
            assert found == before[each], each
    assert {"all", "count", "self-join"} <= refused.keys()
    assert all("load it again" in text for text in refused.values())
    assert batch(spark, server, SCHEMA, subscribePattern="p:*").count() == 1
