"""Streaming reads: nothing twice, nothing skipped, losses told, and a quiet wait."""

from __future__ import annotations

import logging
import re
import threading
import time

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from anabranch.spark import LagListener, committed_offsets, read_by_region
from anabranch.spark.decoding.columns import Projection
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.losses import DataLossError, ServerBehindError
from anabranch.spark.reading.readers import StreamReader
from tests.spark.reading import (
    fill,
    fill_at,
    finish,
    numbers,
    streaming,
    talking,
    to_memory,
    to_parquet,
    url,
)


def reader_of(server, **options):
    """A stream reader without Spark around it."""
    given = {"url": url(server), "subscribe": "s", "startingOffsets": "earliest", **options}
    given = {name: value for name, value in given.items() if value}
    projection = Projection(pa.schema([("n", pa.int64())]))
    return StreamReader(ReadOptions.parse(given), projection)


def read(reader, start, end):
    """What the tasks of one batch give."""
    return [
        number
        for piece in reader.partitions(start, end)
        for each in reader.read(piece)
        for number in each.column(0).to_pylist()
    ]


@pytest.fixture
def reading(request):
    """Makes stream readers, and stops them."""
    made = []

    def make(server, **options):
        made.append(reader_of(server, **options))
        return made[-1]

    yield make
    for each in made:
        each.stop()


# ------------------------------------------------------------------------------------ with Spark

# How Redis is read is tested without Spark, below.
mostly_ours = pytest.mark.parametrize(
    "server", ["ours", pytest.param("plain", marks=pytest.mark.long)], indirect=True
)


@mostly_ours
def test_a_query_goes_on_after_new_entries_and_new_streams(spark, server, tmp_path):
    fill(server, "a:1", 10)
    frame = streaming(
        spark, server, "stream string, n int", subscribePattern="a:*", discoveryIntervalMs=0
    )
    query = to_memory(frame, f"t{tmp_path.name}".replace("-", "_"))
    try:
        query.processAllAvailable()
        table = spark.table(query.name)
        assert numbers(table) == list(range(10))
        fill(server, "a:1", 10, first=10)
        fill_at(server, "a:2", [5, 6])  # a new stream with ancient IDs
        query.processAllAvailable()
        assert numbers(table.where("stream = 'a:1'")) == list(range(20))
        assert numbers(table.where("stream = 'a:2'")) == [0, 1]
    finally:
        query.stop()


@mostly_ours
def test_a_limit_bounds_every_batch_and_available_now_ends_while_a_producer_writes(
    spark, server, tmp_path
):
    fill(server, "s", 1_000)
    stop = threading.Event()

    def produce():
        first = 1_000
        while not stop.wait(0.05):
            fill(server, "s", 5, first)
            first += 5

    def run(**options):
        frame = streaming(spark, server, "n int", subscribe="s", minPartitions=2, **options)
        return finish(to_parquet(frame, out, tmp_path / "check", availableNow=True))

    out = str(tmp_path / "out")
    producer = threading.Thread(target=produce)
    producer.start()
    try:
        sizes = run(maxEntriesPerTrigger=400)
    finally:
        stop.set()
        producer.join()
    found = numbers(spark.read.parquet(out))
    assert found == list(range(len(found)))
    assert len(found) >= 1_000
    assert sum(sizes) == len(found)
    assert max(sizes) <= 400
    run()  # from where the first one ended
    with talking(server) as client:
        assert numbers(spark.read.parquet(out)) == list(range(client.xlen("s")))


def test_a_finished_batch_that_is_replayed_adds_nothing(spark, ours, tmp_path):
    out, check = tmp_path / "out", tmp_path / "check"
    fill(ours, "s", 300)

    def run(**options):
        frame = streaming(spark, ours, "n int", subscribe="s", maxEntriesPerTrigger=100, **options)
        return finish(to_parquet(frame, out, check, availableNow=True))

    run()
    for gone in check.glob("commits/*2*"):
        gone.unlink()
    fill(ours, "s", 50, first=300)
    run(minPartitions=3)  # another cut must not matter to the batch that is done again
    assert numbers(spark.read.parquet(str(out))) == list(range(350))
    end = committed_offsets(check)
    assert sum(each.position - each.incarnation for each in end.cursors["s"].values()) == 350


