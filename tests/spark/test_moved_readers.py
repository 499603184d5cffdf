"""A reader that moves between regions, and keys that are deleted while it is away."""

from __future__ import annotations

import logging
import threading

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from anabranch.spark.reading.losses import DataLossError, ServerBehindError
from tests.spark.reading import talking
from tests.spark.test_regions import add, part
from tests.spark.test_stream_read import read, reader_of
from tests.support.inspection import wait_until

NAMES = ("eu", "us")


@pytest.mark.parametrize("lossy", ["true", "false"])
def test_a_region_that_lags_is_waited_for_and_nothing_is_read_twice(regions, lossy):
    eu, us = regions.servers
    add(eu, 0, 300)
    add(us, 1_000, 10)
    wait_until(regions.converged, "all have applied the same", 300)
    part(regions)
    add(eu, 300, 100)
    reader = reader_of(eu)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert len(read(reader, reader.initialOffset(), end)) == 410
    reader.stop()
    hasty = reader_of(us, failOnDataLoss=lossy, catchUpTimeout="300ms")
    with pytest.raises(ServerBehindError, match=r"100 fewer entries.*Waited for 0\.3 s") as caught:
        hasty.latestOffset(end, ReadAllAvailable())
    assert "failOnDataLoss" not in str(caught.value)
    hasty.stop()
    add(us, 1_010, 5)
    moved = reader_of(us, failOnDataLoss=lossy)
    found = []
    waiting = threading.Thread(
        target=lambda: found.append(moved.latestOffset(end, ReadAllAvailable()))
    )
    waiting.start()
    regions.heal()
    waiting.join(60)
    assert sorted(read(moved, end, found[0])) == [*range(1_010, 1_015)]
    moved.stop()


def add_to(server, key, first, count):
    with talking(server) as client:
        for number in range(first, first + count):
            client.xadd(key, {"n": number})


@pytest.mark.parametrize("lossy", ["true", "false"])
def test_a_region_that_lacks_the_stream_is_waited_for_and_not_taken_for_a_loss(
    regions, lossy, caplog
):
    eu, us = regions.servers
    key = f"lacking-{lossy}"  # never there before: else its last positions are remembered
    part(regions)
    add_to(eu, key, 0, 30)
    reader = reader_of(eu, subscribe=key)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert len(read(reader, reader.initialOffset(), end)) == 30
    reader.stop()
    with caplog.at_level(logging.WARNING):
        moved = reader_of(
            us, subscribe=key, failOnDataLoss=lossy, catchUpTimeout="300ms", pollTimeoutMs="1"
        )
        if lossy == "true":
            with pytest.raises(DataLossError, match="deleted, or has yet to come"):
                moved.latestOffset(end, ReadAllAvailable())
        else:
            assert moved.latestOffset(end, ReadAllAvailable()) is end
        moved.stop()
    assert f"stream {key} is not on this server" in caplog.text
    moved = reader_of(us, subscribe=key, failOnDataLoss=lossy)
    add_to(us, key, 100, 5)  # now the stream is there, and what was read is not
    found = []
    waiting = threading.Thread(
        target=lambda: found.append(moved.latestOffset(end, ReadAllAvailable()))
    )
    waiting.start()
    regions.heal()
    waiting.join(60)
    rows = read(moved, end, found[0])
    newest = moved.latestOffset(found[0], ReadAllAvailable())
    while sorted(rows) != [*range(100, 105)] and newest is not found[0]:
        rows += read(moved, found[0], newest)
        found[0], newest = newest, moved.latestOffset(newest, ReadAllAvailable())
    assert sorted(rows) == [*range(100, 105)]
    moved.stop()


def test_what_a_region_writes_first_is_read_and_nothing_is_lost(regions):
    """A server shows a log of its own region before that has written anything."""
    eu, us = regions.servers
    with talking(eu) as there, talking(us) as here:
        there.xadd("first", {"n": 1})
        wait_until(regions.converged, "all have applied the same", 300)
        reader = reader_of(us, subscribe="first")
        begin = reader.initialOffset()
        end = reader.latestOffset(begin, ReadAllAvailable())
        assert read(reader, begin, end) == [1]
        assert end["s"]["first"]["2"] == [0, "0-0"]
        moved = reader_of(eu, subscribe="first", catchUpTimeout="1ms", pollTimeoutMs="1")
        assert moved.latestOffset(end, ReadAllAvailable()) is end
        here.xadd("first", {"n": 2})
        wait_until(regions.converged, "all have applied the same", 300)
        for each in (reader, moved):
            newest = each.latestOffset(end, ReadAllAvailable())
            assert read(each, end, newest) == [2]
            each.stop()


def test_what_was_trimmed_of_a_regions_first_entries_is_a_loss(regions):
    eu, us = regions.servers
    with talking(eu) as there, talking(us) as here:
        there.xadd("trimmed", {"n": 1})
        wait_until(regions.converged, "all have applied the same", 300)
        reader = reader_of(us, subscribe="trimmed")
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        for number in range(5):
            here.xadd("trimmed", {"n": number})
        here.xtrim("trimmed", maxlen=2, approximate=False)
        newest = reader.latestOffset(end, ReadAllAvailable())
        with pytest.raises(DataLossError, match=r"region 2: 3 entries between .* were trimmed"):
            read(reader, end, newest)
        reader.stop()


