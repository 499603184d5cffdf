"""Strings, lists and sets: random commands get replies and make events as in redis-server."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import product, zip_longest
from typing import Any

import pytest

from tests.support.servers import AnabranchServer, RedisServer, free_port, redis_server_path
from tests.support.wire import Reply, RespClient

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")

COMMANDS = 12_000
TOGETHER = 200
KEYS = [b"a", b"b", b"c", b"d"]
DATA = [b"", b"0", b"1", b"x", b"yy", b"3.5", b"-7", b"9223372036854775807", b"\0\xff", b"1e3"]
INTEGERS = [
    *(b"0", b"1", b"-1", b"2", b"-2", b"3", b"5", b"-5", b"100", b"01", b"", b"x", b"1.5"),
    *(b"9223372036854775807", b"-9223372036854775808", b"-9223372036854775807"),
    b"9223372036854775808",
]
FLOATS = [
    *(b"1", b"-1", b"0.1", b"-0.3", b"1e3", b"1.5e-9", b"3.00", b".5", b"5.", b"+2", b"1e-20"),
    *(b"123456789.123456789", b"1e17", b"1e4931", b"1e5000", b"-1e5000", b"1e-5000", b"inf"),
    *(b"-inf", b"nan", b"", b" 1", b"1 ", b"x", b"0.30000000000000004", b"1e-4940", b"--1"),
    *(b"-0", b"1e", b"99999999999999999999.5", b"1e99999999999999999999", b"0e99999999999999"),
]
HEXADECIMAL = [
    *(b"0x10", b"-0X.8P1", b"0x1.", b"0x", b"0x1p", b"0x1.fffffffffffffffff", b"0x1p16383"),
    *(b"0x1p16384", b"0x1p-16445", b"0x1p-16446", b"0x0p99999999999", b"1e0000000000001"),
]
TIMES = [b"1000000", b"0", b"-1", b"x", b"9223372036854775807", b"88888888"]
READS_SET = {b"SMEMBERS", b"SINTER", b"SUNION", b"SDIFF"}
TEMPLATES: list[tuple[str, ...]] = [
    *(("SET", "k", "v"), ("SET", "k", "v", "?"), ("SETNX", "k", "v"), ("GET", "k")),
    *(("SETEX", "k", "t", "v"), ("PSETEX", "k", "t", "v"), ("GETSET", "k", "v"), ("GETDEL", "k")),
    *(("GETEX", "k"), ("GETEX", "k", "EX", "t"), ("GETEX", "k", "PERSIST"), ("GETEX", "k", "?")),
    *(("GETEX", "k", "EXAT", "t"), ("GETEX", "k", "PXAT", "t"), ("GETEX", "k", "PX", "t")),
    *(("GETEX", "k", "EX", "t", "PERSIST"), ("MGET", "k", "k", "k"), ("MSET", "k", "v", "k", "v")),
    *(("MSET", "k", "v", "k"), ("MSETNX", "k", "v", "k", "v"), ("MSETNX", "k", "v", "k")),
    *(("STRLEN", "k"), ("APPEND", "k", "v"), ("GETRANGE", "k", "i", "i")),
    *(("SETRANGE", "k", "s", "v"), ("INCR", "k"), ("DECR", "k"), ("INCRBY", "k", "i")),
    *(("DECRBY", "k", "i"), ("INCRBYFLOAT", "k", "f"), ("INCRBYFLOAT", "k", "f")),
    *(("LPUSH", "k", "v"), ("RPUSH", "k", "v", "v"), ("LPUSHX", "k", "v"), ("RPUSHX", "k", "v")),
    *(("LPUSH", "k", "v", "v"), ("RPUSH", "k", "v", "v", "v", "v"), ("LLEN", "k")),
    *(
        ("LPOP", "k"),
        ("RPOP", "k"),
        ("LPOP", "k", "i"),
        ("RPOP", "k", "i"),
        ("LRANGE", "k", "i", "i"),
    ),
    *(("LINDEX", "k", "i"), ("LSET", "k", "i", "v"), ("LINSERT", "k", "BEFORE", "v", "v")),
    *(
        ("LINSERT", "k", "after", "v", "v"),
        ("LINSERT", "k", "x", "v", "v"),
        ("LREM", "k", "i", "v"),
    ),
    *(("LTRIM", "k", "i", "i"), ("LPOS", "k", "v"), ("LPOS", "k", "v", "RANK", "r")),
    *(
        ("LPOS", "k", "v", "COUNT", "i", "RANK", "r"),
        ("LPOS", "k", "v", "MAXLEN", "i", "COUNT", "i"),
    ),
    *(("LPOS", "k", "v", "COUNT"), ("LMOVE", "k", "k", "LEFT", "RIGHT"), ("RPOPLPUSH", "k", "k")),
    *(("LMOVE", "k", "k", "right", "left"), ("LMOVE", "k", "k", "RIGHT", "RIGHT")),
    *(("LMOVE", "k", "k", "LEFT", "x"), ("BLMOVE", "k", "k", "LEFT", "LEFT", "0.001")),
    *(("BRPOPLPUSH", "k", "k", "0.001"), ("BRPOP", "k", "k", "0.001"), ("BLPOP", "k", "0.001")),
    *(("BRPOP", "k", "x"), ("BLMOVE", "k", "k", "LEFT", "LEFT", "-1"), ("LRANGE", "k", "0", "-1")),
    *(("SADD", "k", "v", "v", "v"), ("SADD", "k", "v"), ("SREM", "k", "v", "v"), ("SCARD", "k")),
    *(
        ("SISMEMBER", "k", "v"),
        ("SMISMEMBER", "k", "v", "v"),
        ("SMEMBERS", "k"),
        ("SPOP", "k", "100"),
    ),
    *(("SPOP", "k", "0"), ("SPOP", "k", "-1"), ("SPOP", "k", "1", "1"), ("SMOVE", "k", "k", "v")),
    *(
        ("SRANDMEMBER", "k", "0"),
        ("SRANDMEMBER", "k", "x"),
        ("SINTER", "k", "k"),
        ("SUNION", "k", "k"),
    ),
    *(("SSCAN", "k", "0"), ("SSCAN", "k", "0", "MATCH", "g"), ("SSCAN", "k", "c", "COUNT", "i")),
    *(("SSCAN", "k", "0", "g"), ("SSCAN", "k", "0", "MATCH", "g", "TYPE", "set")),
    *(("SDIFF", "k", "k", "k"), ("SINTER", "k"), ("DEL", "k"), ("DEL", "k"), ("TYPE", "k")),
    *(("PERSIST", "k"), ("EXISTS", "k"), ("MULTI",), ("EXEC",), ("XADD", "k", "1-*", "f", "v")),
]
CHOICES = {
    "r": [each for each in INTEGERS if each != b"-9223372036854775808"],  # 7.0 counts wrong
    "k": KEYS,
    "v": DATA,
    "i": INTEGERS,
    "f": FLOATS,
    "t": TIMES,
    "c": [b"0", b"x", b"18446744073709551616"],
    "g": [b"*", b"?", b"[0-9]*", b"", b"y?", b"nothing"],
    "s": [b"0", b"1", b"5", b"-1", b"x", b"40", b"600000000"],
    "?": [b"NX", b"XX", b"GET", b"KEEPTTL", b"EX", b"nonsense"],
}


def command(rng: random.Random) -> list[bytes]:
    words = [word.encode() for word in rng.choice(TEMPLATES)]
    return [rng.choice(CHOICES.get(word.decode(), [word])) for word in words]


def comparable(reply: Reply, sent: Sequence[bytes], queued: list[list[bytes]] | None) -> Any:
    """What may come in any order, sorted."""
    kind, value = reply
    if sent[0] == b"EXEC" and queued is not None and isinstance(value, list):
        pairs = zip(value, queued, strict=True)
        return kind, [(*command, comparable(each, command, None)) for each, command in pairs]
    if sent[0] == b"XADD" and kind == "$":
        return kind, value.partition(b"-")[0]  # behind it a region puts its number
    if sent[0] in READS_SET | {b"SPOP"} and isinstance(value, list):
        return kind, sorted(value)
    if sent[0] == b"SSCAN" and isinstance(value, list):
        return kind, [value[0], (value[1][0], sorted(value[1][1]))]
    return reply


def strip_new(events: list[Reply]) -> list[Any]:
    """Keyspace events without those that redis-server 7.0 does not have."""
    payloads = [event[1][2:] for event in events]
    newer = (b"overwritten", b"type_changed")
    return [each for each in payloads if not each[0][1].endswith(newer)]


@pytest.fixture(scope="module")
def servers() -> Iterator[list[AnabranchServer | RedisServer]]:
    with AnabranchServer() as ours, RedisServer() as theirs:
        yield [ours, theirs]


def events_of(listener: RespClient, end: RespClient) -> list[Reply]:
    """What was published until now."""
    end.call("PUBLISH", "__key-end", "x")
    found = []
    while True:
        event = listener.read_reply()
        if event[1][2][1] == b"__key-end":
            return found
        found.append(event)


@pytest.mark.parametrize(("seed", "resp"), [(31, 2), (32, 3)])
def test_random_commands_get_the_same_replies_and_make_the_same_events(
    servers: list[AnabranchServer | RedisServer], seed: int, resp: int
) -> None:
    compare(servers, seed, resp, COMMANDS)


def test_a_region_gives_the_same_replies_and_makes_the_same_events(
    servers: list[AnabranchServer | RedisServer],
) -> None:
    gossip_port = str(free_port())
    words = ("--region-id", "1", "--region-name", "eu", "--cluster-create", "yes")
    with AnabranchServer(extra=(*words, "--gossip-port", gossip_port)) as region:
        compare([region, servers[1]], 33, 2, COMMANDS // 4)


def test_sums_of_all_pairs_of_numbers_are_equal(
    servers: list[AnabranchServer | RedisServer],
) -> None:
    sent = [
        command
        for one, other in product(FLOATS + HEXADECIMAL, repeat=2)
        for command in ((b"SET", b"k", one), (b"INCRBYFLOAT", b"k", other))
    ]
    with servers[0].client() as our_client, servers[1].client() as their_client:
        ours, theirs = our_client.pipeline(sent), their_client.pipeline(sent)
    for each, our_reply, their_reply in zip(sent, ours, theirs, strict=True):
        assert our_reply == their_reply, each


def compare(
    servers: Sequence[AnabranchServer | RedisServer], seed: int, resp: int, commands: int
) -> None:
    """Send both servers the same random commands."""
    rng = random.Random(seed)
    errors = 0
    with ExitStack() as stack:
        clients = [stack.enter_context(each.client(resp)) for each in servers]
        listeners = [stack.enter_context(each.client()) for each in servers]
        for client, listener in zip(clients, listeners, strict=True):
            client.pipeline(
                [("FLUSHALL",), ("CONFIG", "SET", "notify-keyspace-events", "KEg$lsxtm")]
            )
            listener.call("PSUBSCRIBE", "__key*")
        for _ in range(commands // TOGETHER):
            sent = [command(rng) for _ in range(TOGETHER)]
            replies = [client.pipeline(sent) for client in clients]
            queued: list[list[bytes]] | None = None
            for number, each in enumerate(sent):
                ours, theirs = (comparable(reply[number], each, queued) for reply in replies)
                if each[0] == b"MULTI":
                    queued = queued or []
                elif each[0] == b"EXEC":
                    queued = None
                elif queued is not None and theirs[0] != "-":
                    queued.append(each)
                assert ours == theirs, f"{each!r}, before it {sent[max(0, number - 3) : number]!r}"
                errors += theirs[0] == "-"
            for client in clients:
                client.call("DISCARD" if queued is not None else "PING")
            events = [
                strip_new(events_of(listener, client))
                for listener, client in zip(listeners, clients, strict=True)
            ]
            for ours, theirs in zip_longest(*events):
                assert ours == theirs
    assert errors < commands * 0.6, "most commands fail: they try nothing"


def test_drawn_members_are_members(servers: list[AnabranchServer | RedisServer]) -> None:
    for server in servers:
        for resp in (2, 3):
            with server.client(resp) as client:
                client.pipeline([("DEL", "set"), ("SADD", "set", *"abcdefgh")])
                members = {("$", each.encode()) for each in "abcdefgh"}
                assert client.call("SRANDMEMBER", "set") in members
                kind, some = client.call("SRANDMEMBER", "set", 3)
                assert (kind, len(set(some)), set(some) <= members) == ("*", 3, True)
                kind, some = client.call("SRANDMEMBER", "set", -30)
                assert (kind, len(some), set(some) <= members) == ("*", 30, True)
                kind, some = client.call("SPOP", "set", 3)
                assert (kind, len(set(some))) == ("*" if resp == 2 else "~", 3)
                one = client.call("SPOP", "set")
                left = set(client.call("SMEMBERS", "set")[1])
                assert left == members - set(some) - {one}


def test_the_table_says_the_same_of_them(servers: list[AnabranchServer | RedisServer]) -> None:
    names = sorted({template[0] for template in TEMPLATES} - {"XADD", "MULTI", "EXEC"})
    rows = []
    for server in servers:
        with server.client() as client:
            rows.append(dict(zip(names, client.call("COMMAND", "INFO", *names)[1], strict=True)))
    newer = {("+", b"noscript")}  # flags that versions after 7.0 dropped
    for name in names:
        ours, theirs = rows[0][name][1], rows[1][name][1]
        assert ours[:2] == theirs[:2], name
        assert set(ours[2][1]) == set(theirs[2][1]) - newer, name
        assert ours[3:6] == theirs[3:6], name
        assert set(ours[6][1]) == set(theirs[6][1]), name
        if name != "SET":  # versions after 7.0 describe it otherwise
            assert ours[8] == theirs[8], name


MADE_BY: list[tuple[str, ...]] = [
    *(("SET", "e", "5"), ("SET", "e", "-9223372036854775808"), ("SET", "e", "9223372036854775808")),
    *(("SET", "e", "05"), ("SET", "e", ""), ("SET", "e", "x" * 44), ("SET", "e", "x" * 45)),
    *(("SET", "e", "x" * 5000), ("APPEND", "e", "5"), ("APPEND", "e", ""), ("SETRANGE", "e", 0, 5)),
    *(("SETRANGE", "e", 3, "x"), ("SETRANGE", "e", 5000, "x"), ("SETRANGE", "e", 3, "")),
    *(("INCR", "e"), ("INCRBYFLOAT", "e", 1), ("INCRBYFLOAT", "e", "0.5"), ("GETSET", "e", "7")),
    *(("MSET", "e", "7", "f", "x"), ("SETNX", "e", "7"), ("SETEX", "e", "100", "7"), ("GET", "e")),
]
CHANGED_BY: list[tuple[str, ...]] = [
    *(("SET", "e", "6"), ("SET", "e", "x"), ("GETSET", "e", "8"), ("GETSET", "e", "y" * 45)),
    *(("APPEND", "e", ""), ("APPEND", "e", "1"), ("APPEND", "e", "z" * 5000), ("GETEX", "e")),
    *(("SETRANGE", "e", 0, "1"), ("SETRANGE", "e", 1, "y"), ("SETRANGE", "e", 1, "")),
    *(("SETRANGE", "e", 5000, "z"), ("INCR", "e"), ("DECRBY", "e", 3), ("INCRBYFLOAT", "e", "1")),
    *(("INCRBYFLOAT", "e", "0.25"), ("COPY", "e", "g"), ("RENAME", "e", "g"), ("PERSIST", "e")),
    *(("DUMP and RESTORE",), ("SET", "e", "7", "KEEPTTL"), ("MSET", "e", "1")),
]


def restored(client: RespClient) -> list[Reply]:
    """What a RESTORE of a DUMP answers."""
    payload = client.call("DUMP", "e")[1]
    return [] if payload is None else [client.call("RESTORE", "e", 0, payload, "REPLACE")]


def test_strings_have_the_same_encodings(servers: list[AnabranchServer | RedisServer]) -> None:
    """All that makes a string, with each two of what changes it."""
    seen = []
    for server in servers:
        with server.client() as client:
            answers: list[tuple[Any, ...]] = []
            for made in MADE_BY:
                for first in CHANGED_BY:
                    for second in CHANGED_BY:
                        client.call("DEL", "e", "f", "g")
                        replies = [client.call(*made)]
                        for each in (first, second):
                            if each[0].startswith("DUMP"):
                                replies += restored(client)
                            else:
                                replies.append(client.call(*each))
                        for key in ("e", "g"):
                            replies += client.pipeline(
                                [("OBJECT", "ENCODING", key), ("GET", key), ("STRLEN", key)]
                            )
                        answers.append((made, first, second, replies))
            seen.append(answers)
    for ours, theirs in zip(*seen, strict=True):
        assert ours == theirs
