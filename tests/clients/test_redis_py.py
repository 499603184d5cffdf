"""redis-py as people use it, synchronous, in both protocols."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.inspection import number, wait_until
from tests.support.servers import AnabranchServer

Client = Any  # redis-py's types say of most replies that they may be anything


@pytest.fixture(params=[2, 3], ids=["RESP2", "RESP3"])
def connect(
    server: AnabranchServer, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Client]]:
    """Makes clients of one protocol."""
    made = []

    def another(**options: object) -> Client:
        settings: dict[str, Any] = {"decode_responses": True, "db": 3, **options}
        client = redis.Redis(port=server.port, protocol=request.param, **settings)
        made.append(client)
        return client

    yield another
    for client in made:
        client.close()


@pytest.fixture
def client(connect: Callable[..., Client]) -> Client:
    """One of them."""
    return connect()


def streams(reply: Any) -> dict[str, list[tuple[str, dict[str, str]]]]:
    """Entries by stream; redis-py gives lists in RESP2 and a dictionary in RESP3."""
    if isinstance(reply, dict):
        return {name: entries for name, (entries,) in reply.items()}
    return dict(reply)


def blocked(client: Client, count: int = 1) -> None:
    wait_until(lambda: client.info("clients")["blocked_clients"] == count, f"{count} blocked")


# -- streams and groups ---------------------------------------------------------------------------


def test_produce_and_read_ranges(client: Client) -> None:
    ids = [client.xadd("s", {"n": n, "unit": "°C"}) for n in range(5)]
    assert sorted(ids) == ids
    assert client.xlen("s") == 5
    last = "99999999999999-1"
    assert client.xadd("s", {"n": "last"}, id=last, maxlen=3, approximate=False) == last
    assert client.xrange("s") == [
        (ids[3], {"n": "3", "unit": "°C"}),
        (ids[4], {"n": "4", "unit": "°C"}),
        (last, {"n": "last"}),
    ]
    assert client.xrevrange("s", count=1) == [(last, {"n": "last"})]
    assert client.xrange("s", f"({ids[3]}", ids[4]) == [(ids[4], {"n": "4", "unit": "°C"})]
    assert streams(client.xread({"s": ids[4], "t": 0})) == {"s": [(last, {"n": "last"})]}
    assert client.xdel("s", ids[4], "1-1") == 1
    assert client.xtrim("s", maxlen=0, approximate=False) == 2
    assert client.xadd("none", {"a": "b"}, nomkstream=True) is None


def test_group_round_trip(client: Client) -> None:
    assert client.xgroup_create("s", "g", "$", mkstream=True) is True
    for n in range(1, 5):
        client.xadd("s", {"n": n}, id=f"{n}-0")
    first = client.xreadgroup("g", "alice", {"s": ">"}, count=3, block=1000)
    assert streams(first) == {"s": [("1-0", {"n": "1"}), ("2-0", {"n": "2"}), ("3-0", {"n": "3"})]}
    assert streams(client.xreadgroup("g", "bob", {"s": ">"})) == {"s": [("4-0", {"n": "4"})]}
    assert streams(client.xreadgroup("g", "bob", {"s": ">"})) == {}
    assert client.xack("s", "g", "1-0", "9-9") == 1
    assert client.xpending("s", "g") == {
        "pending": 3,
        "min": "2-0",
        "max": "4-0",
        "consumers": [{"name": "alice", "pending": 2}, {"name": "bob", "pending": 1}],
    }
    pending = client.xpending_range("s", "g", "-", "+", 10, "alice", idle=0)
    assert [(one["message_id"], one["consumer"], one["times_delivered"]) for one in pending] == [
        ("2-0", "alice", 1),
        ("3-0", "alice", 1),
    ]
    assert all(0 <= one["time_since_delivered"] < 10_000 for one in pending)
    assert client.xclaim("s", "g", "bob", 0, ["2-0"]) == [("2-0", {"n": "2"})]
    assert client.xclaim("s", "g", "bob", 3_600_000, ["3-0"]) == []
    assert client.xclaim("s", "g", "bob", 0, ["3-0"], justid=True, retrycount=7) == ["3-0"]
    assert client.xautoclaim("s", "g", "carol", 0, count=2) == [
        "4-0",
        [("2-0", {"n": "2"}), ("3-0", {"n": "3"})],
        [],
    ]
    history = streams(client.xreadgroup("g", "carol", {"s": "0"}))
    assert [entry_id for entry_id, _ in history["s"]] == ["2-0", "3-0"]
    times = client.xpending_range("s", "g", "3-0", "3-0", 1)[0]["times_delivered"]
    assert times == 9  # seven by retrycount, one by XAUTOCLAIM, one by reading the history
    assert client.xgroup_delconsumer("s", "g", "carol") == 2
    assert client.xgroup_destroy("s", "g") == 1


def test_entries_given_back_and_claimed_while_reading(client: Client) -> None:
    client.xgroup_create("s", "g", "$", mkstream=True)
    for n in range(1, 4):
        client.xadd("s", {"n": n}, id=f"{n}-0")
    client.xreadgroup("g", "alice", {"s": ">"}, count=2)
    assert client.xnack("s", "g", "FAIL", "1-0") == 1
    claimed = client.xreadgroup("g", "bob", {"s": ">"}, claim_min_idle_time=0)
    (entries,) = claimed["s"] if isinstance(claimed, dict) else [dict(claimed)["s"]]
    assert [entry[0] for entry in entries] == ["1-0", "2-0", "3-0"]
    assert client.xackdel("s", "g", "1-0", "9-9", ref_policy="DELREF") == [1, -1]
    assert client.xdelex("s", "2-0", "0-1", ref_policy="ACKED") == [2, -1]
    assert client.xlen("s") == 2


def test_information_about_streams_groups_and_consumers(client: Client) -> None:
    client.xadd("s", {"a": "b"}, id="1-1")
    client.xadd("s", {"a": "c"}, id="2-1")
    client.xgroup_create("s", "g", "0")
    client.xreadgroup("g", "alice", {"s": ">"}, count=1)
    stream = client.xinfo_stream("s")
    assert stream["length"] == stream["entries-added"] == 2
    assert stream["last-generated-id"] == "2-1"
    assert stream["first-entry"] == ("1-1", {"a": "b"})
    assert stream["last-entry"] == ("2-1", {"a": "c"})
    assert client.xinfo_groups("s") == [
        {
            "name": "g",
            "consumers": 1,
            "pending": 1,
            "last-delivered-id": "1-1",
            "entries-read": 1,
            "lag": 1,
        }
    ]
    (consumer,) = client.xinfo_consumers("s", "g")
    assert (consumer["name"], consumer["pending"]) == ("alice", 1)
    assert 0 <= consumer["inactive"] < 10_000
    full = client.xinfo_stream("s", full=True)
    assert full["entries"] == {"1-1": {"a": "b"}, "2-1": {"a": "c"}}
    (group,) = full["groups"]
    assert group["pel-count"] == 1
    assert group["consumers"][0]["pending"][0][0] == "1-1"


def test_a_blocked_read_is_served_by_another_connection(
    client: Client, connect: Callable[..., Client]
) -> None:
    reader = connect()
    with ThreadPoolExecutor(1) as threads:
        reading = threads.submit(reader.xread, {"s": "$", "t": "$"}, block=0)
        blocked(client)
        added = client.xadd("t", {"news": "yes"})
        assert streams(reading.result(60)) == {"t": [(added, {"news": "yes"})]}
        client.xgroup_create("s", "g", "$", mkstream=True)
        working = threads.submit(reader.xreadgroup, "g", "c", {"s": ">"}, block=0)
        blocked(client)
        client.xadd("s", {"task": "1"}, id="5-5")
        assert streams(working.result(60)) == {"s": [("5-5", {"task": "1"})]}


def test_a_blocked_read_ends_with_nothing(client: Client) -> None:
    started = time.monotonic()
    assert not client.xread({"s": "$"}, block=60)
    assert time.monotonic() - started >= 0.06


def test_idempotent_production(client: Client) -> None:
    once = client.xadd("s", {"a": "b"}, idmp=("producer", b"order-1"))
    assert client.xadd("s", {"a": "b"}, idmp=("producer", b"order-1")) == once
    auto = client.xadd("s", {"x": "y"}, idmpauto="producer")
    assert client.execute_command("XADD", "s", "IDMPAUTO", "producer", "*", "x", "y") == auto
    assert client.xlen("s") == 2
    assert client.xcfgset("s", idmp_duration=50, idmp_maxsize=7)
    info = client.xinfo_stream("s")
    assert (info["idmp-duration"], info["idmp-maxsize"], info["iids-duplicates"]) == (50, 7, 2)


def test_binary_data_comes_back_as_it_was(connect: Callable[..., Client]) -> None:
    client = connect(decode_responses=False)
    binary = bytes(range(256)) + b"\r\n$1\r\n"
    added = client.xadd(binary, {binary: binary, b"": b""})
    assert client.xrange(binary) == [(added, {binary: binary, b"": b""})]


# -- transactions, pipelines, pools ---------------------------------------------------------------


def test_transactions(client: Client, connect: Callable[..., Client]) -> None:
    with client.pipeline(transaction=True) as pipe:
        pipe.xadd("s", {"a": "b"}, id="1-1").xlen("s").xadd("s", {"a": "b"}, id="1-1")
        added, length, refused = pipe.execute(raise_on_error=False)
    assert (added, length) == ("1-1", 1)
    assert isinstance(refused, redis.ResponseError)
    assert "equal or smaller" in str(refused)
    with client.pipeline() as pipe:
        pipe.watch("s")
        connect().xadd("s", {"a": "b"}, id="2-1")
        pipe.multi()
        pipe.xlen("s")
        with pytest.raises(redis.WatchError):
            pipe.execute()


def test_a_long_pipeline(client: Client) -> None:
    with client.pipeline(transaction=False) as pipe:
        for n in range(2000):
            pipe.xadd("s", {"n": n}, id=f"{n + 1}-0")
        assert pipe.execute() == [f"{n + 1}-0" for n in range(2000)]
    assert client.xlen("s") == 2000


def test_a_pool_shared_by_threads(
    server: AnabranchServer, client: Client, connect: Callable[..., Client]
) -> None:
    shared = connect(max_connections=8)
    start = threading.Barrier(8)

    def produce(worker: int) -> list[str]:
        start.wait(60)
        return [shared.xadd("s", {"worker": worker, "n": n}) for n in range(50)]

    with ThreadPoolExecutor(8) as threads:
        ids = [each for made in threads.map(produce, range(8)) for each in made]
    assert len(set(ids)) == 400
    assert [entry_id for entry_id, _ in client.xrange("s")] == sorted(
        ids, key=lambda each: tuple(map(int, each.split("-")))
    )
    shared.close()
    client.close()
    with server.client() as raw:
        wait_until(lambda: number(raw, "connected_clients") == 1, "the pool is closed")


# -- the rest of a client's life ------------------------------------------------------------------


def test_the_server_knows_who_it_talks_to(connect: Callable[..., Client]) -> None:
    client = connect(client_name="tester")
    info = client.client_info()
    assert (info["name"], info["lib-name"], info["db"]) == ("tester", "redis-py", 3)
    assert info["lib-ver"] == redis.__version__
    assert client.client_getname() == "tester"
    assert [one["name"] for one in client.client_list(client_id=[client.client_id()])] == ["tester"]


def test_publish_and_subscribe(client: Client) -> None:
    with client.pubsub() as listener:
        listener.subscribe("news")
        listener.psubscribe("new*")
        confirmed = [listener.get_message(timeout=60) for _ in range(2)]
        assert [(one["type"], one["data"]) for one in confirmed] == [
            ("subscribe", 1),
            ("psubscribe", 2),
        ]
        assert client.publish("news", "hello") == 2
        heard = [listener.get_message(timeout=60) for _ in range(2)]
        assert [(one["type"], one["channel"], one["data"]) for one in heard] == [
            ("message", "news", "hello"),
            ("pmessage", "news", "hello"),
        ]
        listener.punsubscribe("new*")
        assert listener.get_message(timeout=60)["data"] == 1
        assert client.publish("news", "again") == 1


def test_keyspace_events(client: Client) -> None:
    client.config_set("notify-keyspace-events", "KEA")
    try:
        with client.pubsub() as listener:
            listener.subscribe("__keyevent@3__:xadd")
            assert listener.get_message(timeout=60)["type"] == "subscribe"
            client.xadd("s", {"a": "b"})
            assert listener.get_message(timeout=60)["data"] == "s"
    finally:
        client.config_set("notify-keyspace-events", "")


def test_errors_have_their_classes(client: Client) -> None:
    client.set("string", "text")
    client.xgroup_create("s", "g", mkstream=True)
    with pytest.raises(redis.ResponseError, match=r"^WRONGTYPE "):
        client.xadd("string", {"a": "b"})
    with pytest.raises(redis.ResponseError, match=r"^BUSYGROUP "):
        client.xgroup_create("s", "g")
    with pytest.raises(redis.ResponseError, match=r"^NOGROUP "):
        client.xreadgroup("no", "c", {"s": ">"})
    with pytest.raises(redis.ResponseError, match=r"^unknown command 'HSET'"):
        client.hset("h", "f", "v")
    client.set_retry(Retry(NoBackoff(), 0))  # else it tries a wrong password for seconds
    with pytest.raises(redis.AuthenticationError):
        client.auth("wrong")
    assert client.ping()


def test_introspection(client: Client) -> None:
    client.xadd("s", {"a": "b"})
    assert client.command_count() == len(client.command())
    assert client.command_getkeys("XREAD", "STREAMS", "a", "b", 0, 0) == ["a", "b"]
    assert client.info()["redis_mode"] == "standalone"
    assert client.info("keyspace")["db3"]["keys"] == 1
    assert client.config_get("stream-*")["stream-node-max-entries"] == "100"
    assert client.memory_usage("s") > 0
    assert client.type("s") == "stream"
    assert client.object("encoding", "s") == "stream"
    assert client.slowlog_len() >= 0
    assert client.time()[0] > 1_700_000_000
    assert client.acl_whoami() == "default"
    assert client.module_list() == []
    assert client.role()[0] in ("master", b"master")
    assert client.dbsize() == 1
    assert list(client.scan_iter("s*", _type="stream")) == ["s"]


def test_a_dump_can_be_restored(connect: Callable[..., Client]) -> None:
    client = connect(decode_responses=False)
    client.xadd("s", {"a": "b"}, id="1-1")
    client.xgroup_create("s", "g", "0")
    client.xreadgroup("g", "c", {"s": ">"})
    assert client.restore("copy", 0, client.dump("s"))
    assert client.xrange("copy") == [(b"1-1", {b"a": b"b"})]
    assert client.xpending("copy", "g")["pending"] == 1


def test_monitoring(client: Client, connect: Callable[..., Client]) -> None:
    with connect().monitor() as monitor:
        client.xadd("s", {"a": "b c"}, id="1-1")
        shown = next(one for one in monitor.listen() if "XADD" in one["command"])
    assert shown["command"] == "XADD s 1-1 a b c"
    assert shown["db"] == 3
