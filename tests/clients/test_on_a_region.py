"""Clients of streams on a region of a cluster: some of their tests, run again there.

docs/clients.md has a column for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.clients.conftest import NODE_SOURCES
from tests.clients.test_aiocache import (
    test_a_conditional_write_needs_the_old_value,
    test_its_lock_lets_one_in_at_a_time,
    test_values_are_kept_and_deleted,
)
from tests.clients.test_broadcaster import test_subscribers_of_a_stream_get_every_message
from tests.clients.test_cashews import test_cashews_keeps_values_and_a_lock
from tests.clients.test_coredis import test_group_round_trip as test_coredis_reads_in_a_group
from tests.clients.test_coredis import test_its_consumers_share_the_entries_of_a_stream
from tests.clients.test_django_redis import test_its_lock_lets_one_in_at_a_time as django_locks
from tests.clients.test_django_redis import (
    test_keys_are_found_and_deleted_by_a_pattern,
    test_values_are_kept_counted_and_deleted,
)
from tests.clients.test_faststream import (
    test_a_group_shares_what_others_get_as_a_whole,
    test_entries_of_a_dead_consumer_are_claimed,
)
from tests.clients.test_python_redis_lock import test_python_redis_lock_wakes_who_waits
from tests.clients.test_python_socketio import test_a_room_hears_what_another_process_says
from tests.clients.test_redis_exporter import (
    metrics_url,
    program,
    test_it_shows_streams_and_groups,
)
from tests.clients.test_script_users import (
    test_a_rate_limit_holds_for_several_processes as limits_hold,
)
from tests.clients.test_script_users import (
    test_register_script_of_redis_py,
)
from tests.clients.test_taskiq import (
    notes,
    start,
    test_what_a_killed_worker_left_is_done_by_another,
)
from tests.clients.test_valkey_glide import test_group_round_trip as test_glide_reads_in_a_group
from tests.clients.test_walrus import (
    db,
    test_a_stream_is_a_container,
    test_locks_limits_and_counters,
    test_small_lists_and_sets,
)
from tests.support.inspection import mistakes
from tests.support.packages import required
from tests.support.programs import assert_every_check_passes
from tests.support.servers import AnabranchServer, free_port

pottery = required("pottery")

__all__ = [
    "db",
    "metrics_url",
    "notes",
    "program",
    "start",
    "test_a_conditional_write_needs_the_old_value",
    "test_a_group_shares_what_others_get_as_a_whole",
    "test_a_room_hears_what_another_process_says",
    "test_a_stream_is_a_container",
    "test_cashews_keeps_values_and_a_lock",
    "test_coredis_reads_in_a_group",
    "test_entries_of_a_dead_consumer_are_claimed",
    "test_glide_reads_in_a_group",
    "test_it_shows_streams_and_groups",
    "test_its_consumers_share_the_entries_of_a_stream",
    "test_its_lock_lets_one_in_at_a_time",
    "test_keys_are_found_and_deleted_by_a_pattern",
    "test_locks_limits_and_counters",
    "test_python_redis_lock_wakes_who_waits",
    "test_register_script_of_redis_py",
    "test_small_lists_and_sets",
    "test_subscribers_of_a_stream_get_every_message",
    "test_values_are_kept_and_deleted",
    "test_values_are_kept_counted_and_deleted",
    "test_what_a_killed_worker_left_is_done_by_another",
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


def test_whole_ids_are_refused_with_the_reason(server: AnabranchServer) -> None:
    with redis.Redis(port=server.port) as client:
        assert client.xadd("s", {"f": "v"}).endswith(b"-1"), "the number of the region"
        with pytest.raises(redis.ResponseError, match="xadd-id-uniqueness-mode is strict"):
            client.xadd("s", {"f": "v"}, id="9999999999999-1")


def test_the_lock_of_django_redis(server: AnabranchServer) -> None:
    django_locks(server)


def test_the_lock_of_redis_py_excludes_clients_of_the_region(server: AnabranchServer) -> None:
    with redis.Redis(port=server.port) as client:
        first, second = client.lock("k", timeout=60), client.lock("k", timeout=60)
        assert first.acquire(blocking=False)
        assert not second.acquire(blocking=False)
        assert first.extend(60)
        first.release()
        assert second.acquire(blocking=False)
        with pytest.raises(redis.exceptions.LockError):
            first.release()
        second.release()


@pytest.mark.filterwarnings("ignore:Doing an O")
def test_pottery_with_one_region(server: AnabranchServer) -> None:
    with redis.Redis(port=server.port) as client:
        first, second = (
            pottery.Redlock(key="till", masters={client}, auto_release_time=60) for _ in range(2)
        )
        assert first.acquire(blocking=False)
        assert not second.acquire(blocking=False)
        first.release()
        members = pottery.RedisSet({"a", "b"}, redis=client, key="members")
        members.add("c")
        members.remove("a")
        assert client.smembers("members") == {b'"b"', b'"c"'}  # as JSON
        items = pottery.RedisList([1, 2, 3], redis=client, key="items")
        items.append(4)
        items.insert(0, 0)
        items[1] = 9
        assert items.pop() == 4
        assert client.lrange("items", 0, -1) == [b"0", b"9", b"2", b"3"]


@pytest.mark.parametrize(
    "strategy",
    ["FixedWindowRateLimiter", "MovingWindowRateLimiter", "SlidingWindowCounterRateLimiter"],
)
def test_limits_of_several_processes_hold(server: AnabranchServer, strategy: str) -> None:
    limits_hold(server, strategy)


@pytest.mark.parametrize(
    "script",
    ["connect_redis.mjs", "rate_limiter_flexible.mjs", "redlock.mjs", "socketio.mjs"],
)
def test_a_node_library_of_small_values(
    node_project: Path, server: AnabranchServer, script: str
) -> None:
    with redis.Redis(port=server.port) as client:  # the checks count connections: pools stay open
        for kind in ("normal", "pubsub"):
            client.client_kill_filter(_type=kind, skipme=True)
    command = ["node", script, str(server.port), "2"]
    assert_every_check_passes(NODE_SOURCES / script, command, node_project)
