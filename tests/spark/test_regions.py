"""Streams that several regions write: what arrives late is read, once, in whatever region."""

from __future__ import annotations

from itertools import combinations

from tests.spark.reading import finish, numbers, streaming, talking, to_parquet, url
from tests.support.inspection import wait_until

NAMES = ("eu", "us")


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
    wait_until(regions.converged, "all have applied the same", 30)
    assert len(numbers(run(spark, eu, tmp_path))) == 100
    part(regions)
    add(us, 2000, 50)  # IDs that lie before those which are read next
    add(eu, 100, 50)
    table = run(spark, eu, tmp_path)
    assert len(numbers(table)) == 150
    regions.heal()
    wait_until(regions.converged, "all have applied the same", 30)
    add(eu, 150, 10)
    table = run(spark, eu, tmp_path)
    assert numbers(table) == [*range(50), *range(100, 160), *range(1000, 1050), *range(2000, 2050)]
    by_region = {row["region"]: row["count"] for row in table.groupBy("region").count().collect()}
    assert by_region == {"1": 110, "2": 100}


def test_a_query_goes_on_in_another_region(spark, regions, tmp_path):
    eu, us = regions.servers
    add(eu, 0, 40)
    add(us, 100, 40)
    wait_until(regions.converged, "all have applied the same", 30)
    assert len(numbers(run(spark, eu, tmp_path))) == 80
    add(us, 140, 20)
    wait_until(regions.converged, "all have applied the same", 30)
    table = run(spark, us, tmp_path)
    assert numbers(table) == [*range(40), *range(100, 160)]


def test_a_batch_read_splits_by_region_and_finds_everything(spark, regions):
    eu, us = regions.servers
    add(eu, 0, 300)
    add(us, 300, 300)
    wait_until(regions.converged, "all have applied the same", 30)
    reader = spark.read.format("anabranch").option("url", url(us)).option("subscribe", "s")
    table = reader.schema("region string, n int").load()
    assert numbers(table) == list(range(600))
    assert table.rdd.getNumPartitions() >= 2
