"""Every metric moves: each act changes those figures that are about it, and no name is left."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import redis

from anabranch.testing import Cluster
from tests.support.inspection import wait_until
from tests.support.servers import free_port

pytest.importorskip("prometheus_client", reason="the extra web is not installed")
pytest.importorskip("lupa", reason="the extra lua is not installed: NO METRIC IS TRIED")

from anabranch.web.metric_rows import METRICS
from anabranch.web.metrics import PREFIX
from tests.system.test_metrics import Pair

LASTING = {
    "server_info": "its labels say what runs",
    "oplog_volume_bytes": "compared with the system's figure in tests/unit/web/test_metrics.py",
    "oplog_volume_free_bytes": "likewise",
}
"""Metrics that stay as they are, and what is tested instead."""

BY_INFO = frozenset(
    {
        *("sync_full_total", "effects_filtered_total", "divergences_total", "differing_keys"),
        *("peer_receive_lag_seconds", "peer_receive_lag_effects", "oplog_delayed_fsync_total"),
        "peer_refusals_total",
    }
)
"""Metrics of rare faults. tests/unit/web/test_metrics.py gives each of their sources a value."""

SECONDS = 60.0

NODES = (
    *("stream_opened_blocks_total", "stream_opened_bytes", "stream_compressed_blocks_total"),
    *("stream_offloaded_blocks_total", "stream_offloaded_bytes"),
)


class Moving:
    """The first of two regions, and which of its metrics have moved so far."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        self.cluster = cluster
        self.pair = Pair(cluster, port)
        self.eu = self.pair.eu
        self.us = redis.Redis(port=cluster.us.port, protocol=3)
        self.eu.config_set("http-port", port)
        self._values: dict[tuple[str, Any], float] = {}
        self.moved: set[str] = set()
        self.look()

    def look(self) -> None:
        """Compare with what was there before."""
        for full_name, by_labels in self.pair.scrape().items():
            name = full_name.removeprefix(PREFIX)
            for labels, value in by_labels.items():
                if self._values.setdefault((name, labels), value) != value:
                    self.moved.add(name)

    def moves(self, *names: str) -> None:
        """Look until these have moved."""
        deadline = time.monotonic() + SECONDS
        while missing := set(names) - self.moved:
            assert time.monotonic() < deadline, f"these have not moved: {sorted(missing)}"
            self.look()


@contextmanager
def moving() -> Iterator[Moving]:
    with Cluster("eu", "us", metrics_per_consumer=True) as cluster:
        made = Moving(cluster, free_port())
        with made.eu, made.us:
            yield made


def test_every_metric_moves_when_it_should() -> None:
    with moving() as world:
        clients_come_and_are_refused(world)
        commands_fail_and_keys_expire(world)
        entries_are_added_and_processed(world)
        scripts_are_kept(world)
        policies_do_their_work(world)
        entries_are_scheduled(world)
        nodes_are_compressed_opened_and_moved_to_a_file(world)
        the_disk_is_full(world)
        a_link_is_cut(world)
        world.moves(*({row.name for row in METRICS} - LASTING.keys() - BY_INFO))


def clients_come_and_are_refused(world: Moving) -> None:
    with redis.Redis(port=world.cluster.eu.port) as other:
        other.ping()
        world.moves("connected_clients", "connections_received_total", "net_input_bytes_total")
        blocked = other.connection_pool.get_connection()
        blocked.send_command("XREAD", "BLOCK", "0", "STREAMS", "nothing", "$")
        world.moves("blocked_clients")
        blocked.disconnect()
    world.eu.config_set("maxclients", 1)
    with pytest.raises(redis.ConnectionError), redis.Redis(port=world.cluster.eu.port) as refused:
        refused.ping()
    world.eu.config_set("maxclients", 10_000)
    world.moves("rejected_connections_total")


