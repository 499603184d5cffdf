"""DEBUG, when it is allowed."""

from __future__ import annotations

import pytest

from anabranch.keyspace.digest import keyspace_digest
from tests.support.region_harness import Harness


@pytest.fixture
def server():
    server = Harness()
    server.settings.enable_debug_command = "yes"
    return server


def test_debug_is_off_by_default():
    assert Harness().error("DEBUG", "SLEEP", "0").startswith("ERR DEBUG command not allowed.")


def test_local_lets_in_this_machine_only(server):
    server.settings.enable_debug_command = "local"
    assert server.do("DEBUG", "SLEEP", "0") == b"OK"
    server.session.address = "192.0.2.1:5000"
    assert server.error("DEBUG", "SLEEP", "0").startswith("ERR DEBUG command not allowed.")


@pytest.mark.parametrize("args", [["NOSUCH"], ["SLEEP"], ["OBJECT"], ["DIGEST", "x"]])
def test_unknown_or_wrong(server, args):
    assert server.error("DEBUG", *args) == (
        f"ERR unknown subcommand or wrong number of arguments for '{args[0]}'. Try DEBUG HELP."
    )


def test_sleep(server):
    assert server.do("DEBUG", "SLEEP", "0.25") == b"OK"
    assert server.host.slept == [0.25]
    assert server.error("DEBUG", "SLEEP", "x") == "ERR value is not a valid float"
    for seconds in ("nan", "inf", "1e9"):
        assert server.error("DEBUG", "SLEEP", seconds) == "ERR value is out of range"


def test_object_tells_how_a_value_is_kept(server):
    server.do("XADD", "s", "1-0", "f", "v")
    server.advance(4000)
    line = server.do("DEBUG", "OBJECT", "s").decode()
    assert line.startswith("Value at:0x")
    assert " refcount:1 encoding:stream serializedlength:" in line
    assert server.error("DEBUG", "OBJECT", "none") == "ERR no such key"


def test_object_tells_the_same_encoding_as_object_encoding(server):
    server.do("SET", "number", "12")
    server.do("SET", "short", "text")
    server.do("SET", "long", "x" * 100)
    server.do("RPUSH", "list", "a")
    server.do("SADD", "numbers", "1")
    server.do("SADD", "texts", "a")
    found = {}
    for key in ("number", "short", "long", "list", "numbers", "texts"):
        found[key] = server.do("OBJECT", "ENCODING", key).decode()
        assert f" encoding:{found[key]} " in server.do("DEBUG", "OBJECT", key).decode()
    assert sorted(set(found.values())) == ["embstr", "int", "intset", "listpack", "raw"]


def fill(server):
    for number in range(1, 250):
        server.do("XADD", "s", f"{number}-0", "f", f"v{number}")
    produced = server.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
    server.do("XGROUP", "CREATE", "s", "g", "0")
    server.do("XREADGROUP", "GROUP", "g", "one", "COUNT", "20", "STREAMS", "s", ">")
    server.do("XREADGROUP", "GROUP", "g", "two", "COUNT", "20", "STREAMS", "s", ">")
    server.do("XNACK", "s", "g", "SILENT", "IDS", "2", "5-0", "3-0")
    server.do("XACK", "s", "g", "2-0")
    server.do("XDEL", "s", "7-0", "100-0")
    server.do("SET", "k", "v")
    server.do("PEXPIRE", "k", "60000")
    server.do("LPUSH", "l", "b", "a")
    server.do("SADD", "m", "1", "x")
    server.do("SELECT", "9")
    server.do("XADD", "other", "1-0", "f", "v")
    server.do("SELECT", "0")
    return produced


@pytest.mark.parametrize("command", [["RELOAD"], ["reload", "MERGE"], ["LOADAOF"]])
def test_everything_survives_its_serialised_form(server, command):
    produced = fill(server)
    seen = [
        ["XINFO", "STREAM", "s", "FULL", "COUNT", "0"],
        ["XPENDING", "s", "g", "-", "+", "100"],
        ["PTTL", "k"],
        ["DEBUG", "DIGEST"],
        ["DEBUG", "DIGEST-VALUE", "s", "k", "l", "m"],
    ]
    before = [server.do(*each) for each in seen]
    values = dict(server.region.keyspace.databases[0].values)
    assert server.do("DEBUG", *command) == b"OK"
    assert [server.do(*each) for each in seen] == before
    server.check()
    for key, value in server.region.keyspace.databases[0].values.items():
        assert value is not values[key]
    assert server.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v") == produced


