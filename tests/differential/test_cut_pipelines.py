"""A pipeline that ends at any byte: what was whole is answered and done, as by redis-server."""

from __future__ import annotations

import socket

import pytest

from tests.support.servers import KitServer, RedisServer, redis_server_path
from tests.support.wire import encode_command

PIPELINE = (
    b"".join(
        encode_command(words.split())
        for words in (
            "SET k v",
            "XADD s 1-1 field value",
            "XGROUP CREATE s g 0",
            "MULTI",
            "XADD s 1-2 field value",
            "XREADGROUP GROUP g c COUNT 1 STREAMS s >",
            "EXEC",
            "NOSUCH command",
            "XACK s g 1-1",
            "INCR k2",
        )
    )
    + b"GET k\r\nXLEN s\r\n"
)  # inline commands
"""Multi-bulk and inline commands, a transaction, errors."""


def answered(port: int, data: bytes) -> bytes:
    """All bytes that come for these, if nothing follows them."""
    with socket.create_connection(("127.0.0.1", port), 60) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


@pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
def test_a_pipeline_that_is_cut_at_each_byte() -> None:
    with KitServer() as ours, RedisServer() as theirs, ours.client() as one, theirs.client() as two:
        for end in range(len(PIPELINE) + 1):
            cut = PIPELINE[:end]
            assert answered(ours.port, cut) == answered(theirs.port, cut), cut
            for words in ("XRANGE s - +", "XPENDING s g", "GET k", "GET k2", "DBSIZE"):
                mine, other = one.call(*words.split()), two.call(*words.split())
                assert mine == other, (cut, words)
            one.call("FLUSHALL")
            two.call("FLUSHALL")
