"""SLOWLOG reads what the region noted."""

from __future__ import annotations

import pytest

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
    assert newest[3:] == [[b"XADD", b"s", b"0-0", b"f", b"v"], b"127.0.0.1:50000", b"me"]
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
