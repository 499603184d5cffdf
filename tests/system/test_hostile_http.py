"""Requests that nobody should send are told what is wrong with them, and are no internal errors."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.client import HTTPResponse

import pytest

from tests.support.http import Answer, ask
from tests.support.inspection import mistakes
from tests.support.servers import AnabranchServer, free_port

pytest.importorskip("starlette", reason="the extra web is not installed")

ACT = {"X_Anabranch_Act": "1"}
DIGITS = "9" * 5_000
AVAILABILITY = "/v1/bdbs/1/availability?extend_check=lag&availability_lag_tolerance_ms="
POST = (
    b"POST /api/command HTTP/1.1\r\nHost: localhost\r\nX-Anabranch-Act: 1\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[AnabranchServer, int]]:
    port = free_port()
    extra = ["--http-port", str(port), "--availability-api", "yes"]
    with AnabranchServer(extra=extra) as server:
        yield server, port


@pytest.fixture
def port(started: tuple[AnabranchServer, int]) -> Iterator[int]:
    """The HTTP port; nothing may be logged that the server holds for its own mistake."""
    server, number = started
    yield number
    assert not mistakes(server)


def read(answer: Answer) -> tuple[int, str]:
    """Status and code."""
    return answer.status, answer.json["error_code"]


@pytest.mark.parametrize(
    "path",
    [
        "/events?key64=%C3%A9",
        "/events?key64=A",
        "/events?key=s&db=" + DIGITS,
        "/api/streams?offset=" + DIGITS,
        "/api/streams?limit=" + "0" * 5_000,
        "/healthz?" + "a&" * 5_000,
        AVAILABILITY + DIGITS,
        AVAILABILITY + "soon",
    ],
)
def test_parameters_that_cannot_be_read_are_bad_requests(port: int, path: str) -> None:
    assert read(ask(port, path)) == (400, "bad_request")


@pytest.mark.parametrize("given", ["Basic \xe9", "Basic QQ", "Basic AAAA", "Bearer \xe9"])
def test_credentials_that_cannot_be_read_are_refused(port: int, given: str) -> None:
    assert read(ask(port, "/status.json", Authorization=given)) == (401, "not_authenticated")


@pytest.mark.parametrize("origin", ["http://[", "null", "", "http://localhost.evil.example.com"])
def test_an_origin_that_is_no_address_is_of_another_site(port: int, origin: str) -> None:
    answer = ask(port, "/api/command", "POST", {"command": ["PING"]}, Origin=origin, **ACT)
    assert read(answer) == (403, "wrong_origin")
    ours = f"http://127.0.0.1:{port}"
    answer = ask(port, "/api/command", "POST", {"command": ["PING"]}, Origin=ours, **ACT)
    assert answer.json == {"reply": "PONG"}


@pytest.mark.parametrize(("path", "host"), [("/v1/nothing", "["), ("[", "localhost")])
def test_an_address_that_cannot_be_split_is_not_found(port: int, path: str, host: str) -> None:
    assert read(ask(port, path, Host=host)) == (404, "not_found")


def test_a_very_deep_body_is_a_bad_request(port: int) -> None:
    for inner in (b"[" * 500_000, b'{"command":["PING"],"else":' + b"[" * 500_000):
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner)
        assert read(sent(port, body)) == (400, "bad_request")


def sent(port: int, body: bytes) -> Answer:
    """What comes back for a command with this body, as it is sent."""
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(POST + body)
        response = HTTPResponse(client)
        response.begin()
        return Answer(response.status, dict(response.getheaders()), response.read())


def test_a_body_that_breaks_off_is_no_internal_error(port: int) -> None:
    assert sent(port, b"zz\r\n").status == 400
    with socket.create_connection(("127.0.0.1", port), 60) as client:
        client.sendall(POST + b"5\r\nhe")
    # The next request is answered when the server has seen that the client is gone.
    assert ask(port, "/healthz").status == 200
