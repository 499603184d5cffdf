"""MEMORY."""

from __future__ import annotations

import time

import pytest

from anabranch.commands.server.info import human_bytes
from tests.support.region_harness import Harness


@pytest.fixture
def server():
    return Harness()


def test_usage_is_a_number_or_null(server):
    server.do("XADD", "s", "*", "f", "v")
    assert server.do("MEMORY", "USAGE", "s") > 100
    assert server.do("MEMORY", "USAGE", "s", "SAMPLES", "0") > 100
    assert server.raw("MEMORY", "USAGE", "missing") == b"$-1\r\n"
    for options in (["SAMPLES", "-1"], ["SAMPLES"], ["BAD"]):
        assert server.error("MEMORY", "USAGE", "s", *options) == "ERR syntax error"
    text = "ERR value is not an integer or out of range"
    assert server.error("MEMORY", "USAGE", "s", "SAMPLES", "x") == text


def test_options_are_read_in_time_that_follows_their_count(server):
    """With the square of their count they take half a minute."""
    server.do("XADD", "s", "*", "f", "v")
    once = server.do("MEMORY", "USAGE", "s", "SAMPLES", "5")
    started = time.process_time()
    assert server.do("MEMORY", "USAGE", "s", *["SAMPLES", "5"] * 100_000) == once
    assert time.process_time() - started < 1
    many = ["SAMPLES", "5"] * 10
    assert server.error("MEMORY", "USAGE", "s", *many, "SAMPLES") == "ERR syntax error"


def test_stats_are_a_map(server):
    server.do("SET", "a", "b")
    items = server.do("MEMORY", "STATS")
    stats = dict(zip(items[::2], items[1::2], strict=True))
    assert stats[b"keys.count"] == 1
    assert stats[b"dataset.bytes"] == server.do("MEMORY", "USAGE", "a")
    held = sum(
        size
        for name, size in stats.items()
        if name.startswith(b"overhead.") and name != b"overhead.total"
    )
    assert stats[b"peak.allocated"] == stats[b"total.allocated"] == stats[b"dataset.bytes"] + held
    assert stats[b"overhead.total"] == held > 0
    assert stats[b"db.0"][0] == b"overhead.hashtable.main"


def test_doctor_speaks_up_when_memory_runs_out(server):
    assert server.do("MEMORY", "DOCTOR") == b"No memory issue was found.\n"
    server.host.process_info = lambda: {"rss_bytes": 95, "peak_rss_bytes": 300}
    server.do("SET", "k", "v" * 1000)
    used = server.region.dispatcher.used_memory()
    server.settings.maxmemory = used - 100
    text = server.do("MEMORY", "DOCTOR").decode()
    assert "Data and buffers hold 2." in text
    assert f"of the {human_bytes(used - 100)} that maxmemory allows" in text
    assert "plan for the peak" in text


def test_purge_and_malloc_stats(server):
    assert server.do("MEMORY", "PURGE") == b"OK"
    assert server.host.purges == 1
    assert server.do("MEMORY", "MALLOC-STATS").endswith(b"\n")
