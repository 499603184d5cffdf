"""Rules about every command of redis-server: accepted, kept and judged as there.

Also those about commands that this server does not have, which have no effect.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.support.servers import KitServer, RedisServer, redis_server_path
from tests.support.wire import RespClient

CASES = 1500
JUNK = [
    *("nosuch", "", "|", "get|", "|get", "hset|", "cluster|", "cluster|foo", "hset|a|b", "info||x"),
    *("config|get|a", "xgroup|create|x", "json", "get|x", "hset|x", "hset|y", "a|b|c"),
    *("select|0", "select|1", "module|nosuch", "@", "@nosuch", "@all", "@ALL", "@Hash", "*", "~*"),
]
ASKED = [
    *("GET k", "SET k v", "XADD k * f v", "XGROUP CREATE k g 0", "XINFO STREAM k", "SELECT 0"),
    *("SELECT 1", "CONFIG GET x", "MODULE LIST", "CLUSTER INFO", "CLUSTER RESET", "PING", "INFO"),
    *(
        "LPUSH k v",
        "SADD k v",
        "DEL k",
        "EVAL x 0",
        "PUBLISH c m",
        "CLIENT ID",
        "KEYS x",
        "WAIT 0 0",
    ),
]

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")
Both = tuple[RespClient, RespClient]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with (
        KitServer() as ours,
        RedisServer() as theirs,
        ours.client() as one,
        theirs.client() as other,
    ):
        yield one, other


@pytest.fixture(scope="module")
def names(both: Both) -> list[str]:
    """Every command and sub-command of redis-server."""
    _, found = both[1].call("COMMAND", "LIST")
    return sorted(name.decode() for _, name in found)


def said(client: RespClient, rules: list[str]) -> object:
    """What the server says to a user with these rules."""
    client.call("ACL", "DELUSER", "u")
    return client.call("ACL", "SETUSER", "u", "on", "nopass", "~*", "&*", *rules)


def kept(client: RespClient) -> list[str]:
    """The rules of the user about commands, in the server's words."""
    _, fields = client.call("ACL", "GETUSER", "u")
    return fields[5][1].decode().split()


def judgement(client: RespClient) -> list[tuple[str, bytes]]:
    """Which of some requests the user may make; newer servers call the user by name."""
    replies = [client.call("ACL", "DRYRUN", "u", *line.split())[1] for line in ASKED]
    words = [reply.replace(b"User u has", b"This user has") for reply in replies]
    return list(zip(ASKED, words, strict=True))


def test_every_name_of_redis_is_a_rule(both: Both, names: list[str]) -> None:
    _, categories = both[1].call("ACL", "CAT")
    rules = [*names, *("@" + word.decode() for _, word in categories), *JUNK]
    rules += [name.upper() + "|foo" for name in names]
    differ = [
        sign + rule
        for rule in rules
        for sign in "+-"
        if said(both[0], [sign + rule]) != said(both[1], [sign + rule])
    ]
    assert differ == [], differ


def test_random_rules_are_kept_and_judged_as_in_redis(both: Both, names: list[str]) -> None:
    ours, theirs = both
    rng = random.Random(10)
    accepted = 0
    near = [name for name in names if name.partition("|")[0] in {"hset", "config", "module", "get"}]
    for _ in range(CASES):
        pool = rng.choice([names, near, [*near, "@all", "@hash", "@dangerous", "@read"], JUNK])
        rules = [rng.choice("+-") + rng.choice(pool) for _ in range(rng.randrange(1, 9))]
        reply = said(ours, rules)
        assert reply == said(theirs, rules), rules
        if reply != ("+", b"OK"):
            continue
        accepted += 1
        assert judgement(ours) == judgement(theirs), rules
        # Newer servers keep rules in the words in which they came, in Redis 7.0 they are made from
        # what is allowed: the words that are kept here must make the same user there.
        made = kept(theirs)
        said(theirs, kept(ours))
        assert kept(theirs) == made, rules
    assert accepted > CASES / 2


def test_rules_of_selectors_are_as_in_redis(both: Both, names: list[str]) -> None:
    rng = random.Random(11)
    for _ in range(CASES // 10):
        words = [rng.choice("+-") + rng.choice([*names, "x"]) for _ in range(rng.randrange(1, 5))]
        rules = [f"({' '.join(words)} ~k*)"]
        assert said(both[0], rules) == said(both[1], rules), rules
        assert judgement(both[0]) == judgement(both[1]), rules


def test_cluster_is_refused_as_in_redis(both: Both, names: list[str]) -> None:
    subcommands = [name for name in names if name.startswith("cluster")]
    assert len(subcommands) > 25
    for name in subcommands:
        info, expected = (client.call("COMMAND", "INFO", name)[1][0][1] for client in both)
        assert (info[:2], info[3:6]) == (expected[:2], expected[3:6]), name
        assert sorted(info[2][1]) == sorted(expected[2][1]), name
        assert sorted(info[6][1]) == sorted(expected[6][1]), name
        assert info[7] == expected[7], name
        for count in range(4):
            request = [*name.upper().split("|"), *"abcd"[:count]]
            assert both[0].call(*request) == both[1].call(*request), request
    for request in (
        ["CLUSTER", "FOO"],
        ["cluster", "foo", "bar"],
        ["COMMAND", "INFO", "cluster|x"],
    ):
        assert both[0].call(*request) == both[1].call(*request), request
