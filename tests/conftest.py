"""Servers that a whole test session shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.servers import AnabranchServer, RedisServer, redis_server_path


def require_redis() -> None:
    """Skip, loudly, without redis-server; where CI=true that is a failure."""
    if redis_server_path() is not None:
        return
    message = "redis-server is not installed: NOTHING IS COMPARED WITH REDIS"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """Redis, in memory."""
    require_redis()
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def second_redis_server() -> Iterator[RedisServer]:
    """Another Redis, to compare Redis with itself."""
    require_redis()
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def anabranch_server() -> Iterator[AnabranchServer]:
    """Our server; that it stops well is checked at the end."""
    with AnabranchServer() as server:
        yield server
