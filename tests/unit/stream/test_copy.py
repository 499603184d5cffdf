"""A copy of a stream with any past is the same, and has nothing in common with it."""

from __future__ import annotations

import random

import pytest

from tests.support.random_lines import random_lines
from tests.support.streams import Streams, words


def _run(server: Streams, line: str) -> None:
    name, *rest = words(line)
    if name == "ADVANCE":
        server.advance(int(rest[0]))
    elif "BLOCK" not in rest:
        server.raw(name, *rest)


def _of_other(line: str, *keys: str) -> str:
    """The same line about the copy."""
    return " ".join("other" if word in keys else word for word in line.split())


def _sight(server: Streams, key: str) -> list[object]:
    """All that a client can see of a stream."""
    return [
        server.run(f"XINFO STREAM {key} FULL COUNT 0"),
        server.run(f"XREVRANGE {key} + -"),
        [server.run(f"XPENDING {key} {group[1]}") for group in server.run(f"XINFO GROUPS {key}")],
    ]


@pytest.mark.parametrize("seed", range(40))
def test_a_copy_is_the_same_and_independent(seed: int) -> None:
    chance = random.Random(seed)
    server = Streams(now_ms=1)
    server.do("CONFIG", "SET", "stream-node-max-entries", 3)
    for line in random_lines(chance):
        _run(server, line)
    server.run("COPY s other")
    before = _sight(server, "s")
    assert _sight(server, "other") == before
    for line in random_lines(chance, count=60):  # the copy goes on alone
        _run(server, _of_other(line, "s", "t", "u"))
    assert _sight(server, "s") == before
    server.check()


@pytest.mark.parametrize("seed", range(20))
def test_original_and_copy_go_on_alike(seed: int) -> None:
    """The same commands give the same replies: nothing hidden is lost in a copy."""
    chance = random.Random(seed)
    server = Streams(now_ms=1)
    server.do("CONFIG", "SET", "stream-node-max-entries", 3)
    for line in random_lines(chance):
        _run(server, line)
    server.run("COPY s other")
    for line in random_lines(chance, count=60)[20:]:
        if " s " in line and not {"t", "u", "BLOCK"} & set(words(line)):
            reply = server.shows(line)
            assert server.shows(_of_other(line, "s")) == reply.replace("'s'", "'other'")
    assert _sight(server, "s") == _sight(server, "other")
