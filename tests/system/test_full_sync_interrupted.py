"""A full sync that is interrupted twenty times, in four ways, is whole in the end."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.inspection import info, mistakes, wait_until
from tests.support.proxy import Weather
from tests.support.region_processes import RegionProcesses, RegionServer

ENTRIES = 3000
TIMES = 20
BYTES_PER_S = 150_000
FEW = ("--oplog-max-bytes", "1", "--region-cache-bytes", "0")
"""Who was away for a moment needs a full sync."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_it_is_whole_in_the_end_and_never_half(tmp_path: Path) -> None:
    rng = random.Random(5)
    names = ("zone-eu", "zone-us")
    with RegionProcesses(tmp_path, names, *FEW) as regions:
        eu, us = regions.servers
        ways: list[Callable[[], None]] = [
            lambda: regions.proxy.reset(*names),
            lambda: _killed(us),
            lambda: _killed(eu),
            lambda: _stopped(us, regions),
        ]
        regions.proxy.set(*names, Weather(cut=True))
        with eu.client() as client:
            for _ in range(ENTRIES // 100):
                client.pipeline([("XADD", "s", "*", "v", rng.randbytes(300)) for _ in range(100)])
            client.call("BGREWRITEAOF")
            wait_until(lambda: _is_cut(eu), "the log has none of these entries any more")
        regions.proxy.set(*names, Weather(bytes_per_s=BYTES_PER_S))
        for each in range(TIMES):
            wait_until(lambda: _joins(us), f"full sync {each} has begun")
            with us.client() as client:
                assert client.call("XLEN", "s") == (":", each), "nobody sees half of it"
                assert client.call("XADD", "s", "*", "v", "own")[0] == "$"
            ways[each % len(ways)]()
        regions.heal()
        wait_until(regions.converged, "both have everything", 60)
        for server in regions.servers:
            assert regions.call(server, "XLEN", "s") == (":", ENTRIES + TIMES)
            assert mistakes(server) == []
        assert regions.call(us, "AB.VERIFY", "zone-eu", "s") == ("*", [("$", b"equal")])
        files = sorted(path.name for path in (us.directory / "data" / "appendonlydir").iterdir())
        assert len([name for name in files if "snapshot" in name or "join" in name]) <= 2, files


def _is_cut(server: RegionServer) -> bool:
    """Whether a snapshot has taken the place of the log."""
    with server.client() as client:
        facts = info(client, "persistence")
    return (facts["aof_rewrite_in_progress"], facts["aof_rewrite_scheduled"]) == ("0", "0")


def _joins(server: RegionServer) -> bool:
    """Whether a full sync is on its way to it."""
    with server.client() as client:
        return info(client, "replication").get("joining_from", "") not in ("", "0", "none")


def _killed(server: RegionServer) -> None:
    server.kill()
    server.start()


def _stopped(server: RegionServer, regions: RegionProcesses) -> None:
    """SIGSTOP, until the other side has lost the connection."""
    server.signal(signal.SIGSTOP)
    regions.proxy.reset(*regions.names)
    server.signal(signal.SIGCONT)
