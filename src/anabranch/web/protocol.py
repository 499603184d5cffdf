"""One HTTP connection: uvicorn's, with a deadline for requests that do not arrive."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from starlette.types import ASGIApp

__all__ = ["Connections", "HttpConnection"]

HEAD_BYTES_MAX = 16 * 1024


class Connections:
    """All HTTP connections of a server."""

    def __init__(
        self, app: ASGIApp, logger: logging.Logger, request_s: Callable[[], float]
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
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self.config.load()
        self.state = ServerState()
        self.logger = logger
        self.request_s = request_s

    def new(self, left: Callable[[], None]) -> HttpConnection:
        """A protocol for a new connection; it calls ``left`` when the connection is lost."""
        return HttpConnection(self, left)

    def close(self) -> None:
        """Close all connections; unfinished answers are cut off."""
        for task in list(self.state.tasks):
            task.cancel()
        for connection in list(self.state.connections):
            connection.transport.close()


class HttpConnection(H11Protocol):
    """A request must arrive within ``handshake-timeout``, or its connection is closed."""

    def __init__(self, all_: Connections, left: Callable[[], None]) -> None:
        super().__init__(all_.config, all_.state, {}, asyncio.get_running_loop())
        self.logger = all_.logger
        self.access_log = False
        self._request_s = all_.request_s
        self._left = left
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See :class:`asyncio.Protocol`."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._watch()

    def data_received(self, data: bytes) -> None:
        """See :class:`asyncio.Protocol`."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """See :class:`asyncio.Protocol`."""
        self._forget_deadline()
        self._left()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """A part of the next request may have come already."""
        super().on_response_complete()
        if self._deadline is None and self.conn.trailing_data[0]:
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
