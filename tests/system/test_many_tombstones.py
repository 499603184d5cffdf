"""Very many deleted keys while a member is away: little memory each, and none when it is back.

``ANABRANCH_TOMBSTONES=1000000`` asks for a million.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.inspection import rss_bytes, wait_until
from tests.support.region_processes import dict_of, seed_of
from tests.support.servers import AnabranchServer, kill_servers_in_directories, regions_in

COUNT = seed_of("ANABRANCH_TOMBSTONES", 50_000)
BYTES_EACH = 400
"""A deleted key with its tombstones; in November 2026 it was 258 bytes, with 50,000 of them."""


def marks(server: AnabranchServer) -> int:
    with server.client(resp=3) as client:
        kind, value = dict_of(client.call("AB.INFO"))[b"mark-count"]
        assert kind == ":"
        return int(value)


@pytest.mark.slow
@pytest.mark.timeout(900 + COUNT // 500)
def test_they_are_small_and_go_when_every_member_has_them(tmp_path: Path) -> None:
    try:
        eu, us = regions_in(tmp_path, "eu", "us")
        with eu.client(timeout=60) as client, us.client() as other:
            client.call("AB.LINK", "us", "PAUSE")
            other.call("AB.LINK", "eu", "PAUSE")
            before = rss_bytes(eu)
            for first in range(0, COUNT, 500):
                keys = [f"key:{number}" for number in range(first, min(first + 500, COUNT))]
                client.pipeline([("XADD", key, "*", "f", "v") for key in keys])
                client.call("DEL", *keys)
            assert client.call("DBSIZE") == (":", 0)
            assert marks(eu) >= COUNT
            each = (rss_bytes(eu) - before) / COUNT
            assert each < BYTES_EACH, f"{each:.0f} bytes each"
            eu.kill()
            eu.ready_seconds += COUNT / 1000
            eu.start()
            assert marks(eu) >= COUNT, "a restart keeps them"
            with eu.client() as again:
                again.call("AB.LINK", "us", "RESUME")
                other.call("AB.LINK", "eu", "RESUME")
                wait_until(lambda: marks(eu) == 0, "nobody lacks them any more", 300)
                wait_until(lambda: marks(us) == 0, "nor here", 300)
                assert other.call("DBSIZE") == (":", 0)
    finally:
        kill_servers_in_directories()
