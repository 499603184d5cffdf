"""A query that starts says where, once; and where a query began is known when it starts again."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from anabranch.spark.connection.client import connect
from anabranch.spark.jobs.archive import archive
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.server_logs import ServerLogs
from tests.spark.noting import noted, noting_source
from tests.spark.reading import base_of, fill, planned_and_read, talking, url
from tests.spark.test_sink import forget_last, values
from tests.spark.test_stream_read import reader_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.servers import ServerProcess

RESUMING = "resuming from checkpoint at"
NEW = "no checkpoint yet: starting at"
ALL = ReadAllAvailable()


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """With all that is said."""
    caplog.set_level(logging.INFO, "anabranch.spark.runtime.logs")
    return caplog


def made(request: pytest.FixtureRequest, server: ServerProcess, **options: str) -> Any:
    reader = reader_of(server, **options)
    request.addfinalizer(reader.stop)
    return reader


# ------------------------------------------------------------------------------------ without Spark


def test_a_start_is_told_once_and_not_with_every_batch(
    request: pytest.FixtureRequest, log: pytest.LogCaptureFixture, server: ServerProcess
) -> None:
    first_id, *_ = fill(server, "s", 3)
    reader = made(request, server)
    at = reader.initialOffset()
    for first in (3, 4):
        end = reader.latestOffset(at, ALL)
        reader.partitions(at, end)
        at = end
        fill(server, "s", 1, first=first)
    begin = "its first entry" if server.name != "redis-server" else first_id
    assert log.messages == [f"{NEW} s from {begin} (startingOffsets=earliest)"]
    log.clear()
    again = made(request, server)
    for _ in range(2):
        again.latestOffset(at, ALL)
    (line,) = log.messages
    assert line.startswith(f"{RESUMING} s behind ")
    assert line.endswith("; startingOffsets ignored")


def test_a_repeated_batch_is_told_by_its_beginning(
    request: pytest.FixtureRequest, log: pytest.LogCaptureFixture, ours: ServerProcess
) -> None:
    ids = fill(ours, "s", 3)
    first = made(request, ours)
    middle = first.latestOffset(first.initialOffset(), ALL)
    fill(ours, "s", 2, first=3)
    end = first.latestOffset(middle, ALL)
    log.clear()
    again = made(request, ours)
    again.partitions(middle, end)
    again.latestOffset(end, ALL)
    position = base_of(ours, "s") + 3
    assert log.messages == [
        f"{RESUMING} s behind {ids[-1]} (position {position}); startingOffsets ignored"
    ]


def test_what_is_added_between_two_questions_for_the_start_is_read(
    request: pytest.FixtureRequest, server: ServerProcess
) -> None:
    fill(server, "s", 3)
    reader = made(request, server, startingOffsets="latest")
    start = reader.initialOffset()
    fill(server, "s", 2, first=3)
    assert reader.initialOffset() == start
    (piece,) = reader.partitions(start, reader.latestOffset(start, ALL))
    assert sum(each.num_rows for each in reader.read(piece)) == 2


def test_a_first_batch_that_is_repeated_begins_where_it_began(
    request: pytest.FixtureRequest, log: pytest.LogCaptureFixture, server: ServerProcess
) -> None:
    fill(server, "s", 3)
    reader = made(request, server, startingOffsets="latest")
    start = reader.initialOffset()
    fill(server, "s", 2, first=3)
    end = reader.latestOffset(start, ALL)
    fill(server, "s", 4, first=5)
    log.clear()
    # Spark does not keep the start, and asks for it again.
    again = made(request, server, startingOffsets="latest")
    (piece,) = again.partitions(again.initialOffset(), end)
    assert sum(each.num_rows for each in again.read(piece)) == 2
    assert [line.partition(" at ")[0] for line in log.messages] == ["resuming from checkpoint"]
    # A first batch that was empty stays so.
    assert made(request, server).partitions(again.initialOffset(), start) == []
    # The batch behind it knows its start by the end of this one.
    assert "b" not in again.latestOffset(end, ALL)


# --------------------------------------------------------------------------------------- with Spark


def test_a_query_says_where_it_starts_and_repeats_its_first_batch_alone(
    spark: SparkSession, ours: ServerProcess, tmp_path: Path
) -> None:
    notes, place = tmp_path / "notes", tmp_path / "check"
    notes.mkdir()
    spark.dataSource.register(noting_source(notes))
    fill(ours, "s", 5)

    def run() -> None:
        reader = spark.readStream.format("noting").option("url", url(ours))
        table = reader.option("subscribe", "s").load().select("fields")
        writer = table.writeStream.format("anabranch").option("url", url(ours))
        query = writer.option("stream", "t").option("checkpointLocation", str(place)).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    run()
    assert forget_last(place, "commits") == 0
    fill(ours, "s", 2, first=5)
    run()
    assert values(ours, "t") == [5, 6]
    first, second = noted(notes)
    position = base_of(ours, "s") + 5
    assert first.startswith(f"{NEW} s behind ")
    assert first.endswith(f"(position {position}) (startingOffsets=latest)")
    assert second.startswith(f"{RESUMING} s behind ")
    assert second.endswith(f"(position {position}); startingOffsets ignored")


def test_a_key_that_is_no_text_is_left_out_of_a_pattern_and_named_once(
    request: pytest.FixtureRequest,
    server: ServerProcess,
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
) -> None:
    with talking(server) as client:
        for key in (b"k\xff", b"k\xfe", b"k", b"other\xff"):
            client.xadd(key, {"n": 1})
    told = [rf"the key k\x{each} matches the pattern and is not read" for each in ("fe", "ff")]

    def named() -> list[str]:
        lines = [each for each in log.messages if each.startswith("the key")]
        log.clear()
        return sorted(line.partition(":")[0] for line in lines)

    options = {"url": url(server), "subscribePattern": "k*"}
    assert planned_and_read(options) == [1]
    assert named() == told
    growing = made(request, server, subscribe="", subscribePattern="k*")
    begin = growing.initialOffset()
    end = growing.latestOffset(begin, ReadAllAvailable())
    assert [*end["s"]] == ["k"]
    growing.latestOffset(end, ReadAllAvailable())
    assert named() == told
    if server.name != "redis-server":  # it has no positions
        assert archive(None, tmp_path, options=options).entries == 1
        assert sorted({*named()}) == told


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("order:???????", "order:zürich"),  # bytes are counted
        ("k[é]?", "ké"),
        ("k[!a]", "ka"),
        ("k[z-a]", "kb"),
        ("k[a-", "ka"),
        (r"k\[*", "k[x"),
        ("k[^a]", "kb"),
    ],
)
def test_what_a_pattern_finds_is_what_it_names(
    server: ServerProcess, pattern: str, key: str
) -> None:
    with talking(server) as client:
        client.xadd(key, {"n": 1})
    options = ReadOptions.parse({"url": url(server), "subscribePattern": pattern})
    with connect(options.server) as client:
        server_logs = ServerLogs(options, client)
        assert server_logs.streams() == [key]
        assert server_logs.subscribes(key)
        assert not server_logs.subscribes("other")


@pytest.mark.parametrize("name", ["startingOffsets", "endingOffsets"])
def test_offsets_of_a_stream_that_is_not_read_are_refused(server: ServerProcess, name: str) -> None:
    fill(server, "orders", 3)
    options = {"url": url(server), "subscribe": "orders"}
    with pytest.raises(OptionError, match="the offsets name 'order', which is none of the streams"):
        planned_and_read({**options, name: '{"order": "latest"}'})
    assert len(planned_and_read({**options, name: "{}"})) == 3
    of_pattern = {"url": url(server), "subscribePattern": "o*", name: '{"other": "latest"}'}
    assert len(planned_and_read(of_pattern)) == 3  # it may come later
