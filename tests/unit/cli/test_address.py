"""Where a server is: options, variables and URLs, and the socket that leads there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
import pytest

from anabranch.cli.address import Address, RefusedByServer, is_url

VARIABLES = (
    "ANABRANCH_AUTH",
    "REDISCLI_AUTH",
    "ANABRANCH_PORT",
    "ANABRANCH_TLS_PORT",
    "ANABRANCH_UNIXSOCKET",
    "ANABRANCH_REQUIREPASS",
)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def of_options(**options: Any) -> Address:
    unsaid: dict[str, Any] = dict.fromkeys(
        ("port", "path", "password", "user", "url", "cacert", "cert", "key")
    )
    unsaid |= {"host": "127.0.0.1", "tls": False, "insecure": False, "timeout": 1.0}
    return Address.of_options(**unsaid | options)


def test_nothing_said_is_the_usual_place() -> None:
    address = of_options()
    assert (address.host, address.port, address.path) == ("127.0.0.1", 6379, None)
    assert str(address) == "127.0.0.1:6379"
    assert address.password is None


def test_variables_that_configure_a_server_find_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_PORT", "7000")
    monkeypatch.setenv("ANABRANCH_REQUIREPASS", "least")
    assert of_options().port == 7000
    assert of_options(port=7001).port == 7001
    assert of_options().password == "least"
    monkeypatch.setenv("REDISCLI_AUTH", "more")
    assert of_options().password == "more"
    monkeypatch.setenv("ANABRANCH_AUTH", "most")
    assert of_options().password == "most"
    assert of_options(password="said").password == "said"
    monkeypatch.setenv("ANABRANCH_PORT", "0")
    monkeypatch.setenv("ANABRANCH_UNIXSOCKET", "/run/a.sock")
    assert str(of_options()) == "/run/a.sock"
    monkeypatch.setenv("ANABRANCH_TLS_PORT", "7002")
    assert (of_options().port, of_options().tls) == (7002, True)
    assert (of_options(url="redis://b").port, of_options(url="redis://b").tls) == (6379, False)


def test_urls_say_all_of_it() -> None:
    address = of_options(url="rediss://us%40er:p%2Fw@host:7000/3")
    assert (address.host, address.port, address.db) == ("host", 7000, 3)
    assert (address.user, address.password, address.tls) == ("us@er", "p/w", True)
    assert of_options(url="unix:///run/a.sock").path == "/run/a.sock"
    assert of_options(url="unix:///run/a.sock").db is None
    assert of_options(url="redis://[::1]:7000").host == "::1"
    assert of_options(url="redis://host", port=7000).port == 7000
    assert of_options(url="redis://", path="/run/a.sock").path is None


@pytest.mark.parametrize(
    "url", ["http://x", "redis://x:port", "redis://x:99999", "redis://x/a", "redis://x/²", "x"]
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(click.UsageError):
        of_options(url=url)


def test_what_is_meant_as_a_url() -> None:
    assert is_url("redis://x")
    assert is_url("unix:///x")
    assert not is_url("redis")
    assert not is_url("dump.rdb")
    assert not is_url("/data/redis:6379/dump.rdb")


def test_passwords_are_not_shown() -> None:
    address = of_options(url="redis://u:secret@host")
    assert "secret" not in f"{address} {address!r}"


# -- the socket -------------------------------------------------------------------------------


@contextmanager
def answering(answers: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """A server that answers each thing it hears with the next of these; then it hangs up."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    heard.append(connection.recv(4096))
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1], heard
        finally:
            thread.join(60)


def test_a_server_that_does_not_speak_tls_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.cli.address.CONNECT_SECONDS_MAX", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = of_options(port=silent.getsockname()[1], tls=True, timeout=600.0)
        begun = time.monotonic()
        with pytest.raises(TimeoutError):
            address.open()
        assert time.monotonic() - begun < 60


def test_it_authenticates() -> None:
    with answering([b"+OK\r\n"]) as (port, heard):
        of_options(port=port, user="me", password="pw").open().close()
    assert heard == [b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$2\r\npw\r\n"]


def test_a_server_without_password_takes_any() -> None:
    answer = b"-ERR AUTH <password> called without any password configured for the default user\r\n"
    with answering([answer]) as (port, heard):
        of_options(port=port, password="pw").open().close()
    assert len(heard) == 1


def test_a_wrong_password_is_refused() -> None:
    with (
        answering([b"-WRONGPASS invalid\r\n"]) as (port, _),
        pytest.raises(RefusedByServer, match="WRONGPASS"),
    ):
        of_options(port=port, password="pw").open()
