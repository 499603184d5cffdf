"""COMMAND GETKEYSANDFLAGS: the keys of a request, and their uses, are those of redis-server."""

from __future__ import annotations

import random
from typing import Final

import pytest

from anabranch.commands.table import COMMANDS
from tests.support.servers import AnabranchServer, RedisServer, redis_server_path
from tests.support.wire import RespClient

REQUESTS: Final = 40
"""Of each command."""
WORDS: Final = [
    *("a", "b", "0", "1", "2", "3", "-1", "x", "GET", "get", "EX", "10", "KEEPTTL", "NX", "COUNT"),
    *("GROUP", "BLOCK", "NOACK", "CLAIM", ">", "$", "MAXLEN", ""),
]
OTHER: Final = {"cluster", "command|getkeys", "command|getkeysandflags"}
"""Redis 7.0 has other rules for these."""

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")


def _request(rng: random.Random, name: str) -> list[str]:
    args = rng.choices(WORDS, k=rng.randint(1, 6))
    if name in ("xread", "xreadgroup") and rng.random() < 0.7:
        group = ["GROUP", "g", rng.choice(WORDS)] if name == "xreadgroup" else []
        args = [*rng.choice(([], ["COUNT", "1"])), *group, "STREAMS", *rng.choices(WORDS, k=2)]
    return [*name.split("|"), *args]


def _answer(client: RespClient, request: list[str]) -> object:
    kind, value = client.call("COMMAND", "GETKEYSANDFLAGS", *request)
    if kind != "*":
        return value
    return [(key, sorted(flag for _, flag in flags)) for _, ((_, key), (_, flags)) in value]


def test_the_uses_of_keys_are_those_of_redis() -> None:
    rng = random.Random(5)
    every = [each for row in COMMANDS for each in (row, *row.subcommands.values())]
    compared = 0
    with (
        AnabranchServer() as ours,
        RedisServer() as theirs,
        ours.client() as one,
        theirs.client() as other,
    ):
        known = {name.decode() for _, name in other.call("COMMAND", "LIST")[1]}
        for row in every:
            if row.full_name not in known - OTHER:
                continue
            for _ in range(REQUESTS):
                request = _request(rng, row.full_name)
                assert _answer(one, request) == _answer(other, request), request
                compared += 1
    assert compared > 5000
