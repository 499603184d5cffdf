"""Policies of streams with real processes that are killed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import redis

from anabranch.testing import Cluster
from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, server_in
from tests.system.test_policies import client_of, set_policy, taken


@pytest.fixture
def server(tmp_path: Path) -> Iterator[AnabranchServer]:
    with server_in(tmp_path) as one:
        yield one


# -- auto-create-group --------------------------------------------------------------------------


def test_a_killed_server_makes_groups_again_after_all_was_flushed(server: AnabranchServer) -> None:
    with client_of(server) as r:
        set_policy(r, "jobs:1", "auto-create-group", "g:0")
        assert taken(r, "ann") == []
        r.flushall()
    server.kill()
    server.start()
    with client_of(server) as r:
        first = r.xadd("jobs:1", {"f": "v"})
        assert taken(r, "ann") == [first]
    server.kill()
    server.start()
    with client_of(server) as r:
        assert [row["message_id"] for row in r.xpending_range("jobs:1", "g", "-", "+", 9)] == [
            first
        ]
        r.execute_command("AB.POLICY", "DEL", "jobs:1")
        r.delete("jobs:1")
        with pytest.raises(redis.ResponseError, match="NOGROUP"):
            taken(r, "ann")


def test_workers_in_three_regions_begin_before_there_is_anything() -> None:
    with Cluster("eu", "us", "asia") as regions:
        clients = [client_of(each) for each in regions]
        set_policy(clients[0], "PATTERN", "jobs:*", "auto-create-group", "g:0")

        def is_made(client: redis.Redis) -> bool:
            try:
                return taken(client, "ann") == []
            except redis.ResponseError:  # the rule is not there yet
                return False

        for each in clients:
            wait_until(partial(is_made, each), "the reader has made the group")
        entry_id = clients[1].xadd("jobs:1", {"f": "v"})
        for each in clients:
            wait_until(partial(_gets, each, entry_id), "the entry is read")
            each.close()


def _gets(client: redis.Redis, entry_id: str) -> bool:
    return taken(client, "ann") == [entry_id]
