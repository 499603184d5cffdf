"""Another server stands where a query has read, or the same one with another disk."""

from __future__ import annotations

import json
import logging

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from anabranch.spark.reading.losses import DataLossError, ServerBehindError
from tests.spark.reading import fill_at, planned_and_read, talking, url
from tests.spark.test_stream_read import read, reader_of
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses
from tests.support.servers import AnabranchServer

OLD = [1_000 + number for number in range(100)]
"""Times of the entries that were read."""


@pytest.fixture(scope="module")
def two_servers(tmp_path_factory):
    """No key was ever deleted on them, so the positions of both begin alike."""
    place = tmp_path_factory.mktemp("servers")
    with AnabranchServer(place / "a") as first, AnabranchServer(place / "b") as second:
        yield first, second


def read_once(server, key, **options):
    """The offset of a query that has read all."""
    reader = reader_of(server, subscribe=key, **options)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert len(read(reader, begin, end)) == len(OLD)
    reader.stop()
    return end


def read_on(server, key, end, most=40):
    """What a query that may lose entries reads, batch by batch."""
    reader = reader_of(server, subscribe=key, failOnDataLoss="false", pollTimeoutMs="1")
    found = []
    while (newest := reader.latestOffset(end, ReadMaxRows(most))) is not end:
        found += read(reader, end, newest)
        end = newest
    reader.stop()
    return found


KINDS = {
    "all lower": ([*range(500, 650)], 100),
    "as many, all lower": ([*range(500, 600)], 100),
    "below and above": ([*range(500, 620), *range(2_000, 2_030)], 100),
    "more above": ([*range(500, 530), *range(2_000, 2_100)], 30),
    "all above": ([*range(2_000, 2_150)], 0),
}
"""Times of the entries on the other server, and how many of them are not told from those read."""


@pytest.mark.parametrize("kind", KINDS)
def test_another_server_is_told_from_the_one_that_was_read(two_servers, caplog, kind):
    first, second = two_servers
    times, unknown = KINDS[kind]
    key = kind.replace(",", "")
    fill_at(first, key, OLD)
    end = read_once(first, key)
    fill_at(second, key, times)
    strict = reader_of(second, subscribe=key)
    with pytest.raises(DataLossError, match=rf"another disk.* of the {unknown} entries below"):
        strict.latestOffset(end, ReadAllAvailable())
    strict.stop()
    with pytest.raises(DataLossError, match="another disk"):
        planned_and_read({"url": url(second), "subscribe": key, "startingOffsets": json.dumps(end)})
    with caplog.at_level(logging.WARNING):
        assert read_on(second, key, end) == [*range(unknown, len(times))]
        lossy = {"url": url(second), "subscribe": key, "failOnDataLoss": "false"}
        lossy["startingOffsets"] = json.dumps(end)
        assert planned_and_read(lossy) == [*range(unknown, len(times))]
    assert ["another disk" in each.message for each in caplog.records] == [True, True]


def test_a_stream_that_was_made_again_on_another_server_is_told(two_servers, tmp_path):
    first, _ = two_servers
    fill_at(first, "made", OLD)
    end = read_once(first, "made")
    with AnabranchServer(tmp_path) as second:
        fill_at(second, "made", [1])
        with talking(second) as client:
            client.delete("made")
        fill_at(second, "made", [*range(500, 650)])
        strict = reader_of(second, subscribe="made")
        with pytest.raises(DataLossError, match="another disk"):
            strict.latestOffset(end, ReadAllAvailable())
        strict.stop()
        assert read_on(second, "made", end) == [*range(150)]


def test_fewer_lower_entries_are_never_read_as_if_they_were_new(two_servers):
    first, second = two_servers
    fill_at(first, "fewer", OLD)
    end = read_once(first, "fewer")
    fill_at(second, "fewer", [*range(500, 540)])
    for lossy in ("true", "false"):
        reader = reader_of(second, subscribe="fewer", failOnDataLoss=lossy)
        with pytest.raises(ServerBehindError, match=r"60 fewer entries .* new checkpoint"):
            reader.latestOffset(end, ReadAllAvailable())
        reader.stop()


