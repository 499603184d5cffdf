"""Queries as processes, killed at any moment: what they give, and what they say was lost."""

from __future__ import annotations

import random
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.spark.reading import fill, talking
from tests.spark.soak import Query
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses, RegionServer
from tests.support.servers import AnabranchServer

NAMES = ("eu", "us")


@pytest.fixture(params=["plain", pytest.param("under kills", marks=pytest.mark.long)])
def kills(request: pytest.FixtureRequest) -> int:
    """How many runs are killed before the one that ends."""
    return 3 if request.param == "under kills" else 0


def run(query: Query, server: AnabranchServer, kills: int, **options: str) -> list[str]:
    """Runs that are killed, and one to the end; what all of them said but where they start."""
    rng = random.Random(kills)
    before = len(query.said)
    for _ in range(kills):
        query.run(server, "alone", rng.uniform(0.4, 1.4), **options)
    query.run(server, "alone", None, **options)
    said = [line for line in query.said[before:] if line.startswith("anabranch: ")]
    return [line for line in said if not re.match("anabranch: (no check|resuming from)", line)]


def numbers(query: Query) -> list[int]:
    return sorted(n for rows in query.read().values() for n in rows.values())


def test_a_hole_costs_one_warning_and_no_batch(
    ours: AnabranchServer, tmp_path: Path, kills: int
) -> None:
    query = Query(tmp_path)
    fill(ours, "s", 2_000)
    assert run(query, ours, 0) == []
    batches = len(list((tmp_path / "out").glob("*.json")))
    fill(ours, "s", 20_000, first=2_000)
    with talking(ours) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", 100)
    said = run(query, ours, kills)
    assert {re.sub(" after.*", "", line) for line in said} == {"anabranch: stream s: 19900 entries"}
    assert len(said) <= 1 + kills
    assert len(list((tmp_path / "out").glob("*.json"))) == batches + 1
    assert numbers(query) == [*range(2_000), *range(21_900, 22_000)]


def test_a_changed_subscription_is_refused_as_such(
    ours: AnabranchServer, tmp_path: Path, kills: int
) -> None:
    query = Query(tmp_path)
    fill(ours, "s", 500)
    run(query, ours, kills)
    fill(ours, "s2", 10, first=500)
    with pytest.raises(AssertionError, match=r"subscription changed.*allowSubscriptionChange=true"):
        run(query, ours, 0, subscribe="s2")
    assert run(query, ours, kills, subscribe="s2", allowSubscriptionChange="true") == []
    assert [len(rows) for rows in query.outputs()].count(10) == 1
    fill(ours, "s", 7, first=600)
    assert run(query, ours, kills, subscribe="s,s2") == []
    found = sorted(n for rows in query.outputs() for _, _, n in rows)
    assert found == [*range(510), *range(600, 607)]


# ----------------------------------------------------------------------------------- two regions


def link(regions: RegionProcesses, word: str) -> None:
    for one, other in combinations(regions.servers, 2):
        for here, there in ((one, other), (other, one)):
            regions.call(here, "AB.LINK", there.number, word)


def settled(regions: RegionProcesses) -> None:
    wait_until(regions.converged, "all have applied the same", 300)


def delete(server: RegionServer) -> None:
    with talking(server) as client:
        client.delete("s")


@pytest.mark.long  # without kills: test_moved_readers.py
@pytest.mark.parametrize("kills", ["under kills"], indirect=True)
def test_a_reader_that_moves_to_a_region_that_lags_reads_nothing_twice(
    regions: RegionProcesses, tmp_path: Path, kills: int
) -> None:
    eu, us = regions.servers
    query = Query(tmp_path)
    fill(eu, "s", 300)
    settled(regions)
    link(regions, "PAUSE")
    fill(eu, "s", 700, first=300)
    run(query, eu, kills)
    assert query.run(us, "alone", None, catchUpTimeout="300ms") == "ServerBehindError"
    assert "700 fewer entries than were read" in query.said[-1]
    assert "failOnDataLoss" not in query.said[-1]
    fill(us, "s", 20, first=5_000)
    link(regions, "RESUME")
    run(query, us, kills, catchUpTimeout="60s")
    assert numbers(query) == [*range(1_000), *range(5_000, 5_020)]


@pytest.mark.long  # without kills: test_moved_readers.py
@pytest.mark.parametrize("kills", ["under kills"], indirect=True)
def test_a_deleted_stream_is_a_loss_of_what_was_not_read(
    regions: RegionProcesses, tmp_path: Path, kills: int
) -> None:
    eu, us = regions.servers
    query = Query(tmp_path)
    fill(eu, "s", 50)
    fill(us, "s", 50, first=100)
    settled(regions)
    run(query, us, kills)
    delete(us)
    fill(us, "s", 3, first=200)
    settled(regions)
    assert run(query, us, kills) == []  # all of it was read
    fill(eu, "s", 7, first=60)
    settled(regions)
    delete(us)
    fill(us, "s", 2, first=300)
    settled(regions)
    said: list[Any] = run(query, us, kills)
    assert said
    lost = re.compile(r"stream s, region 1: 7 entries after .* were deleted with the key before")
    assert all(map(lost.search, said))
    assert not any("region 2" in line for line in said)
    assert numbers(query) == [*range(50), *range(100, 150), *range(200, 203), *range(300, 302)]
