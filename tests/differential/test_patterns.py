"""Random patterns: SCAN MATCH, KEYS, PSUBSCRIBE and ACL rules choose what redis-server chooses."""

from __future__ import annotations

import platform
import random
from collections.abc import Iterator

import pytest

from tests.support.servers import AnabranchServer, RedisServer, redis_server_path
from tests.support.wire import RespClient

PATTERNS = 4000
KEYS = 400

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")

LETTERS = [b"a", b"b", b"c", b"A", b"-", b"]", b"[", b"^", b"\\", b"*", b"?", b"\n", b"\0", b" "]
PIECES = [
    *(b"*", b"**", b"?", b"[ab]", b"[^a]", b"[a-c]", b"[c-a]", b"[^a-b]", b"[", b"[^", b"]"),
    *(b"\\*", b"\\?", b"\\[", b"\\\\", b"\\a", b"[\\]]", b"[\\]-a]", b"[]", b"[^]", b"[a-", b"[a"),
    *(b"[a-]", b"[-a]", b"[?*]", b"[a\\", b"[^\\a]", b"a*a", b"ab", b"abc", b"aa"),
]
if platform.machine() in {"x86_64", "AMD64"}:  # Redis compares by the compiler's kind of char
    LETTERS += [b"\xff", b"\x80", b"\x7f"]
    PIECES += [b"[a-\xff]", b"[\x80-\x7f]", b"[^\x7f-\x80]", b"\xff", b"[\xff]"]


@pytest.fixture(scope="module")
def both() -> Iterator[list[RespClient]]:
    with (
        AnabranchServer() as ours,
        RedisServer() as theirs,
        ours.client() as our,
        theirs.client() as their,
    ):
        rng = random.Random(17)
        keys = {b""} | {b"".join(rng.choices(LETTERS, k=rng.randrange(9))) for _ in range(KEYS)}
        for client in (our, their):
            client.pipeline([("SET", key, "v") for key in sorted(keys)])
        yield [our, their]


def pattern(rng: random.Random) -> bytes:
    made = b"".join(rng.choices([*PIECES, *LETTERS], k=rng.randrange(1, 8)))
    # A long one is matched by other code: it means the same as what is in front of the stars.
    return made + b"*" * 130 if rng.random() < 0.25 else made


def test_keys_and_scan_find_the_same(both: list[RespClient]) -> None:
    rng = random.Random(18)
    patterns = [pattern(rng) for _ in range(PATTERNS)]
    scans = [("SCAN", 0, "MATCH", each, "COUNT", 100_000) for each in patterns]
    found = [client.pipeline([("KEYS", each) for each in patterns]) for client in both]
    scanned = [client.pipeline(scans) for client in both]
    hits = 0
    for number, each in enumerate(patterns):
        (_, ours), (_, theirs) = found[0][number], found[1][number]
        assert sorted(ours) == sorted(theirs), f"KEYS {each!r}"
        (_, (_, (_, ours))), (_, (_, (_, theirs))) = scanned[0][number], scanned[1][number]
        assert sorted(ours) == sorted(theirs), f"SCAN MATCH {each!r}"
        hits += bool(ours)
    assert hits > PATTERNS / 4, "most patterns match nothing: they try nothing"


def test_channels_reach_the_same_patterns(both: list[RespClient]) -> None:
    rng = random.Random(19)
    patterns = sorted({pattern(rng) for _ in range(200)})
    channels = [b"".join(rng.choices(LETTERS, k=rng.randrange(9))) for _ in range(300)]
    counts = []
    for client in both:
        with RespClient(client.socket.getpeername()[1]) as listener:
            listener.send("PSUBSCRIBE", *patterns)
            for _ in patterns:
                listener.read_reply()
            counts.append(client.pipeline([("PUBLISH", each, "x") for each in channels]))
    assert counts[0] == counts[1]


def test_rules_allow_the_same_keys(both: list[RespClient]) -> None:
    rng = random.Random(20)
    kept = []
    for _ in range(300):
        each = pattern(rng)
        if not any(byte in b" \t\n\v\f\r\0" for byte in each):
            kept.append(each)
    keys = [b"".join(rng.choices(LETTERS, k=rng.randrange(6))) for _ in range(30)]
    answers = []
    for client in both:
        lines: list[tuple[bytes | str, ...]] = []
        for each in kept:
            lines.append(("ACL", "SETUSER", "u", "reset", "+get", b"~" + each))
            lines += [("ACL", "DRYRUN", "u", "GET", key) for key in keys]
        answers.append([reply[1] == b"OK" for reply in client.pipeline(lines)])
    assert answers[0] == answers[1]


def test_config_get_chooses_the_same_directives(both: list[RespClient]) -> None:
    rng = random.Random(21)
    words = [b"max", b"m", b"A", b"-", b"*", b"*", b"?", b"[a-z]", b"[^-]", b"[A-M]", b"lru", b"hz"]
    for _ in range(300):
        each = b"".join(rng.choices(words, k=rng.randrange(1, 6)))
        names = []
        for client in both:
            _, reply = client.call("CONFIG", "GET", each)
            names.append({value for _, value in reply[::2]})
        known = names[0] & names[1]
        both_know = {b"maxmemory", b"maxclients", b"hz", b"timeout", b"port", b"dir"}
        assert names[0] & both_know == names[1] & both_know == known & both_know, each


def test_what_is_too_long_is_refused_and_costs_nothing(both: list[RespClient]) -> None:
    client = both[0]
    long = b"[ab]*" * 2_000_000
    error = ("-", b"ERR pattern is too long: 4096 bytes are allowed")
    assert client.call("SCAN", 0, "MATCH", long) == error
    assert client.call("KEYS", long) == error
    assert client.call("CONFIG", "GET", long) == error
    assert client.call("PSUBSCRIBE", "short*", long) == error
    assert client.call("PUBSUB", "NUMPAT") == (":", 0)
    assert client.call("PUBSUB", "CHANNELS", long) == error
    assert client.call("COMMAND", "LIST", "FILTERBY", "PATTERN", long) == error
    kind, text = client.call("ACL", "SETUSER", "long", b"~" + long[:4097])
    assert kind == "-"
    assert text.endswith(b": The pattern is too long: 4096 bytes are allowed")
    assert client.call("ACL", "GETUSER", "long")[1] is None
