"""The HTTP port: its sockets, the budget of connections, and the start of what answers there.

What answers is started when the port is opened first (:class:`anabranch.server.wings.Wings`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from anabranch.server.acceptor import Acceptor
from anabranch.server.admission import ConnectionKind
from anabranch.server.listener import bind_all, listening
from anabranch.server.logs import emit_sparingly

if TYPE_CHECKING:
    from anabranch.config.settings import Settings
    from anabranch.node.node import Node
    from anabranch.server.admission import Admission, Place
    from anabranch.server.wings import HttpAnswers, Wings

AVAILABILITY_PORT: Final = 9443
"""Where the availability API is found unless ``http-port`` is set: where official clients ask."""

BACKLOG: Final = 128


class HttpServer:
    """Listens while ``http-port`` or ``availability-api`` asks for it."""

    def __init__(self, settings: Settings, admission: Admission, node: Node, wings: Wings) -> None:
        self._settings = settings
        self._node = node
        self._wings = wings
        self._admission = admission
        self._acceptor = Acceptor(
            admission, ConnectionKind.HTTP, self._connected, beyond=ConnectionKind.PROBE
        )
        self._answers: HttpAnswers | None = None
        self._ticked_s = 0.0
        self.port = 0
        """Where it listens; 0: it does not."""

    def open(self) -> None:
        """Listen if that is wanted; raises :class:`ConfigError` if it is impossible."""
        settings = self._settings
        bind, port = settings.http_bind, settings.http_port
        if not port and settings.availability_api:
            bind, port = settings.bind, AVAILABILITY_PORT
        if not port:
            return
        self.ticked()
        answers = self._wings.http(self._node, _logger(), self._silent_s, self._admission.feeds)
        sockets = bind_all(bind, port, "--http-port")
        self._acceptor.open(listening(sockets, BACKLOG, "--http-port"))
        self._answers, self.port = answers, port

    def switch(self) -> None:
        """A setting has changed: listen as they say now; raises ConfigError."""
        self.close()
        self.open()

    def close(self) -> None:
        """Listen no more, and end all connections."""
        self._acceptor.close()
        self.port = 0
        answers, self._answers = self._answers, None
        if answers is not None:
            answers.close()

    def ticked(self) -> None:
        """Background work runs: note when, for ``/healthz``."""
        self._ticked_s = asyncio.get_running_loop().time()

    def _silent_s(self) -> float:
        return asyncio.get_running_loop().time() - self._ticked_s

    def _connected(self, place: Place) -> asyncio.BaseProtocol:
        assert self._answers is not None, "the port is not open without it"
        return self._answers.connection(place.leave, only_health=place.kind is ConnectionKind.PROBE)


class _ToLog(logging.Handler):
    """What uvicorn has to say, as lines of our log."""

    def emit(self, record: logging.LogRecord) -> None:
        exc = record.exc_info[1] if record.exc_info else None
        if isinstance(exc, asyncio.CancelledError):
            return
        if exc is not None:
            emit_sparingly("error", "server.internal_error", what="http", exc=exc)
        else:
            emit_sparingly("verbose", "http.refused", reason=record.getMessage())


def _logger() -> logging.Logger:
    logger = logging.Logger("anabranch.http", logging.WARNING)
    logger.addHandler(_ToLog())
    return logger
