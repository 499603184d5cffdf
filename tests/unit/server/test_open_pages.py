"""Many open pages of one address, and the probes of that address."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.support.http import Answer, ask
from tests.support.inspection import wait_until
from tests.support.servers import KitServer, free_port

pytest.importorskip("anabranch.web.application", reason="the extra web is not installed")

ENDPOINT = "/v1/local/bdbs/1/endpoint/availability"

FEEDS = 12
"""For one address, where the system allows descriptors enough."""


@pytest.fixture
def port() -> Iterator[int]:
    """The HTTP port of a server."""
    number = free_port()
    with KitServer(http_port=number, availability_api=True):
        yield number


def opened(port: int) -> socket.socket:
    """An open page: its feed has begun."""
    page = socket.create_connection(("127.0.0.1", port), 60)
    page.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    seen = b""
    while b"event: status" not in seen:
        piece = page.recv(65536)
        if not piece:
            page.close()
            raise ConnectionResetError(seen)
        seen += piece
    return page


def check_probes(port: int) -> None:
    """What a probe asks is answered, again and again."""
    for _ in range(10):
        for path in ("/healthz", "/readyz", "/v1/bdbs/1/availability", ENDPOINT):
            assert ask(port, path).status == 200, path


def test_a_page_too_many_is_told_so(port: int) -> None:
    with ExitStack() as pages:
        first = pages.enter_context(opened(port))
        for _ in range(FEEDS - 1):
            pages.enter_context(opened(port))
        for _ in range(5):
            refused = ask(port, "/events")
            assert (refused.status, refused.json["error_code"]) == (429, "too_many_pages")
            assert f"{FEEDS} pages" in refused.json["description"]
            assert "close one" in refused.json["description"]
        assert ask(port, "/status.json").status == 200, "open pages can ask for more"
        check_probes(port)
        first.close()

        def one_more() -> bool:
            try:
                pages.enter_context(opened(port))
            except ConnectionResetError:
                return False
            return True

        wait_until(one_more, "another page takes the place")


def test_probes_are_answered_when_an_address_has_no_place_left(port: int) -> None:
    with ExitStack() as stack:
        for _ in range(FEEDS):
            stack.enter_context(opened(port))
        for _ in range(16 - FEEDS):  # connections that a browser keeps
            kept = stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert kept.recv(100).startswith(b"HTTP/1.1 200 ")
            kept.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")
        check_probes(port)
        answer: Answer = ask(port, "/")
        assert (answer.status, answer.headers["connection"]) == (503, "close")
        assert answer.json["error_code"] == "too_many_connections"
        assert "close pages" in answer.json["description"]
        assert ask(port, "/healthz").headers["connection"] == "close"
