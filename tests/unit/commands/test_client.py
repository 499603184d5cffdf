"""CLIENT: what a connection says of itself, and what an operator does to connections."""

from __future__ import annotations

import pytest

from tests.support.region_harness import Harness, decode_all

FIELDS = (
    "id addr laddr fd name age idle flags db sub psub ssub multi watch qbuf qbuf-free argv-mem "
    "multi-mem rbs rbp obl oll omem omem-shared omem-unshared tot-mem events cmd user redir resp "
    "lib-name lib-ver io-thread tot-net-in tot-net-out tot-cmds read-events avg-pipeline-len-sum "
    "avg-pipeline-len-cnt"
)


@pytest.fixture
def server():
    return Harness()


def fields(line):
    return dict(pair.split("=", 1) for pair in line.split())


def info(server, session=None):
    return fields(server.do("CLIENT", "INFO", session=session).decode())


def listed(server, *args):
    return [fields(line) for line in server.do("CLIENT", "LIST", *args).decode().splitlines()]


def test_client_info_has_the_fields_of_redis_in_their_order(server):
    text = server.do("CLIENT", "INFO").decode()
    assert text.endswith("\n")
    assert [pair.split("=")[0] for pair in text.split()] == FIELDS.split()


def test_client_info_tells_what_the_connection_is(server):
    server.do("CLIENT", "SETNAME", "me")
    server.do("CLIENT", "SETINFO", "lib-ver", "1.2")
    server.do("SELECT", "4")
    server.advance(7000)
    mine = info(server)
    assert mine["id"] == str(server.session.id)
    assert mine["addr"] == "127.0.0.1:50000"
    assert (mine["name"], mine["lib-ver"], mine["db"]) == ("me", "1.2", "4")
    assert (mine["age"], mine["idle"]) == ("7", "0")
    assert (mine["cmd"], mine["user"], mine["resp"]) == ("client|info", "default", "2")
    assert mine["flags"] == "N"


def test_names_are_printable_or_refused(server):
    assert server.do("CLIENT", "SETNAME", "me") == b"OK"
    text = "ERR Client names cannot contain spaces, newlines or special characters."
    assert server.error("CLIENT", "SETNAME", "a b") == text
    assert server.error("CLIENT", "SETNAME", b"\xe9") == text
    assert server.do("CLIENT", "GETNAME") == b"me"
    server.do("CLIENT", "SETNAME", "")
    assert server.raw("CLIENT", "GETNAME") == b"$-1\r\n"


def test_setinfo_names_the_option_as_it_was_written(server):
    assert server.error("CLIENT", "SETINFO", "lib-name", "a b") == (
        "ERR lib-name cannot contain spaces, newlines or special characters."
    )
    assert server.error("CLIENT", "SETINFO", "BAD", "x") == "ERR Unrecognized option 'BAD'"


def test_list_shows_every_connection_with_its_state(server):
    blocked = server.connect()
    server.do("XREAD", "BLOCK", "0", "STREAMS", "s", "$", session=blocked)
    queueing = server.connect(resp3=True)
    server.do("WATCH", "k", session=queueing)
    server.do("MULTI", session=queueing)
    server.do("PING", session=queueing)
    lines = listed(server)
    assert [line["id"] for line in lines] == [
        str(session.id) for session in (server.session, blocked, queueing)
    ]
    assert (lines[1]["flags"], lines[1]["cmd"]) == ("b", "xread")
    assert (lines[2]["flags"], lines[2]["multi"], lines[2]["watch"]) == ("x", "1", "1")
    assert lines[2]["resp"] == "3"


def test_list_can_be_narrowed(server):
    other = server.connect()
    other.channels[b"c"] = None
    other.refresh()
    assert [line["id"] for line in listed(server, "TYPE", "pubsub")] == [str(other.id)]
    assert [line["id"] for line in listed(server, "TYPE", "normal")] == [str(server.session.id)]
    assert listed(server, "TYPE", "replica") == []
    assert [line["id"] for line in listed(server, "ID", str(other.id), "999")] == [str(other.id)]
    assert server.error("CLIENT", "LIST", "TYPE", "bad") == "ERR Unknown client type 'bad'"
    assert server.error("CLIENT", "LIST", "ID", "bad") == "ERR Invalid client ID"
    assert server.error("CLIENT", "LIST", "ID") == "ERR syntax error"
    assert server.error("CLIENT", "LIST", "BAD") == "ERR syntax error"