def test_an_idle_query_asks_rarely_and_ends_at_a_loss_with_a_sentence(spark, ours, tmp_path):
    ids = fill(ours, "s", 10)
    frame = streaming(spark, ours, "n int", subscribe="s")
    query = to_memory(frame, f"t{tmp_path.name}".replace("-", "_"))

    def commands(client):
        return sum(each["calls"] for each in client.info("commandstats").values())

    try:
        query.processAllAvailable()
        with talking(ours) as client:
            polls = "cmdstat_ab.offsets"
            begun, first = time.monotonic(), commands(client)
            asked = client.info("commandstats")[polls]["calls"]
            own = 2
            while client.info("commandstats")[polls]["calls"] < asked + 12:
                client.execute_command("BLPOP", "nothing", 0.1)  # a pause the server times
                own += 2
            seconds, spent = time.monotonic() - begun, commands(client) - first - own
            assert spent / seconds <= 10
            assert query.lastProgress is None or query.lastProgress.batchId == 0
            pipe = client.pipeline()  # in one piece: the query cannot read in between
            for number in range(5):
                pipe.xadd("s", {"n": number})
            pipe.execute_command("XTRIM", "s", "MAXLEN", "=", 2)
            pipe.execute()
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination()
    finally:
        query.stop()
    assert f"stream s: 3 entries after {ids[-1]}" in str(caught.value)
    assert "Set failOnDataLoss=false" in str(caught.value)


def test_lag_is_told_after_every_batch(spark, ours, tmp_path):
    fill(ours, "s", 250)
    told = []
    listener = LagListener(told.append)
    spark.streams.addListener(listener)
    try:
        frame = streaming(spark, ours, "n int", subscribe="s", maxEntriesPerTrigger=100)
        name = f"t{tmp_path.name}".replace("-", "_")
        query = to_memory(frame, name, availableNow=True)
        query.awaitTermination()
        waiting = threading.Event()
        deadline = time.monotonic() + 300
        while len(told) < 3 and time.monotonic() < deadline:
            waiting.wait(0.05)  # the listener runs on a thread of Spark's
    finally:
        spark.streams.removeListener(listener)
    assert [(each.batch, each.stream, each.entries) for each in told] == [
        (0, "s", 150), (1, "s", 50), (2, "s", 0),
    ]  # fmt: skip
    assert {each.query for each in told} == {name}


def test_one_source_for_each_region_and_a_query_that_takes_over(spark, ours, tmp_path):
    fill_at(ours, "s", list(range(1_000, 61_000, 1_000)))
    frame = read_by_region(
        spark, "s", watermark="10 seconds", schema="ts timestamp, n int",
        url=url(ours), startingOffsets="earliest",
    )  # fmt: skip
    assert frame.isStreaming
    finish(to_parquet(frame, tmp_path / "out", tmp_path / "check", availableNow=True))
    with talking(ours) as client:
        client.xadd("s", {"n": 60})
    frame = read_by_region(
        spark, "s", watermark="10 seconds", schema="ts timestamp, n int", regions=[""],
        url=url(ours), resume_from=tmp_path / "check",
    )  # fmt: skip
    finish(to_parquet(frame, tmp_path / "out2", tmp_path / "check2", availableNow=True))
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == list(range(60))
    assert numbers(spark.read.parquet(str(tmp_path / "out2"))) == [60]


# --------------------------------------------------------------------------------- without Spark


def test_an_idle_source_returns_the_very_offset_it_was_given(server, reading):
    fill(server, "s", 5)
    reader = reading(server, pollTimeoutMs="1")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read(reader, start, end) == list(range(5))
    for _ in range(5):
        assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert reading(server).latestOffset(end, ReadAllAvailable()) is end


def test_waiting_ends_with_the_next_entry(server, reading):
    fill(server, "s", 1)
    reader = reading(server, pollTimeoutMs="110000")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    reading_once = reading(server, pollTimeoutMs="0")
    assert reading_once.latestOffset(end, ReadAllAvailable()) is end
    assert reader.latestOffset(end, ReadAllAvailable()) is end  # quiet: the next one waits
    found = []
    waiter = threading.Thread(
        target=lambda: found.append(reader.latestOffset(end, ReadAllAvailable()))
    )
    begun = time.monotonic()
    waiter.start()
    fill(server, "s", 1, first=1)
    waiter.join(60)
    assert time.monotonic() - begun < 60
    assert read(reader, end, found[0]) == [1]


def test_limits_cut_batches_exactly(server, reading):
    fill(server, "s", 25)
    reader = reading(server, maxEntriesPerTrigger="10")
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    at, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadMaxRows(10))) is not at:
        sizes.append(len(read(reader, at, end)))
        at = end
    assert sizes == [10, 10, 5]


def test_a_batch_waits_for_enough_entries_but_not_for_ever(server, reading):
    fill(server, "s", 5)
    patient = reading(server, minEntriesPerTrigger="6", pollTimeoutMs="0")
    start = patient.initialOffset()
    assert patient.latestOffset(start, ReadAllAvailable()) is start
    hasty = reading(server, minEntriesPerTrigger="6", maxTriggerDelay="0ms", pollTimeoutMs="0")
    assert hasty.latestOffset(start, ReadAllAvailable()) is not start
    fill(server, "s", 1, first=5)
    end = patient.latestOffset(start, ReadAllAvailable())
    assert read(patient, start, end) == list(range(6))


