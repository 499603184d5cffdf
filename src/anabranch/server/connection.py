"""One client: bytes to the parser, requests to the region, replies in one write.

A callback protocol, not streams: the hot path is ``data_received``. The only logic here is flow
control: the server stops reading from a client that does not read its replies, and closes a client
whose unread pushed messages exceed its output buffer limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from anabranch.resp.encode import error
from anabranch.resp.limits import (
    ARGUMENT_BYTES,
    AUTHENTICATED,
    REQUEST_BYTES,
    UNAUTHENTICATED,
    RequestLimits,
)
from anabranch.resp.parser import RequestParser
from anabranch.server.admission import ConnectionKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.engine.session import Session
    from anabranch.node.node import Node
    from anabranch.server.admission import Place
    from anabranch.server.clients import Clients
    from anabranch.server.tls import HalfClosingTls

_LARGE_REPLY_BYTES: Final = 4096

BACKLOG_MAX = 10_000
"""Requests kept behind a blocked one before the server stops reading from the client."""

BACKLOG_BYTES_MAX = 16 * 1024 * 1024
"""The same in bytes: enough for any pipeline, and harmless with many clients."""


PIECE_BYTES = 32 * 1024
"""Bytes parsed at a time: a read of 256 KiB may hold more requests than fit into a slice."""

SHORT_BYTES: Final = 4 * 1024
"""A read of no more than this is not measured, unless it has inline requests."""

CAREFUL_PIECE_BYTES: Final = 1024
"""The same for requests that the careful parser reads, because it has a fiftieth of the speed.
Within a long request pieces are larger (:attr:`RequestParser.awaited`)."""

HELD_REPLY_BYTES_MAX = 16 * 1024 * 1024
"""Held reply bytes above which the server stops reading from the client."""

CONNECTION_BYTES = 6 * 1024
"""Memory of an idle connection, measured with ten thousand of them."""

TLS_BYTES = 42 * 1024
"""What TLS adds to it, measured with five hundred of them."""

_REQUEST: Final = 0x2A  # *
_NO_REQUESTS = RequestParser()
"""The transport of connections that have ended."""

CLOSING_S = 10.0
"""How long a connection that is being closed waits for held replies."""


class ClientConnection:
    """The asyncio side of one session; an :class:`asyncio.Protocol` that mypyc can compile."""

    def __init__(self, clients: Clients, node: Node, place: Place) -> None:
        self._clients = clients
        self._place = place
        self._node = node
        self._region = node.region
        self._holdings = node.region.holdings
        self._replies = node.durability.replies
        self._parser: RequestParser
        self._authenticated = False
        self._buffered_bytes = 0  # of an unfinished request
        self._unread = b""  # received, and not yet parsed
        self._has_turn_later = False  # see go_on
        self._held_bytes = 0  # of requests in the backlog
        self._held_replies: deque[list[bytes]] = deque()  # held until they are safe
        self._held_reply_bytes = 0
        self._connection_bytes = 0
        self._counted_bytes = 0  # of requests, as the session holds them
        self._output_bytes = 0  # not read by the client when it was measured last
        self._is_holding = False  # bytes are held here, or were at the last count
        self._finishing = False  # nothing more is read, see finish
        self._reading = True
        self.session: Session
        self.transport: asyncio.Transport
        self._tls: HalfClosingTls | None = None
        self._patience: asyncio.TimerHandle | None = None  # while closing waits for the disk

    # -- asyncio callbacks --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register with the server, which may refuse the client."""
        self.transport = cast("asyncio.Transport", transport)
        self._place.become(ConnectionKind.CLIENT)
        self.session = self._region.open_session(
            _name(transport.get_extra_info("peername")), _name(transport.get_extra_info("sockname"))
        )
        self.session.connection = self
        socket = transport.get_extra_info("socket")
        if socket is not None:
            self.session.descriptor = socket.fileno()
        self._tls = self.transport.get_extra_info("ssl_object")
        self._connection_bytes = CONNECTION_BYTES
        if self._tls is not None:
            self._tls.on_end = self._tls_ended
            self._connection_bytes += TLS_BYTES
        self.session.hold("connections", self._connection_bytes)
        self._authenticated = self.session.user is not None
        self._parser = RequestParser(self._limits())
        if self._clients.are_ending:  # what it wrote would be answered, and not be in the log
            self.session.closing = True
            self.transport.abort()
            return
        refusal = self._clients.opened(self)
        if refusal is not None:
            self.transport.write(error(refusal))
            self.close()

    def data_received(self, data: bytes) -> None:
        """Run the requests that arrived, within the slice of time, and write the replies."""
        session = self.session
        if session.closing:
            return
        size = len(data)
        region = self._region
        stats = region.stats
        stats.net_input_bytes += size
        stats.reads += 1
        session.input_bytes += size
        session.reads += 1
        scheduler = region.scheduler
        is_large = size > CAREFUL_PIECE_BYTES and (size > SHORT_BYTES or data[0] != _REQUEST)
        if self._unread or self._has_turn_later or (is_large and scheduler.is_used_up):
            self._unread += data
            self._count()
            self._pause_reading()
            self.go_on_later()
            return
        began_ns = 0
        if is_large:
            began_ns = scheduler.begin()
            if self._piece_end(data, 0) < size:
                self._unread = data
                self._is_holding = True
                self._run_in_pieces()
            else:
                self._run_requests(data)
        else:
            scheduler.begin_with_request()
            self._run_requests(data)
        self.flush()
        if session.backlog or self._unread:
            self._see_what_is_left()
        self._node.end_turn()
        if is_large:  # the others take too little time to read the clock again
            scheduler.end(began_ns)

    def _run_in_pieces(self) -> None:
        """Process received bytes until the slice is over or too many requests are kept."""
        is_over = self._region.scheduler.is_over
        session = self.session
        at, unread = 0, self._unread
        while at < len(unread) and not session.closing and not self._is_full():
            if (at and is_over()) or (session.backlog and self._region.can_go_on(session)):
                break
            end = self._piece_end(unread, at)
            self._run_requests(unread[at:end] if at or end < len(unread) else unread)
            at = end
        self._unread = b"" if session.closing or self._parser.error is not None else unread[at:]

    def _piece_end(self, unread: bytes, at: int) -> int:
        """The end of a piece from an offset: between two requests, if a boundary is visible."""
        parser = self._parser
        if parser.is_careful or (unread[at] != _REQUEST and not parser.buffered):
            awaited = parser.awaited
            if awaited >= len(unread) - at:  # all of it is of one argument, and is not cut up
                return len(unread)
            end = at + min(max(awaited, CAREFUL_PIECE_BYTES), PIECE_BYTES)
            # At the end of a request the quicker parser takes over.
            boundary = unread.rfind(b"\r\n*", at, end) if awaited < CAREFUL_PIECE_BYTES else -1
            return end if boundary < 0 else boundary + 2
        end = at + PIECE_BYTES
        if end < len(unread):
            end = unread.rfind(b"\r\n*", at, end) + 2
            if end <= at + 2:
                end = at + PIECE_BYTES
        return end

    def _run_requests(self, data: bytes) -> None:
        """Parse some bytes, and run the requests that they complete."""
        session = self.session
        region = self._region
        parser = self._parser
        if self._buffered_bytes + len(data) > region.dispatcher.long_bytes and not session.is_long:
            session.is_long = True
            session.refresh()
        requests = parser.feed(data)
        if requests:
            region.execute(session, requests)
        while not self._authenticated and session.user is not None and not session.closing:
            self._authenticated = True
            requests = parser.set_limits(self._limits())
            if requests:
                region.execute(session, requests)
        buffered = parser.buffered
        if session.backlog:
            self._held_bytes += self._buffered_bytes + len(data) - buffered
            self._held_bytes += _overhead(requests[-len(session.backlog) :])
            self._is_holding = True
        self._buffered_bytes = buffered
        unfinished_bytes = buffered + session.transaction_bytes
        if unfinished_bytes:
            self._is_holding = True
            if unfinished_bytes > self._clients.settings.client_query_buffer_limit:
                self._clients.log_query_limit(self, unfinished_bytes)
                session.closing = True

    def go_on(self) -> bool:
        """Process what did not fit into the slices so far; returns whether anything is left.

        A :data:`anabranch.scheduling.Work`.
        """
        self._has_turn_later = False
        if self.session.closing:
            return False
        self._region.resume(self.session)
        if self._unread:
            self._run_in_pieces()
        self.flush()
        self._replies.end_turn()
        self._see_what_is_left()
        return self._has_turn_later

    @property
    def has_more(self) -> bool:
        """Whether received requests are not answered yet."""
        return bool(self.session.backlog or self._unread)

    def go_on_later(self) -> None:
        """Request a slice in a later turn."""
        self._has_turn_later = True
        self._region.scheduler.schedule(self.go_on)

    def _see_what_is_left(self) -> None:
        """Request another slice if work is left; stop reading if too much is kept."""
        session = self.session
        if session.closing or self._has_turn_later:
            return
        is_full = self._is_full()
        if (session.backlog and self._region.can_go_on(session)) or (self._unread and not is_full):
            self.go_on_later()
            self._pause_reading()
        elif is_full:
            self._pause_reading()

    def _is_full(self) -> bool:
        """Whether so much waits behind a request that the server stops reading."""
        return self._held_bytes > BACKLOG_BYTES_MAX or len(self.session.backlog) > BACKLOG_MAX

    def pause_writing(self) -> None:
        """The client does not read its replies: stop reading and executing its requests."""
        self.session.stalled = True
        self._clients.stalled.add(self)
        self._pause_reading()

    def resume_writing(self) -> None:
        """The client has read its replies."""
        session = self.session
        session.stalled = False
        self._clients.stalled.discard(self)
        if self.has_more:
            self.go_on_later()
        else:
            self._resume_reading()

    def eof_received(self) -> bool:
        """The client sends no more: close once its requests are answered.

        Requests that block, or that CLIENT PAUSE holds back, are dropped as in Redis. Returns
        whether the transport stays open.
        """
        if self.session in self._region.dispatcher.postponed:
            return False
        if self._held_replies and self._node.durability.trouble is not None:
            return False  # the client may have disconnected, and the wait may be long
        self.finish()
        return True

    def _tls_ended(self) -> None:
        """The client closed its side over TLS; bytes before the end were not passed on yet."""
        asyncio.get_running_loop().call_soon(self._finish_tls)

    def _finish_tls(self) -> None:
        if not self.transport.is_closing() and not self.eof_received():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection has ended, by either side."""
        session = self.session
        self._place.leave()
        if self._has_turn_later:
            self._region.scheduler.remove(self.go_on)
        self._region.close_session(session)
        self._clients.closed(self)
        self._replies.left(self)
        # Free the memory now. Session and connection refer to each other: without this the memory
        # would be freed by the cycle collector, which runs rarely.
        session.connection = None
        if self._tls is not None:
            self._tls.on_end = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        if self._held_replies:
            for parts in self._held_replies:
                parts.clear()
            self._holdings.replies -= self._held_reply_bytes
            self._held_reply_bytes = 0
        self._unread = b""
        self._held_bytes = self._buffered_bytes = 0
        self._parser = _NO_REQUESTS
        self._clients.stalled.discard(self)
        self._count()
        session.hold("output", -self._output_bytes)
        self._output_bytes = 0
        session.hold("connections", -self._connection_bytes)

    # -- for the server -----------------------------------------------------------------------

    def flush(self) -> None:
        """Write the outbox of the session; close the connection if the session has ended."""
        session = self.session
        outbox = session.outbox
        if self._parser.error is not None and not session.backlog and not session.closing:
            if self._parser.error:
                outbox.append(error(self._parser.error))
            else:  # the request of a browser: it gets no reply, not even to its first line
                outbox.clear()
            session.closing = True
        if outbox:
            parts = self._replies.hold(self, outbox)
            if parts is not None:
                size = _size(parts) + ARGUMENT_BYTES * len(parts)
                self._held_replies.append(parts)
                self._held_reply_bytes += size
                self._holdings.replies += size
                if self._held_reply_bytes > HELD_REPLY_BYTES_MAX:
                    self._pause_reading()
            elif outbox:
                self._write(outbox)
            outbox.clear()
            if session.stalled and self._clients.output_limit_exceeded(self):
                self.transport.abort()
                return
        if session.closing or (self._finishing and (session.blocked or not self.has_more)):
            self.close()
        elif not session.backlog:
            self._held_bytes = 0
            if not self._reading:
                self._go_on_reading()
        elif not self._reading and session.blocked:
            self._go_on_reading()
        if self._is_holding:
            self._count()

    def _count(self) -> None:
        """Report how many bytes of requests are held here; those that MULTI queues are counted."""
        held_bytes = self._buffered_bytes + len(self._unread) + self._held_bytes
        self.session.query_bytes = held_bytes
        if held_bytes != self._counted_bytes:
            self.session.hold("requests", held_bytes - self._counted_bytes)
            self._counted_bytes = held_bytes
        self._is_holding = held_bytes > 0

    def measure_output(self) -> None:
        """Check at once whether the client must be closed for unread replies."""
        unread_bytes = self.transport.get_write_buffer_size()
        if unread_bytes != self._output_bytes:
            self.session.hold("output", unread_bytes - self._output_bytes)
            self._output_bytes = unread_bytes

    @property
    def held_bytes(self) -> int:
        """All that the server holds for this client."""
        return self.session.held_bytes + self._held_reply_bytes

    def _go_on_reading(self) -> None:
        """Read from the client again, unless a reason to pause remains."""
        session = self.session
        if (
            not session.stalled
            and not self._unread
            and (not session.backlog or (session.blocked and not self._is_full()))
            and not self._finishing
            and self._held_reply_bytes <= HELD_REPLY_BYTES_MAX
        ):
            self._resume_reading()

    def _write(self, parts: list[bytes]) -> None:
        if len(parts) == 1 or len(parts[-1]) < _LARGE_REPLY_BYTES > len(parts[len(parts) // 2]):
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            size = len(data)
            self.transport.write(data)
        else:  # writing large pieces separately saves a copy; for small ones joining is cheaper
            size = _size(parts)
            self.transport.writelines(parts)
        stats = self._region.stats
        stats.net_output_bytes += size
        stats.writes += 1
        self.session.output_bytes += size

    @property
    def waits_for_older(self) -> bool:
        """Whether replies of the session are held until the log is safe."""
        return bool(self._held_replies)

    @property
    def unsent_bytes(self) -> int:
        """Replies that are held, or that the client does not read."""
        return self._held_reply_bytes + self.transport.get_write_buffer_size()

    def release(self, parts: list[bytes]) -> None:
        """Write replies that were held; they were taken from the outbox before."""
        self._held_replies.popleft()
        size = _size(parts) + ARGUMENT_BYTES * len(parts)
        self._held_reply_bytes -= size
        self._holdings.replies -= size
        if not self.transport.is_closing():
            self._write(parts)
            if self.session.closing:
                if not self.session.outbox:  # otherwise the flush that writes the outbox closes
                    self.close()
            elif not self._reading:
                self._go_on_reading()

    def cut_off(self) -> None:
        """Disconnect without writing the outbox."""
        self.transport.abort()

    def finish(self) -> None:
        """Close once all received requests are answered, except blocked ones.

        A reply may be in the outbox: :meth:`Node.flush_pending` writes those of many clients in
        slices.
        """
        self._finishing = True
        self._pause_reading()
        self.flush()

    def close(self) -> None:
        """Close once everything is written; the wait for the disk is limited."""
        self.session.closing = True
        if not self._held_replies:
            self.transport.close()
        elif self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(CLOSING_S, self.transport.abort)

    def limits_changed(self) -> None:
        """``proto-max-bulk-len`` was set."""
        requests = self._parser.set_limits(self._limits())
        self._buffered_bytes = self._parser.buffered
        if requests:
            self._region.execute(self.session, requests)
            self.flush()
            self._see_what_is_left()

    def _limits(self) -> RequestLimits:
        if self.session.user is None:
            return UNAUTHENTICATED
        bulk_max = self._clients.settings.proto_max_bulk_len
        if bulk_max == AUTHENTICATED.bulk_bytes_max:
            return AUTHENTICATED
        return RequestLimits(AUTHENTICATED.arguments_max, bulk_max)

    def _pause_reading(self) -> None:
        if self._reading and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._reading and not self.transport.is_closing():
            self._reading = True
            self.transport.resume_reading()


def _overhead(requests: Sequence[list[bytes]]) -> int:
    """What kept requests take beside their bytes."""
    return sum([REQUEST_BYTES + ARGUMENT_BYTES * len(args) for args in requests])


def _size(parts: list[bytes]) -> int:
    """The bytes of all parts. Compiled, a loop takes a tenth of ``sum(map(len, parts))``."""
    size = 0
    for part in parts:
        size += len(part)
    return size


def _name(address: object) -> str:
    """``ip:port`` as CLIENT LIST shows it; a Unix socket is its path with port 0."""
    if isinstance(address, tuple):
        host, port = address[0], address[1]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if isinstance(address, bytes):
        address = address.decode("utf-8", "surrogateescape")
    return f"{address or '/unknown'}:0"