def test_a_line_has_nothing_of_the_line_before(server):
    """What neighbours have in common is written once, so each line is compared with its own."""

    def client(*commands):
        session = server.connect()
        for command in commands:
            server.raw(*command, session=session)
        server.connect()  # an idle one between two others
        return session

    client(("SUBSCRIBE", "a", "b"), ("PSUBSCRIBE", "c*"), ("SSUBSCRIBE", "d"))
    client(("SELECT", 3), ("WATCH", "k", "l"), ("MULTI",), ("GET", "k"), ("GET", "l"))
    client(("BLPOP", "list", 0), ("PING",), ("ECHO", "long" * 100))
    client(("CLIENT", "SETNAME", "me"), ("CLIENT", "SETINFO", "LIB-NAME", "lib"))
    client(("HELLO", 3), ("CLIENT", "NO-EVICT", "on"), ("CLIENT", "NO-TOUCH", "on"))
    client(("CLIENT", "SETINFO", "LIB-VER", "1.2"))
    busy = client()
    busy.outbox.append(b"unread")
    busy.input_bytes, busy.output_bytes, busy.reads, busy.commands = 1, 2, 3, 4
    busy.query_bytes = 5
    server.advance(2000)
    client()
    lines = server.do("CLIENT", "LIST").decode().splitlines(keepends=True)
    assert len(set(lines)) == len(lines) == len(server.region.sessions)
    for line in (*lines[1:], *reversed(lines[1:])):  # the first one is asking
        assert server.do("CLIENT", "LIST", "ID", fields(line)["id"]).decode() == line


def test_the_name_of_a_user_is_shown_byte_for_byte(server):
    server.do("ACL", "SETUSER", b"\xff\xc3\xa4", "on", "nopass", "+@all", "~*")
    session = server.connect()
    server.do("AUTH", b"\xff\xc3\xa4", "any", session=session)
    assert b" user=\xff\xc3\xa4 redir=" in server.do("CLIENT", "LIST", "ID", session.id)


def test_client_list_is_verbatim_in_resp3():
    server = Harness(resp3=True)
    assert server.raw("CLIENT", "LIST").startswith(b"=")
    assert b"\r\ntxt:id=" in server.raw("CLIENT", "INFO")


# -- KILL -------------------------------------------------------------------------------------


def test_kill_by_id_closes_that_connection(server):
    victim = server.connect()
    assert server.do("CLIENT", "KILL", "ID", victim.id) == 1
    assert server.host.closed == [victim]


def test_kill_spares_the_caller_unless_told(server):
    assert server.do("CLIENT", "KILL", "ID", server.session.id) == 0
    assert server.raw("CLIENT", "KILL", "ID", server.session.id, "SKIPME", "no") == b":1\r\n"
    assert server.session.closing
    assert server.host.closed == []


def test_kill_by_address_of_old(server):
    server.session.address = "127.0.0.1:1"
    victim = server.connect()
    assert server.do("CLIENT", "KILL", victim.address) == b"OK"
    assert server.host.closed == [victim]
    assert server.error("CLIENT", "KILL", "1.2.3.4:5") == "ERR No such client"


def test_kill_filters_add_up(server):
    young = server.connect()
    server.advance(5000)
    server.connect()
    assert server.do("CLIENT", "KILL", "MAXAGE", "5", "TYPE", "normal", "USER", "default") == 1
    assert server.host.closed == [young]
    assert server.do("CLIENT", "KILL", "LADDR", "1.2.3.4:5") == 0


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["ID", "bad"], "ERR client-id should be greater than 0"),
        (["ID", "0"], "ERR client-id should be greater than 0"),
        (["TYPE", "bad"], "ERR Unknown client type 'bad'"),
        (["USER", "nosuch"], "ERR No such user 'nosuch'"),
        (["SKIPME", "bad"], "ERR syntax error"),
        (["BAD", "x"], "ERR syntax error"),
        (["ID", "1", "TYPE"], "ERR syntax error"),
        (["MAXAGE", "x"], "ERR maxage is not an integer or out of range"),
    ],
)
def test_kill_refuses(server, args, text):
    assert server.error("CLIENT", "KILL", *args) == text


# -- PAUSE, UNBLOCK, REPLY --------------------------------------------------------------------


def test_pause_holds_everybody_back_until_its_end(server):
    other = server.connect()
    assert server.do("CLIENT", "PAUSE", "100") == b"OK"
    assert server.raw("PING", session=other) == b""
    server.advance(99)
    assert server.received(other) == b""
    server.advance(1)
    assert server.received(other) == b"+PONG\r\n"
    assert server.raw("PING", session=other) == b"+PONG\r\n"