def commands_fail_and_keys_expire(world: Moving) -> None:
    eu = world.eu
    eu.config_set("slowlog-log-slower-than", "0")
    for key in ("k", "k2"):
        eu.xadd(key, {"f": "v"})
    # The region that removes an expired key counts the key. Here only eu removes any.
    world.us.execute_command("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    eu.pexpire("k", 1)
    world.look()
    for words in (("XLEN",), ("XADD", "k2", "1-1", "f", "v")):
        with suppress(redis.ResponseError):
            eu.execute_command(*words)
    world.look()
    eu.expire("k2", 1000)
    for number in range(3):
        eu.xadd(f"more{number}", {"f": "v"})
        eu.expire(f"more{number}", 1000)
    for key in ("k2", "none"):
        eu.xlen(key)
    for _ in range(2):  # a code has a series from its first error on
        with pytest.raises(redis.ResponseError):
            eu.execute_command("XLEN")
        world.look()
    eu.config_set("maxmemory", "100mb")
    world.moves(
        *("errors_total", "commands_failed_calls_total", "commands_rejected_calls_total"),
        *("keyspace_hits_total", "keyspace_misses_total", "expired_keys_total", "db_keys"),
        *("db_keys_expiring", "slowlog_length", "memory_max_bytes"),
    )


def entries_are_added_and_processed(world: Moving) -> None:
    eu = world.eu
    eu.xadd("s", {"f": "v"})
    eu.execute_command("XADD", "s", "IDMP", "p", "a", "*", "f", "v")
    eu.xgroup_create("s", "g", "0")
    eu.xgroup_createconsumer("s", "g", "c")
    world.look()
    eu.xreadgroup("g", "c", {"s": ">"})
    world.look()
    for producer in ("p", "q"):
        for iid in ("a", "b"):
            eu.execute_command("XADD", "s", "IDMP", producer, iid, "*", "f", "v")
    (first, _), (second, _), *_ = eu.xrange("s")
    eu.xclaim("s", "g", "d", 0, [first])
    eu.execute_command("XNACK", "s", "g", "FAIL", "IDS", 1, first)
    eu.xack("s", "g", second)
    eu.execute_command("XCFGSET", "s", "IDMP-MAXSIZE", 1, "IDMP-DURATION", 50)
    world.look()
    for number in range(101):
        eu.xgroup_create("s", f"g{number:03}", "0")
    eu.config_set("metrics-max-streams", "0")
    world.look()
    eu.config_set("metrics-max-streams", "1000")
    world.moves(
        *(row.name for row in METRICS if row.labels[:2] == ("db", "stream")),
        *("metrics_streams_left_out", "metrics_groups_left_out"),
    )
    eu.xgroup_destroy("s", "g")


def scripts_are_kept(world: Moving) -> None:
    world.eu.eval("return 1", 0)
    function = "redis.register_function('f', function() return 1 end)"
    world.eu.function_load(f"#!lua name=l\n{function}")
    world.moves(
        *("number_of_cached_scripts", "memory_used_scripts_eval_bytes"),
        *("memory_used_vm_eval_bytes", "number_of_functions", "number_of_libraries"),
    )


def policies_do_their_work(world: Moving) -> None:
    eu = world.eu

    def is_accepted() -> bool:
        """A region sets policies once the other one has said that it knows them."""
        try:
            return bool(eu.execute_command("AB.POLICY", "SET", "jobs", "auto-create-group", "g:0"))
        except redis.ResponseError:
            return False

    wait_until(is_accepted, "policies are accepted")
    for policies in ("lease time:1ms max-deliveries 2 dead-letter dead", "max-length 1 exact yes"):
        eu.execute_command("AB.POLICY", "SET", "jobs", *policies.split())
    eu.execute_command("AB.POLICY", "SET", "lost", "max-deliveries", "1")
    eu.xgroup_create("lost", "g", "0", mkstream=True)
    for key in ("jobs", "lost"):
        eu.xadd(key, {"f": "v"})
        for _ in range(3):
            eu.xreadgroup("g", "c", {key: ">"})
            world.look()
    eu.xadd("jobs", {"f": "v"})
    (entry_id, _), *_ = eu.xrange("lost")
    eu.execute_command("XNACK", "lost", "g", "FATAL", "IDS", 1, entry_id)
    eu.execute_command("AB.POLICY", "SET", "lost", "key-field", "f", "on-poison", "halt")
    entry_id = eu.xadd("lost", {"f": "v"})
    eu.xreadgroup("g", "c", {"lost": ">"})
    eu.execute_command("XNACK", "lost", "g", "FATAL", "IDS", 1, entry_id)
    deadline = time.monotonic() + SECONDS
    while not eu.exists("dead"):
        assert time.monotonic() < deadline, "nothing was given up"
        eu.xreadgroup("g", "c", {"jobs": ">"})
        world.look()
    while "trimmed_by_policy_total" not in world.moved:  # the other region may trim first
        assert time.monotonic() < deadline, "nothing was trimmed here"
        eu.xadd("jobs", {"f": "v"})
        world.look()
    world.moves(*(row.name for row in METRICS if "policy" in row.name))


def entries_are_scheduled(world: Moving) -> None:
    eu = world.eu
    for key in ("later", "ended"):  # one of them will not take it
        eu.execute_command("AB.SCHEDULE", key, "IN", "500", "f", "v")
    eu.xadd("ended", {"f": "v"})
    eu.execute_command("AB.SEAL", "ended")
    world.moves(*(row.name for row in METRICS if row.name.startswith("scheduled_")))


def nodes_are_compressed_opened_and_moved_to_a_file(world: Moving) -> None:
    eu = world.eu
    eu.config_set("stream-tiering", "yes")
    with eu.pipeline(transaction=False) as pipe:
        for number in range(3000):
            pipe.xadd("large", {"n": number, "v": f"{number % 100:04}" * 250})
        pipe.execute()
    eu.config_set("maxmemory", 1 << 20)
    world.moves("stream_compressed_blocks_total", "stream_offloaded_blocks_total")
    eu.xrange("large", count=100)
    world.moves(*NODES, "memory_used_rss_bytes")
    eu.config_set("maxmemory", "0")
    eu.delete("large")


def the_disk_is_full(world: Moving) -> None:
    eu, disk = world.eu, world.cluster.eu.disk
    eu.config_set("oplog-segment-bytes", "64kb")
    for _ in range(3):
        eu.xadd("s", {"f": "v" * 50_000})
    eu.bgsave()
    world.moves("snapshot_last_timestamp_seconds", "oplog_segments", "oplog_fsync_seconds")
    disk.full()
    with pytest.raises(redis.ResponseError):
        eu.xadd("lost", {"f": "v"})
    with suppress(redis.ResponseError):
        eu.xlen("lost")
    with suppress(redis.ResponseError):
        eu.bgsave()
    world.moves(
        *("oplog_up", "oplog_unsafe_keys", "oplog_refused_reads_total", "snapshot_last_ok"),
    )
    disk.free()
    wait_until(lambda: world.pair.value("oplog_up") == 1, "the log is written again")


def a_link_is_cut(world: Moving) -> None:
    eu = world.eu
    world.cluster.settle()
    world.look()
    eu.execute_command("AB.LINK", "us", "PAUSE")
    eu.execute_command("XADD", "both", "IDMP", "p", "1", "*", "f", "v")
    world.moves(
        *("peer_state", "peer_lag_effects", "peer_lag_bytes", "peer_lag_seconds"),
        *("peer_durable_lag_effects", "unstable_effects", "held_tags", "held_tag_bytes"),
    )
    eu.config_set("max-held-tags", "1")
    for number in range(3):
        eu.execute_command("XADD", "both", "IDMP", "p", str(number + 2), "*", "f", "v")
    eu.delete("s")
    world.moves("tombstones", "held_tags_dropped_total")
    eu.config_set("max-held-tags", "1000000")
    kept = str(
        world.us.execute_command("XADD", "both", "IDMP", "p", "both", "*", "f", "v"), "ascii"
    )
    kept_ms = int(kept.partition("-")[0])
    # The entry with the greater ID goes: in one millisecond that could be the one of us.
    wait_until(lambda: eu.time()[0] * 1000 + eu.time()[1] // 1000 > kept_ms + 1, "a later time")
    eu.execute_command("XADD", "both", "IDMP", "p", "both", "*", "f", "v")
    world.cluster.us.stop()  # a link that is new catches up
    world.cluster.us.start()
    eu.execute_command("AB.LINK", "us", "RESUME")
    world.moves("tombstones_collected_total", "sync_partial_total", "peer_sent_bytes_total")
