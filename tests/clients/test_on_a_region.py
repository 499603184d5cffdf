"""Clients of streams on a region of a cluster: some of their tests, run again there.

docs/clients.md has a column for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.clients.test_broadcaster import test_subscribers_of_a_stream_get_every_message
from tests.clients.test_coredis import test_group_round_trip as test_coredis_reads_in_a_group
from tests.clients.test_coredis import test_its_consumers_share_the_entries_of_a_stream
from tests.clients.test_faststream import (
    test_a_group_shares_what_others_get_as_a_whole,
    test_entries_of_a_dead_consumer_are_claimed,
)
from tests.clients.test_python_socketio import test_a_room_hears_what_another_process_says
from tests.clients.test_redis_exporter import (
    metrics_url,
    program,
    test_it_shows_streams_and_groups,
)
from tests.clients.test_valkey_glide import test_group_round_trip as test_glide_reads_in_a_group
from tests.clients.test_walrus import db, test_a_stream_is_a_container
from tests.support.inspection import mistakes
from tests.support.servers import AnabranchServer, free_port

__all__ = [
    "db",
    "metrics_url",
    "program",
    "test_a_group_shares_what_others_get_as_a_whole",
    "test_a_room_hears_what_another_process_says",
    "test_a_stream_is_a_container",
    "test_coredis_reads_in_a_group",
    "test_entries_of_a_dead_consumer_are_claimed",
    "test_glide_reads_in_a_group",
    "test_it_shows_streams_and_groups",
    "test_its_consumers_share_the_entries_of_a_stream",
    "test_subscribers_of_a_stream_get_every_message",
]


@pytest.fixture(scope="module")
def real_server() -> Iterator[AnabranchServer]:
    """The first region of a cluster, with the settings that a region has by itself."""
    region = ["--region-id", "1", "--region-name", "eu", "--cluster-create", "yes"]
    gossip = ["--gossip-port", str(free_port()), "--gossip-bind", "127.0.0.1"]
    extra = [*region, *gossip, "--enable-debug-command", "yes"]
    with AnabranchServer(extra=extra) as server:
        yield server
        assert not mistakes(server)


def test_values_of_other_types_are_refused_with_the_reason(server: AnabranchServer) -> None:
    with redis.Redis(port=server.port) as client:
        for use in (
            lambda: client.set("k", "v"),
            lambda: client.lpush("k", "v"),
            lambda: client.lock("k", timeout=1).acquire(blocking=False),
        ):
            with pytest.raises(redis.ResponseError, match="Active-Active keeps streams only"):
                use()
        assert client.xadd("s", {"f": "v"}).endswith(b"-1"), "the number of the region"
        with pytest.raises(redis.ResponseError, match="xadd-id-uniqueness-mode is strict"):
            client.xadd("s", {"f": "v"}, id="9999999999999-1")
