"""How an HTTP connection reads: in slices, within limits, and nothing that nobody waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.scheduling import SLICE_NS, TURN_NS, Scheduler

pytest.importorskip("starlette", reason="the extra web is not installed")

from anabranch.web.protocol import HEAD_BYTES_MAX, PIECE_BYTES, Connections, HttpConnection

POST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNK = b"1\r\nx\r\n"
READ = CHUNK * 43_000
"""What one read of a socket may hold."""

QUIET_TURNS = 10
"""More than an answer takes."""


class Transport(asyncio.Transport):
    """A socket without a network."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.reads = True
        self.has_ended = False
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def write_eof(self) -> None:
        self.has_ended = True

    def pause_reading(self) -> None:
        assert not self.closing, "uvloop raises an error"
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.closing, "uvloop raises an error"
        self.reads = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close


class Errors(logging.Handler):
    """Internal errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


class Peer:
    """A client, and a server whose slices end after one piece; the test is the event loop."""

    def __init__(self, app: Callable[..., Any]) -> None:
        self.now_ns = 1
        self.scheduler = Scheduler(self._ticks)
        self.scheduler.drive(lambda: None)
        self.errors = Errors()
        logger = logging.Logger("test")
        logger.addHandler(self.errors)
        self.all = Connections(app, logger, lambda: 60.0, self.scheduler)
        self.transport = Transport()
        self.connection = HttpConnection(self.all, lambda: None)
        self.connection.connection_made(self.transport)

    def _ticks(self) -> int:
        self.now_ns += SLICE_NS
        return self.now_ns

    def send(self, data: bytes) -> None:
        assert self.transport.reads
        self.connection.data_received(data)

    def lose(self) -> None:
        self.transport.closing = True
        self.connection.connection_lost(None)

    async def settle(self) -> None:
        """Do everything that can be done before the client sends more."""
        quiet = 0
        while quiet < QUIET_TURNS:
            quiet = 0 if len(self.scheduler) else quiet + 1
            self.scheduler.run_turn()
            await asyncio.sleep(0)


async def answer(send: Any) -> None:
    head = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b"ok"})


async def deaf(_scope: Any, _receive: Any, send: Any) -> None:
    """Answers without reading."""
    await answer(send)


async def patient(_scope: Any, receive: Any, send: Any) -> None:
    """Answers when the whole body has come."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.request":
        await answer(send)


async def hasty(_scope: Any, receive: Any, send: Any) -> None:
    """Begins to answer before it reads."""
    head = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await patient(_scope, receive, lambda _message: asyncio.sleep(0))


async def test_a_read_of_many_chunks_is_parsed_in_pieces() -> None:
    peer = Peer(patient)
    peer.send(POST + READ)
    assert len(peer.connection.cycle.body) <= PIECE_BYTES // len(CHUNK)
    assert not peer.transport.reads
    before = 0
    for _ in range(20):
        peer.scheduler.run_turn()
        parsed = len(peer.connection.cycle.body)
        assert before < parsed <= before + 4 * PIECE_BYTES // len(CHUNK)
        before = parsed
    await peer.settle()
    assert peer.transport.reads, "everything was parsed"
    peer.send(b"0\r\n\r\n")
    await peer.settle()
    assert peer.transport.sent.endswith(b"ok")


async def test_a_request_waits_while_others_have_used_up_the_turn() -> None:
    peer = Peer(deaf)
    peer.scheduler.end(-TURN_NS)
    assert peer.scheduler.is_used_up
    peer.send(POST)
    assert peer.connection.cycle is None
    await peer.settle()
    assert peer.transport.sent.endswith(b"ok")


async def test_nothing_is_parsed_behind_an_answer() -> None:
    peer = Peer(deaf)
    peer.send(POST + READ)
    await peer.settle()
    assert peer.transport.sent.endswith(b"ok")
    assert peer.transport.has_ended, "the client learns that it need not send the rest"
    parsed = len(peer.connection.cycle.body)
    peer.send(READ)
    await peer.settle()
    assert len(peer.connection.cycle.body) == parsed
    assert not peer.errors.found


async def test_requests_in_one_read_are_answered_in_order() -> None:
    peer = Peer(patient)
    peer.send((POST + CHUNK * 300 + b"0\r\n\r\n") * 5)
    await peer.settle()
    assert peer.transport.sent.count(b"ok") == 5
    assert peer.transport.reads
    assert not peer.transport.closing


@pytest.mark.parametrize("size", [HEAD_BYTES_MAX, HEAD_BYTES_MAX + 1, 120_000])
@pytest.mark.parametrize("before", [0, 100])
async def test_a_head_has_a_limit_however_it_arrives(size: int, before: int) -> None:
    peer = Peer(deaf)
    begin = b"GET / HTTP/1.1\r\nHost: a\r\nX: "
    end = b"\r\n\r\n"
    head = begin + b"x" * (size - len(begin) - len(end)) + end
    first = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * before + end
    peer.send(first + head)
    await peer.settle()
    assert peer.transport.sent.count(b"200 OK") == 1 + (size == HEAD_BYTES_MAX)
    assert peer.transport.closing == (size > HEAD_BYTES_MAX)


async def test_a_head_of_very_many_lines_is_refused() -> None:
    peer = Peer(deaf)
    peer.send(b"GET / HTTP/1.1\r\nHost: a\r\n" + b"a:\r\n" * 2_000 + b"\r\n")
    await peer.settle()
    assert peer.transport.sent.startswith(b"HTTP/1.1 400 ")
    assert peer.connection.cycle is None


@pytest.mark.parametrize("app", [deaf, patient, hasty])
async def test_a_body_that_cannot_be_read_is_no_internal_error(app: Callable[..., Any]) -> None:
    peer = Peer(app)
    peer.send(POST + b"zz\r\n")
    assert peer.transport.sent.startswith(b"HTTP/1.1 400 ")
    assert peer.transport.closing
    await peer.settle()
    assert not peer.errors.found
    peer = Peer(app)
    peer.send(POST)
    await peer.settle()
    if not peer.transport.has_ended:
        peer.send(b"zz\r\n")
        assert peer.transport.closing
        await peer.settle()
    assert not peer.errors.found


async def test_an_answer_before_the_body_says_that_the_connection_closes() -> None:
    for words, is_told in ((POST, True), (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", False)):
        peer = Peer(deaf)
        peer.send(words)
        await peer.settle()
        head = peer.transport.sent.lower().partition(b"\r\n\r\n")[0]
        assert (b"connection: close" in head.split(b"\r\n")) is is_told
        assert peer.transport.sent.endswith(b"\r\n\r\nok")
        assert peer.transport.has_ended is is_told
        assert not peer.transport.closing, "the client may not have read the answer"
    peer = Peer(deaf)
    peer.send(POST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    await peer.settle()
    assert peer.transport.sent.lower().count(b"connection: close") == 1


async def test_a_client_that_leaves_is_forgotten() -> None:
    peer = Peer(patient)
    peer.send(POST + READ)
    assert len(peer.scheduler)
    peer.lose()
    assert not len(peer.scheduler)
    await peer.settle()
    assert not peer.errors.found
    assert not peer.all.state.tasks
