"""One HTTP connection: uvicorn's, with limits for requests that cost much.

A request has a deadline. Its bytes are read in slices of time, as those of every other client,
because h11 needs as long for a chunk of one byte as for one of many. What still comes after the
answer is dropped unread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import h11
from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from anabranch.scheduling import Scheduler

HEAD_BYTES_MAX = 16 * 1024

HEAD_LINES_MAX = 256
"""An unfinished head with more lines is refused: each takes time when the head is complete."""

PIECE_BYTES = 512
"""Bytes that h11 gets at a time. In chunks of one byte they take half a millisecond."""


class Connections:
    """All HTTP connections of a server."""

    def __init__(
        self,
        app: ASGIApp,
        logger: logging.Logger,
        request_s: Callable[[], float],
        scheduler: Scheduler,
    ) -> None:
        """``request_s``: how long a request may take to arrive."""
        self.config = Config(
            app,
            loop="none",
            http=HttpConnection,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            h11_max_incomplete_event_size=HEAD_BYTES_MAX - 1,
        )
        self.config.load()
        self.state = ServerState()
        self.logger = logger
        self.request_s = request_s
        self.scheduler = scheduler
        self.are_closed = False
        """The port is closed: a connection that was accepted just before gets no answer."""

    def new(self, left: Callable[[], None], app: ASGIApp | None = None) -> HttpConnection:
        """A protocol for a new connection; it calls ``left`` when the connection is lost.

        ``app`` answers in place of the application of the server.
        """
        connection = HttpConnection(self, left)
        if app is not None:
            connection.app = app  # type: ignore[assignment]
        return connection

    def close(self) -> None:
        """Close all connections; unfinished answers are cut off."""
        self.are_closed = True
        for task in list(self.state.tasks):
            task.cancel()
        for connection in list(self.state.connections):
            connection.transport.close()


class _Flow(FlowControl):
    """Whether uvicorn wants more of a request; the connection pauses and resumes its transport."""

    def __init__(self, transport: asyncio.Transport, resumed: Callable[[], None]) -> None:
        super().__init__(transport)
        self._resumed = resumed

    def pause_reading(self) -> None:
        self.read_paused = True

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._resumed()


class _State(h11.Connection):
    """The state of a connection, which closes behind an answer that came before the whole request.

    h11 does not learn of the header: then uvicorn would close the socket before the client has
    read the answer.
    """

    def send(self, event: Any) -> Any:
        output = super().send(event)
        is_early = isinstance(event, h11.Response) and self.their_state is h11.SEND_BODY
        if output and is_early and b"\r\nconnection: close" not in output.lower():
            return output.removesuffix(b"\r\n") + b"Connection: close\r\n\r\n"
        return output


class HttpConnection(H11Protocol):
    """A request must arrive within ``handshake-timeout``, or its connection is closed."""

    def __init__(self, all_: Connections, left: Callable[[], None]) -> None:
        super().__init__(all_.config, all_.state, {}, asyncio.get_running_loop())
        self._all = all_
        self.conn = _State(h11.SERVER, HEAD_BYTES_MAX - 1)
        self.logger = all_.logger
        self.access_log = False
        self._request_s = all_.request_s
        self._scheduler = all_.scheduler
        self._left = left
        self._deadline: asyncio.TimerHandle | None = None
        self._unread = b""  # received, and not yet given to h11
        self._has_turn_later = False
        self._drops = False  # the request is answered, and its body has not ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection in, or end it if there are too many."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if self._all.are_closed:
            self._drops = True
            self.transport.abort()
        self.flow = _Flow(self.transport, self._go_on_later)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Pass on bytes of requests, within the limits."""
        if self._drops:
            return
        self._unset_keepalive_if_required()
        self._unread += data
        scheduler = self._scheduler
        if self._has_turn_later or scheduler.is_used_up:
            self.transport.pause_reading()
            self._watch()
            self._go_on_later()
            return
        began_ns = scheduler.begin()
        if self._go_on():
            self._go_on_later()
        scheduler.end(began_ns)

    def _go_on_later(self) -> None:
        """Request a slice in a later turn."""
        self._has_turn_later = True
        self._scheduler.schedule(self._go_on)

    def _go_on(self) -> bool:
        """Give h11 what was received, until the slice is over; returns whether it goes on.

        A :data:`anabranch.scheduling.Work`.
        """
        self._has_turn_later = False
        unread, at = self._unread, 0
        while at < len(unread) and not self.flow.read_paused and not self.transport.is_closing():
            if at and self._scheduler.is_over():
                break
            head, _ = self.conn.trailing_data
            if self.conn.their_state is h11.IDLE and head.count(b"\n") > HEAD_LINES_MAX:
                self.send_400_response("The request has too many headers.")
                break
            end = at + min(PIECE_BYTES, HEAD_BYTES_MAX - len(head))
            self.conn.receive_data(unread[at:end])
            at = end
            self.handle_events()
        if self.transport.is_closing():
            self._unread = b""
            return False
        self._unread = unread[at:]
        self._watch()
        if self._unread:
            self.transport.pause_reading()
        elif not self.flow.read_paused:
            self.transport.resume_reading()
        return bool(self._unread) and not self.flow.read_paused

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what the connection held."""
        self._scheduler.remove(self._go_on)
        self._forget_deadline()
        self._left()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """The request cannot be read: if it has an answer already, that is cut off."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()

    def on_response_complete(self) -> None:
        """A part of the next request may have come already, or the body may still be coming."""
        self._drops = self.conn.their_state is h11.SEND_BODY
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self._drops:
            # Closing the socket at once could take the answer from a client that still sends.
            self._unread = b""
            self.transport.write_eof()
            self.transport.resume_reading()
        elif self._deadline is None and (self._unread or self.conn.trailing_data[0]):
            self._watch()

    def _watch(self) -> None:
        """Set the deadline while a request is incomplete, and only then."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._forget_deadline()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._request_s(), self._too_late)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        self.transport.abort()