def test_pause_write_lets_reads_pass(server):
    other = server.connect()
    server.do("CLIENT", "PAUSE", "100", "WRITE")
    assert server.raw("GET", "k", session=other) == b"$-1\r\n"
    assert server.raw("SET", "k", "v", session=other) == b""
    server.do("CLIENT", "UNPAUSE")
    server.settle()
    assert server.received(other) == b"+OK\r\n"


def test_pause_write_holds_back_what_may_write(server):
    for words in ("PUBLISH a m", "SPUBLISH a m", "EVAL x 0", "EVALSHA x 0", "FCALL f 0"):
        server.do("CLIENT", "PAUSE", "100", "WRITE")
        other = server.connect()
        assert server.raw(*words.split(), session=other) == b"", words
        server.do("CLIENT", "UNPAUSE")
        server.settle()
        assert server.received(other), words
    server.do("CLIENT", "PAUSE", "100", "WRITE")
    for words in ("EVAL_RO x 0", "EVALSHA_RO x 0", "FCALL_RO f 0", "XREAD STREAMS s 0"):
        assert server.raw(*words.split()), words


def test_pause_write_lets_transactions_pass_that_only_read(server):
    reading, writing = server.connect(), server.connect()
    for session, words in ((reading, ("GET", "k")), (writing, ("PUBLISH", "a", "m"))):
        server.do("MULTI", session=session)
        server.do(*words, session=session)
    server.do("CLIENT", "PAUSE", "100", "WRITE")
    assert server.do("EXEC", session=reading) == [None]
    assert server.raw("EXEC", session=writing) == b""
    assert server.raw("RESET", session=writing) == b""
    server.advance(100)
    assert server.received(writing) == b"*1\r\n:0\r\n+RESET\r\n"


def test_a_pause_holds_back_what_ends_a_wait_by_writing(server):
    popper, reader = server.connect(), server.connect()
    server.raw("BLPOP", "q", "0", session=popper)
    server.raw("XREAD", "BLOCK", "0", "STREAMS", "s", "$", session=reader)
    server.do("MULTI")
    server.do("RPUSH", "q", "v")
    server.do("XADD", "s", "1-1", "f", "v")
    server.do("CLIENT", "PAUSE", "100", "WRITE")
    server.do("EXEC")
    assert server.received(reader) != b""
    assert server.received(popper) == b""
    assert server.do("LLEN", "q") == 1
    server.do("CLIENT", "UNPAUSE")
    server.advance(0)
    assert server.received(popper) == b"*2\r\n$1\r\nq\r\n$1\r\nv\r\n"


def test_a_pause_holds_reset_back(server):
    other = server.connect()
    server.do("CLIENT", "PAUSE", "100")
    assert server.raw("RESET", session=other) == b""
    server.advance(100)
    assert server.received(other) == b"+RESET\r\n"


def test_a_second_pause_neither_shortens_nor_weakens(server):
    server.do("CLIENT", "PAUSE", "1000")
    server.do("CLIENT", "PAUSE", "10", "WRITE")
    dispatcher = server.region.dispatcher
    assert dispatcher.pause_until_ms == server.clock.us // 1000 + 1000
    assert not dispatcher.pause_writes_only
    server.do("CLIENT", "UNPAUSE")
    server.do("CLIENT", "PAUSE", "10", "WRITE")
    assert dispatcher.pause_writes_only


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["bad"], "ERR timeout is not an integer or out of range"),
        (["-1"], "ERR timeout is negative"),
        (["10", "BAD"], "ERR CLIENT PAUSE mode must be WRITE or ALL"),
        (
            ["1", "ALL", "x"],
            "ERR unknown subcommand or wrong number of arguments for 'PAUSE'. Try CLIENT HELP.",
        ),
    ],
)
def test_pause_refuses(server, args, text):
    assert server.error("CLIENT", "PAUSE", *args) == text


def test_a_pause_of_nothing_is_over_at_once(server):
    assert server.do("CLIENT", "PAUSE", "0") == b"OK"
    assert server.raw("PING") == b"+PONG\r\n"


def test_unblock_ends_a_wait_as_timeout_or_error(server):
    blocked = server.connect()
    server.do("XREAD", "BLOCK", "0", "STREAMS", "s", "$", session=blocked)
    assert server.do("CLIENT", "UNBLOCK", blocked.id) == 1
    assert server.received(blocked) == b"*-1\r\n"
    assert server.do("CLIENT", "UNBLOCK", blocked.id) == 0
    server.do("XREAD", "BLOCK", "0", "STREAMS", "s", "$", session=blocked)
    assert server.do("CLIENT", "UNBLOCK", blocked.id, "ERROR") == 1
    assert server.received(blocked) == b"-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"
    assert server.region.stats.errors["UNBLOCKED"] == 1
    entry = server.region.dispatcher.find([b"xread"])
    assert (entry.calls, entry.failed) == (2, 1)


