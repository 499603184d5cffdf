"""Accepts connections from listening sockets within the budget, for every listener.

The servers of the event loops do not suffice: they do not count connections, do not report TLS
handshakes that fail or never end, and some close the listening socket when no descriptor is left.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from anabranch.server.admission import Admission, ConnectionKind, Place
from anabranch.server.logs import emit_sparingly

ACCEPTS_PER_TURN: Final = 32
"""Connections accepted from a socket in one turn of the event loop."""

QUICK_S: Final = 0.002
"""Turns of the event loop within this time accept one connection each."""

ACCEPT_AGAIN_S: Final = 0.5
"""The pause of accepting when the system has no descriptor or no memory left."""

ABORTED: Final = (BlockingIOError, InterruptedError, ConnectionAbortedError)


@dataclass(frozen=True, slots=True)
class TlsHandshake:
    """TLS of accepted connections; context and deadline are read for each of them."""

    context: Callable[[], ssl.SSLContext | None]
    """None: connections are not encrypted."""
    deadline_s: Callable[[], float]
    on_failure: Callable[[str, OSError], None]
    """Called with the address when a handshake fails."""


class Acceptor:
    """Accepts connections of one kind."""

    def __init__(
        self,
        admission: Admission,
        kind: ConnectionKind,
        protocol: Callable[[Place], asyncio.BaseProtocol],
        *,
        tls: TlsHandshake | None = None,
        beyond: ConnectionKind | None = None,
    ) -> None:
        """``kind`` is that of a new connection, before any handshake.

        ``beyond`` is its kind if no place of that kind is free; None: it is closed.
        """
        self._admission = admission
        self._kind = kind
        self._beyond = beyond
        self._protocol = protocol
        self._tls = tls
        self.sockets: list[socket.socket] = []
        self._connecting: set[_SteppedHandshake] = set()
        self._accepted_at = 0.0

    def open(self, sockets: Iterable[socket.socket]) -> None:
        """Listen on further sockets."""
        for sock in sockets:
            sock.setblocking(False)
            self.sockets.append(sock)
            self._watch(sock)

    def close(self) -> None:
        """Stop listening; connections and handshakes continue."""
        sockets, self.sockets = self.sockets, []
        for sock in sockets:
            asyncio.get_running_loop().remove_reader(sock)
            # A child process may have a copy of the descriptor; this frees the port now.
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def cancel(self) -> None:
        """End handshakes that are not finished."""
        for run in list(self._connecting):
            run.cancel()

    def _watch(self, sock: socket.socket) -> None:
        if sock in self.sockets:
            asyncio.get_running_loop().add_reader(sock, self._accept, sock)

    def _accept(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        # A moment ago one was accepted: the event loop calls again if there is another.
        tries = ACCEPTS_PER_TURN if now - self._accepted_at > QUICK_S else 1
        self._accepted_at = now
        for _ in range(tries):
            try:
                connection, name = sock.accept()
            except ABORTED:
                return
            except (
                OSError
            ) as problem:  # no descriptor or no memory is left: closing connections may free some
                emit_sparingly("error", "listener.accept_failed", reason=problem.strerror)
                loop.remove_reader(sock)
                loop.call_later(ACCEPT_AGAIN_S, self._watch, sock)
                return
            address = str(name[0]) if isinstance(name, tuple) else ""
            place = self._admission.admit(self._kind, address)
            if place is None and self._beyond is not None:
                place = self._admission.admit(self._beyond, address)
            if place is None:
                connection.close()
                emit_sparingly("warning", "listener.full", about=self._kind.value, address=address)
                continue
            _SteppedHandshake(
                self._connect(loop, connection, address, place), self._connecting
            ).step()

    async def _connect(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, address: str, place: Place
    ) -> None:
        tls = self._tls
        context = None if tls is None else tls.context()
        try:
            await loop.connect_accepted_socket(
                partial(self._protocol, place),
                sock,
                ssl=context,
                ssl_handshake_timeout=None if context is None or tls is None else tls.deadline_s(),
            )
        except OSError as problem:
            place.leave()
            if tls is not None:
                tls.on_failure(address, problem)
        except BaseException:
            place.leave()
            raise
        if context is not None and not place.is_made:  # the connection ended during the handshake
            place.leave()


class _SteppedHandshake:
    """A coroutine that awaits futures only. A task would cost as much as all of accepting."""

    __slots__ = ("_coroutine", "_paused")

    def __init__(
        self, coroutine: Coroutine[Any, None, None], paused: set[_SteppedHandshake]
    ) -> None:
        """The handshake is in ``paused`` while it waits for a future."""
        self._coroutine = coroutine
        self._paused = paused

    def step(self) -> None:
        """Run until the next future, or to the end."""
        try:
            future = self._coroutine.send(None)
        except StopIteration:
            return
        self._paused.add(self)
        future.add_done_callback(self._go_on)

    def _go_on(self, future: asyncio.Future[Any]) -> None:
        if self in self._paused:
            self._paused.discard(self)
            self.step()
        elif not future.cancelled():
            future.exception()  # marks the exception as retrieved

    def cancel(self) -> None:
        """End the handshake where it waits."""
        self._paused.discard(self)
        with suppress(asyncio.CancelledError, StopIteration):
            self._coroutine.throw(asyncio.CancelledError())
