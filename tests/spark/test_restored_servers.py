"""Servers that were set back to an older state: nothing is read twice, and what is new is read."""

from __future__ import annotations

import json
import logging
import shutil

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from anabranch.spark.losses import DataLossError, ServerBehindError
from tests.spark.cutting import ReturningServer
from tests.spark.reading import fill, planned_and_read
from tests.spark.test_stream_read import read, reader_of


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
    with caplog.at_level(logging.WARNING):
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
