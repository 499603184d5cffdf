"""Arguments at the limits of regions, over sockets; ``tests/active_active`` tries all commands."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
import redis

from anabranch.effects.codec import SENT_ARGUMENT_BYTES_MAX
from anabranch.replication import digest_exchange
from anabranch.testing import Cluster, Server
from tests.support.wire import RespClient

LIMIT: Final = SENT_ARGUMENT_BYTES_MAX
EARLIER: Final = 70_000_000
"""Bytes of a name that earlier versions accepted, and that no other region took."""

REFUSED: Final = "an argument is too long"


def names(size: int) -> Iterator[bytes]:
    """A name that compression shortens, and one that it does not."""
    yield b"x" * size
    yield random.Random(size).randbytes(size)


def client_of(server: Server) -> redis.Redis:
    return redis.Redis(port=server.port, socket_timeout=120)


def has_all(client: redis.Redis) -> bool:
    """Whether the other region gets what this client writes now."""
    client.execute_command("XADD", "probe", "*", "f", "v")
    return bool(client.execute_command("WAIT", 1, 60_000) == 1)


def test_names_of_the_greatest_length_arrive() -> None:
    with Cluster("eu", "us") as cluster, client_of(cluster.eu) as eu, client_of(cluster.us) as us:
        compressible, other = names(LIMIT)
        eu.xgroup_create("r", compressible, mkstream=True)
        for name in (compressible, other):
            eu.execute_command("XADD", name, "IDMP", name, name, "*", "f", "v")
        assert has_all(eu)
        assert [us.xlen(key) for key in (compressible, other)] == [1, 1]
        assert [len(group["name"]) for group in us.xinfo_groups("r")] == [LIMIT]


def test_longer_names_are_refused_and_nothing_changes() -> None:
    with Cluster("eu", "us") as cluster, client_of(cluster.eu) as eu:
        name = b"x" * (LIMIT + 1)
        with RespClient(cluster.eu.port) as client:
            client.send("MULTI")
            client.send("XADD", "r", "*", "f", "v")
            client.send("XGROUP", "CREATE", "r", name, "0")
            client.send("EXEC")
            client.send("XADD", name, "*", "f", "v")
            client.send("EXISTS", "r", name)
            client.send("UNLINK", name)
            replies = [client.read_reply() for _ in range(7)]
        for reply, word in zip(
            replies, ("OK", "QUEUED", REFUSED, "EXECABORT", REFUSED), strict=False
        ):
            assert word in str(reply)
        assert replies[5:] == [(":", 0), (":", 0)]
        assert has_all(eu)
        cluster.settle()
        cluster.assert_converged()


def accept_all(server: Server) -> None:
    """Accept what earlier versions accepted."""

    def lift(live: Any) -> None:
        live.region.dispatcher.limit_names(1 << 40)
        live.region.effects.added_bytes_max = 1 << 40

    server.call(lift)


def test_longer_names_that_earlier_versions_accepted_arrive() -> None:
    with Cluster("eu", "us") as cluster, client_of(cluster.eu) as eu, client_of(cluster.us) as us:
        cluster.cut("eu", "us")
        accept_all(cluster.eu)
        eu.xadd("r", {"f": "v"})
        for name in names(EARLIER):
            eu.xgroup_create("r", name)
        cluster.heal()
        assert has_all(eu)
        assert [len(group["name"]) for group in us.xinfo_groups("r")] == [EARLIER, EARLIER]
        for name in names(EARLIER):
            assert us.xgroup_destroy("r", name)
        assert has_all(us)
        assert eu.xinfo_groups("r") == []


def test_a_server_alone_accepts_what_redis_accepts_and_reads_it_again() -> None:
    with Server(persist=True) as server:
        (name, _) = names(EARLIER)
        with client_of(server) as client:
            client.xgroup_create(name, name, mkstream=True)
        server.crash()
        server.restart()
        with client_of(server) as client:
            assert [len(group["name"]) for group in client.xinfo_groups(name)] == [EARLIER]


def test_keys_with_long_names_are_compared_in_several_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(digest_exchange, "KEY_BYTES_A_FRAME", 1000)
    with Cluster("eu", "us") as cluster, client_of(cluster.eu) as eu:
        keys = [b"%d" % at * 400 for at in range(10, 20)]
        for key in keys:
            eu.xadd(key, {"f": "v"})
        assert has_all(eu)
        assert eu.execute_command("AB.VERIFY", "us", *keys) == [b"equal"] * len(keys)
