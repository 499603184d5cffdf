"""Clients and libraries of Node, as programs with many checks each: see ``node/``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.conftest import NODE_SOURCES
from tests.support.programs import assert_every_check_passes
from tests.support.servers import AnabranchServer


@pytest.mark.parametrize("protocol", [2, 3], ids=["RESP2", "RESP3"])
@pytest.mark.parametrize(
    "script",
    [
        *("ioredis.mjs", "node_redis.mjs", "connect_redis.mjs", "rate_limiter_flexible.mjs"),
        *("redlock.mjs", "socketio.mjs"),
    ],
)
def test_a_node_client_gets_what_it_expects(
    node_project: Path, server: AnabranchServer, script: str, protocol: int
) -> None:
    command = ["node", script, str(server.port), str(protocol)]
    assert_every_check_passes(NODE_SOURCES / script, command, node_project)
