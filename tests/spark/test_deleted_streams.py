"""Streams that are deleted and made again while a query reads them: what is lost is counted."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from anabranch.spark.reading.losses import DataLossError
from tests.spark.reading import fill, talking
from tests.spark.test_stream_read import read, reading  # noqa: F401 - a fixture
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses
from tests.support.servers import AnabranchServer

NAMES = ("eu", "us", "ap")
KEYS = ("p:a", "p:b", "p:c")
LOST = re.compile(r"(\d+) entr(?:y|ies) after \S+ \(positions (\d+)\N{EN DASH}(\d+)\)")
PATTERN = {"subscribe": "", "subscribePattern": "p:*", "failOnDataLoss": "false"}


class Query:
    """A query that is started anew for each batch, and what it has read and reported."""

    def __init__(self, caplog: pytest.LogCaptureFixture, make: Callable[..., Any]) -> None:
        self._caplog = caplog
        self._make = make
        self._at: Any = None
        self.rows = self.lost = 0

    def read(self, server: Any) -> None:
        """All that there is."""
        reader = self._make(server, **PATTERN, pollTimeoutMs="1")
        begin = reader.initialOffset() if self._at is None else self._at
        self._caplog.clear()
        with self._caplog.at_level(logging.WARNING):
            self._at = reader.latestOffset(begin, ReadAllAvailable())
        if self._at != begin:  # else Spark has no batch
            self.rows += len(read(reader, begin, self._at))
        text = "\n".join(each.message for each in self._caplog.records)
        for lost, first, last in LOST.findall(text):
            assert int(lost) == int(last) - int(first) + 1
            self.lost += int(lost)
        assert "unread of the old one" not in text
        assert "is gone" not in text
        assert "not on this server" not in text


class Model:
    """How many entries each key has ever been given."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._live = dict.fromkeys(KEYS, 0)
        self.added = 0

    def add(self, client: Any, key: str, count: int) -> None:
        pipe = client.pipeline(transaction=False)
        for number in range(count):
            pipe.execute_command("XADD", key, "*", "n", number)
        pipe.execute()
        self._live[key] += count
        self.added += count

    def step(self, client: Any, settle: Callable[[], None]) -> None:
        """Something happens to a key; `settle` comes between what depends on all regions."""
        rng, live = self._rng, self._live
        key, other = rng.sample(KEYS, 2)
        choice = rng.choices(
            ("add", "del", "rename", "copy", "flush", "expire", "string", "trim"),
            (8, 3, 2, 1, 1, 2, 1, 3),
        )[0]
        if choice == "add":
            self.add(client, key, rng.randrange(1, 9))
            return
        settle()
        if choice == "del":
            client.execute_command(rng.choice(("DEL", "UNLINK")), key, other)
            live[key] = live[other] = 0
        elif choice in ("rename", "copy") and client.exists(key):
            if choice == "rename":
                client.rename(key, other)
            else:
                client.copy(key, other, replace=True)
            live[other] = live[key]
            self.added += live[key]
            if choice == "rename":
                live[key] = 0
        elif choice == "flush":
            client.execute_command(rng.choice(("FLUSHALL", "FLUSHDB")))
            live.update(dict.fromkeys(KEYS, 0))
        elif choice == "expire" and client.exists(key):
            client.execute_command("PEXPIREAT", key, 1)
            live[key] = 0
        elif choice == "string":
            client.set(key, "v")
            client.delete(key)
            live[key] = 0
        elif choice == "trim":
            client.execute_command("XTRIM", key, "MAXLEN", "=", rng.randrange(9))
            live[key] = client.xlen(key)


def idle() -> None:
    """Nothing to wait for."""


@pytest.mark.parametrize("seed", range(6))
def test_read_and_lost_entries_are_all_that_were_added(ours, reading, caplog, seed):  # noqa: F811
    rng = random.Random(seed)
    query, model = Query(caplog, reading), Model(rng)
    with talking(ours) as client:
        for key in KEYS:
            model.add(client, key, 1)
        query.read(ours)
        for _ in range(60):
            for _ in range(rng.randrange(1, 5)):
                model.step(client, idle)
            query.read(ours)
            assert query.rows + query.lost == model.added
    assert query.lost > 20


