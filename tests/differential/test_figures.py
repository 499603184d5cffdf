"""The names of figures: every one that Redis shows in INFO, MEMORY STATS and CLIENT LIST is here.

Those of Redis 7.0 come from a live redis-server; those that are newer are listed below, from the
public pages of the three commands and from recorded replies. Tools read figures by their names:
one that is missing breaks a dashboard, and nobody notices before it is needed.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.support.inspection import wait_until
from tests.support.servers import AnabranchServer, RedisServer, redis_server_path
from tests.support.wire import RespClient

NEWER_INFO = {
    *("pubsub_clients", "watching_clients", "total_watched_keys", "total_blocking_keys"),
    *("total_blocking_keys_on_nokey", "allocator_muzzy", "mem_overhead_db_hashtable_rehashing"),
    *("io_thread_0", "expired_subkeys", "evicted_scripts", "acl_access_denied_auth"),
    *("acl_access_denied_cmd", "acl_access_denied_key", "acl_access_denied_channel"),
    *("client_query_buffer_limit_disconnections", "client_output_buffer_limit_disconnections"),
    *("used_memory_peak_time", "slowlog_commands_count", "slowlog_commands_time_ms_sum"),
    *("slowlog_commands_time_ms_max", "eventloop_cycles", "eventloop_duration_sum"),
    *("eventloop_duration_cmd_sum", "instantaneous_eventloop_cycles_per_sec"),
    *("instantaneous_eventloop_duration_usec",),
}
NOT_IN_INFO = {
    "eventloop_cycles": "libuv runs the event loop, and counts no cycles",
    "eventloop_duration_sum": "the same",
    "eventloop_duration_cmd_sum": "the same: the sum of usec of INFO commandstats",
    "instantaneous_eventloop_cycles_per_sec": "the same",
    "instantaneous_eventloop_duration_usec": "the same",
}
NEWER_MEMORY = {
    *("overhead.db.hashtable.lut", "overhead.db.hashtable.rehashing", "db.dict.rehashing.count"),
    "allocator.muzzy",
}
NOT_IN_MEMORY: dict[str, str] = {
    "overhead.hashtable.slot-to-keys": "of Redis Cluster only, and no more since 7.2",
}
NEWER_CLIENT = (
    "watch omem-shared omem-unshared lib-name lib-ver io-thread tot-net-in tot-net-out tot-cmds "
    "read-events avg-pipeline-len-sum avg-pipeline-len-cnt"
).split()

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
Both = tuple[RespClient, RespClient]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    logging = ("--appendonly", "yes")
    with (
        AnabranchServer() as ours,
        RedisServer(extra=logging) as theirs,
        ours.client() as one,
        theirs.client() as other,
    ):
        for client in (one, other):
            client.call("SET", "k", "v", "EX", "1000")
            client.call("NOSUCH")  # errors have a figure for each kind
        yield one, other


def info(client: RespClient) -> dict[str, dict[str, str]]:
    """The figures of INFO by section and name."""
    sections: dict[str, dict[str, str]] = {}
    for line in client.call("INFO", "everything")[1].decode().splitlines():
        if line.startswith("# "):
            figures = sections[line[2:]] = {}
        elif line:
            name, _, value = line.partition(":")
            figures[name] = value
    return sections


def names_of(reply: object) -> set[str]:
    """The names of a flat or nested list of names and values."""
    _, items = reply  # type: ignore[misc]
    names = set()
    for (_, name), value in zip(items[::2], items[1::2], strict=True):
        names.add(name.decode())
        if value[0] == "*":
            names |= names_of(value)
    return names


def client_names(client: RespClient) -> list[str]:
    line = client.call("CLIENT", "LIST")[1].decode().splitlines()[0]
    return [pair.partition("=")[0] for pair in line.split(" ")]


def test_info_has_every_figure_of_redis_in_its_section(both: Both) -> None:
    ours, theirs = map(info, both)
    missing = {
        f"{section}: {name}"
        for section, figures in theirs.items()
        for name in figures
        if name not in ours.get(section, {}) and not section.endswith("stats")
    }
    stats = {name for name in theirs["Stats"] if name not in ours["Stats"]}
    assert (missing, stats) == (set(), set())
    kinds = {section for section in theirs if section.endswith("stats")}
    assert kinds <= set(ours)


def test_info_has_the_newer_figures(both: Both) -> None:
    shown = {name for figures in info(both[0]).values() for name in figures}
    assert NEWER_INFO - shown == set(NOT_IN_INFO)  # an exception that is here is no exception


def test_memory_stats_has_every_figure(both: Both) -> None:
    ours, theirs = (names_of(client.call("MEMORY", "STATS")) for client in both)
    assert (theirs | NEWER_MEMORY) - ours == set(NOT_IN_MEMORY)


def test_client_list_has_every_figure(both: Both) -> None:
    ours, theirs = map(client_names, both)
    assert len(set(ours)) == len(ours)
    assert set(theirs) | set(NEWER_CLIENT) == set(ours)
    assert [name for name in ours if name in theirs] == theirs  # in the same order


@pytest.mark.parametrize("which", [0, 1], ids=["anabranch", "redis"])
def test_what_tools_subtract_is_not_negative(both: Both, which: int) -> None:
    memory = info(both[which])["Memory"]
    used, startup, overhead, dataset = (
        int(memory[f"used_memory{part}"]) for part in ("", "_startup", "_overhead", "_dataset")
    )
    assert 0 <= startup <= overhead <= used
    assert dataset == used - overhead
    net = float(memory["used_memory_dataset_perc"].rstrip("%"))
    assert net == pytest.approx(100 * dataset / (used - startup), abs=0.01)
    _, items = both[which].call("MEMORY", "STATS")
    pairs = zip(items[::2], items[1::2], strict=True)
    stats = {name.decode(): value for (_, name), (_, value) in pairs}
    total, begin = int(stats["total.allocated"]), int(stats["startup.allocated"])
    assert 0 <= begin <= int(stats["overhead.total"]) <= total
    assert int(stats["dataset.bytes"]) == total - int(stats["overhead.total"])


@pytest.mark.parametrize("which", [0, 1], ids=["anabranch", "redis"])
def test_reads_and_writes_are_counted(both: Both, which: int) -> None:
    client = both[which]
    before = info(client)["Stats"]
    for _ in range(10):
        client.call("PING")
    after = info(client)["Stats"]
    for name in ("total_reads_processed", "total_writes_processed"):
        assert int(after[name]) - int(before[name]) == 11
    cpu = info(client)["CPU"]
    assert 0 <= float(cpu["used_cpu_user_main_thread"]) <= float(cpu["used_cpu_user"]) + 0.1
    assert which == 1 or float(cpu["used_cpu_user_main_thread"]) > 0.01  # a start takes longer


def fields(client: RespClient) -> dict[str, str]:
    line = client.call("CLIENT", "INFO")[1].decode()
    return dict(pair.split("=", 1) for pair in line.split())


@pytest.mark.parametrize("which", [0, 1], ids=["anabranch", "redis"])
def test_every_connection_has_a_descriptor_of_its_own(both: Both, which: int) -> None:
    lines = both[which].call("CLIENT", "LIST")[1].decode().splitlines()
    descriptors = [int(dict(pair.split("=", 1) for pair in line.split())["fd"]) for line in lines]
    assert min(descriptors) > 2
    assert len(set(descriptors)) == len(descriptors)


def test_the_traffic_of_a_connection_is_counted(both: Both) -> None:
    client = both[0]
    before = fields(client)
    reply = client.call("ECHO", "x" * 1000)
    assert reply == ("$", b"x" * 1000)
    after = fields(client)
    moved = {name: int(after[name]) - int(before[name]) for name in before if name[:4] == "tot-"}
    request = len("*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n")
    assert moved["tot-net-in"] == request + len("*2\r\n$4\r\nECHO\r\n$1000\r\n\r\n") + 1000
    assert moved["tot-net-out"] > 1000 + len("$1000\r\n\r\n")
    assert moved["tot-cmds"] == 2
    assert int(after["read-events"]) - int(before["read-events"]) == 2
    assert int(after["avg-pipeline-len-cnt"]) - int(before["avg-pipeline-len-cnt"]) == 2


def test_replies_that_nobody_reads_are_seen(both: Both) -> None:
    """What an operator looks for: the client that does not read."""
    with socket.create_connection(both[0].socket.getpeername()) as lazy:
        lazy.sendall(b"*2\r\n$4\r\nECHO\r\n$8000000\r\n" + b"x" * 8_000_000 + b"\r\n")
        own_name = ":".join(map(str, lazy.getsockname()))

        def output() -> int:
            for line in both[0].call("CLIENT", "LIST")[1].decode().splitlines():
                found = dict(pair.split("=", 1) for pair in line.split())
                if found["addr"] == own_name:
                    assert found["omem"] == found["omem-unshared"] == found["rbs"]
                    assert int(found["tot-mem"]) >= int(found["omem"])
                    return int(found["omem"])
            raise AssertionError(own_name)

        wait_until(lambda: output() > 1_000_000, "the reply waits in the server")
