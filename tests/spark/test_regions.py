"""Streams that several regions write: what arrives late is read, once, in whatever region."""

from __future__ import annotations

from itertools import combinations

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StructField, StructType

from anabranch.spark.connection.client import ServerRefused, connect, facts_of
from anabranch.spark.connection.region_names import RegionNames
from anabranch.spark.decoding.columns import ColumnError
from anabranch.spark.options import OptionError, ReadOptions, ServerOptions, WriteOptions
from anabranch.spark.reading.offsets import Vector
from anabranch.spark.reading.readers import stream_reader
from anabranch.spark.reading.server_logs import ServerLogs
from anabranch.spark.writing import adding
from anabranch.spark.writing.adding import Adder, Marks
from anabranch.spark.writing.encode import encode
from anabranch.spark.writing.identity import WriteFailed
from anabranch.spark.writing.layout import Layout
from tests.spark.reading import (
    finish,
    numbers,
    planned_and_read,
    streaming,
    talking,
    to_parquet,
    url,
)
from tests.support.inspection import wait_until

NAMES = ("eu", "us")
N = StructType([StructField("n", LongType())])


def part(cluster):
    for one, other in combinations(cluster.servers, 2):
        for here, there in ((one, other), (other, one)):
            assert cluster.call(here, "AB.LINK", there.number, "PAUSE") == ("+", b"OK")


def add(server, first, count):
    with talking(server) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(first, first + count):
            pipe.execute_command("XADD", "s", "*", "n", number)
        pipe.execute()


def run(spark, server, tmp_path):
    """A query over what is there, going on where it was."""
    frame = streaming(spark, server, "region string, n int", subscribe="s")
    finish(to_parquet(frame, tmp_path / "out", tmp_path / "checkpoint", availableNow=True))
    return spark.read.parquet(str(tmp_path / "out"))


def test_entries_of_a_region_that_was_cut_off_are_read_once(spark, regions, tmp_path):
    eu, us = regions.servers
    add(eu, 0, 50)
    add(us, 1000, 50)
    wait_until(regions.converged, "all have applied the same", 300)
    assert len(numbers(run(spark, eu, tmp_path))) == 100
    part(regions)
    add(us, 2000, 50)  # IDs that lie before those which are read next
    add(eu, 100, 50)
    table = run(spark, eu, tmp_path)
    assert len(numbers(table)) == 150
    regions.heal()
    wait_until(regions.converged, "all have applied the same", 300)
    add(eu, 150, 10)
    table = run(spark, eu, tmp_path)
    assert numbers(table) == [*range(50), *range(100, 160), *range(1000, 1050), *range(2000, 2050)]
    by_region = {row["region"]: row["count"] for row in table.groupBy("region").count().collect()}
    assert by_region == {"1": 110, "2": 100}


def test_a_batch_read_finds_the_entries_of_all_regions(spark, regions):
    eu, us = regions.servers
    add(eu, 0, 300)
    add(us, 300, 300)
    wait_until(regions.converged, "all have applied the same", 300)
    reader = spark.read.format("anabranch").option("url", url(us)).option("subscribe", "s")
    for count in (1, 2, 7):
        table = reader.option("minPartitions", count).schema("region string, n int").load()
        assert numbers(table) == list(range(600))
        assert table.rdd.getNumPartitions() == count


def read(server, **options):
    streams = {} if "assign" in options else {"subscribe": "s"}
    return planned_and_read({"url": url(server), **streams, **options})


@pytest.fixture
def both(regions):
    """0 to 9 of the one region, 100 to 109 of the other."""
    eu, us = regions.servers
    add(eu, 0, 10)
    add(us, 100, 10)
    wait_until(regions.converged, "all have applied the same", 300)
    return eu


def test_regions_are_called_by_number_or_by_name(both):
    ours, theirs = [*range(10)], [*range(100, 110)]
    assert read(both, regions="us") == read(both, regions="2") == theirs
    assert read(both, regions="eu,2") == ours + theirs
    assert read(both, regions="eu,1") == ours
    assert read(both, assign='{"s": ["us"]}') == theirs
    assert read(both, startingOffsets='{"s": {"us": "latest"}}') == ours
    assert read(both, startingOffsets='{"s": {"us": "latest", "2": "earliest"}}') == ours + theirs
    assert read(both, endingOffsets='{"s": {"eu": "0", "2": "latest"}}') == theirs


def test_an_offset_of_more_streams_and_regions_adds_none_to_a_read(both):
    with talking(both) as client:
        client.xadd("t", {"n": 1000})
    options = ReadOptions.parse({"url": url(both), "subscribePattern": "*"})
    with connect(options.server) as client:
        end = Vector.at_end(ServerLogs(options, client).logs()).to_json()
    ours, theirs = [*range(10)], [*range(100, 110)]
    assert read(both, endingOffsets=end) == ours + theirs
    assert read(both, endingOffsets=end, regions="us") == theirs
    assert read(both, endingOffsets=end, assign='{"s": ["eu"]}') == ours
    assert read(both, startingOffsets=end) == []