def test_deletions_and_set_ids_make_no_other_server(two_servers):
    server, _ = two_servers
    fill_at(server, "same", OLD)
    with talking(server) as client:
        client.execute_command("XDEL", "same", "1099-0")
        client.execute_command("XSETID", "same", "1500-0", "ENTRIESADDED", 7_000)
        reader = reader_of(server, subscribe="same", pollTimeoutMs="1")
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert len(read(reader, begin, end)) == 99
        assert reader.latestOffset(end, ReadAllAvailable()) is end
        client.execute_command("XTRIM", "same", "MAXLEN", 0)
        assert reader.latestOffset(end, ReadAllAvailable()) is end
        client.execute_command("XADD", "same", "1500-1", "n", 5)
        newest = reader.latestOffset(end, ReadAllAvailable())
        assert read(reader, end, newest) == [5]
        client.delete("same")
        client.execute_command("XADD", "same", "3-3", "n", 6)  # lower, and in the same log
        last = reader.latestOffset(newest, ReadAllAvailable())
        assert read(reader, newest, last) == [6]
        fill_at(server, "lower", [1, 2, 3])
        client.execute_command("XDEL", "lower", "1-0")
        fill_at(server, "same", [4, 5])  # lost, and their number is reported
        lossy = reader_of(server, subscribe="same", failOnDataLoss="false", pollTimeoutMs="1")
        lossy.prepareForTriggerAvailableNow()
        client.rename("lower", "same")
        found = lossy.latestOffset(last, ReadAllAvailable())
        lossy.stop()
        newest = reader.latestOffset(found, ReadAllAvailable())
        assert read(reader, found, newest) == [1, 2]
    reader.stop()


REDIS_KINDS = {
    "fewer": [*range(500, 510), *range(2_000, 2_010)],
    "all above": [*range(2_000, 2_150)],
}


@pytest.mark.parametrize("kind", REDIS_KINDS)
def test_redis_with_another_stream_is_told_from_the_one_that_was_read(plain, caplog, kind):
    times = REDIS_KINDS[kind]
    fill_at(plain, "s", OLD)
    end = read_once(plain, "s")
    with talking(plain) as client:
        client.flushall()
    fill_at(plain, "s", times)
    with pytest.raises(DataLossError, match=r"made again, or .* restored"):
        reader_of(plain).latestOffset(end, ReadAllAvailable())
    above = [number for number, ms in enumerate(times) if ms > OLD[-1]]
    with caplog.at_level(logging.WARNING):
        assert read_on(plain, "s", end) == above
    assert len(caplog.records) == 1


def test_redis_with_a_copy_or_without_what_was_read_is_the_same(plain):
    fill_at(plain, "s", OLD)
    with talking(plain) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", 100)
        client.execute_command("XSETID", "s", "1099-0", "ENTRIESADDED", 500)
        end = read_once(plain, "s")
        client.flushall()
        fill_at(plain, "s", [*OLD[50:], 3_000])  # as a copy has only what was live
        reader = reader_of(plain)
        newest = reader.latestOffset(end, ReadAllAvailable())
        assert read(reader, end, newest) == [50]
        client.execute_command("XTRIM", "s", "MAXLEN", 0)
        fill_at(plain, "s", [4_000])
        last = reader.latestOffset(newest, ReadAllAvailable())
        assert read(reader, newest, last) == [0]
    reader.stop()


def add_at(region, times):
    """As `fill_at`, where clients may choose the times of IDs only."""
    with talking(region) as client:
        for number, ms in enumerate(times):
            client.execute_command("XADD", "s", ms, "n", number)


@pytest.mark.long
def test_another_cluster_with_the_same_regions_is_told_from_the_one_that_was_read(tmp_path):
    with RegionProcesses(tmp_path / "one", ("eu", "us")) as regions:
        add_at(regions.servers[0], OLD)
        wait_until(regions.converged, "all have applied the same", 300)
        end = read_once(regions.servers[1], "s")
    with RegionProcesses(tmp_path / "two", ("eu", "us")) as regions:
        server = regions.servers[1]
        add_at(regions.servers[0], [*range(500, 650)])
        wait_until(regions.converged, "all have applied the same", 300)
        with pytest.raises(DataLossError, match=r"region 1: .* another disk"):
            reader_of(server).latestOffset(end, ReadAllAvailable())
        assert read_on(server, "s", end) == list(range(100, 150))
