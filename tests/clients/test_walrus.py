"""walrus: streams and groups as Python containers, and its locks, lists and sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from tests.support.packages import required
from tests.support.servers import AnabranchServer

walrus = required("walrus")


@pytest.fixture
def db(server: AnabranchServer) -> Iterator[Any]:
    database = walrus.Database(port=server.port)
    yield database
    database.close()


def test_a_stream_is_a_container(db: Any) -> None:
    stream = db.Stream("s")
    ids = [stream.add({"n": number}) for number in range(5)]
    assert len(stream) == 5
    assert [entry for entry, _ in stream] == ids
    assert [entry for entry, _ in stream[ids[1] : ids[3]]] == ids[1:4]
    assert stream.info()["last-generated-id"] == ids[-1]
    del stream[ids[0]]
    assert stream.trim(2, approximate=False) == 2
    assert [entry for entry, _ in stream] == ids[3:]


def test_a_group_over_several_streams(db: Any) -> None:
    group = db.consumer_group("g", ["a", "b"], consumer="c1")
    group.create()
    group.set_id("$")
    first, second = group.a.add({"x": 1}), group.b.add({"x": 2})
    assert group.read() == [
        [b"a", [(first, {b"x": b"1"})]],
        [b"b", [(second, {b"x": b"2"})]],
    ]
    assert [each["message_id"] for each in group.a.pending()] == [first]
    assert group.a.claim(first, min_idle_time=0) == [(first, {b"x": b"1"})]
    assert group.a.ack(first) == 1
    other = group.consumer("c2")
    assert other.b.autoclaim("c2", 0)[1] == [(second, {b"x": b"2"})]
    assert {each["name"] for each in group.b.consumers_info()} == {b"c1", b"c2"}
    assert group.destroy() == {"a": True, "b": True}


def test_a_time_series_is_a_group_with_times(db: Any) -> None:
    series = db.time_series("g", ["s"])
    series.create()
    series.s.add({"x": 1})
    (message,) = series.read()
    assert message.data == {"x": "1"}
    assert series.s.ack(message.message_id) == 1


def test_locks_limits_and_counters(db: Any) -> None:
    with db.lock("l", ttl=5000):
        assert not db.lock("l").acquire(block=False)
    assert db.lock("l").acquire(block=False)
    limit = db.rate_limit("r", limit=3, per=60)
    assert [limit.limit("user") for _ in range(5)] == [False, False, False, True, True]
    assert db.counter("n").incr() == 1
    db.cache().set("k", [1])
    assert db.cache().get("k") == [1]


def test_small_lists_and_sets(db: Any) -> None:
    words = db.List("l")
    words.extend(["a", "b", "c"])
    assert list(words) == [b"a", b"b", b"c"]
    assert words.popright() == b"c"
    one, other = db.Set("s1"), db.Set("s2")
    one.add("a", "b")
    other.add("b", "c")
    assert set(one) == {b"a", b"b"}
    assert one & other == {b"b"}
    assert "a" in one


@pytest.mark.parametrize(
    ("use", "command"),
    [
        (lambda db: db.Hash("h").update(a=1), "HSET"),
        (lambda db: db.ZSet("z").add({"a": 1}), "ZADD"),
        (lambda db: db.bit_field("b").incrby("u8", "0", 1).execute(), "BITFIELD"),
    ],
    ids=["Hash", "ZSet", "BitField"],
)
def test_containers_of_other_types_name_the_command(db: Any, use: Any, command: str) -> None:
    with pytest.raises(redis.ResponseError, match=rf"^unknown command '{command}'.*stream server"):
        use(db)
