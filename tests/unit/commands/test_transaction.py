"""MULTI, EXEC, DISCARD, WATCH, UNWATCH."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness

ABORTED = "EXECABORT Transaction discarded because of previous errors."


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_the_queue_runs_at_one_moment(h: Harness) -> None:
    assert h.do("MULTI") == b"OK"
    for _ in range(3):
        assert h.do("XADD", "s", "*", "f", "v") == b"QUEUED"
    assert h.do("EXISTS", "s", session=h.connect()) == 0
    first, second, third = h.do("EXEC")
    assert [first[-2:], second[-2:], third[-2:]] == [b"-0", b"-1", b"-2"]
    assert h.error("EXEC") == "ERR EXEC without MULTI"
    assert h.session.plain


def test_an_error_does_not_stop_the_rest(h: Harness) -> None:
    h.do("MULTI")
    h.do("SET", "k", "v")
    h.do("XLEN", "k")
    h.do("GET", "k")
    assert h.raw("EXEC") == (
        b"*3\r\n+OK\r\n"
        b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
        b"$1\r\nv\r\n"
    )


@pytest.mark.parametrize("container", ["SLOWLOG", "LATENCY"])
def test_the_sub_command_reset_is_not_the_command(h: Harness, container: str) -> None:
    h.do("MULTI")
    assert h.do(container, "RESET") == b"QUEUED"
    assert len(h.do("EXEC")) == 1
    h.do("SUBSCRIBE", "a")
    assert h.error(container, "RESET").startswith(f"ERR Can't execute '{container.lower()}|reset'")


def test_figures_are_kept_for_each_command(h: Harness) -> None:
    entries = h.region.dispatcher.entries
    h.do("MULTI")
    h.do("SET", "k", "v")
    h.do("XLEN", "k")
    assert entries[b"set"].calls == 0
    h.raw("EXEC")
    assert h.region.stats.commands_processed == 4
    assert entries[b"set"].calls == 1
    assert (entries[b"xlen"].calls, entries[b"xlen"].failed) == (1, 1)
    assert (entries[b"exec"].calls, entries[b"exec"].failed) == (1, 0)
    assert h.region.stats.errors == {"WRONGTYPE": 1}


@pytest.mark.parametrize("spoiler", [("NOSUCH",), ("XADD", "s"), ("xgroup", "nosuch")])
def test_a_refused_command_spoils_the_transaction(h: Harness, spoiler: tuple[str, ...]) -> None:
    h.do("MULTI")
    h.do("SET", "k", "v")
    h.error(*spoiler)
    assert h.error("EXEC") == ABORTED
    assert h.do("EXISTS", "k") == 0


def test_misuse(h: Harness) -> None:
    assert h.error("DISCARD") == "ERR DISCARD without MULTI"
    assert h.error("EXEC", "x") == (
        "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
    )
    h.do("MULTI")
    assert h.error("MULTI") == "ERR MULTI calls can not be nested"
    assert h.error("WATCH", "k") == "ERR WATCH inside MULTI is not allowed"
    h.do("PING")
    assert h.do("EXEC") == [b"PONG"]


def test_a_refused_exec_ends_the_transaction(h: Harness) -> None:
    h.do("MULTI")
    h.do("SET", "k", "v")
    h.error("EXEC", "x")
    assert h.error("EXEC") == "ERR EXEC without MULTI"
    assert h.do("EXISTS", "k") == 0


def test_what_exec_will_not_run_is_not_kept(h: Harness) -> None:
    session = h.session
    h.do("MULTI")
    h.do("SET", "k", "v" * 1000)
    kept = session.transaction_bytes
    assert 1000 < kept < 2000
    h.error("NOSUCH")
    h.do("SET", "k", "v" * 1000)
    assert session.transaction_bytes == kept
    h.error("EXEC")
    assert session.transaction_bytes == 0

    h.do("WATCH", "k")
    h.do("MULTI")
    h.do("SET", "k", "w", session=h.connect())
    h.do("SET", "k", "v")
    assert session.transaction_bytes == 0
    assert h.raw("EXEC") == b"*-1\r\n"


def test_discard(h: Harness) -> None:
    h.do("WATCH", "k")
    h.do("MULTI")
    h.do("SET", "k", "v")
    assert h.do("DISCARD") == b"OK"
    assert h.do("EXISTS", "k") == 0
    assert not h.region.keyspace.databases[0].watchers


def test_blocking_commands_do_not_block(h: Harness) -> None:
    h.do("MULTI")
    h.do("BLPOP", "k", "0")
    h.do("XREAD", "BLOCK", "0", "STREAMS", "s", "$")
    assert h.raw("EXEC") == b"*2\r\n*-1\r\n*-1\r\n"


def test_waiters_are_served_after_all(h: Harness) -> None:
    waiting = h.connect()
    h.raw("BLPOP", "k", "0", session=waiting)
    h.do("MULTI")
    h.do("LPUSH", "k", "a")
    h.do("LPUSH", "k", "b")
    assert h.do("EXEC") == [1, 2]
    assert h.replies(waiting) == [[b"k", b"b"]]


def test_selecting_a_database_inside(h: Harness) -> None:
    h.do("MULTI")
    h.do("SELECT", "1")
    h.do("SET", "k", "v")
    h.do("SELECT", "0")
    h.do("GET", "k")
    assert h.do("EXEC") == [b"OK", b"OK", b"OK", None]


# -- WATCH ------------------------------------------------------------------------------------


def executed(h: Harness) -> bool:
    h.do("MULTI")
    h.do("PING")
    return h.raw("EXEC") == b"*1\r\n+PONG\r\n"


def test_a_change_by_anybody_breaks_it(h: Harness) -> None:
    h.do("WATCH", "k")
    h.do("SET", "k", "v", session=h.connect())
    assert not executed(h)
    assert executed(h)
    h.do("WATCH", "k")
    h.do("SET", "k", "mine")
    assert not executed(h)


def test_unwatch(h: Harness) -> None:
    h.do("WATCH", "k", "k2")
    h.do("SET", "k", "v")
    h.do("UNWATCH")
    assert executed(h)
    assert not h.session.watched


def test_watching_concerns_one_database(h: Harness) -> None:
    other = h.connect()
    h.do("SELECT", "1", session=other)
    h.do("WATCH", "k")
    h.do("SET", "k", "v", session=other)
    assert executed(h)


@pytest.mark.parametrize("background", [True, False])
def test_a_key_that_goes_by_itself_is_a_change(h: Harness, background: bool) -> None:
    h.region.services.active_expire = background
    h.do("SET", "k", "v", "PX", "10")
    h.do("WATCH", "k")
    h.advance(10)
    assert not executed(h)


def test_a_key_that_was_due_already_is_no_change(h: Harness) -> None:
    h.region.services.active_expire = False
    h.do("SET", "k", "v", "PX", "10")
    h.advance(10)
    h.do("WATCH", "k")
    h.region.services.active_expire = True
    h.advance(10)
    assert executed(h)


def test_a_closed_connection_watches_nothing(h: Harness) -> None:
    other = h.connect()
    h.do("WATCH", "k", session=other)
    h.region.close_session(other)
    assert not h.region.keyspace.databases[0].watchers


def test_a_change_is_told_once(h: Harness) -> None:
    """Who is told watches nothing more, as in Redis: later changes need not look at them."""
    holdings, before = h.region.services.holdings, h.region.services.holdings.client_bytes
    crowd = [h.connect() for _ in range(3)]
    for each in crowd:
        h.do("WATCH", "k", "other", session=each)
    h.do("SET", "k", "v")
    watching = h.region.keyspace.databases[0].watchers
    assert not watching[b"k"]
    assert all(each.watch_broken for each in crowd)
    late = h.connect()
    h.do("WATCH", "k", session=late)
    assert (not late.watch_broken, watching[b"k"]) == (True, {late})
    info = h.do("INFO", "clients").decode()
    assert "watching_clients:1\r\n" in info
    lines = h.do("CLIENT", "LIST").decode().splitlines()
    found = {line.split("flags=")[1].split()[0] for line in lines if " watch=0 " in line}
    assert found == {"d", "N"}
    h.do("UNWATCH", session=crowd[0])
    assert watching[b"k"] == {late}
    h.do("SET", "k", "w")
    assert late.watch_broken
    h.do("UNWATCH", session=late)
    for each in crowd[1:]:
        h.do("MULTI", session=each)
        h.do("PING", session=each)
        assert h.raw("EXEC", session=each) == b"*-1\r\n"
    assert not watching
    for each in (*crowd, late):
        h.region.close_session(each)
    assert holdings.client_bytes == before


# -- neighbours -------------------------------------------------------------------------------


def test_monitors_see_the_queue_before_exec(h: Harness) -> None:
    monitor = h.connect()
    h.do("MONITOR", session=monitor)
    h.do("MULTI")
    h.do("SET", "k", "v")
    h.do("GET", "k")
    h.do("EXEC")
    words = [line.split(b'"')[1] for line in h.received(monitor).splitlines()]
    assert words == [b"MULTI", b"SET", b"GET", b"EXEC"]


def test_permissions_are_asked_for_again(h: Harness) -> None:
    h.do("ACL", "SETUSER", "alice", "on", "nopass", "~*", "+@all")
    alice = h.connect()
    h.do("AUTH", "alice", "x", session=alice)
    h.do("MULTI", session=alice)
    h.do("SET", "k", "v", session=alice)
    h.do("PING", session=alice)
    h.do("ACL", "SETUSER", "alice", "-set")
    reply = h.raw("EXEC", session=alice)
    assert reply.startswith(b"*2\r\n-NOPERM ")
    assert reply.endswith(b"+PONG\r\n")
    assert h.do("EXISTS", "k") == 0


def test_no_transaction_that_needs_memory_there_is_not(h: Harness) -> None:
    dispatcher = h.region.dispatcher
    h.do("MULTI")
    h.do("SET", "k", "v")
    dispatcher.used_memory = lambda: 2 << 20
    h.do("CONFIG", "SET", "maxmemory", "1mb", session=h.connect())
    assert h.error("EXEC").startswith("EXECABORT Transaction discarded because of: OOM ")
    assert h.error("EXEC") == "ERR EXEC without MULTI"


@pytest.mark.parametrize(
    "line", ["GET k", "DEL k", "PING", "EVAL return(1) 0", "WATCH k", "UNWATCH", "MULTI", "INFO"]
)
def test_at_the_memory_limit_nothing_is_queued(h: Harness, line: str) -> None:
    h.do("CONFIG", "SET", "maxmemory", "1mb")
    h.region.dispatcher.used_memory = lambda: 2 << 20
    h.do("MULTI")
    assert h.error(*line.split()).startswith("OOM ")
    assert h.error("EXEC") == ABORTED
    h.do("MULTI")
    assert h.error("SAVE") == "ERR Command not allowed inside a transaction"
    assert h.do("DISCARD") == b"OK"
    h.do("MULTI")
    assert h.do("EXEC") == []
    h.do("MULTI")
    assert h.do("RESET") == b"RESET"


def test_what_is_not_allowed_in_multi_is_refused_before_permissions(h: Harness) -> None:
    h.do("ACL", "SETUSER", "eve", "on", "nopass", "+@all", "-save")
    eve = h.connect()
    h.do("AUTH", "eve", "x", session=eve)
    h.do("MULTI", session=eve)
    assert h.error("SAVE", session=eve) == "ERR Command not allowed inside a transaction"
