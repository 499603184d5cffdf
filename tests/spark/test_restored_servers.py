"""Servers that were set back to an older state: nothing is read twice, and what is new is read."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from anabranch.spark.reading.losses import DataLossError, ServerBehindError
from tests.spark.cutting import ReturningServer
from tests.spark.reading import fill, planned_and_read
from tests.spark.soak import copy_disk, epoch_of, set_disk_back
from tests.spark.test_regions import add, part
from tests.spark.test_stream_read import read, reader_of
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses


class RestoredServer(ReturningServer):
    """Our server, which goes back to an older state of its disk."""

    def back_up(self):
        self.kill()
        shutil.copytree(self.directory / "data", self.directory / "backup")
        self.come_back()

    def restore(self):
        self.kill()
        shutil.rmtree(self.directory / "data")
        shutil.copytree(self.directory / "backup", self.directory / "data")
        self.come_back()


@pytest.fixture
def restored(tmp_path):
    """It has had 120 entries, and has the first 100 of them."""
    with RestoredServer(tmp_path / "server", ["--appendfsync", "always"]) as server:
        fill(server, "s", 100)
        server.back_up()
        fill(server, "s", 20, first=100)
        reader = reader_of(server)
        begin = reader.initialOffset()
        middle = reader.latestOffset(begin, ReadMaxRows(90))
        end = reader.latestOffset(middle, ReadAllAvailable())
        assert read(reader, begin, middle) + read(reader, middle, end) == list(range(120))
        reader.stop()
        server.restore()
        yield server, middle, end


@pytest.mark.parametrize("count", [5, pytest.param(20, marks=pytest.mark.long), 70])
def test_a_restored_server_goes_on_with_what_is_new(restored, caplog, count):
    # An earlier test of the process may have left the logger at a lower level.
    caplog.set_level(logging.WARNING, "anabranch")
    server, _, end = restored
    options = {"pollTimeoutMs": "1"}
    reader = reader_of(server, **options)
    with pytest.raises(ServerBehindError, match=r"20 fewer entries .* restored"):
        reader.latestOffset(end, ReadAllAvailable())
    fill(server, "s", count, first=500)
    with pytest.raises(DataLossError, match=r"restored .* failOnDataLoss=false .* read twice"):
        reader.latestOffset(end, ReadAllAvailable())
    reader.stop()
    found = []
    reader = reader_of(server, failOnDataLoss="false", **options)
    while (newest := reader.latestOffset(end, ReadMaxRows(30))) is not end:
        found += (rows := read(reader, end, newest))
        assert len(rows) <= 30
        end = newest
    fill(server, "s", 3, first=900)
    found += read(reader, end, reader.latestOffset(end, ReadAllAvailable()))
    reader.stop()
    assert found == [*range(500, 500 + count), 900, 901, 902]
    assert [each.message for each in caplog.records if "restored" not in each.message] == []
    assert len(caplog.records) == 1


def test_a_batch_that_was_planned_before_reads_nothing_that_is_new(restored, caplog):
    server, middle, end = restored
    fill(server, "s", 60, first=500)
    reader = reader_of(server)
    with pytest.raises(DataLossError, match=r"came after .* when the batch was planned"):
        read(reader, middle, end)
    reader.stop()
    reader = reader_of(server, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING):
        assert read(reader, middle, end) == list(range(90, 100))
        newest = reader.latestOffset(end, ReadAllAvailable())
        assert read(reader, end, newest) == list(range(500, 560))
    reader.stop()


def test_a_table_that_begins_ahead_of_the_server_is_refused_as_such(restored):
    server, _, end = restored
    options = {"url": f"redis://127.0.0.1:{server.port}", "subscribe": "s"}
    with pytest.raises(ServerBehindError, match="20 fewer entries") as caught:
        planned_and_read({**options, "startingOffsets": json.dumps(end)})
    assert "failOnDataLoss" not in str(caught.value)


def copied_and_parted(regions, copy):
    """The servers: the first one has 30 entries that are not in the copy of its disk."""
    eu, us = regions.servers
    add(eu, 0, 50)
    wait_until(regions.converged, "all have applied the same", 300)
    copy_disk(eu, copy)
    part(regions)
    add(eu, 50, 30)
    return eu, us


def test_a_region_that_was_set_back_is_read_on_in_its_new_epoch(tmp_path, caplog):
    with RegionProcesses(tmp_path, ("eu", "us"), "--appendfsync", "always") as regions:
        eu, us = copied_and_parted(regions, tmp_path / "copy")
        reader = reader_of(eu)
        begin = reader.initialOffset()
        middle = reader.latestOffset(begin, ReadMaxRows(60))
        end = reader.latestOffset(middle, ReadAllAvailable())
        assert read(reader, begin, middle) + read(reader, middle, end) == list(range(80))
        reader.stop()
        set_disk_back(eu, tmp_path / "copy")
        assert epoch_of(eu) > 0
        behind = reader_of(us, catchUpTimeout="100ms")
        with pytest.raises(ServerBehindError, match="30 fewer entries"):
            behind.latestOffset(end, ReadAllAvailable())  # nothing shows a new epoch yet
        behind.stop()
        regions.heal()
        wait_until(regions.converged, "all have applied the same", 300)
        reader = reader_of(us, pollTimeoutMs="1")  # the stream has no entry of that epoch
        assert reader.latestOffset(end, ReadAllAvailable()) is end
        reader.stop()
        add(eu, 500, 5)
        wait_until(regions.converged, "all have applied the same", 300)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            reader = reader_of(us, pollTimeoutMs="1")
            newest = reader.latestOffset(end, ReadAllAvailable())
            assert read(reader, end, newest) == list(range(500, 505))
            assert reader.latestOffset(newest, ReadAllAvailable()) is newest
            reader.stop()
        assert ["has begun a new epoch" in each.message for each in caplog.records] == [True]
        # A batch that was planned before, and not done.
        reader = reader_of(us, catchUpTimeout="100ms")
        with pytest.raises(DataLossError, match=r"ends at position .* failOnDataLoss=false"):
            read(reader, middle, end)
        reader.stop()
        reader = reader_of(us, catchUpTimeout="100ms", failOnDataLoss="false")
        assert read(reader, begin, end) == list(range(50))
        reader.stop()


def test_a_region_that_was_lost_and_removed_is_not_waited_for(tmp_path):
    with RegionProcesses(tmp_path, ("eu", "us")) as regions:
        eu, us = regions.servers
        add(eu, 0, 50)
        wait_until(regions.converged, "all have applied the same", 300)
        part(regions)
        add(eu, 50, 30)
        reader = reader_of(eu)
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert read(reader, begin, end) == list(range(80))
        reader.stop()
        eu.kill()
        add(us, 500, 5)
        moved = reader_of(us, catchUpTimeout="100ms", failOnDataLoss="false")
        with pytest.raises(ServerBehindError, match="ends at position"):
            read(moved, begin, end)
        assert regions.call(us, "AB.REGION", "REMOVE", "eu", "FORCE") == ("+", b"OK")
        strict = reader_of(us, catchUpTimeout="100ms")
        with pytest.raises(DataLossError, match="failOnDataLoss=false"):
            read(strict, begin, end)
        strict.stop()
        assert read(moved, begin, end) == list(range(50))
        newest = moved.latestOffset(end, ReadAllAvailable())
        assert read(moved, end, newest) == list(range(500, 505))
        moved.stop()


@pytest.mark.parametrize("count", [5, 40])
def test_a_region_that_was_set_back_unnoticed_is_read_on_with_what_is_new(tmp_path, count):
    with RegionProcesses(tmp_path, ("eu", "us"), "--appendfsync", "always") as regions:
        eu, us = copied_and_parted(regions, tmp_path / "copy")
        reader = reader_of(eu)
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert read(reader, begin, end) == list(range(80))
        reader.stop()
        set_disk_back(eu, tmp_path / "copy", says_so=False)
        add(eu, 500, count)
        regions.heal()
        wait_until(regions.converged, "all have applied the same", 300)
        assert epoch_of(eu) == 0
        for server in (eu, us):
            strict = reader_of(server)
            with pytest.raises(DataLossError, match=r"region 1: .* restored .* is new"):
                strict.latestOffset(end, ReadAllAvailable())
            strict.stop()
            lossy = reader_of(server, failOnDataLoss="false", pollTimeoutMs="1")
            newest = lossy.latestOffset(end, ReadAllAvailable())
            assert read(lossy, end, newest) == list(range(500, 500 + count))
            assert lossy.latestOffset(newest, ReadAllAvailable()) is newest
            lossy.stop()
