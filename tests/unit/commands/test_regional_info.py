"""AB.INFO, AB.LAG and AB.DIGEST on a server of its own.

Between regions: ``tests/active_active/test_regional_commands.py``.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.streams import Streams


@pytest.fixture
def server() -> Streams:
    return Streams()


def pairs(flat: list[Any]) -> dict[bytes, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def filled(server: Streams, key: str = "s") -> None:
    for ms in range(1, 6):
        server.do("XADD", key, f"{ms}-0", "f", "v")


# -- AB.LAG -----------------------------------------------------------------------------------


def lags(server: Streams, *groups: str) -> dict[bytes, int]:
    found = {}
    for row in map(pairs, server.do("AB.LAG", "s", *groups)):
        assert row[b"regions"] == [[0, row[b"lag"]]]
        found[row[b"name"]] = row[b"lag"]
    return found


def test_lag_is_counted_where_redis_answers_null(server: Streams) -> None:
    filled(server)
    server.do("XGROUP", "CREATE", "s", "g", "0")
    server.do("XGROUP", "CREATE", "s", "h", "$")
    server.do("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "s", ">")
    server.do("XDEL", "s", "3-0")
    assert pairs(server.do("XINFO", "GROUPS", "s")[0])[b"lag"] is None
    assert lags(server) == {b"g": 3, b"h": 0}
    assert lags(server, "h") == {b"h": 0}
    server.do("XGROUP", "SETID", "s", "g", "4")
    assert lags(server, "g", "h") == {b"g": 1, b"h": 0}


def test_lag_is_what_a_read_would_return(server: Streams) -> None:
    chance = random.Random(3)
    server.do("CONFIG", "SET", "stream-node-max-entries", 3)
    server.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for step in range(1, 300):
        server.do("XADD", "s", f"{step}-0", "f", "v")
        dice = chance.random()
        if dice < 0.3:
            server.do("XDEL", "s", f"{chance.randint(1, step)}-0")
        elif dice < 0.5:
            server.do("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">")
        elif dice < 0.55:
            server.do("XGROUP", "SETID", "s", "g", f"{chance.randint(0, step)}-0")
        elif dice < 0.6:
            server.do("XTRIM", "s", "MAXLEN", 20)
        cursor = pairs(server.do("XINFO", "GROUPS", "s")[0])[b"last-delivered-id"]
        due = len(server.do("XRANGE", "s", b"(" + cursor, "+"))
        assert lags(server) == {b"g": due}


def test_lag_of_what_is_missing(server: Streams) -> None:
    assert server.error("AB.LAG", "s") == "ERR no such key"
    filled(server)
    assert server.do("AB.LAG", "s") == []
    assert server.error("AB.LAG", "s", "g") == (
        "NOGROUP No such consumer group 'g' for key name 's'"
    )
    server.do("SET", "k", "v")
    assert server.error("AB.LAG", "k").startswith("WRONGTYPE")


# -- AB.DIGEST --------------------------------------------------------------------------------


def digest(server: Streams, key: str = "s") -> bytes:
    (found,) = server.do("AB.DIGEST", key)
    assert len(found) == 32
    int(found, 16)
    return bytes(found)


def test_equal_contents_have_equal_digests(server: Streams) -> None:
    filled(server)
    filled(server, "t")
    assert digest(server) == digest(server, "t")
    server.do("COPY", "s", "u")
    assert server.do("AB.DIGEST", "u", "none", "s") == [digest(server), None, digest(server)]
    server.do("CONFIG", "SET", "stream-node-max-entries", 2)
    filled(server, "v")
    assert digest(server) == digest(server, "v")
    server.settings.enable_debug_command = "yes"
    server.do("DEBUG", "RELOAD")
    assert digest(server) == digest(server, "v")


def test_whatever_regions_agree_on_changes_the_digest(server: Streams) -> None:
    filled(server)
    seen = {digest(server)}
    for command in (
        ("XADD", "s", "6-0", "f", "v"),
        ("XDEL", "s", "2-0"),
        ("XTRIM", "s", "MAXLEN", 3),
        ("XGROUP", "CREATE", "s", "g", "0"),
        ("XSETID", "s", "100-0"),
        ("PEXPIREAT", "s", 1_800_000_000_000),
    ):
        server.do(*command)
        found = digest(server)
        assert found not in seen, command
        seen.add(found)


def test_who_was_given_what_does_not(server: Streams) -> None:
    filled(server)
    server.do("XGROUP", "CREATE", "s", "g", "0")
    before = digest(server)
    server.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    server.do("XACK", "s", "g", "1-0")
    assert digest(server) == before


# -- AB.INFO ----------------------------------------------------------------------------------


def test_info_of_a_server_of_its_own(server: Streams) -> None:
    filled(server)
    assert pairs(server.do("AB.INFO")) == {
        b"region": 0,
        b"epoch": 0,
        b"members": [],
        b"vector": [],
        b"stable": [],
        b"marked-keys": 0,
        b"mark-count": 0,
        b"unstable-mark-count": 0,
        b"oldest-mark": None,
        b"held-back-by": [],
        b"held-tags": 0,
        b"held-tag-bytes": 0,
    }


def test_info_of_a_key_shows_what_a_cursor_counts(server: Streams) -> None:
    filled(server)
    server.do("XDEL", "s", "1-0", "5-0")
    server.do("XGROUP", "CREATE", "s", "g", "0")
    shown = pairs(server.do("AB.INFO", "s"))
    assert shown[b"exists"] == 1
    assert shown[b"length"] == 3
    assert shown[b"marks"] == []
    (row,) = shown[b"origins"]
    assert pairs(row) == {
        b"region": 0,
        b"epoch": 0,
        b"live": 3,
        b"first-position": 1,
        b"next-position": 5,
        b"first-number": 2,
        b"last-number": 5,
        b"last-id": b"5-0",
        b"floor": 0,
    }
    (group,) = shown[b"groups"]
    assert pairs(group)[b"name"] == b"g"
    server.do("DEL", "s")
    assert server.error("AB.INFO", "s") == "ERR no such key"
    filled(server)
    row = pairs(pairs(server.do("AB.INFO", "s"))[b"origins"][0])
    assert row[b"floor"] >= 5
    assert row[b"first-number"] == row[b"floor"] + 1
    assert row[b"first-position"] == row[b"floor"]
