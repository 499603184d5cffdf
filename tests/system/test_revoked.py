"""A user whose rights are taken away while a command waits gets NOPERM, not the data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.inspection import number, wait_until
from tests.support.servers import KitServer
from tests.support.wire import Argument, ConnectionLost, RespClient

BLOCKED: dict[str, tuple[Argument, ...]] = {
    "XREAD": ("XREAD", "BLOCK", 0, "STREAMS", "secret", "$"),
    "XREADGROUP": ("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "secret", ">"),
    "AB.READ": ("AB.READ", "BLOCK", 0, "STREAMS", "secret", "$"),
    "AB.OFFSETS": ("AB.OFFSETS", "BLOCK", 0, "STREAMS", "secret", "$"),
    "BLPOP": ("BLPOP", "list", 0),
}
WAKES: dict[str, tuple[Argument, ...]] = {"BLPOP": ("RPUSH", "list", "x")}
ADD: tuple[Argument, ...] = ("XADD", "secret", "*", "f", "v")
NO_KEY = ("-", b"NOPERM No permissions to access a key")


@pytest.fixture(scope="module")
def server() -> Iterator[KitServer]:
    with KitServer() as started:
        with started.client() as admin:
            admin.call("XGROUP", "CREATE", "secret", "g", "$", "MKSTREAM")
            admin.call("XADD", "secret", "*", "first", "entry")
            admin.call("XREADGROUP", "GROUP", "g", "c", "STREAMS", "secret", ">")
        yield started


@contextmanager
def alice(server: KitServer, admin: RespClient, *blocked: Argument) -> Iterator[RespClient]:
    """A user with every right, whose command waits."""
    admin.call("ACL", "SETUSER", "alice", "reset", "on", "nopass", "~*", "&*", "+@all")
    admin.call("XGROUP", "SETID", "secret", "g", "$")
    admin.call("DEL", "list")
    wait_until(lambda: number(admin, "blocked_clients") == 0, "nobody waits any more")
    with server.client() as client:
        assert client.call("AUTH", "alice", "x") == ("+", b"OK")
        if blocked[0] == "AB.OFFSETS":
            blocked = (*blocked[:3], "AFTER", entries_so_far(client), *blocked[3:])
        client.send(*blocked)
        wait_until(lambda: number(admin, "blocked_clients") == 1, "it waits")
        yield client


def entries_so_far(client: RespClient) -> int:
    """What AB.OFFSETS waits to see surpassed."""
    _, ((_, regions),) = client.call("AB.OFFSETS", "STREAMS", "secret")
    return sum(region[1][3][1] for region in regions)


@pytest.mark.parametrize("command", BLOCKED)
def test_without_the_key_a_blocked_command_ends(server: KitServer, command: str) -> None:
    with server.client() as admin, alice(server, admin, *BLOCKED[command]) as client:
        assert admin.call("ACL", "SETUSER", "alice", "resetkeys") == ("+", b"OK")
        admin.call(*WAKES.get(command, ADD))
        assert client.read_reply() == NO_KEY
        assert client.call("PING") == ("+", b"PONG")  # it is only the command that ends


@pytest.mark.parametrize("command", BLOCKED)
def test_without_the_command_a_blocked_command_ends(server: KitServer, command: str) -> None:
    with server.client() as admin, alice(server, admin, *BLOCKED[command]) as client:
        assert admin.call("ACL", "SETUSER", "alice", "-@all") == ("+", b"OK")
        admin.call(*WAKES.get(command, ADD))
        kind, text = client.read_reply()
        assert kind == "-"
        assert text.startswith(b"NOPERM User alice has no permissions to run the ")


def test_what_a_revoked_consumer_would_have_taken_goes_to_the_next(server: KitServer) -> None:
    with server.client() as admin, alice(server, admin, *BLOCKED["XREADGROUP"]) as client:
        admin.call("ACL", "SETUSER", "alice", "resetkeys")
        with server.client() as other:
            other.send("XREADGROUP", "GROUP", "g", "other", "BLOCK", 0, "STREAMS", "secret", ">")
            wait_until(lambda: number(admin, "blocked_clients") == 2, "both wait")
            (_, added) = admin.call(*ADD)
            assert client.read_reply() == NO_KEY
            ((_, ((_, (_, entries)),)),) = (other.read_reply(),)
            assert entries[1][0][1][0] == ("$", added)


def test_a_denied_wake_is_in_the_acl_log(server: KitServer) -> None:
    with server.client() as admin, alice(server, admin, *BLOCKED["XREAD"]) as client:
        admin.call("ACL", "LOG", "RESET")
        admin.call("ACL", "SETUSER", "alice", "resetkeys")
        admin.call(*ADD)
        assert client.read_reply() == NO_KEY
        _, ((_, entry),) = admin.call("ACL", "LOG")
        assert ("$", b"secret") in entry
        assert ("$", b"alice") in entry


@pytest.mark.parametrize("command", BLOCKED)
def test_a_deleted_user_is_disconnected(server: KitServer, command: str) -> None:
    with server.client() as admin, alice(server, admin, *BLOCKED[command]) as client:
        assert admin.call("ACL", "DELUSER", "alice") == (":", 1)
        admin.call(*WAKES.get(command, ADD))
        with pytest.raises(ConnectionLost):
            client.read_reply()


def test_a_subscriber_that_may_not_listen_any_more_is_disconnected(
    server: KitServer,
) -> None:
    for words in (("SUBSCRIBE", "news"), ("PSUBSCRIBE", "n*"), ("SSUBSCRIBE", "news")):
        with server.client() as admin, server.client() as client:
            admin.call("ACL", "SETUSER", "bob", "reset", "on", "nopass", "&news", "&n*", "+@all")
            assert client.call("AUTH", "bob", "x") == ("+", b"OK")
            client.call(*words)
            assert admin.call("ACL", "SETUSER", "bob", "resetchannels", "&other") == ("+", b"OK")
            admin.call("PUBLISH", "news", "secret")
            with pytest.raises(ConnectionLost):
                client.read_reply()
