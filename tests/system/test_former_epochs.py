"""A region that lost its disk gets its own former effects from every member before it writes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.replication.former_epochs import ANSWER_MS
from tests.support.inspection import info, wait_until
from tests.support.proxy import Weather
from tests.support.region_processes import RegionProcesses, RegionServer

SHORT, LONG = 2, 5
"""Entries of ap that us has when ap loses its disk, and those that eu has."""


@pytest.fixture
def regions(tmp_path: Path) -> Iterator[RegionProcesses]:
    """A member lags: us was cut off while ap wrote its last entries. Then ap loses its disk."""
    with RegionProcesses(tmp_path, ["eu", "us", "ap"]) as regions:
        eu, us, ap = regions.servers
        add(regions, ap, SHORT)
        wait_until(has(regions, us, SHORT), "us has the first entries")
        for other in ("eu", "ap"):
            regions.proxy.set("us", other, Weather(cut=True))
        add(regions, ap, LONG - SHORT)
        wait_until(has(regions, eu, LONG), "eu has all entries")
        assert has(regions, us, SHORT)()
        ap.kill()
        shutil.rmtree(ap.directory / "data")
        yield regions


def add(regions: RegionProcesses, server: RegionServer, count: int) -> None:
    for _ in range(count):
        assert regions.call(server, "XADD", "s", "*", "f", "v")[0] == "$"


def has(regions: RegionProcesses, server: RegionServer, count: int) -> Callable[[], bool]:
    return lambda: regions.call(server, "XLEN", "s") == (":", count)


def lengths_around_first_write(server: RegionServer) -> tuple[int, int]:
    """Write again and again; the length of the stream before and after the first success."""
    found: list[tuple[int, int]] = []
    with server.client(resp=3) as client:

        def succeeds() -> bool:
            length = ("XLEN", "s")
            before, reply, after = client.pipeline([length, ("XADD", "s", "*", "f", "v"), length])
            if reply[0] != "$":
                assert reply[1].startswith(b"READONLY"), reply
                return False
            found.append((before[1], after[1]))
            return True

        wait_until(succeeds, "the region accepts writes", 60)
    return found[0]


def test_effects_that_only_another_member_has_are_there_before_the_first_write(
    regions: RegionProcesses,
) -> None:
    _, _, ap = regions.servers
    # us answers at once, eu later: bytes between eu and ap take a third of a second.
    regions.proxy.set("us", "ap", Weather())
    regions.proxy.set("eu", "ap", Weather(delay_s=0.3))
    ap.start()
    assert lengths_around_first_write(ap) == (LONG, LONG + 1)


@pytest.mark.long
def test_a_member_without_a_link_is_waited_for_during_ten_seconds(
    regions: RegionProcesses,
) -> None:
    eu, us, ap = regions.servers
    regions.proxy.set("us", "ap", Weather())
    regions.proxy.set("eu", "ap", Weather(cut=True))
    ap.start()
    wait_until(has(regions, ap, SHORT), "us has sent what it has")
    waited_for = "effects of its former epochs that these regions may have: 1"
    with ap.client(resp=3) as client:
        wait_until(
            lambda: info(client, "replication")["newcomer_waits_for"] == waited_for,
            "ap has what us has, and waits for eu",
        )
    assert lengths_around_first_write(ap) == (SHORT, SHORT + 1)
    assert ANSWER_MS == 10_000, "docs/active-active-operating.md and docs/limits.md name it"
    regions.heal()
    for server in (eu, us, ap):
        wait_until(has(regions, server, LONG + 1), "what eu has arrives later")
