"""Who may connect, and who must go."""

from __future__ import annotations

from typing import Any

from anabranch.config.settings import Settings
from anabranch.engine.session import Session
from anabranch.server.clients import OutputLimitWatch, idle, refusal


def session(address: str = "127.0.0.1:5000") -> Session:
    return Session(1, None, address, "127.0.0.1:6379")


class Transport:
    def __init__(self) -> None:
        self.size = 0

    def get_write_buffer_size(self) -> int:
        return self.size


class Connection:
    def __init__(self, address: str = "127.0.0.1:5000") -> None:
        self.session = session(address)
        self.transport = Transport()


def refused(
    address: str, *, connected: int = 0, no_password: bool = True, **settings: Any
) -> bytes | None:
    return refusal(Settings(**settings), session(address), connected, no_password=no_password)


def test_only_so_many_clients() -> None:
    assert refused("127.0.0.1:1", connected=4, maxclients=5) is None
    assert refused("127.0.0.1:1", connected=5, maxclients=5) == b"ERR max number of clients reached"


def test_protected_mode_lets_this_machine_in() -> None:
    for address in (
        "127.0.0.1:1",
        "127.1.2.3:1",
        "[::1]:1",
        "/run/a.sock:0",
        "[::ffff:127.0.0.1]:1",
    ):
        assert refused(address) is None, address


def test_protected_mode_refuses_others_while_there_is_no_password() -> None:
    text = refused("10.0.0.1:1")
    assert text is not None
    assert text.startswith(b"DENIED ")
    for way_out in (b"requirepass", b"protected-mode no", b"from this machine"):
        assert way_out in text
    assert refused("[fe80::1]:1") == text
    assert refused("10.0.0.1:1", no_password=False) is None
    assert refused("10.0.0.1:1", protected_mode=False) is None


def test_idle_clients_are_those_that_neither_ask_nor_listen() -> None:
    quiet, listener, monitor = Connection(), Connection(), Connection()
    listener.session.channels[b"c"] = None
    monitor.session.monitoring = True
    everybody: Any = [quiet, listener, monitor]
    assert idle(everybody, 10_000, 10) == []
    assert idle(everybody, 10_001, 10) == [quiet]


def test_a_hard_output_limit_acts_at_once() -> None:
    settings = Settings(client_output_buffer_limit={"normal": (100, 0, 0), "pubsub": (50, 0, 0)})
    limits = OutputLimitWatch(settings)
    connection: Any = Connection()
    connection.transport.size = 99
    assert not limits.exceeded(connection, 0)
    connection.session.channels[b"c"] = None
    assert limits.exceeded(connection, 0)


def test_a_soft_output_limit_must_last() -> None:
    limits = OutputLimitWatch(Settings(client_output_buffer_limit={"normal": (0, 100, 2)}))
    connection: Any = Connection()
    connection.transport.size = 100
    assert not limits.exceeded(connection, 1000)
    assert limits.overdue(3000) == []
    assert limits.overdue(3001) == [connection]
    connection.transport.size = 99
    assert limits.overdue(3002) == []
    connection.transport.size = 100
    assert limits.overdue(9000) == []
    limits.remove(connection)
