"""CLIENT REPLY, PAUSE and their kin inside and around MULTI, beside redis-server.

CLIENT TRACKING ON is an error here (docs/compatibility.md), so it is not among them.
"""

from __future__ import annotations

import random

import pytest

from tests.support.servers import KitServer, RedisServer, redis_server_path
from tests.support.wire import ConnectionLost, Reply, RespClient

EPISODES = 300
END = "the end"
LINES = (
    "MULTI", "MULTI", "EXEC", "EXEC", "DISCARD", "PING", "SET k v", "GET k", "INCR n",
    "XADD s * f v", "XLEN s", "WATCH k", "UNWATCH", "RESET", "HELLO 2", "HELLO 3", "SELECT 1",
    "SELECT 0", "CLIENT REPLY ON", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY SKIP",
    "CLIENT TRACKING OFF", "CLIENT GETREDIR",
    "CLIENT PAUSE 1", "CLIENT PAUSE 1 WRITE", "CLIENT UNPAUSE", "CLIENT NO-EVICT ON",
    "CLIENT SETNAME me", "CLIENT GETNAME", "CLIENT REPLY", "CLIENT TRACKING", "CLIENT PAUSE x",
)  # fmt: skip


def replies(client: RespClient, episode: list[str]) -> list[Reply]:
    """All replies up to a last ECHO; entry IDs are left out."""
    for line in episode:
        client.send(*line.split())
    for line in ("CLIENT REPLY ON", "DISCARD", "CLIENT REPLY ON"):
        client.send(*line.split())
    client.send("ECHO", END)
    found: list[Reply] = []
    try:
        while not found or found[-1] != ("$", END.encode()):
            found.append(_plain(client.read_reply()))
    except ConnectionLost:
        found.append(("closed", None))
    return found


def _without_replies_inside(episode: list[str]) -> list[str]:
    """Leave out CLIENT REPLY behind MULTI: what Redis answers then cannot be told apart."""
    kept: list[str] = []
    for line in episode:
        if "MULTI" not in kept or not line.startswith("CLIENT REPLY "):
            kept.append(line)
    return kept


def _plain(reply: Reply) -> Reply:
    if reply[0] == "$" and reply[1] and reply[1].count(b"-") == 1 and reply[1][:1].isdigit():
        return "$", b"an ID"
    if reply[0] == "%":
        return "%", "HELLO"
    if reply[0] == "*" and reply[1]:
        if reply[1][0] == ("$", b"server"):
            return "*", "HELLO"
        return "*", [_plain(each) for each in reply[1]]
    return reply


@pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
def test_random_episodes_are_answered_as_by_redis() -> None:
    rng = random.Random(52)
    with KitServer() as ours, RedisServer() as theirs:
        for _ in range(EPISODES):
            episode = rng.choices(LINES, k=rng.randint(2, 9))
            if rng.random() < 0.7:
                episode.insert(rng.randrange(len(episode)), "MULTI")
            episode = _without_replies_inside(episode)
            with ours.client() as one, theirs.client() as two:
                assert replies(one, episode) == replies(two, episode), episode
            with ours.client() as one, theirs.client() as two:
                for client in (one, two):
                    client.call("FLUSHALL")


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        (["PING", "CLIENT REPLY OFF", "CLIENT REPLY ON", "PING"], ["PONG", "OK", "PONG"]),
        (["PING", "CLIENT REPLY SKIP", "CLIENT REPLY ON"], ["PONG", "OK"]),
        (["PING", "CLIENT REPLY SKIP"], None),
        (["PING", "CLIENT REPLY OFF", "PING"], None),
    ],
)
def test_exec_announces_as_many_replies_as_it_sends(
    inside: list[str], expected: list[str] | None
) -> None:
    with KitServer() as server, server.client() as client:
        for line in ("MULTI", *inside):
            client.call(*line.split())
        client.send("EXEC")
        client.send("CLIENT", "REPLY", "ON")
        if expected is not None:
            assert client.read_reply() == ("*", [("+", text.encode()) for text in expected])
        assert client.read_reply() == ("+", b"OK")
        assert client.call("ECHO", END) == ("$", END.encode())