def test_a_frozen_target_is_never_passed(server, reading):
    fill(server, "s", 5)
    reader = reading(server)
    reader.prepareForTriggerAvailableNow()
    fill(server, "s", 5, first=5)
    fill(server, "other", 5)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read(reader, start, end) == list(range(5))
    assert reader.latestOffset(end, ReadAllAvailable()) is end


def test_a_run_to_a_frozen_target_ends_while_the_stream_is_trimmed(server, reading, caplog):
    fill(server, "s", 10)

    def run(start, trim_first):
        """All batches up to what there is now; then more is written and trimmed, five times."""
        reader = reading(server, failOnDataLoss="false", pollTimeoutMs="1")
        reader.prepareForTriggerAvailableNow()
        found = []
        for number in range(5):
            if trim_first or number:
                fill(server, "s", 30, first=100 * number)
                with talking(server) as client:
                    client.execute_command("XTRIM", "s", "MAXLEN", "=", 5)
            end = reader.latestOffset(start, ReadAllAvailable())
            if end is start:
                return found, end
            found += read(reader, start, end)
            start = end
        raise AssertionError("it does not end")

    with caplog.at_level(logging.WARNING):
        found, end = run(reading(server).initialOffset(), trim_first=False)
        assert (found, caplog.records) == (list(range(10)), [])
        base = end["s"]["s"][""][0] - 10
        found, end = run(end, trim_first=True)  # all of the target is trimmed before it is read
        assert found == []
        strict = reading(server)
        with pytest.raises(DataLossError, match=r"(\d+) entries after"):
            strict.latestOffset(end, ReadAllAvailable())
        found, end = run(end, trim_first=False)
    lost = [map(int, re.search(r"(\d+) entr.* \(positions (\d+)\D(\d+)\)", each.message).groups())
            for each in caplog.records]  # fmt: skip
    (count, first, last), (then, second, stop) = lost
    assert (first, second) == (base + 10, last + 1)
    assert (count, then) == (last - first + 1, stop - second + 1)
    assert found == [125, 126, 127, 128, 129]


def test_trimming_between_two_batches(server, reading):
    fill(server, "s", 20)
    reader = reading(server)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with talking(server) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", 1)
    assert reader.latestOffset(end, ReadAllAvailable()) is end  # all of it was read
    fill(server, "s", 10, first=20)
    with talking(server) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", 3)
    with pytest.raises(DataLossError, match=r"7 entries after .* were trimmed before they were"):
        reader.latestOffset(end, ReadAllAvailable())
    going_on = reading(server, failOnDataLoss="false")
    assert read(going_on, end, going_on.latestOffset(end, ReadAllAvailable())) == [27, 28, 29]


def test_trimming_between_planning_and_reading(server, reading):
    fill(server, "s", 20)
    reader = reading(server)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with talking(server) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", 5)
    with pytest.raises(DataLossError, match="trimmed before they were read"):
        read(reader, start, end)
    assert read(reading(server, failOnDataLoss="false"), start, end) == list(range(15, 20))


def test_entries_that_users_deleted_are_no_loss(server, reading):
    ids = fill(server, "s", 20)
    reader = reading(server)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with talking(server) as client:
        client.xdel("s", *ids[3:9], ids[19])
    assert read(reader, start, end) == [0, 1, 2, *range(9, 19)]


def test_a_key_made_again(ours, reading):
    fill(ours, "s", 20)
    reader = reading(ours)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    fill(ours, "s", 5, first=20)
    with talking(ours) as client:
        client.delete("s")
    told = r"5 entries after \S+ \(positions \d+\N{EN DASH}\d+\) were deleted with the key before"
    with pytest.raises(DataLossError, match=f"{told}.*none is kept"):
        reader.latestOffset(end, ReadAllAvailable())
    fill_at(ours, "s", [5, 6, 7])
    with pytest.raises(DataLossError, match=f"{told}.*first kept is 5-0"):
        reader.latestOffset(end, ReadAllAvailable())
    going_on = reading(ours, failOnDataLoss="false")
    newest = going_on.latestOffset(end, ReadAllAvailable())
    assert read(going_on, end, newest) == [0, 1, 2]
    assert going_on.latestOffset(newest, ReadAllAvailable()) is newest


@pytest.mark.parametrize("lossy", ["true", "false"])
def test_what_was_read_is_not_read_again_from_an_older_state(plain, reading, lossy):
    fill_at(plain, "s", list(range(1, 21)))
    reader = reading(plain)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with talking(plain) as client:
        client.delete("s")
    fill_at(plain, "s", [5, 6, 7])
    with pytest.raises(ServerBehindError, match=r"17 fewer entries .* restored") as caught:
        reading(plain, failOnDataLoss=lossy).latestOffset(end, ReadAllAvailable())
    assert "failOnDataLoss" not in str(caught.value)


