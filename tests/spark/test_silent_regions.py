"""A region that is connected and silent holds no window; one that is cut off holds them all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from anabranch.spark import read_by_region
from anabranch.spark.connection.client import connect
from anabranch.spark.decoding.columns import ColumnError
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.by_region import present_regions
from anabranch.spark.reading.readers import stream_reader
from anabranch.spark.reading.server_logs import ServerLogs
from tests.spark.reading import talking, url
from tests.spark.test_late_regions import meet, part
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("eu", "us", "ap")
SCHEMA = "ts timestamp, n int"


def frontier_at(server: Any, **options: str) -> int | None:
    given = {"url": url(server), "subscribe": "s", **options}
    parsed = ReadOptions.parse(given)
    with connect(parsed.server) as client:
        return ServerLogs(parsed, client).frontier_ms()


def test_the_frontier_of_each_region_is_known_while_it_is_connected(
    regions: RegionProcesses,
) -> None:
    eu, us, _ = regions.servers
    wait_until(lambda: frontier_at(eu) is not None, "all regions are heard", 300)
    with talking(us) as client:
        before = int(client.xadd("s", {"n": 1}).partition(b"-")[0])
    wait_until(regions.converged, "all have applied the same", 300)
    wait_until(lambda: (frontier_at(eu, regions="us") or 0) > before, "a later frontier", 300)
    least = frontier_at(eu)
    assert least is not None
    assert least <= (frontier_at(eu, regions="1") or 0)
    part(regions, "ap")
    wait_until(lambda: frontier_at(eu, regions="3") is None, "ap is known to be gone", 300)
    assert frontier_at(eu) is None
    assert frontier_at(eu, regions="eu,us") is not None
    meet(regions)
    wait_until(lambda: frontier_at(eu, regions="ap") is not None, "ap is heard again", 300)


def test_no_entry_comes_below_a_frontier(regions: RegionProcesses) -> None:
    """Whatever us writes after a frontier was told has a greater ID."""
    eu, us, _ = regions.servers
    wait_until(lambda: frontier_at(eu) is not None, "all regions are heard", 300)
    with talking(us) as client:
        for number in range(200):
            told = frontier_at(eu, regions="us")
            written = client.xadd("s", {"n": number})
            assert told is None or told < int(written.partition(b"-")[0])


def closed(
    spark: SparkSession, server: Any, place: Path, regions: list[str] | None = None
) -> list[int]:
    """The counts of windows of a second that are closed, after one more run."""
    table = read_by_region(
        spark, "s", watermark="1 second", schema=SCHEMA, regions=regions or ["1", "2", "3"],
        url=url(server), startingOffsets="earliest", frontierInterval="1s",
    )  # fmt: skip
    counted = table.groupBy(f.window("ts", "1 second")).agg(f.count("*").alias("count"))
    writer = counted.writeStream.format("parquet").option("path", str(place / "out"))
    writer = writer.option("checkpointLocation", str(place / "check"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    late = [
        each.numRowsDroppedByWatermark for s in query.recentProgress for each in s.stateOperators
    ]
    assert not any(late)
    rows = spark.read.schema("count bigint").parquet(str(place / "out")).collect()
    return [row["count"] for row in rows]


def test_windows_close_while_a_region_sleeps_and_wait_while_it_is_cut_off(
    spark: SparkSession, regions: RegionProcesses, tmp_path: Path
) -> None:
    eu, us, _ = regions.servers
    wait_until(lambda: frontier_at(eu) is not None, "all regions are heard", 300)
    for server in (eu, us):  # ap sleeps: it has never written to the stream
        with talking(server) as client:
            for number in range(50):
                client.xadd("s", {"n": number})
    wait_until(regions.converged, "all have applied the same", 300)
    with talking(eu) as client:
        newest = int(client.xrevrange("s", count=1)[0][0].partition(b"-")[0])
    wait_until(lambda: (frontier_at(eu) or 0) > newest + 3_000, "it is later", 300)
    assert sum(closed(spark, eu, tmp_path)) == 100
    part(regions, "ap")
    wait_until(lambda: frontier_at(eu, regions="3") is None, "ap is known to be gone", 300)
    with talking(eu) as client:
        for number in range(50):
            client.xadd("s", {"n": number})
    assert sum(closed(spark, eu, tmp_path)) == 100
    meet(regions)
    with talking(eu) as client:
        newest = int(client.xrevrange("s", count=1)[0][0].partition(b"-")[0])
    wait_until(lambda: (frontier_at(eu) or 0) > newest + 3_000, "it is later", 300)
    assert sum(closed(spark, eu, tmp_path)) == 150


def test_regions_that_have_yet_to_write_are_read_or_named(
    regions: RegionProcesses, ours: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def present(server: Any) -> set[str]:
        return present_regions(ReadOptions.parse({"url": url(server), "subscribe": "fresh"}))

    eu = regions.servers[0]
    assert (present(eu), present(ours)) == ({"1", "2", "3"}, {""})
    assert not caplog.records
    with talking(eu) as client:
        client.xadd("fresh", {"n": 1})
    assert present(eu) == {"1"}
    (record,) = caplog.records
    said = "fresh: no entry of the regions 2 (us), 3 (ap) is there yet, and none will be read"
    assert said in record.getMessage()


def test_what_cannot_have_a_frontier_is_refused(spark: SparkSession, ours: Any) -> None:
    given = {"url": url(ours), "frontierInterval": "1s"}
    with pytest.raises(OptionError, match="streams that are named"):
        ReadOptions.parse({**given, "subscribePattern": "s*"})
    with pytest.raises(OptionError, match="needs event_time ts"):
        read_by_region(spark, "s", watermark="1 second", event_time="at", **given)
    schema = StructType.fromDDL("n int")
    with pytest.raises(ColumnError, match="needs the columns ts and id"):
        stream_reader({**given, "subscribe": "s"}, schema)
