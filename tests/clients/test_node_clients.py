"""ioredis and node-redis, as Node programs: see ``node/``; each check of theirs is a test here."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import NODE_SOURCES
from tests.support.inspection import number, wait_until
from tests.support.servers import AnabranchServer

SECONDS = 30


def checks() -> list[tuple[str, int, str]]:
    """Script, protocol and name of every check."""
    found = []
    for script in ("ioredis.mjs", "node_redis.mjs"):
        names = re.findall(r'^check\("([^"]+)"', (NODE_SOURCES / script).read_text(), re.MULTILINE)
        assert names, script
        found += [(script, protocol, name) for protocol in (2, 3) for name in names]
    return found


@pytest.mark.parametrize(("script", "protocol", "name"), checks())
def test_a_node_client_gets_what_it_expects(
    node_project: Path, server: AnabranchServer, script: str, protocol: int, name: str
) -> None:
    done = subprocess.run(
        ["node", script, str(server.port), str(protocol), name],
        cwd=node_project,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout == f"ok: {name}\n"
    with server.client() as client:
        wait_until(lambda: number(client, "connected_clients") == 1, "it left")
