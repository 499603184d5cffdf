"""Random inline requests are cut into words as redis-server cuts them.

Without NUL bytes: redis-server does not see the end of a line that has one.
"""

from __future__ import annotations

import random

import pytest

from tests.support.servers import KitServer, RedisServer, redis_server_path
from tests.support.wire import Reply, RespClient

LINES = 3000

PIECES = [
    *(b"a", b"b", b" ", b" ", b"\t", b"\v", b"\f", b"\r", b'"', b'"', b"'", b"'", b"\\"),
    *(b"\\n", b"\\x41", b"\\x0", b"\\xzz", b'\\"', b"\\'", b"\x1f", b"\xc2\x85", b"\xe2\x80\x83"),
    *(b'"a b"', b"'a b'", b"\xff", b"\x80", b"#"),
]


@pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
def test_words_of_inline_requests() -> None:
    rng = random.Random(5)
    lines = [b"".join(rng.choices(PIECES, k=rng.randrange(1, 9))) for _ in range(LINES)]

    def replies(port: int) -> list[Reply]:
        """What the words are; each line has a connection of its own, as mistakes close it."""
        found = []
        client = RespClient(port)
        for line in lines:
            client.send_raw(b"COMMAND GETKEYS DEL k " + line + b"\nPING\n")
            reply = client.read_reply()
            found.append(reply)
            if reply[0] == "-" and b"Protocol error" in reply[1]:
                client.socket.close()
                client = RespClient(port)
            else:
                assert client.read_reply() == ("+", b"PONG"), line
        client.socket.close()
        return found

    with KitServer() as ours, RedisServer() as theirs:
        mine, others = replies(ours.port), replies(theirs.port)
    for line, one, other in zip(lines, mine, others, strict=True):
        assert one == other, line
