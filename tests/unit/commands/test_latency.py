"""LATENCY: spikes and histograms."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness


@pytest.fixture
def server():
    return Harness()


def spike(server, event, ms):
    server.region.latency.record(event, server.clock.us // 1_000_000, ms)


def test_quiet_servers_have_nothing_to_tell(server):
    assert server.do("LATENCY", "LATEST") == []
    assert server.do("LATENCY", "HISTORY", "command") == []
    assert server.do("LATENCY", "RESET") == 0
    assert server.error("LATENCY", "GRAPH", "x") == "ERR No samples available for event 'x'"
    assert b"latency-monitor-threshold" in server.do("LATENCY", "DOCTOR")


def test_spikes_are_listed(server):
    spike(server, "command", 40)
    server.advance(3000)
    spike(server, "command", 20)
    second = server.clock.us // 1_000_000
    assert server.do("LATENCY", "LATEST") == [[b"command", second, 20, 40]]
    assert server.do("LATENCY", "HISTORY", "command") == [[second - 3, 40], [second, 20]]
    graph = server.do("LATENCY", "GRAPH", "command").decode().splitlines()
    assert graph[0] == "command - high 40 ms, low 20 ms (all time high 40 ms)"
    assert [line[:2] for line in graph[2:]] == ["`", "#", "#", "#_", "30", "ss"]
    assert b"- command: 2 spikes within 3 seconds" in server.do("LATENCY", "DOCTOR")
    assert server.do("LATENCY", "RESET", "command", "nosuch") == 1


def test_slow_requests_are_noted_by_kind(server):
    server.region.slowlog.set_threshold_us(0)  # so that the region looks at every request
    server.region.latency.set_threshold_ms(1)
    slow = server.clock.ticks_ns

    def three_ms():
        server.clock.ticks += 3_000_000
        return slow()

    server.clock.ticks_ns = three_ms
    server.do("PING")
    server.do("INFO")
    second = server.clock.us // 1_000_000
    assert server.do("LATENCY", "LATEST") == [
        [b"fast-command", second, 3, 3],
        [b"command", second, 3, 3],
    ]


def test_histograms_of_all_or_some_commands(server):
    server.do("PING")
    server.do("PING")
    server.do("CLIENT", "ID")
    names = server.do("LATENCY", "HISTOGRAM")[::2]
    assert set(names) == {b"ping", b"client|id"}
    name, figures = server.do("LATENCY", "HISTOGRAM", "PING", "nosuch")
    assert name == b"ping"
    assert figures[0] == b"calls"
    assert figures[1] == 2
    assert figures[2] == b"histogram_usec"
    assert figures[3][-1] == 2
    assert server.do("LATENCY", "HISTOGRAM", "client")[0] == b"client|id"
    assert server.do("LATENCY", "HISTOGRAM", "client|id")[0] == b"client|id"
    assert server.do("LATENCY", "HISTOGRAM", "client|nosuch", "xadd") == []


def test_an_empty_histogram_is_a_map_in_resp3():
    assert Harness(resp3=True).raw("LATENCY", "HISTOGRAM", "nosuch") == b"%0\r\n"
