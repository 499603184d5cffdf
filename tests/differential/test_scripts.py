"""Random scripts answer here as in redis-server, and leave the same data."""

from __future__ import annotations

import pytest
import redis

from anabranch.testing import Server
from tests.differential.scripts import compare
from tests.support.servers import RedisServer, redis_server_path


@pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
def test_random_scripts_answer_as_in_redis() -> None:
    with Server() as server, RedisServer() as reference:
        ours, theirs = redis.Redis(port=server.port), redis.Redis(port=reference.port)
        assert compare(ours, theirs, 1, 300) == []
