"""ioredis and node-redis, as Node programs with many checks each: see ``node/``."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.clients.conftest import NODE_SOURCES
from tests.support.servers import AnabranchServer

SECONDS = 120


@pytest.mark.parametrize("protocol", [2, 3], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize("script", ["ioredis.mjs", "node_redis.mjs"])
def test_a_node_client_gets_what_it_expects(
    node_project: Path, server: AnabranchServer, script: str, protocol: int
) -> None:
    text = (NODE_SOURCES / script).read_text("utf-8")
    names = re.findall(r'^check\("([^"]+)"', text, re.MULTILINE)
    assert names
    done = subprocess.run(
        ["node", script, str(server.port), str(protocol)],
        cwd=node_project,
        check=False,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    said = f"{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines() == [f"ok: {name}" for name in names], said
    assert done.returncode == 0, said
