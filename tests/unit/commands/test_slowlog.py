"""SLOWLOG reads what the region noted."""

from __future__ import annotations

import pytest

from anabranch.scheduling import CpuTime
from tests.support.region_harness import Harness


@pytest.fixture
def server():
    server = Harness()
    server.region.slowlog.set_threshold_us(0)
    return server


def test_get_shows_requests_newest_first(server):
    server.do("CLIENT", "SETNAME", "me")
    server.error("XADD", "s", "0-0", "f", "v")
    newest, older = server.do("SLOWLOG", "GET")
    assert newest[0] == 1
    assert newest[1] == server.clock.us // 1_000_000
    words = [b"XADD", b"s", b"0-0", b"f", b"v"]
    assert newest[3:7] == [words, b"127.0.0.1:50000", b"me", 5]
    assert len(newest) == 8
    assert older[3] == [b"CLIENT", b"SETNAME", b"me"]


def test_get_counts(server):
    for _ in range(12):
        server.do("PING")
    assert len(server.do("SLOWLOG", "GET")) == 10
    assert len(server.do("SLOWLOG", "GET", "-1")) == 13
    assert server.do("SLOWLOG", "GET", "0") == []
    assert server.do("SLOWLOG", "LEN") == 15
    for count in ("-2", "bad"):
        assert server.error("SLOWLOG", "GET", count) == (
            "ERR count should be greater than or equal to -1"
        )
    assert server.error("SLOWLOG", "GET", "1", "2") == (
        "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP."
    )


def test_reset_is_itself_the_first_entry_of_the_new_log(server):
    server.do("PING")
    server.do("SLOWLOG", "RESET")
    assert [entry[3] for entry in server.do("SLOWLOG", "GET")] == [[b"SLOWLOG", b"RESET"]]


def test_nothing_is_logged_below_the_threshold():
    server = Harness()
    server.do("PING")
    assert server.do("SLOWLOG", "LEN") == 0


def test_a_change_of_the_threshold_counts_at_once():
    server = Harness()
    setting = ["config", "set", "slowlog-log-slower-than"]
    pipeline = [[*setting, "0"], ["PING"], [*setting, "-1"], ["PING"]]
    server.region.execute(server.session, [[word.encode() for word in each] for each in pipeline])
    server.replies(server.session)
    logged = [entry[3] for entry in server.do("SLOWLOG", "GET")]
    assert logged == [[b"PING"], [word.encode() for word in pipeline[0]]]


def test_passwords_are_hidden(server):
    server.do("AUTH", "default", "secret")
    assert server.do("SLOWLOG", "GET")[0][3] == [b"AUTH", b"(redacted)", b"(redacted)"]


def test_user_data_can_be_hidden(server):
    server.settings.hide_user_data_from_log = True
    server.do("XADD", "s", "1-0", "f", "v")
    assert server.do("SLOWLOG", "GET")[0][3] == [b"XADD"] + [b"(redacted)"] * 4


def test_the_count_of_arguments_is_that_of_the_request(server):
    server.do("DEL", *map(str, range(40)))
    entry = server.do("SLOWLOG", "GET", "1")[0]
    assert (len(entry[3]), entry[3][-1], entry[6]) == (32, b"... (10 more arguments)", 41)
    server.do("CONFIG", "SET", "slowlog-max-argc", "3", "slowlog-log-slower-than", "0")
    server.do("DEL", *map(str, range(40)))
    entry = server.do("SLOWLOG", "GET", "1")[0]
    assert entry[3] == [b"DEL", b"0", b"... (39 more arguments)"]
    assert entry[6] == 41


@pytest.mark.parametrize("disturbed_ms", [0, 30])
def test_the_processor_time_leaves_out_what_others_had(server, disturbed_ms):
    """Of 50 ms another process may have had 30: the processor worked 20 for the request."""
    clock, region = server.clock, server.region
    clock.ticks = 10_000_000_000
    given_ns = 0
    region.cpu = CpuTime(lambda: clock.ticks - given_ns)

    def lasts(ctx, args):
        nonlocal given_ns
        clock.ticks += 50_000_000
        given_ns += disturbed_ms * 1_000_000
        return b"+OK\r\n"

    entry = region.dispatcher.entries[b"PING"]
    entry.function = lasts
    for _ in range(2):  # the second one in a pipeline, too
        region.execute(server.session, [[b"PING"], [b"PING"]])
    server.replies(server.session)
    for logged in server.do("SLOWLOG", "GET", "4"):
        assert logged[3] == [b"PING"]
        assert logged[2] == pytest.approx(50_000, abs=100)
        assert logged[7] == pytest.approx(1000 * (50 - disturbed_ms), abs=1000)
        assert logged[7] <= logged[2]


def test_slow_requests_are_summed_until_the_statistics_are_reset(server):
    server.clock.tick_ns = 3_000_000
    server.do("PING")
    server.do("PING")
    text = server.do("INFO", "stats").decode()
    assert "slowlog_commands_count:2\r\n" in text
    assert "slowlog_commands_time_ms_sum:6.00\r\n" in text
    assert "slowlog_commands_time_ms_max:3.00\r\n" in text
    ping = next(
        line
        for line in server.do("INFO", "commandstats").decode().splitlines()
        if line.startswith("cmdstat_ping:")
    )
    assert ping.endswith(",slowlog_count=2,slowlog_time_ms_sum=6.00,slowlog_time_ms_max=3.00")
    server.do("SLOWLOG", "RESET")  # forgets the entries, not the sums
    assert "slowlog_commands_count:5\r\n" in server.do("INFO", "stats").decode()
    server.region.slowlog.set_threshold_us(-1)
    server.do("CONFIG", "RESETSTAT")
    assert "slowlog_commands_count:0\r\n" in server.do("INFO", "stats").decode()
