"""INFO: sections, and the figures that tools and test-suites read."""

from __future__ import annotations

import pytest

from anabranch import __version__
from anabranch.commands.server.info import human_bytes
from tests.support.region_harness import Harness


@pytest.fixture
def server():
    return Harness()


def text(server, *sections):
    return server.do("INFO", *sections).decode()


def figures(server, *sections):
    lines = text(server, *sections).split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def headers(server, *sections):
    lines = text(server, *sections).split("\r\n")
    return [line[2:] for line in lines if line.startswith("# ")]


ALL = [
    "Server", "Clients", "Memory", "Persistence", "Threads", "Stats", "Replication", "CPU",
    "Modules", "Commandstats", "Errorstats", "Latencystats", "Cluster", "Policies", "Keyspace",
    "Keysizes",
]  # fmt: skip


def test_sections_stand_apart(server):
    both = text(server, "cluster", "keyspace")
    assert both == "# Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n"


def test_groups_of_sections(server):
    assert headers(server, "everything") == ALL
    assert headers(server, "all") == [name for name in ALL if name != "Modules"]
    default = [name for name in ALL if name not in ("Commandstats", "Latencystats")]
    assert headers(server) == default
    assert headers(server, "DEFAULT") == default


def test_sections_come_once_and_in_a_fixed_order(server):
    assert headers(server, "keyspace", "SERVER", "server") == ["Server", "Keyspace"]
    assert text(server, "nosuch") == ""
    assert headers(server, "nosuch", "cpu") == ["CPU"]


def test_versions(server):
    server_section = figures(server, "server")
    assert server_section["redis_version"] == "8.10.0"
    assert server_section["anabranch_version"] == __version__
    assert server_section["redis_mode"] == "standalone"


def test_info_is_verbatim_in_resp3():
    assert Harness(resp3=True).raw("INFO", "nosuch") == b"=4\r\ntxt:\r\n"


def test_blocking_keys_come_and_go(server):
    def blocking():
        clients = figures(server, "clients")
        return tuple(
            int(clients[name])
            for name in ("blocked_clients", "total_blocking_keys", "total_blocking_keys_on_nokey")
        )

    server.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    reader, group_reader = server.connect(), server.connect()
    assert blocking() == (0, 0, 0)
    server.do("XREAD", "BLOCK", "0", "STREAMS", "s", "$", session=reader)
    assert blocking() == (1, 1, 0)
    server.do(
        "XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "s", ">", session=group_reader
    )
    assert blocking() == (2, 1, 1)
    server.do("DEL", "s")
    assert blocking() == (1, 1, 0)
    server.do("XADD", "s", "*", "f", "v")
    assert blocking() == (0, 0, 0)


def test_command_figures_tell_failures_from_refusals(server):
    server.do("XADD", "s", "1-0", "f", "v")
    server.error("XADD", "s", "1-0", "f", "v")
    server.error("XADD", "s")
    server.do("XGROUP", "CREATE", "s", "g", "0")
    server.error("NOSUCH")
    stats = figures(server, "commandstats")
    assert stats["cmdstat_xadd"].startswith("calls=2,usec=")
    assert stats["cmdstat_xadd"].endswith(",rejected_calls=1,failed_calls=1")
    assert stats["cmdstat_xgroup|create"].startswith("calls=1,")
    assert "cmdstat_xread" not in stats
    assert figures(server, "errorstats") == {"errorstat_ERR": "count=3"}
    assert figures(server, "stats")["total_error_replies"] == "3"


def test_latency_percentiles(server):
    server.do("PING")
    percentiles = figures(server, "latencystats")["latency_percentiles_usec_ping"]
    assert [pair.split("=")[0] for pair in percentiles.split(",")] == ["p50", "p99", "p99.9"]
    server.settings.latency_tracking_info_percentiles = "50"
    assert figures(server, "latencystats")["latency_percentiles_usec_ping"].count("p") == 1
    server.settings.latency_tracking = False
    assert figures(server, "latencystats") == {}


def test_databases_with_keys_are_listed(server):
    server.do("SET", "a", "1")
    server.do("SET", "b", "1")
    server.do("PEXPIRE", "a", "5000")
    server.do("SELECT", "9")
    server.do("XADD", "s", "*", "f", "v")
    assert figures(server, "keyspace") == {
        "db0": "keys=2,expires=1,avg_ttl=5000,subexpiry=0",
        "db9": "keys=1,expires=0,avg_ttl=0,subexpiry=0",
    }


def test_changes_count_up(server):
    before = int(figures(server, "persistence")["rdb_changes_since_last_save"])
    server.do("XADD", "s", "*", "f", "v")
    assert figures(server, "persistence")["rdb_changes_since_last_save"] == str(before + 1)


def test_watching_and_subscribed_clients(server):
    server.do("WATCH", "k")
    other = server.connect()
    other.channels[b"c"] = None
    clients = figures(server, "clients")
    assert (clients["watching_clients"], clients["total_watched_keys"]) == ("1", "1")
    assert (clients["pubsub_clients"], clients["connected_clients"]) == ("1", "2")


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0B"), (1023, "1023B"), (1536, "1.50K"), (1 << 40, "1.00T")]
)
def test_human_sizes(count, shown):
    assert human_bytes(count) == shown
