"""PING to CLUSTER: greeting, authentication, protocol, database, farewell."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness, ReplyError, decode_all


@pytest.fixture
def server():
    return Harness()


def flat_map(items):
    return dict(zip(items[::2], items[1::2], strict=True))


def test_ping_answers_pong_or_the_message(server):
    assert server.raw("PING") == b"+PONG\r\n"
    assert server.do("ping", "hello") == b"hello"
    assert server.error("PING", "a", "b") == "ERR wrong number of arguments for 'ping' command"


def test_a_resp2_subscriber_gets_pong_as_a_message(server):
    server.session.channels[b"c"] = None
    server.session.refresh()
    assert server.do("PING") == [b"pong", b""]
    assert server.do("PING", "hi") == [b"pong", b"hi"]


def test_echo(server):
    assert server.do("ECHO", b"\r\n\0\xff") == b"\r\n\0\xff"


def test_quit_takes_any_arguments_and_closes(server):
    assert server.raw("QUIT", "now", "please") == b"+OK\r\n"
    assert server.session.closing


def test_requests_behind_quit_are_not_run(server):
    server.region.execute(server.session, [[b"QUIT"], [b"PING"]])
    assert server.received(server.session) == b"+OK\r\n"


def test_select_moves_this_connection_at_once(server):
    requests = [[b"SELECT", b"3"], [b"XADD", b"s", b"1-0", b"f", b"v"]]
    server.region.execute(server.session, requests)
    assert decode_all(server.received(server.session)) == [b"OK", b"1-0"]
    databases = server.region.keyspace.databases
    assert b"s" in databases[3].values
    assert b"s" not in databases[0].values


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ("16", "ERR DB index is out of range"),
        ("-1", "ERR DB index is out of range"),
        ("x", "ERR value is not an integer or out of range"),
        (
            "99999999999",
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ),
    ],
)
def test_select_refuses_what_is_no_database(server, index, text):
    assert server.error("SELECT", index) == text


def test_hello_without_arguments_keeps_the_protocol(server):
    greeting = flat_map(server.do("HELLO"))
    assert greeting[b"server"] == b"redis"
    assert greeting[b"version"] == b"8.10.0"
    assert greeting[b"proto"] == 2
    assert greeting[b"id"] == server.session.id
    assert greeting[b"mode"] == b"standalone"
    assert greeting[b"role"] == b"master"
    assert greeting[b"modules"] == []


def test_hello_3_answers_a_map_and_names_the_connection(server):
    assert server.raw("HELLO", "3", "SETNAME", "me").startswith(b"%7\r\n")
    assert server.raw("CLIENT", "GETNAME") == b"$2\r\nme\r\n"
    assert server.raw("HELLO", "2").startswith(b"*14\r\n")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["bad"], "ERR Protocol version is not an integer or out of range"),
        (["3.0"], "ERR Protocol version is not an integer or out of range"),
        (["4"], "NOPROTO unsupported protocol version"),
        (["3", "BAD"], "ERR Syntax error in HELLO option 'BAD'"),
        (["3", "AUTH", "default"], "ERR Syntax error in HELLO option 'AUTH'"),
        (["3", "SETNAME"], "ERR Syntax error in HELLO option 'SETNAME'"),
        (
            ["3", "SETNAME", "a b"],
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ),
        (
            ["3", "SETNAME", "x", "AUTH", "nosuch", "pw"],
            "WRONGPASS invalid username-password pair or user is disabled.",
        ),
    ],
)
def test_a_refused_hello_changes_nothing(server, args, text):
    assert server.error("HELLO", *args) == text
    assert not server.session.resp3
    assert server.session.name == b""


def test_auth_without_a_password_set(server):
    assert server.do("AUTH", "default", "anything") == b"OK"
    assert "without any password configured" in server.error("AUTH", "x")
    assert server.error("AUTH", "a", "b", "c") == "ERR syntax error"
    assert server.error("AUTH", "nosuch", "x").startswith("WRONGPASS")


def test_a_password_shuts_the_door_until_auth():
    server = Harness()
    server.region.acl.set_default_password("secret")
    stranger = server.connect()
    assert server.error("PING", session=stranger) == "NOAUTH Authentication required."
    assert server.error("HELLO", "3", session=stranger).startswith("NOAUTH HELLO must be called")
    assert server.error("HELLO", "9", session=stranger).startswith("NOPROTO")
    assert server.error("AUTH", "wrong", session=stranger).startswith("WRONGPASS")
    assert server.do("AUTH", "secret", session=stranger) == b"OK"
    assert server.raw("PING", session=stranger) == b"+PONG\r\n"
    assert server.raw("RESET", session=stranger) == b"+RESET\r\n"
    assert server.error("PING", session=stranger) == "NOAUTH Authentication required."
    greeting = server.raw("HELLO", "3", "AUTH", "default", "secret", session=stranger)
    assert greeting.startswith(b"%7\r\n")


def test_reset_forgets_all_but_the_library(server):
    other = server.connect()
    server.do("CLIENT", "SETINFO", "LIB-NAME", "lib")
    server.do("CLIENT", "SETNAME", "me")
    server.do("SELECT", "2")
    server.do("WATCH", "k")
    server.do("MULTI")
    server.session.no_touch = True
    assert server.raw("RESET") == b"+RESET\r\n"
    session = server.session
    assert (session.db, session.name, session.transaction) == (0, b"", None)
    assert (session.watched, session.no_touch, session.resp3) == (set(), False, False)
    assert session.library_name == b"lib"
    assert not server.region.keyspace.databases[2].watchers
    assert server.error("EXEC") == "ERR EXEC without MULTI"
    server.do("SET", "k", "v", session=other)
    assert server.do("GET", "k") == b"v"


def test_what_follows_reset_in_a_pipeline_is_answered_in_resp2(server):
    server.do("HELLO", "3")
    server.region.execute(server.session, [[b"RESET"], [b"GET", b"missing"]])
    assert b"".join(server.session.outbox) == b"+RESET\r\n$-1\r\n"


def test_reset_ends_monitoring(server):
    server.do("MONITOR")
    server.raw("RESET")
    assert server.region.dispatcher.monitors == {}
    assert "monitor" not in server.region.dispatcher.guarded_by


@pytest.mark.parametrize(
    "command",
    [["READONLY"], ["READWRITE"], ["ASKING"], ["CLUSTER", "INFO"], ["CLUSTER", "keyslot", "y"]],
)
def test_cluster_commands_say_that_there_is_none(server, command):
    with pytest.raises(ReplyError, match="ERR This instance has cluster support disabled"):
        server.do(*command)


NO_CLUSTER = "ERR This instance has cluster support disabled"
ARITY = "ERR wrong number of arguments"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["CLUSTER"], f"{ARITY} for 'cluster' command"),
        (["CLUSTER", "FOO"], "ERR unknown subcommand 'FOO'. Try CLUSTER HELP."),
        (["CLUSTER", "INFO", "x"], f"{ARITY} for 'cluster|info' command"),
        (["CLUSTER", "HELP"], NO_CLUSTER),
        (["CLUSTER", "MIGRATION", "STATUS", "ALL"], NO_CLUSTER),
        (["CLUSTER", "SLOT-STATS", "ORDERBY"], f"{ARITY} for 'cluster|slot-stats' command"),
    ],
)
def test_cluster_knows_its_subcommands(server, command, words):
    assert server.error(*command) == words