def test_unblock_refuses(server):
    assert server.error("CLIENT", "UNBLOCK", "bad") == "ERR value is not an integer or out of range"
    assert server.error("CLIENT", "UNBLOCK", "1", "BAD") == (
        "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"
    )
    assert server.error("CLIENT", "UNBLOCK", "1", "ERROR", "x") == (
        "ERR unknown subcommand or wrong number of arguments for 'UNBLOCK'. Try CLIENT HELP."
    )


def test_reply_off_silences_until_on(server):
    assert server.raw("CLIENT", "REPLY", "OFF") == b""
    assert server.raw("PING") == b""
    assert server.raw("NOSUCH") == b""
    assert server.raw("CLIENT", "REPLY", "SKIP") == b""
    assert server.raw("CLIENT", "REPLY", "ON") == b"+OK\r\n"
    assert server.raw("PING") == b"+PONG\r\n"


def test_reply_skip_silences_one_request(server):
    assert server.raw("CLIENT", "REPLY", "SKIP") == b""
    assert server.raw("PING") == b""
    assert server.raw("PING") == b"+PONG\r\n"
    assert server.error("CLIENT", "REPLY", "BAD") == "ERR syntax error"


def test_reply_skip_silences_a_request_that_blocks(server):
    blocked = server.connect()
    for end in ("TIMEOUT", "ERROR"):
        server.raw("CLIENT", "REPLY", "SKIP", session=blocked)
        server.raw("BLPOP", "q", "0", session=blocked)
        server.raw("ECHO", "x", session=blocked)
        assert server.do("CLIENT", "UNBLOCK", blocked.id, end) == 1
        assert server.received(blocked) == b"$1\r\nx\r\n"


def test_reply_skip_silences_reset(server):
    server.raw("CLIENT", "REPLY", "SKIP")
    assert server.raw("RESET") == b""
    assert server.raw("PING") == b"+PONG\r\n"


# -- the rest ---------------------------------------------------------------------------------


def test_tracking_can_only_be_off(server):
    assert server.do("CLIENT", "TRACKING", "OFF") == b"OK"
    assert server.error("CLIENT", "TRACKING", "ON").startswith("ERR Client tracking is not")
    assert server.do("CLIENT", "GETREDIR") == -1
    assert server.do("CLIENT", "TRACKINGINFO") == [
        b"flags", [b"off"], b"redirect", -1, b"prefixes", [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["BAD"], "ERR syntax error"),
        (["ON", "BAD"], "ERR syntax error"),
        (["ON", "REDIRECT", "bad"], "ERR value is not an integer or out of range"),
        (["ON", "REDIRECT", "999"], "ERR The client ID you want redirect to does not exist"),
        (["ON", "OPTIN", "OPTOUT"], "ERR You can't specify both OPTIN mode and OPTOUT mode"),
        (["ON", "PREFIX", "a"], "ERR PREFIX option requires BCAST mode to be enabled"),
    ],
)
def test_tracking_reads_its_options_first(server, args, text):
    assert server.error("CLIENT", "TRACKING", *args) == text


def test_no_evict_and_no_touch(server):
    assert server.do("CLIENT", "NO-EVICT", "on") == b"OK"
    assert server.do("CLIENT", "NO-TOUCH", "ON") == b"OK"
    assert info(server)["flags"] == "eT"
    assert server.error("CLIENT", "NO-TOUCH", "bad") == "ERR syntax error"


def test_help_names_every_subcommand(server):
    lines = [line.decode() for line in server.do("CLIENT", "HELP")]
    assert lines[0].startswith("CLIENT <subcommand>")
    assert "SETNAME connection-name" in lines
    assert "HELP" in lines


def test_unknown_subcommands_are_left_to_newer_servers(server):
    assert server.error("CLIENT", "MAINT_NOTIFICATIONS", "ON") == (
        "ERR unknown subcommand 'MAINT_NOTIFICATIONS'. Try CLIENT HELP."
    )


def test_ids_ascend(server):
    first = server.do("CLIENT", "ID")
    assert server.do("CLIENT", "ID", session=server.connect()) == first + 1
    assert decode_all(server.raw("CLIENT", "ID")) == [first]