def test_reload_publishes_no_events_and_refuses_unknown_options(server):
    server.do("SET", "k", "v")
    server.region.events.flags = -1
    server.region.channels.notify = None  # would raise if called
    assert server.do("DEBUG", "RELOAD") == b"OK"
    assert server.region.events.flags == -1
    assert server.error("DEBUG", "RELOAD", "BAD") == "ERR syntax error"


def test_positions_go_on_after_a_reload(server: Harness) -> None:
    """A stream that is made again begins above the positions of the former one."""
    server.settings.ledger_retention = 1
    for _ in range(2):
        cursor = server.do("AB.READ", "FROM", "0", "STREAMS", "s")[0]
        for _ in range(9):
            server.do("XADD", "s", "*", "f", "v")
        cursor = server.do("AB.READ", "FROM", cursor, "STREAMS", "s")[0]
        assert server.do("DEBUG", "RELOAD") == b"OK"
        server.do("DEL", "s")
        for _ in range(5):
            server.advance(10_000)
        server.do("XADD", "s", "*", "f", "v")
        assert len(server.do("AB.READ", "FROM", cursor, "STREAMS", "s")[1]) == 1


@pytest.mark.parametrize("name", ["RELOAD", "LOADAOF"])
def test_nothing_is_recovered_inside_a_transaction(server, name):
    server.do("MULTI")
    server.do("SET", "k", "v")
    server.do("DEBUG", name)
    values = server.region.keyspace.databases[0].values
    assert server.raw("EXEC") == (
        b"*2\r\n+OK\r\n-ERR DEBUG %b is not allowed inside a transaction\r\n" % name.encode()
    )
    assert server.region.keyspace.databases[0].values is values
    assert server.do("DEBUG", name) == b"OK"


def test_digests(server):
    assert server.do("DEBUG", "DIGEST") == b"0" * 40
    server.do("SET", "k", "v")
    expected = keyspace_digest(server.region.keyspace).hex().encode()
    assert server.do("DEBUG", "DIGEST") == expected
    value, missing = server.do("DEBUG", "DIGEST-VALUE", "k", "none")
    assert len(value) == 40
    assert missing == b"0" * 40


def test_active_expiry_can_be_stopped(server):
    server.do("DEBUG", "SET-ACTIVE-EXPIRE", "0")
    server.do("SET", "k", "v")
    server.do("PEXPIRE", "k", "10")
    server.advance(1000)
    assert b"k" in server.region.keyspace.databases[0].values
    server.do("DEBUG", "SET-ACTIVE-EXPIRE", "1")
    server.advance(1)
    assert b"k" not in server.region.keyspace.databases[0].values


def test_populate(server):
    server.do("SET", "key:1", "mine")
    assert server.do("DEBUG", "POPULATE", "3") == b"OK"
    assert [server.do("GET", f"key:{n}") for n in range(3)] == [b"value:0", b"mine", b"value:2"]
    server.do("DEBUG", "POPULATE", "1", "p", "4")
    assert server.do("GET", "p:0") == b"valu"
    assert server.error("DEBUG", "POPULATE", "-1").startswith("ERR value is out of range")


def test_log_and_error(server):
    server.do("DEBUG", "LOG", "hello")
    assert server.host.logs == [("warning", "debug.log", {"message": "hello"})]
    assert server.error("DEBUG", "ERROR", "MYERR text") == "MYERR text"


@pytest.mark.parametrize(
    "args",
    [
        ["CHANGE-REPL-ID"],
        ["QUICKLIST-PACKED-THRESHOLD", "100b"],
        ["PAUSE-CRON", "1"],
        ["SET-DISABLE-DENY-SCRIPTS", "1"],
        ["REPLYBUFFER", "RESIZING", "0"],
    ],
)
def test_knobs_of_redis_are_accepted(server, args):
    assert server.do("DEBUG", *args) == b"OK"


def test_help_names_every_subcommand(server):
    from anabranch.commands.server.debug import _SUBCOMMANDS

    text = b"\n".join(server.do("DEBUG", "HELP")).decode().lower()
    for name in _SUBCOMMANDS:
        assert name == b"help" or f"\n{name.decode()}" in text
