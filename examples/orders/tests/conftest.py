"""Fixtures of this service, made of those of the test kit."""

from __future__ import annotations

import orders
import pytest
import redis

from anabranch.testing.plugin import anabranch_client, anabranch_proc

server = anabranch_proc(persist=True, stream_idmp_duration=3600)
empty = anabranch_client("server", decode_responses=True)


@pytest.fixture
def client(empty: redis.Redis) -> redis.Redis:
    """A client of a server that has the stream and the group, and nothing in them."""
    orders.set_up(empty)
    return empty