def test_a_hole_is_passed_at_once_and_told_once(ours, reading, caplog):
    fill(ours, "s", 2_000)
    reader = reading(ours)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    fill(ours, "s", 5_000, first=2_000)
    with talking(ours) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", 250)
    found, sizes = [], []
    with caplog.at_level(logging.WARNING):
        for _ in range(4):  # each batch by another process, as after a restart
            going_on = reading(ours, failOnDataLoss="false", pollTimeoutMs="1")
            newest = going_on.latestOffset(end, ReadMaxRows(100))
            found += (rows := read(going_on, end, newest))
            assert read(going_on, end, newest) == rows, "repeated after a crash"
            sizes.append(len(rows))
            end = newest
    assert (sizes, found) == ([100, 100, 50, 0], list(range(6_750, 7_000)))
    assert ["4750 entries" in each.message for each in caplog.records] == [True]


def test_limits_count_living_entries(ours, reading):
    ids = fill(ours, "s", 1_000)
    with talking(ours) as client:
        client.xdel("s", *ids[10:900])
    reader = reading(ours, pollTimeoutMs="1")
    at, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadMaxRows(50))) is not at:
        sizes.append(len(read(reader, at, end)))
        at = end
    assert sizes == [50, 50, 10]


def test_a_changed_subscription_says_so(server, reading):
    fill(server, "s", 10)
    fill(server, "s2", 3)
    reader = reading(server)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for other in ({"subscribe": "s2"}, {"subscribe": "", "subscribePattern": "s[2-9]"}):
        with pytest.raises(
            OptionError, match=r"subscription changed.*allowSubscriptionChange=true"
        ):
            reading(server, **other).latestOffset(end, ReadAllAvailable())
        allowed = reading(server, allowSubscriptionChange="true", **other)
        newest = allowed.latestOffset(end, ReadAllAvailable())
        assert read(allowed, end, newest) == [0, 1, 2]
    back = reading(server, allowSubscriptionChange="true")
    assert back.latestOffset(newest, ReadAllAvailable()) is newest, "it is left where it was"


def test_the_empty_key_is_read_by_the_pattern_that_finds_it(server, reading):
    fill(server, "", 3)
    reader = reading(server, subscribe="", subscribePattern="*")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert read(reader, reader.initialOffset(), end) == [0, 1, 2]
    fill(server, "", 2, first=3)
    newest = reader.latestOffset(end, ReadAllAvailable())
    assert read(reader, end, newest) == [3, 4]


def test_a_loss_is_told_once(plain, reading, caplog):
    server = plain
    fill(server, "s", 5)
    reader = reading(server, failOnDataLoss="false", pollTimeoutMs="20")
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with talking(server) as client, caplog.at_level(logging.WARNING):
        client.delete("s")
        for _ in range(3):
            assert reader.latestOffset(end, ReadAllAvailable()) is end
        assert [each.message.split(";")[0] for each in caplog.records] == ["stream s is gone"]
        fill(server, "s", 2)
        reader.latestOffset(end, ReadAllAvailable())
        client.delete("s")
        for _ in range(3):
            reader.latestOffset(end, ReadAllAvailable())
    texts = [each.message for each in caplog.records]
    assert [each.startswith("stream s is gone") for each in texts].count(True) == 2


def test_a_group_shows_how_far_the_query_is(server, reading):
    ids = fill(server, "s", 20)
    reader = reading(server, commitGroup="spark", maxEntriesPerTrigger="12")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(12))
    reader.commit(end)
    with talking(server) as client:
        (group,) = client.xinfo_groups("s")
        assert (group["last-delivered-id"].decode(), group["lag"]) == (ids[11], 8)
    reader.commit(reader.latestOffset(end, ReadAllAvailable()))
    with talking(server) as client:
        (group,) = client.xinfo_groups("s")
        assert group["lag"] == 0


def test_positions_are_refused_where_there_are_none(ours, plain, reading):
    fill(ours, "s", 3)
    fill(plain, "s", 3)
    end = reading(ours).initialOffset()
    with pytest.raises(Exception, match="start with a new checkpoint"):
        reading(plain).latestOffset(end, ReadAllAvailable())


def test_offsets_by_id_go_on_by_id_on_our_server(ours, plain, reading):
    fill_at(plain, "s", [1_000, 2_000])
    fill_at(ours, "s", [1_000, 2_000, 3_000])
    end = reading(plain).latestOffset(reading(plain).initialOffset(), ReadAllAvailable())
    moved = reading(ours)
    assert read(moved, end, moved.latestOffset(end, ReadAllAvailable())) == [2]
