"""Rules that change under subscribers: who stays and who is closed, as redis-server decides."""

from __future__ import annotations

import random

import pytest

from tests.support.servers import KitServer, RedisServer, redis_server_path
from tests.support.wire import ConnectionLost

CASES = 300
CHANNELS = ["news", "n", "other", ""]
PATTERNS = ["news", "n*", "*", "other*"]
RULES = [
    *("&*", "&news", "&n*", "&other", "&other*", "resetchannels", "allchannels", "(&news +@all)"),
    *("(&* +@all)", "clearselectors", "-@all", "resetkeys", "off", "&"),
]


def stays(
    server: KitServer | RedisServer, case: tuple[list[str], list[list[str]], list[str]]
) -> bool:
    """Whether a subscriber outlives the change."""
    first, subscriptions, change = case
    with server.client() as admin, server.client() as client:
        admin.call("ACL", "SETUSER", "u", "reset", "on", "nopass", "+@all", "~*", *first)
        assert client.call("AUTH", "u", "x") == ("+", b"OK")
        for words in subscriptions:
            client.call(*words)
        admin.call("ACL", "SETUSER", "u", *change)
        try:
            client.send("PING")
            client.read_reply()
        except (ConnectionLost, OSError):
            return False
        return True


@pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
def test_subscribers_stay_or_go_as_in_redis() -> None:
    rng = random.Random(11)
    gone = 0
    with KitServer() as ours, RedisServer() as theirs:
        for _ in range(CASES):
            first = rng.choice([["&*"], ["&news", "&n*"], ["&other*", "&n"], ["(&news +@all)"]])
            subscriptions = [
                rng.choice(
                    [
                        ["SUBSCRIBE", rng.choice(CHANNELS)],
                        ["PSUBSCRIBE", rng.choice(PATTERNS)],
                        ["SSUBSCRIBE", rng.choice(CHANNELS)],
                    ]
                )
                for _ in range(rng.randrange(3))
            ]
            change = rng.choices(RULES, k=rng.randrange(1, 4))
            if rng.random() < 0.6:
                change.insert(0, "resetchannels")
            case = (first, subscriptions, change)
            mine, other = stays(ours, case), stays(theirs, case)
            assert mine == other, case
            gone += not mine
    assert CASES / 10 < gone < CASES * 0.9
