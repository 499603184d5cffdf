"""TIME, ROLE, WAIT, MONITOR, SHUTDOWN, replication that is refused, saving, scripts."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness


@pytest.fixture
def server():
    return Harness()


def test_time_is_the_clock(server):
    server.clock.us = 1_700_000_000_000_042
    assert server.do("TIME") == [b"1700000000", b"42"]


def test_role_and_modules(server):
    assert server.do("ROLE") == [b"master", 0, []]
    assert server.do("MODULE", "LIST") == []


# -- WAIT -------------------------------------------------------------------------------------


def test_wait_for_nobody_is_over_at_once(server):
    assert server.do("WAIT", "0", "0") == 0
    assert server.do("WAITAOF", "0", "0", "0") == [0, 0]


def test_wait_for_somebody_takes_the_whole_timeout(server):
    assert server.raw("WAIT", "1", "50") == b""
    server.advance(49)
    assert server.received(server.session) == b""
    server.advance(1)
    assert server.received(server.session) == b":0\r\n"


def test_waitaof_waits_likewise_and_can_be_unblocked(server):
    other = server.connect()
    assert server.raw("WAITAOF", "0", "1", "0", session=other) == b""
    server.do("CLIENT", "UNBLOCK", other.id)
    assert server.received(other) == b"*2\r\n:0\r\n:0\r\n"


def test_wait_never_blocks_a_transaction(server):
    server.do("MULTI")
    server.do("WAIT", "1", "0")
    assert server.do("EXEC") == [0]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["WAIT", "bad", "0"], "ERR value is not an integer or out of range"),
        (["WAIT", "0", "bad"], "ERR timeout is not an integer or out of range"),
        (["WAIT", "0", "-1"], "ERR timeout is negative"),
        (["WAITAOF", "2", "0", "1"], "ERR value is out of range, value must between 0 and 1"),
        (["WAITAOF", "0", "-1", "1"], "ERR value is out of range, must be positive"),
        (
            ["WAITAOF", "1", "0", "10"],
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ),
    ],
)
def test_wait_refuses(server, args, text):
    assert server.error(*args) == text


# -- MONITOR ----------------------------------------------------------------------------------


def test_monitor_shows_what_others_do(server):
    monitor = server.connect()
    server.clock.us = 1_700_000_000_000_042
    assert server.do("MONITOR", session=monitor) == b"OK"
    server.do("XADD", "s", "1-0", "f", b'"\xff\r\n')
    server.do("SELECT", "1")
    server.error("XADD", "s")
    server.do("AUTH", "default", "secret")
    server.error("CONFIG", "NOSUCH")
    assert server.received(monitor) == (
        b'+1700000000.000042 [0 127.0.0.1:50000] "XADD" "s" "1-0" "f" "\\"\\xff\\r\\n"\r\n'
        b'+1700000000.000042 [1 127.0.0.1:50000] "SELECT" "1"\r\n'
        b'+1700000000.000042 [1 127.0.0.1:50000] "AUTH" "(redacted)" "(redacted)"\r\n'
    )


@pytest.mark.parametrize("words", ["EVAL {} 0", "EVAL_RO {} 0", "EVALSHA abc 0", "FCALL none 0"])
def test_monitor_shows_a_script_before_its_calls(server, words):
    monitor = server.connect()
    server.do("MONITOR", session=monitor)
    args = [word.format("return redis.call('GET', 'k')") for word in words.split(" ")]
    server.raw(*args)
    shown = [line.split(b'"')[1] for line in server.received(monitor).splitlines()]
    assert shown == [args[0].encode()] + [b"GET"] * ("{}" in words)


def test_a_monitor_does_not_use_keys(server):
    server.do("MONITOR")
    server.do("PING")
    for words in ("GET k", "SET k v", "KEYS *", "PUBLISH a m", "EVAL x 0"):
        server.received(server.session)
        assert server.error(*words.split()) == "ERR Replica can't interact with the keyspace"
    server.do("RESET")
    assert server.do("GET", "k") is None


def test_monitoring_ends_with_the_connection(server):
    monitor = server.connect()
    server.do("MONITOR", session=monitor)
    assert "monitor" in server.region.dispatcher.guarded_by
    server.region.close_session(monitor)
    assert "monitor" not in server.region.dispatcher.guarded_by


def test_monitor_does_not_begin_inside_a_transaction(server):
    server.do("MULTI")
    server.do("MONITOR")
    (refusal,) = server.do("EXEC")
    assert str(refusal) == "ERR MONITOR isn't allowed for DENY BLOCKING client"
    assert not server.session.monitoring


# -- SHUTDOWN ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "wish"),
    [
        ([], {"save": None, "now": False, "force": False}),
        (["NOSAVE", "now"], {"save": False, "now": True, "force": False}),
        (["save", "FORCE"], {"save": True, "now": False, "force": True}),
    ],
)
def test_shutdown_is_a_wish_without_reply(server, args, wish):
    assert server.raw("SHUTDOWN", *args) == b""
    assert server.host.shutdowns == [wish]


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["BAD"], "ERR syntax error"),
        (["SAVE", "NOSAVE"], "ERR syntax error"),
        (["ABORT", "NOW"], "ERR syntax error"),
        (["ABORT"], "ERR No shutdown in progress."),
    ],
)
def test_shutdown_refuses(server, args, text):
    assert server.error("SHUTDOWN", *args) == text
    assert server.host.shutdowns == []


# -- replication, saving, scripts -------------------------------------------------------------


def test_this_server_is_nobodys_replica(server):
    assert server.do("REPLICAOF", "no", "ONE") == b"OK"
    assert server.do("SLAVEOF", "NO", "ONE") == b"OK"
    for command in (["REPLICAOF", "h", "1"], ["FAILOVER"]):
        assert "Active-Active" in server.error(*command)


@pytest.mark.parametrize("words", ["SYNC", "PSYNC ? -1", "REPLCONF capa eof"])
def test_whoever_wants_an_rdb_file_hears_of_export(server, words):
    assert b"`anabranch export`" in server.raw(*words.split())


def test_saving_is_a_wish_to_the_outside(server):
    disk = server.host.persistence
    server.do("SET", "k", "v")
    assert server.raw("SAVE") == b"+OK\r\n"
    assert disk.saved.startswith(b"ANABRSNP")
    assert server.raw("BGSAVE") == b"+Background saving started\r\n"
    assert server.raw("BGREWRITEAOF").startswith(b"+Background append only file rewriting started")
    assert disk.begun == [
        {"rewrite": False, "schedule": False},
        {"rewrite": True, "schedule": False},
    ]
    disk.begin_save = lambda **_: False
    assert server.raw("BGSAVE", "SCHEDULE") == b"+Background saving scheduled\r\n"
    assert server.raw("BGREWRITEAOF").startswith(
        b"+Background append only file rewriting scheduled"
    )
    assert server.do("LASTSAVE") == server.region.stats.started_ms // 1000
    assert b"rdb_changes_since_last_save:1" in server.do("INFO", "persistence")
    assert server.error("BGSAVE", "BAD") == "ERR syntax error"
    assert server.error("SAVE", "extra") == "ERR wrong number of arguments for 'save' command"


def test_waitaof_waits_for_what_had_happened_when_it_came(server):
    disk = server.host.persistence
    assert server.error("WAITAOF", "1", "0", "0") == (
        "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
    )
    disk.is_logging = True
    disk.end = 10
    assert server.do("WAITAOF", "0", "0", "0") == [0, 0]
    other = server.connect()
    server.raw("WAITAOF", "1", "0", "0", session=other)
    disk.end = 20  # somebody else goes on
    disk.synced_position = 9
    server.region.waking.answer_wait()
    assert server.replies(other) == []
    disk.synced_position = 10
    server.region.waking.answer_wait()
    assert server.replies(other) == [[1, 0]]
    assert server.do("WAITAOF", "0", "0", "0") == [0, 0]
    disk.synced_position = 20
    assert server.do("WAITAOF", "1", "0", "0") == [1, 0]
    server.raw("WAITAOF", "1", "1", "100", session=other)
    server.advance(100)
    assert server.replies(other) == [[1, 0]]
    assert not server.region.context.waits.safety


def test_a_script_that_is_not_known(server):
    sha = "0" * 40
    assert server.error("EVALSHA", sha, "0") == "NOSCRIPT No matching script. Please use EVAL."
    assert server.error("EVALSHA", sha, "-1") == "ERR Number of keys can't be negative"
    assert server.error("EVALSHA", sha, "1") == (
        "ERR Number of keys can't be greater than number of args"
    )
    assert server.do("SCRIPT", "EXISTS", sha, sha) == [0, 0]
    assert server.do("SCRIPT", "FLUSH", "ASYNC") == b"OK"
    assert server.error("SCRIPT", "FLUSH", "BAD").startswith("ERR SCRIPT FLUSH only support")


def test_there_are_no_functions(server):
    assert server.do("FUNCTION", "FLUSH") == b"OK"
    assert server.do("FUNCTION", "FLUSH", "SYNC") == b"OK"
    assert server.error("FUNCTION", "FLUSH", "BAD").startswith("ERR FUNCTION FLUSH only supports")
    assert server.do("FUNCTION", "LIST", "LIBRARYNAME", "x", "WITHCODE") == []
    assert server.error("FUNCTION", "LIST", "BAD") == "ERR Unknown argument BAD"
    assert server.do("FUNCTION", "STATS")[:2] == [b"running_script", None]


def test_lolwut_names_the_version(server):
    assert server.do("LOLWUT", "VERSION", "5").rstrip().split(b"\n")[-1].startswith(b"Anabranch")


@pytest.mark.parametrize("name", ["MEMORY", "LATENCY", "SLOWLOG", "MODULE", "SCRIPT", "FUNCTION"])
def test_every_container_has_help(server, name):
    assert server.do(name, "HELP")[0].startswith(name.encode() + b" <subcommand>")
