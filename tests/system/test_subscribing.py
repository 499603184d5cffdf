"""Subscriptions to entries over sockets: a raw one, and redis-py with its handler of pushes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hiredis
import pytest
import redis

from anabranch.testing import Server
from tests.support.servers import server_in


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


@pytest.fixture
def r(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port, decode_responses=True) as client:
        client.flushall()
        yield client


class RawClient:
    """A connection that reads one reply or push after the other."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.reader = hiredis.Reader()
        self.send("HELLO", "3")
        self.next()

    def send(self, *words: str) -> None:
        self.socket.sendall(hiredis.pack_command(words))

    def next(self) -> Any:
        while (reply := self.reader.gets()) is False:
            data = self.socket.recv(1 << 16)
            assert data, "the server has closed the connection"
            self.reader.feed(data)
        return reply


@pytest.fixture
def raw(server: Server) -> Iterator[RawClient]:
    client = RawClient(server.port)
    yield client
    client.socket.close()


def test_a_raw_connection_gets_pushes_between_its_replies(r: redis.Redis, raw: RawClient) -> None:
    for key in ("a", "b"):
        r.xgroup_create(key, "g", "$", mkstream=True)
    raw.send("AB.SUBSCRIBE", "CREDIT", "2", "GROUP", "g", "w", "STREAMS", "a", "b")
    assert raw.next() == b"OK"
    pushes = []
    for number in range(4):
        r.xadd("ab"[number % 2], {"n": number}, id=f"{number + 1}-0")
    pushes += [raw.next(), raw.next()]
    assert all(isinstance(each, hiredis.PushNotification) for each in pushes)
    assert pushes == [
        [b"ab.entries", [[b"a", [[b"1-0", [b"n", b"0"]]]]]],
        [b"ab.entries", [[b"b", [[b"2-0", [b"n", b"1"]]]]]],
    ]
    raw.send("PING")
    assert raw.next() == b"PONG"
    raw.send("XACK", "a", "g", "1-0")
    assert raw.next() == 1
    assert raw.next() == [b"ab.entries", [[b"b", [[b"4-0", [b"n", b"3"]]]]]]
    raw.send("XACK", "b", "g", "2-0")
    assert raw.next() == 1
    assert raw.next() == [b"ab.entries", [[b"a", [[b"3-0", [b"n", b"2"]]]]]]
    r.delete("a", "b")
    kinds = [raw.next()[0] for _ in range(3)]
    assert kinds == [b"ab.gone", b"ab.gone", b"ab.unsubscribed"]


def test_a_connection_that_is_killed_gives_up_its_subscription(
    r: redis.Redis, raw: RawClient
) -> None:
    raw.send("CLIENT", "ID")
    number = raw.next()
    raw.send("AB.SUBSCRIBE", "CREDIT", "9", "FROM", "$", "PATTERN", "*")
    assert raw.next() == b"OK"
    (row,) = [each for each in r.client_list(_type="pubsub") if each["id"] == str(number)]
    assert row["flags"] == "P"
    assert r.client_kill_filter(_id=number) == 1
    assert r.info("clients")["total_blocking_keys"] == 0


def test_a_client_that_does_not_read_is_closed_as_other_subscribers_are(
    r: redis.Redis, raw: RawClient
) -> None:
    before = r.config_get("client-output-buffer-limit")
    r.config_set("client-output-buffer-limit", "pubsub 1mb 0 0")
    raw.send("AB.SUBSCRIBE", "CREDIT", "1000000", "FROM", "$", "STREAMS", "a")
    assert raw.next() == b"OK"
    for _ in range(200):  # more than sockets and the limit hold
        r.xadd("a", {"f": "x" * 200_000}, maxlen=2)
        if not r.client_list(_type="pubsub"):
            break
    assert not r.client_list(_type="pubsub")
    r.config_set("client-output-buffer-limit", before["client-output-buffer-limit"])


def test_redis_py_hands_pushes_to_its_handler(server: Server, r: redis.Redis) -> None:
    """A worker that works with the entries in the order in which they come."""
    pushes: list[Any] = []
    with redis.Redis(port=server.port, protocol=3, decode_responses=True) as client:
        feed = client.pubsub(push_handler_func=pushes.append)
        keys = [f"stream:{number}" for number in range(50)]
        for key in keys:
            r.xgroup_create(key, "g", "$", mkstream=True)
        feed.execute_command("AB.SUBSCRIBE", "CREDIT", 10, "GROUP", "g", "w", "STREAMS", *keys)
        assert feed.connection.read_response() == "OK"
        added = {(key, r.xadd(key, {"n": n})) for n in range(4) for key in keys}
        got = set()
        while len(got) < len(added):
            while not pushes:
                feed.parse_response()
            (kind, rows) = pushes.pop(0)
            assert kind == "ab.entries"
            for key, entries in rows:
                for entry_id, _ in entries:
                    assert (key, entry_id) not in got
                    got.add((key, entry_id))
                    assert r.xpending_range(key, "g", "-", "+", 100)
                    feed.execute_command("XACK", key, "g", entry_id)
                    assert feed.connection.read_response() == 1
        assert got == added
        feed.close()


def entries_of(push: Any) -> list[bytes]:
    """The IDs of a push of entries of one stream."""
    assert push[0] == b"ab.entries"
    ((_, entries),) = push[1]
    return [entry_id for entry_id, _ in entries]


def test_what_a_killed_server_has_pushed_is_pending_and_nothing_is_pushed_twice(
    tmp_path: Path,
) -> None:
    """A client comes back under its name, and another one is given what it leaves."""
    words = ["AB.SUBSCRIBE", "CREDIT", "4", "GROUP", "g"]
    with server_in(tmp_path, "--appendfsync", "always") as server:
        raw = RawClient(server.port)
        raw.send("AB.POLICY", "SET", "jobs", "lease", "connection:50ms")
        raw.send("XGROUP", "CREATE", "jobs", "g", "0", "MKSTREAM")
        raw.send(*words, "ann", "STREAMS", "jobs")
        assert [raw.next() for _ in range(3)] == [b"OK"] * 3
        with redis.Redis(port=server.port) as r:
            ids = [r.xadd("jobs", {"n": number}) for number in range(6)]
        pushed = [raw.next() for _ in range(4)]
        assert [each for push in pushed for each in entries_of(push)] == ids[:4]
        raw.send("XACK", "jobs", "g", ids[1].decode())
        assert raw.next() == 1
        assert entries_of(raw.next()) == [ids[4]]
        server.kill()
        raw.socket.close()

        server.start()
        ann, bob = RawClient(server.port), RawClient(server.port)
        ann.send("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "jobs", "0")
        assert [each for each, _ in ann.next()[b"jobs"]] == [ids[0], *ids[2:5]]
        ann.send(*words, "ann", "STREAMS", "jobs")
        assert ann.next() == b"OK"
        ann.send("XACK", "jobs", "g", ids[0].decode())
        assert ann.next() == 1
        assert entries_of(ann.next()) == [ids[5]], "nothing is pushed again to who has it"
        bob.send(*words, "bob", "STREAMS", "jobs")
        assert bob.next() == b"OK"
        ann.socket.close()
        given: list[bytes] = []
        while len(given) < 4:
            given += entries_of(bob.next())
        assert sorted(given) == ids[2:]
        bob.socket.close()