@pytest.mark.parametrize("seed", range(3))
def test_three_regions_count_alike(
    regions: RegionProcesses,
    reading: Any,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    seed: int,
) -> None:
    """Keys are written, deleted and read in any region; the checkpoint goes from one to another."""
    rng = random.Random(seed)
    query, model = Query(caplog, reading), Model(rng)

    def settle() -> None:
        wait_until(regions.converged, "all have applied the same", 60)

    for server in regions.servers:
        with talking(server) as client:
            for key in KEYS:
                model.add(client, key, 1)
    settle()
    query.read(regions.servers[0])
    for _ in range(25):
        for _ in range(rng.randrange(1, 5)):
            with talking(rng.choice(regions.servers)) as client:
                model.step(client, settle)
        settle()
        query.read(rng.choice(regions.servers))
        assert query.rows + query.lost == model.added
    assert query.lost > 20


def test_a_fully_read_stream_that_is_deleted_ends_no_query(ours, reading):  # noqa: F811
    fill(ours, "p:a", 20)
    fill(ours, "p:b", 3)
    given = {**PATTERN, "failOnDataLoss": "true", "pollTimeoutMs": "1"}
    reader = reading(ours, **given)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    with talking(ours) as client:
        client.set("p:a", "another value, which stays")
    ended = reader.latestOffset(end, ReadAllAvailable())
    assert read(reader, end, ended) == []
    assert reader.latestOffset(ended, ReadAllAvailable()) is ended, "recorded once"
    with talking(ours) as client:
        client.delete("p:a")
    fill(ours, "p:a", 4)
    for again in (reading(ours, **given), reader):
        newest = again.latestOffset(ended, ReadAllAvailable())
        assert read(again, ended, newest) == [0, 1, 2, 3]
    with talking(ours) as client:
        fill(ours, "p:a", 6)
        client.delete("p:a")
        with pytest.raises(DataLossError, match=r"p:a: 6 entries after .* deleted with the key"):
            reader.latestOffset(newest, ReadAllAvailable())


def test_what_was_read_is_known_when_the_server_has_forgotten_the_stream(reading):  # noqa: F811
    """The query was there before it was forgotten; another one was not."""
    with AnabranchServer(extra=["--ledger-retention", "1"]) as server:
        fill(server, "p:a", 20)
        given = {**PATTERN, "failOnDataLoss": "true", "pollTimeoutMs": "1"}
        reader = reading(server, **given)
        end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
        with talking(server) as client:
            client.delete("p:a")
            ended = reader.latestOffset(end, ReadAllAvailable())
            while client.execute_command("AB.OFFSETS", "STREAMS", "p:a") != [None]:
                assert reader.latestOffset(ended, ReadAllAvailable()) is ended
            client.set("p:a", "another value")
            assert reader.latestOffset(ended, ReadAllAvailable()) is ended
            client.delete("p:a")
        assert reader.latestOffset(ended, ReadAllAvailable()) is ended
        with pytest.raises(DataLossError, match="stream p:a is gone"):
            reader.latestOffset(end, ReadAllAvailable())
        fill(server, "p:a", 2)
        newest = reader.latestOffset(ended, ReadAllAvailable())
        assert read(reader, ended, newest) == [0, 1]
        with pytest.raises(DataLossError, match="made again; what was left unread"):
            reader.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize("is_behind", [True, False])
def test_a_stream_made_again_in_a_run_with_a_target_is_counted(ours, reading, caplog, is_behind):  # noqa: F811
    """The run ends where the stream was when it began; the next one has the rest."""
    with talking(ours) as client:
        fill(ours, "s", 10)
        reader = reading(ours, pollTimeoutMs="1")
        begin = reader.initialOffset()
        at = reader.latestOffset(begin, ReadMaxRows(7) if is_behind else ReadAllAvailable())
        rows = read(reader, begin, at)
        reader = reading(ours, failOnDataLoss="false", pollTimeoutMs="1")
        reader.prepareForTriggerAvailableNow()
        fill(ours, "s", 10, first=10)
        fill(ours, "t", 5, first=20)
        client.rename("t", "s")
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                while (newest := reader.latestOffset(at, ReadMaxRows(4))) is not at:
                    rows += read(reader, at, newest)
                    at = newest
                reader = reading(ours, failOnDataLoss="false", pollTimeoutMs="1")
                reader.prepareForTriggerAvailableNow()
    assert sorted(rows) == [*range(7 if is_behind else 10), *range(20, 25)]
    assert sum(int(lost) for lost, _, _ in LOST.findall(caplog.text)) == 20 - len(rows) + 5
