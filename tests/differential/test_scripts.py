"""Random scripts answer here as in redis-server, and leave the same data."""

from __future__ import annotations

import pytest

from tests.differential.scripts import compare
from tests.support.servers import KitServer, RedisServer, redis_server_path


@pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
def test_random_scripts_answer_as_in_redis() -> None:
    with KitServer() as server, RedisServer() as reference:
        assert compare(server, reference, 1, 300) == []
