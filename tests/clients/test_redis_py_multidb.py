"""The failover of redis-py among regions, with the lines of the README."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing import Cluster
from tests.house.markdown import fences, pages

pytest.importorskip("pybreaker", reason="redis[circuit-breaker] is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:MultiDBClient is an experimental:UserWarning")


def test_the_lines_of_the_readme_go_on_with_the_next_region() -> None:
    (_, code) = fences(pages()["README.md"], "python")
    with Cluster("eu", "us") as cluster:
        regions = (("7379", cluster.eu), ("7380", cluster.us))
        body = code.body
        for port, region in regions:
            assert body.count(port) == 1
            body = body.replace(port, str(region.port))
        found: dict[str, Any] = {}
        exec(body, found)
        client = found["r"]
        cluster.settle()
        cluster.eu.crash()
        words = ("XADD", "orders", "IDMP", "shop")
        client.execute_command(*words, "order-2", "*", "item", "pen")
        first = client.execute_command(*words, "order-1", "*", "item", "book")
        entries = cluster.us.execute("XRANGE", "orders", "-", "+")
        assert [fields for _, fields in entries] == [[b"item", b"book"], [b"item", b"pen"]]
        assert first == entries[0][0], "sent again, and added once"
        client.close()


def test_small_values_go_on_in_the_next_region() -> None:
    """What was there when the regions had heard of each other; then the client fails over."""
    (_, code) = fences(pages()["README.md"], "python")
    with Cluster("eu", "us") as cluster:
        body = code.body.replace("7379", str(cluster.eu.port)).replace("7380", str(cluster.us.port))
        found: dict[str, Any] = {}
        exec(body, found)
        client = found["r"]
        cluster.settle()
        client.set("text", "a")
        client.set("lock", "token", nx=True, px=60_000)
        client.incrby("count", 5)
        client.sadd("members", "a", "b")
        client.rpush("queue", "x", "y", "z")
        assert client.lpop("queue") in (b"x", "x")
        cluster.settle()
        cluster.eu.crash()
        assert client.set("lock", "other", nx=True, px=60_000) is None
        assert client.incr("count") == 6
        assert client.srem("members", "a") == 1
        assert client.append("text", "b") == 2
        assert client.lpop("queue") in (b"y", "y")
        us = cluster.us
        assert us.execute("GET", "text") == b"ab"
        assert us.execute("SMEMBERS", "members") == [b"b"]
        assert us.execute("LRANGE", "queue", 0, -1) == [b"z"]
        client.close()