def test_where_a_deleted_log_ended_is_known_when_tombstones_are_forgotten(regions):
    eu, us = regions.servers
    begin, end = planned(eu, "forgotten")
    wait_until(regions.converged, "all have applied the same", 300)
    with talking(us) as client:
        client.delete("forgotten")
        wait_until(lambda: forgot_all(regions), "all have forgotten the deletion", 300)
        client.xadd("forgotten", {"n": 100})
    wait_until(regions.converged, "all have applied the same", 300)
    options = {"subscribe": "forgotten", "catchUpTimeout": "1ms", "pollTimeoutMs": "1"}
    for server in (eu, us):
        strict = reader_of(server, **options)
        with pytest.raises(DataLossError, match=r"30 entr.* deleted with the key before"):
            read(strict, begin, end)
        newest = strict.latestOffset(end, ReadAllAvailable())  # nothing was there beside it
        assert read(strict, end, newest) == [100]
        strict.stop()
        lossy = reader_of(server, failOnDataLoss="false", **options)
        assert read(lossy, begin, end) == []
        newest = lossy.latestOffset(end, ReadAllAvailable())
        assert read(lossy, end, newest) == [100]
        assert lossy.latestOffset(newest, ReadAllAvailable()) is newest
        lossy.stop()


def forgot_all(regions):
    """Whether no region keeps a tombstone."""
    for server in regions.servers:
        with talking(server) as client:
            if client.info("replication")["marked_keys"]:
                return False
    return True


def planned(server, key):
    """A batch that is planned at a region and not read: its ends. Others do not know the key."""
    with talking(server) as client:
        for number in range(30):
            client.execute_command("XADD", key, "*", "n", number)
    reader = reader_of(server, subscribe=key)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    reader.stop()
    return begin, end


@pytest.mark.parametrize("lossy", ["true", "false"])
@pytest.mark.parametrize("has_others", [False, True])
def test_a_planned_batch_waits_for_a_log_that_has_yet_to_come(regions, has_others, lossy, caplog):
    """It may be repeated at another region than that which planned it."""
    eu, us = regions.servers
    part(regions)
    key = f"late {has_others} {lossy}"
    begin, end = planned(eu, key)
    if has_others:
        with talking(us) as client:
            client.execute_command("XADD", key, "*", "n", 100)
    moved = reader_of(us, subscribe=key, failOnDataLoss=lossy)
    found = []
    waiting = threading.Thread(target=lambda: found.extend(read(moved, begin, end)))
    with caplog.at_level(logging.WARNING):
        waiting.start()
        waiting.join(1)
        assert waiting.is_alive()
        regions.heal()
        waiting.join(60)
    moved.stop()
    assert sorted(found) == [*range(30)]
    assert "deleted" not in caplog.text


def test_a_log_that_does_not_come_is_refused_or_given_up(regions, caplog):
    eu, us = regions.servers
    part(regions)
    begin, end = planned(eu, "never")
    strict = reader_of(us, subscribe="never", catchUpTimeout="300ms")
    with pytest.raises(DataLossError, match=r"positions \d+ to \d+ was read, .*yet to receive"):
        read(strict, begin, end)
    strict.stop()
    lossy = reader_of(us, subscribe="never", failOnDataLoss="false", catchUpTimeout="300ms")
    with caplog.at_level(logging.WARNING):
        assert read(lossy, begin, end) == []
    assert "was deleted before all of positions" in caplog.text
    lossy.stop()


def test_a_deleted_key_is_a_loss_of_what_was_not_read_and_of_nothing_else(regions):
    eu, us = regions.servers
    add(eu, 0, 20)
    add(us, 100, 20)
    wait_until(regions.converged, "all have applied the same", 300)
    reader = reader_of(us)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with talking(us) as client:
        client.delete("s")
    add(us, 200, 3)
    wait_until(regions.converged, "all have applied the same", 300)
    # all of it was read
    newest = reader.latestOffset(end, ReadAllAvailable())
    assert read(reader, end, newest) == [200, 201, 202]
    add(eu, 20, 7)
    wait_until(regions.converged, "all have applied the same", 300)
    with talking(us) as client:
        client.delete("s")
    add(us, 300, 2)
    wait_until(regions.converged, "all have applied the same", 300)
    with pytest.raises(DataLossError, match=r"region 1: 7 entries after .* deleted with") as caught:
        reader.latestOffset(newest, ReadAllAvailable())
    assert "region 2" not in str(caught.value)
    reader.stop()
    going_on = reader_of(us, failOnDataLoss="false")
    after = going_on.latestOffset(newest, ReadAllAvailable())
    assert read(going_on, newest, after) == [300, 301]
    going_on.stop()


def test_an_entry_whose_deletion_has_yet_to_arrive_is_no_loss(regions):
    eu, us = regions.servers
    add(eu, 0, 20)
    wait_until(regions.converged, "all have applied the same", 300)
    part(regions)
    with talking(eu) as client:
        ((newest, _),) = client.xrevrange("s", count=1)
        client.xdel("s", newest)
    reader = reader_of(eu)
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert read(reader, begin, end) == [*range(19)]
    reader.stop()
    moved = reader_of(us)
    assert read(moved, begin, end) == [*range(20)], "the batch is repeated there"
    moved.stop()
