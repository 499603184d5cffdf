"""A message that two regions accepted is there once while one of them is dead: real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis

from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses

MESSAGES = 100


def _send(client: redis.Redis) -> list[str]:
    words = [("XADD", "x", "IDMP", "p", f"i{each}", "*", "m", each) for each in range(MESSAGES)]
    return [client.execute_command(*each) for each in words]  # type: ignore[no-untyped-call]


def _conflicts(client: redis.Redis) -> int:
    found: dict[str, Any] = client.info("everything")
    return int(found["idmp_conflicts"])


def test_nobody_waits_for_the_region_of_the_entries_that_go(tmp_path: Path) -> None:
    """eu is cut off and accepts what us accepts, too; us tells ap, and is killed; eu is back."""
    with RegionProcesses(tmp_path, ["eu", "us", "ap"]) as regions:
        eu, us, ap = clients = [
            redis.Redis(port=server.port, decode_responses=True, protocol=3)
            for server in regions.servers
        ]
        eu.xgroup_create("x", "g", "0", mkstream=True)
        wait_until(regions.converged, "the group is known")
        for other in (2, 3):
            eu.execute_command("AB.LINK", other, "PAUSE")  # type: ignore[no-untyped-call]
            clients[other - 1].execute_command("AB.LINK", 1, "PAUSE")  # type: ignore[no-untyped-call]
        stays, goes = _send(eu), _send(us)
        wait_until(lambda: ap.xlen("x") == MESSAGES, "ap has those of us")
        assert (eu.xlen("x"), _conflicts(eu), _conflicts(ap)) == (MESSAGES, 0, 0)
        regions.servers[1].kill()
        eu.execute_command("AB.LINK", 3, "RESUME")  # type: ignore[no-untyped-call]
        ap.execute_command("AB.LINK", 1, "RESUME")  # type: ignore[no-untyped-call]
        for client in (eu, ap):
            wait_until(lambda: _conflicts(client) == MESSAGES, "it knows both")  # noqa: B023
            left = [entry_id for entry_id, _ in client.xrange("x")]
            assert left == stays, f"none of {goes[:3]}..."
            assert client.xlen("x") == MESSAGES
            assert client.xinfo_groups("x")[0]["lag"] == MESSAGES
        got = ap.xreadgroup("g", "c", {"x": ">"}, count=10 * MESSAGES)
        assert [fields["m"] for _, fields in got["x"][0]] == [str(each) for each in range(MESSAGES)]
        for client in clients:
            client.close()
