"""What redis_exporter asks, in its order, is answered in the form in which Redis answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from anabranch.testing import Server
from tests.support.servers import RedisServer, redis_server_path

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="redis-server is not installed")

NOT_HERE = {
    *("atomicvar_api", "gcc_version", "monotonic_clock", "process_supervised"),
    *("used_memory_scripts_human", "used_memory_vm_total_human"),
    *("used_cpu_sys_main_thread", "used_cpu_user_main_thread"),
    *("aof_rewrites", "aof_rewrites_consecutive_failures", "current_cow_size_age"),
    *("current_fork_perc", "module_fork_last_cow_size"),
    *("rdb_last_load_keys_expired", "rdb_last_load_keys_loaded"),
    *("total_reads_processed", "total_writes_processed"),
    *("reply_buffer_expands", "reply_buffer_shrinks", "dump_payload_sanitizations"),
}
"""Fields of INFO about what is counted or built in Redis alone."""


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[redis.Redis, redis.Redis]]:
    """Ours, and a Redis, with the same data."""
    with Server() as ours, RedisServer() as theirs:
        clients = redis.Redis(port=ours.port), redis.Redis(port=theirs.port)
        for client in clients:
            client.ping()
            client.config_set("slowlog-log-slower-than", 0)
            client.xadd("s", {"f": "v"}, id="1-1")
            client.xadd("s", {"f": "v"}, id="2-1")
            client.xgroup_create("s", "g", "0")
            client.xreadgroup("g", "c", {"s": ">"}, count=1)
            client.set("k", "v", ex=1000)
            with pytest.raises(redis.ResponseError):
                client.execute_command("NOTHING")
            client.info()  # what starts redis-server has asked it already
        yield clients
        for client in clients:
            client.close()


def shape(reply: Any) -> Any:
    """Types, and the names of fields; not what the figures are."""
    if isinstance(reply, dict):
        return {key: shape(value) for key, value in reply.items()}
    if isinstance(reply, list | tuple):
        return [shape(each) for each in reply]
    return type(reply).__name__


def test_every_field_of_info_is_there_with_its_type(
    both: tuple[redis.Redis, redis.Redis],
) -> None:
    ours, theirs = (client.info("all") for client in both)
    assert set(theirs) - set(ours) - NOT_HERE == set()
    for name in set(theirs) - NOT_HERE:
        numeric = isinstance(theirs[name], int | float)
        assert isinstance(ours[name], int | float) == numeric, name
        if isinstance(theirs[name], dict):
            assert set(theirs[name]) <= set(ours[name]), name


def test_settings_are_listed(both: tuple[redis.Redis, redis.Redis]) -> None:
    ours, theirs = (client.config_get("*") for client in both)
    assert set(theirs) - set(ours) == set()
    assert ours["maxmemory"] == theirs["maxmemory"]
    assert ours["maxclients"].isdigit()


@pytest.mark.parametrize(
    "words",
    [
        ("CLIENT", "SETNAME", "redis_exporter"),
        ("PING",),
        ("LATENCY", "LATEST"),
        ("XINFO", "STREAM", "s"),
        ("XINFO", "GROUPS", "s"),
        ("XINFO", "CONSUMERS", "s", "g"),
        ("SLOWLOG", "LEN"),
        ("MODULE", "LIST"),
        ("TYPE", "s"),
        ("MEMORY", "USAGE", "s"),
        ("XLEN", "s"),
        ("DBSIZE",),
    ],
    ids="-".join,
)
def test_replies_have_the_same_form(
    both: tuple[redis.Redis, redis.Redis], words: tuple[str, ...]
) -> None:
    ours, theirs = (shape(client.execute_command(*words)) for client in both)
    if isinstance(theirs, dict):
        assert set(theirs) <= set(ours), "newer versions have fields more"
        assert {name: ours[name] for name in theirs} == theirs
    elif theirs and isinstance(theirs, list) and isinstance(theirs[0], dict):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert set(other) <= set(one)
    else:
        assert ours == theirs


def test_the_slow_log_and_the_latency_histogram(both: tuple[redis.Redis, redis.Redis]) -> None:
    for client in both:
        (entry,) = client.slowlog_get(1)
        assert {"id", "start_time", "duration", "command"} <= set(entry)
        histogram = client.execute_command("LATENCY", "HISTOGRAM", "xadd")
        assert set(histogram) == {b"xadd"}
        assert set(histogram[b"xadd"]) == {b"calls", b"histogram_usec"}


def test_clients_are_listed(both: tuple[redis.Redis, redis.Redis]) -> None:
    ours, theirs = (client.client_list()[0] for client in both)
    assert set(theirs) - set(ours) == set()


def test_what_a_single_server_refuses_is_refused_alike(
    both: tuple[redis.Redis, redis.Redis],
) -> None:
    for words in (("CLUSTER", "INFO"), ("SENTINEL", "MASTERS")):
        texts = []
        for client in both:
            with pytest.raises(redis.ResponseError) as problem:
                client.execute_command(*words)
            texts.append(str(problem.value))
        assert texts[0] == texts[1]
