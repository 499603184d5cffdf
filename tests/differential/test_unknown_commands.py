"""Commands that do not exist: the words are those of redis-server, whatever the arguments."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.engine.absent import ABSENT
from tests.support.servers import AnabranchServer, RedisServer, redis_server_path
from tests.support.wire import RespClient

REQUESTS = 1000
HIDDEN = ["HSET", "ZADD", "SORT", "GETBIT"]
"""Commands that the Redis of this test does not have."""
PIECES = [
    *(b"a", b"HSET", b"", b" ", b"'", b'"', b"\\", b"\0", b"\r", b"\n", b"\r\n-ERR x\r\n", b"\t"),
    *(b"\xff", b"\x80", b"\xc3\xa9", b"x" * 40, b"y" * 127, b"z" * 128, b"w" * 129, b"v" * 5000),
]

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[RespClient, RespClient]]:
    hidden = [word for name in HIDDEN for word in ("--rename-command", name, "")]
    with (
        AnabranchServer() as ours,
        RedisServer(extra=hidden) as theirs,
        ours.client() as one,
        theirs.client() as other,
    ):
        yield one, other


def test_every_command_of_redis_is_here_or_known_as_missing(
    both: tuple[RespClient, RespClient],
) -> None:
    kind, names = both[1].call("COMMAND", "LIST")
    assert kind == "*"
    theirs = {name.decode().lower() for _, name in names if b"|" not in name}
    assert len(theirs) > 200
    assert theirs - {command.name for command in COMMANDS} - set(ABSENT) == set()


def test_the_words_are_those_of_redis(both: tuple[RespClient, RespClient]) -> None:
    rng = random.Random(8)
    hinted = 0
    for _ in range(REQUESTS):
        name = rng.choice([*map(str.encode, HIDDEN), b"".join(rng.choices(PIECES, k=2))])
        args = [b"".join(rng.choices(PIECES, k=rng.randrange(3))) for _ in range(rng.randrange(6))]
        ours, theirs = (client.call(name, *args) for client in both)
        words = theirs[1]
        if not args:  # the text for a command without arguments is shorter since Redis 8.0
            words = words.removesuffix(b", with args beginning with: ")
        if name.lower().decode("latin-1") in ABSENT:
            hinted += 1
            said, _, hint = ours[1].partition(b"(Anabranch is a stream server ")
            assert said.rstrip(b" ") == words.rstrip(b" "), (name, args)
            assert hint.endswith(b"; docs/commands.md lists its commands)")
        else:
            assert ours == (theirs[0], words), (name, args)
    assert hinted > REQUESTS // 4
