"""The raw client tells apart what the wire tells apart."""

from __future__ import annotations

import pytest

from tests.support.servers import RedisServer
from tests.support.wire import (
    Incomplete,
    ProtocolError,
    Reply,
    encode_command,
    end_of_reply,
    parse_reply,
)

REPLIES: list[tuple[bytes, Reply]] = [
    (b"+OK\r\n", ("+", b"OK")),
    (b"-ERR no\r\n", ("-", b"ERR no")),
    (b":-5\r\n", (":", -5)),
    (b"$4\r\na\r\nb\r\n", ("$", b"a\r\nb")),
    (b"$0\r\n\r\n", ("$", b"")),
    (b"$-1\r\n", ("$", None)),
    (b"*-1\r\n", ("*", None)),
    (b"*0\r\n", ("*", [])),
    (b"_\r\n", ("_", None)),
    (b"#t\r\n", ("#", True)),
    (b",1.5\r\n", (",", b"1.5")),
    (b"=7\r\ntxt:abc\r\n", ("=", b"txt:abc")),
    (b"*2\r\n:1\r\n*1\r\n$1\r\nx\r\n", ("*", [(":", 1), ("*", [("$", b"x")])])),
    (b"%1\r\n+k\r\n~1\r\n:1\r\n", ("%", [(("+", b"k"), ("~", [(":", 1)]))])),
    (b">1\r\n+m\r\n", (">", [("+", b"m")])),
]


@pytest.mark.parametrize(("raw", "reply"), REPLIES)
def test_a_reply_is_read_and_measured(raw: bytes, reply: Reply) -> None:
    assert parse_reply(raw + b":1\r\n") == (reply, len(raw))
    assert end_of_reply(b":9\r\n" + raw + b":1\r\n", 4) == 4 + len(raw)


@pytest.mark.parametrize(("raw", "reply"), REPLIES)
def test_every_beginning_of_a_reply_is_incomplete(raw: bytes, reply: Reply) -> None:
    for size in range(len(raw)):
        with pytest.raises(Incomplete):
            end_of_reply(raw[:size], 0)
        with pytest.raises(Incomplete):
            parse_reply(raw[:size])


def test_other_bytes_are_refused() -> None:
    with pytest.raises(ProtocolError):
        end_of_reply(b"HTTP/1.1 200 OK\r\n", 0)
    with pytest.raises(ProtocolError):
        parse_reply(b"HTTP/1.1 200 OK\r\n")


def test_a_command_is_encoded_by_length() -> None:
    assert encode_command(["SET", b"\r\n", 5]) == b"*3\r\n$3\r\nSET\r\n$2\r\n\r\n\r\n$1\r\n5\r\n"


@pytest.mark.parametrize("resp", [2, 3])
def test_a_long_pipeline_neither_blocks_nor_mixes_replies(
    redis_server: RedisServer, resp: int
) -> None:
    value = b"x" * 10_000
    with redis_server.client(resp=resp) as client:
        commands: list[list[bytes | str | int]] = [["ECHO", value + b"%d" % n] for n in range(3000)]
        assert client.pipeline(commands) == [("$", value + b"%d" % n) for n in range(3000)]
        assert client.call("GET", "nothing") == ("$" if resp == 2 else "_", None)