@pytest.mark.parametrize("name", ["ap", "7"])
def test_a_region_that_is_not_there_is_refused(both, name):
    said = rf"no region is called '{name}'; there are 1 \(eu\), 2 \(us\)"
    for given in (
        {"regions": f"1,{name}"},
        {"assign": f'{{"s": ["{name}"]}}'},
        {"startingOffsets": f'{{"s": {{"{name}": "latest"}}}}'},
        {"endingOffsets": f'{{"s": {{"{name}": "latest"}}}}'},
    ):
        options = {"url": url(both), **({} if "assign" in given else {"subscribe": "s"}), **given}
        with pytest.raises(OptionError, match=said):
            planned_and_read(options)
        if "endingOffsets" not in given:
            reader = stream_reader(options, N)
            with pytest.raises(OptionError, match=said):
                reader.initialOffset()
            reader.stop()
            if "startingOffsets" not in given:  # with a checkpoint of other options
                reader = stream_reader(options, N)
                begin = Vector({}).to_dict()
                with pytest.raises(OptionError, match=said):
                    reader.latestOffset(begin, ReadAllAvailable())
                reader.stop()


def test_a_value_that_cannot_be_cast_is_named_with_its_region(both):
    with talking(both) as client:
        client.xadd("s", {"n": "many"})
    said = "stream s, region 1: entry .*: 'many' in column n is no int64"
    with pytest.raises(ColumnError, match=said):
        read(both, mode="FAILFAST")


def test_a_member_that_has_written_nothing_yet_may_be_named(regions):
    eu, _ = regions.servers
    add(eu, 0, 3)
    assert read(eu, regions="us") == read(eu, regions="2") == []


def test_names_take_a_permission_and_numbers_take_none(both):
    with talking(both) as client:
        rules = ["on", "nopass", "~*", "+@read", "+@connection"]
        client.execute_command("ACL", "SETUSER", "reader", "reset", *rules)
    user = {"username": "reader", "password": "any"}
    assert len(read(both, regions="2", **user)) == 10
    assert len(read(both, regions="2,7", **user)) == 10
    with pytest.raises(ServerRefused, match="that permission"):
        read(both, regions="us", **user)
    with talking(both) as client:
        client.execute_command("ACL", "SETUSER", "reader", "+ab.region|list")
    assert len(read(both, regions="us", **user)) == 10


def test_a_name_stands_for_all_epochs_of_a_region(both):
    with connect(ReadOptions.parse({"url": url(both), "subscribe": "s"}).server) as client:
        names = RegionNames(client)
        assert [names.covers("us", each) for each in ("2", "2.7", "1", "1.2", "22")] == [
            *(True, True, False, False, False)
        ]
        assert [names.covers("2", each) for each in ("2", "2.7")] == [True, False]
        names.check(["us", "1", "1.5"], {"2"})


def test_a_group_is_a_start_only_where_it_has_skipped_nothing(regions):
    eu, us = regions.servers
    with talking(eu) as client:
        client.xgroup_create("s", "g", "0", mkstream=True)
        add(eu, 0, 10)
        wait_until(regions.converged, "all have applied the same", 300)
        part(regions)
        add(us, 100, 5)
        add(eu, 10, 5)
        client.xreadgroup("g", "c", {"s": ">"}, count=12)
        assert read(eu, startingOffsets="group:g") == [12, 13, 14]
        regions.heal()
        wait_until(regions.converged, "all have applied the same", 300)
        with pytest.raises(OptionError, match=r"not yet given 5 entries below .* AB\.LAG shows 0"):
            read(eu, startingOffsets="group:g")
        client.xreadgroup("g", "c", {"s": ">"})
        assert read(eu, startingOffsets="group:g") == []
        add(us, 105, 5)
        wait_until(regions.converged, "all have applied the same", 300)
        add(eu, 15, 5)
        assert read(eu, startingOffsets="group:g") == [*range(15, 20), *range(105, 110)]


# --------------------------------------------------------------------- idempotent IDs in a region


def test_a_new_stream_remembers_the_rows_of_a_batch(regions):
    (eu, _) = regions.servers
    options = WriteOptions(ServerOptions(url=url(eu)))
    rows = encode(pa.record_batch({"v": ["a", "b", "c"]}), Layout.of(["v"], options))
    with connect(options.server) as client:
        dying = Adder(client, Marks("position", "spark/q/0/0", 1))
        dying.append(b"s", rows.slice(0, 2))
        assert [type(client.receive()) for _ in range(2)] == [bytes, bytes]
    for _ in range(2):
        with connect(options.server) as client:
            again = Adder(client, Marks("position", "spark/q/0/0", 1))
            again.append(b"s", rows)
            again.finish()
            facts = facts_of(client.command("XINFO", "STREAM", "s"))
    names = ("length", "groups", "idmp-duration", "idmp-maxsize")
    assert [facts[each] for each in names] == [3, 0, 86_400, 10_000]


def test_a_stream_that_cannot_be_configured_is_refused_with_the_reason(regions, monkeypatch):
    (eu, _) = regions.servers
    with connect(ServerOptions(url=url(eu))) as client:
        monkeypatch.setattr(adding, "_DURATION_S", 0)
        with pytest.raises(WriteFailed, match=r"stream s at .*IDMP-DURATION must be"):
            adding.require_window(client, b"s")
