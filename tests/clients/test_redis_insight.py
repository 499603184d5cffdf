"""What Redis Insight asks, in its order, is answered in the form in which redis-server answers.

Its sequences are replayed: it is a desktop program. They are the connection, the overview, the
browser of keys, the views of a stream and its groups, the profiler and the slow log. In RESP2, as
it uses it; some of its views read fields of XINFO by position.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.servers import AnabranchServer, RedisServer, redis_server_path
from tests.support.wire import Reply, RespClient

pytestmark = pytest.mark.skipif(redis_server_path() is None, reason="needs redis-server")

STREAM = [
    "EXISTS s",
    "XADD s 1-1 f v",
    "XADD s 2-1 f v g w",
    "EXPIRE s 1000",
    "EXISTS s",
    "XINFO STREAM s",
    "XREVRANGE s + - COUNT 500",
    "XRANGE s - + COUNT 500",
    "XGROUP CREATE s g 0",
    "XGROUP CREATE s g 0",
    "XREADGROUP GROUP g c STREAMS s >",
    "XINFO GROUPS s",
    "XPENDING s g",
    "XGROUP SETID s g $",
    "XINFO CONSUMERS s g",
    "XPENDING s g - + 500 c",
    "XCLAIM s g d 0 1-1 2-1 idle 0 retrycount 3 force justid",
    "XCLAIM s g d 0 1-1 time 1000 justid",
    "XACK s g 1-1 9-9",
    "XGROUP DELCONSUMER s g c",
    "XGROUP DELCONSUMER s g d",
    "XGROUP DESTROY s g",
    "XGROUP SETID s nosuch 0",
    "XINFO CONSUMERS s nosuch",
    "XDEL s 1-1 9-9",
    "XINFO STREAM nosuch",
]
KEYS = [
    "SET k v EX 1000",
    "RPUSH l a b",
    "SADD m a b",
    "DBSIZE",
    "SCAN 0 MATCH * COUNT 10000",
    "SCAN 0 MATCH s* COUNT 10000 TYPE stream",
    *(f"{command} {key}" for key in "sklm" for command in ("TYPE", "TTL", "EXISTS")),
    "XLEN s",
    "STRLEN k",
    "GETRANGE k 0 4999",
    "LLEN l",
    "LRANGE l 0 499",
    "LINDEX l 1",
    "LSET l 0 c",
    "SCARD m",
    "SSCAN m 0 MATCH * COUNT 500",
    "SREM m a",
    "RENAMENX k k2",
    "PERSIST k2",
    "DEL k2 nosuch",
    "UNLINK l",
]
OVERVIEW = [
    "CLIENT SETNAME redisinsight-common-1",
    "COMMAND COUNT",
    "MODULE LIST",
    "CONFIG GET databases",
    "CONFIG GET slowlog-max-len",
    "CONFIG GET slowlog-log-slower-than",
    "SLOWLOG LEN",
    "SLOWLOG GET 50",
    "CONFIG SET slowlog-max-len 64",
    "SLOWLOG RESET",
    "ACL WHOAMI",
    "PUBSUB SHARDCHANNELS",
    "PUBLISH chat hello",
    "CLUSTER INFO",
    "CLUSTER NODES",
    "SENTINEL MASTERS",
    "MEMORY USAGE s SAMPLES 0",
]
NEWER = {"XINFO STREAM s", "XINFO CONSUMERS s g"}
"""Replies that have fields more since Redis 7.0, behind those of 7.0 or after them."""
MEASURED = {"MEMORY USAGE s SAMPLES 0", "COMMAND COUNT", "SLOWLOG LEN", "SLOWLOG GET 50"}
UNORDERED = ("SCAN", "SSCAN")


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[RespClient, RespClient]]:
    with (
        AnabranchServer() as ours,
        RedisServer() as theirs,
        ours.client() as one,
        theirs.client() as other,
    ):
        yield one, other


def named(reply: Reply) -> Any:
    """Pairs of name and value as a mapping, at each depth where names are."""
    kind, value = reply
    if kind != "*" or value is None:
        return reply
    if value and len(value) % 2 == 0 and all(k[0] == "$" for k in value[::2]):
        return {k[1]: named(v) for k, v in zip(value[::2], value[1::2], strict=True)}
    return [named(each) for each in value]


def without_times(reply: Any) -> Any:
    """Without what depends on the moment."""
    if isinstance(reply, dict):
        return {k: without_times(v) for k, v in reply.items() if k not in {b"idle", b"inactive"}}
    if isinstance(reply, list):
        return [without_times(each) for each in reply]
    return reply


def contains(ours: Any, theirs: Any) -> bool:
    """Whether ours has every field of theirs, with the same value."""
    if isinstance(theirs, dict):
        return all(name in ours and contains(ours[name], theirs[name]) for name in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(contains, ours, theirs))
    return bool(ours == theirs)


def test_its_sequences_get_the_replies_of_redis(both: tuple[RespClient, RespClient]) -> None:
    for line in STREAM + KEYS + OVERVIEW:
        ours, theirs = (client.call(*line.split()) for client in both)
        if line in MEASURED:
            assert ours[0] == theirs[0], line
        elif line in NEWER:
            assert contains(*(without_times(named(each)) for each in (ours, theirs))), line
        elif line.startswith(UNORDERED):
            pages = [sorted(each[1][1][1]) for each in (ours, theirs)]
            assert pages[0] == pages[1], line
        elif line.startswith("XPENDING s g -"):
            rows = [[row[1][:2] + row[1][3:] for row in each[1]] for each in (ours, theirs)]
            assert rows[0] == rows[1], line
        else:
            assert ours == theirs, line


def test_fields_that_it_reads_by_position_are_first(both: tuple[RespClient, RespClient]) -> None:
    for client in both:
        client.pipeline([("DEL", "s"), ("XADD", "s", "1-1", "f", "v")])
        client.pipeline([("XGROUP", "CREATE", "s", "g", "0")])
        client.pipeline([("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")])
    for words, count in ((("GROUPS", "s"), 8), (("CONSUMERS", "s", "g"), 6)):
        ours, theirs = (client.call("XINFO", *words)[1][0][1] for client in both)
        assert ours[:count:2] == theirs[:count:2]


def test_info_has_what_the_overview_shows(both: tuple[RespClient, RespClient]) -> None:
    wanted = (
        "redis_version redis_mode os arch_bits uptime_in_days uptime_in_seconds role "
        "connected_clients used_memory used_memory_human total_connections_received "
        "total_commands_processed instantaneous_ops_per_sec instantaneous_input_kbps "
        "instantaneous_output_kbps keyspace_hits keyspace_misses used_cpu_sys used_cpu_user db0"
    ).split()
    for client in both:
        client.call("SET", "k", "v")
        text = client.call("INFO")[1].decode()
        names = {line.partition(":")[0] for line in text.splitlines()}
        assert set(wanted) - names == set()


def test_the_profiler_sees_what_others_send(both: tuple[RespClient, RespClient]) -> None:
    client = both[0]
    with RespClient(client.socket.getpeername()[1]) as profiler:
        assert profiler.call("MONITOR") == ("+", b"OK")
        client.call("XLEN", "s")
        assert profiler.read_reply()[1].endswith(b'"XLEN" "s"')
