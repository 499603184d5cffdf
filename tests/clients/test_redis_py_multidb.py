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
