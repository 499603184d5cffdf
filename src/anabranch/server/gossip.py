"""Connections to other regions: frames on TCP, with or without TLS, and faults on demand.

A frame is a length (4 bytes, little-endian, of what follows), a type (1 byte) and a payload. The
replicator makes and reads frames. This module finds frames in a stream of bytes and, on demand of
tests (``AB.LINK``), delays them, slows them down or ends the connection.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Final, cast

from anabranch.replication.replicator import Replicator
from anabranch.scheduling import Scheduler
from anabranch.server.acceptor import Acceptor, TlsHandshake
from anabranch.server.admission import Admission, ConnectionKind, Place
from anabranch.server.listener import bind_all, listening
from anabranch.server.logs import emit_sparingly
from anabranch.server.tls import RegionTls, expires_in, names_in, sentence

_LENGTH: Final = struct.Struct("<I")
DIAL_TIMEOUT_S: Final = 5.0
UNSENT_BYTES_MAX: Final = 64 << 20
"""The unsent bytes above which a slow peer is disconnected; it must request them again.

One frame that is longer counts as nothing: it must arrive at some time.
"""
BACKLOG: Final = 128
_OPTION: Final = "--gossip-port"
AGAIN_S: Final = 60.0
"""The interval between two reports of the same failure of a handshake."""
ANY_S: Final = 1.0
"""The interval for all addresses together: many addresses must not fill the log."""
ADDRESSES_MAX: Final = 1000
"""Count of refused addresses that are remembered."""
MUCH_BYTES: Final = 4096
"""The most bytes that are taken when the time of the turn is used up."""
TLS_BEGINS: Final = b"\x16\x03"
"""The first bytes of a client that speaks TLS."""


class Fault:
    """Faults that an operator applies to one peer's traffic, in both directions."""

    def __init__(self) -> None:
        self.paused = False
        self.delay_ms = 0.0
        self.jitter_ms = 0.0
        self.loss = 0.0  # the probability that a frame ends the connection
        self.rate = 0.0  # bytes a second; 0 is no limit
        self.cut_at_ms: float | None = None  # since when it is paused

    @property
    def is_none(self) -> bool:
        """Whether there is no fault."""
        return not (self.paused or self.delay_ms or self.jitter_ms or self.loss or self.rate)


NO_FAULT: Final = Fault()


class _Link:
    """One connection; an :class:`asyncio.Protocol` that mypyc can compile."""

    def __init__(
        self, gossip: SocketTransport, dialled: tuple[str, int] | None, place: Place | None = None
    ) -> None:
        self._gossip = gossip
        self._place = place  # of a link that another region has dialled
        self._handshake_timer: asyncio.TimerHandle | None = None
        self.number = gossip.next_number()
        self.dialled = dialled
        self.transport: asyncio.Transport
        self._buffer = bytearray()
        self._free_at = 0.0  # when the sent bytes have passed, where a rate is set
        self._arrives_at = 0.0
        # Frames of a slow link, each with a timer; None for a lost frame and all later ones.
        self._under_way: deque[bytes | None] = deque()
        self._is_losing = False
        self._held: list[bytes] = []  # frames of a paused link
        self._longest = 0  # bytes of the longest frame that may be unsent
        self._is_silent = True  # nothing was received
        self._has_turn_later = False  # see read_on
        self.expires: int | None = None
        """When the certificate ends that the other side showed, in seconds since 1970."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        gossip = self._gossip
        self.transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        gossip.links[self.number] = self
        if self._place is not None:
            self._place.become(ConnectionKind.STRANGER)
            self._handshake_timer = gossip.loop.call_later(
                gossip.handshake_s(), self._check_handshake_done
            )
        names = None
        if gossip.tls is not None:
            certificate = transport.get_extra_info("peercert") or {}
            names = names_in(certificate)
            self.expires = expires_in(certificate)
        gossip.replicator.sessions.link_up(self.number, gossip.now_ms(), self.dialled, names)

    def _check_handshake_done(self) -> None:
        """Close a connection whose handshake is not complete: such places are few."""
        if self._gossip.replicator.is_up(self.number):
            self._is_known()
            return
        self._handshake_timer = None
        name = self.transport.get_extra_info("peername")
        emit_sparingly(
            "warning", "region.no_greeting", address=name[0] if name else "?", link=self.number
        )
        self.transport.abort()

    def _is_known(self) -> None:
        """The handshake is complete: the connection takes a place reserved for regions."""
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
            self._handshake_timer = None
        if self._place is not None:
            self._place.become(ConnectionKind.PEER)

    def connection_lost(self, exc: Exception | None) -> None:
        self._gossip.scheduler.remove(self.read_on)
        if self._place is not None:
            self._place.leave()
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()
        if self._is_silent and self.dialled is not None:
            self._gossip.left_at_once(self.dialled, exc)
        if self._gossip.links.pop(self.number, None) is not None:
            self._gossip.replicator.sessions.link_down(self.number, self._gossip.now_ms())

    def data_received(self, data: bytes) -> None:
        self._is_silent = False
        if self._buffer and not self._is_paused():
            self._gossip.replicator.heard(self.number, self._gossip.now_ms())
        self._buffer += data
        self._begin_reading()

    def eof_received(self) -> bool:
        """The other side sends no more: close the connection."""
        return False

    def pause_writing(self) -> None:
        """Nothing to do: :meth:`_write` looks at how much is unsent."""

    def resume_writing(self) -> None:
        """The socket has room again: go on with what :meth:`pause_writing` has stopped."""

    def _begin_reading(self) -> None:
        """Process frames for a slice of time, and the rest in later turns."""
        if not self._has_turn_later:
            scheduler = self._gossip.scheduler
            waits = scheduler.is_exclusive or (
                scheduler.is_used_up and len(self._buffer) > MUCH_BYTES
            )
            began_ns = scheduler.begin()
            if waits or self._read():
                self._has_turn_later = True
                scheduler.schedule(self.read_on)
                self.transport.pause_reading()
            scheduler.end(began_ns)

    def read_on(self) -> bool:
        """Process frames that did not fit into the slices so far; returns whether some are left.

        A :data:`anabranch.scheduling.Work`.
        """
        if self._gossip.scheduler.is_exclusive:
            return not self.transport.is_closing()
        self._has_turn_later = not self.transport.is_closing() and self._read()
        if not (self._has_turn_later or self.transport.is_closing()):
            self.transport.resume_reading()
        return self._has_turn_later

    def _read(self) -> bool:
        """Process received frames; returns whether some are left at the end of the slice."""
        gossip = self._gossip
        is_over = gossip.scheduler.is_over
        at = 0
        is_left = False
        has_frame = self._has_frame(0)
        while has_frame and not self._is_paused():
            (size,) = _LENGTH.unpack_from(self._buffer, at)
            if not 0 < size <= gossip.replicator.frame_bytes_max(self.number):
                if self._buffer.startswith(TLS_BEGINS, at):
                    address = self.transport.get_extra_info("peername")
                    gossip.refused(address, "it speaks TLS, and tls-replication is no here")
                else:
                    emit_sparingly(
                        "warning", "region.frame_refused", link=self.number, frame_bytes=size
                    )
                    gossip.replicator.refuse_frame(self.number, size, gossip.now_ms())
                if not self.transport.is_closing():
                    self.transport.abort()
                return False
            end = at + _LENGTH.size + size
            if len(self._buffer) < end:  # since the handshake is complete, frames may be longer
                break
            if at and is_over():
                is_left = True
                break
            kind = self._buffer[at + _LENGTH.size]
            with memoryview(self._buffer) as view:  # one copy, not two
                payload = bytes(view[at + _LENGTH.size + 1 : end])
            at = end
            has_frame = self._has_frame(at)
            gossip.replicator.receive(
                self.number, kind, payload, gossip.now_ms(), more_follows=has_frame
            )
        del self._buffer[:at]
        if self._handshake_timer is not None and gossip.replicator.is_up(self.number):
            self._is_known()
        if at:
            gossip.on_heard()
        return is_left

    def _has_frame(self, at: int) -> bool:
        """Whether a frame, or what cannot be one, is at this offset."""
        buffer = self._buffer
        if len(buffer) - at < _LENGTH.size:
            return False
        (size,) = _LENGTH.unpack_from(buffer, at)
        return len(buffer) - at >= _LENGTH.size + size or not (
            0 < size <= self._gossip.replicator.frame_bytes_max(self.number)
        )

    def _is_paused(self) -> bool:
        fault = self._gossip.fault_of(self.number)
        return fault is not None and fault.paused

    def go_on(self) -> None:
        """Send delayed frames if a fault has ended."""
        if not self._is_paused():
            held, self._held = self._held, []
            for frame in held:
                self.send(frame)
            self._begin_reading()

    # -- sending ------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        fault = self._gossip.fault_of(self.number) or NO_FAULT
        if fault.paused:
            self._held.append(frame)
            return
        if fault.is_none and not self._under_way:
            self._write(frame)
            return
        loop = self._gossip.loop
        self._is_losing |= random.random() < fault.loss  # noqa: S311 - a fault, not a secret
        now = loop.time()
        begin = max(now, self._free_at)
        if fault.rate:
            self._free_at = begin + len(frame) / fault.rate
            begin = self._free_at
        jitter = random.random() * fault.jitter_ms  # noqa: S311
        # A connection keeps the order of what is sent on it.
        self._arrives_at = max(self._arrives_at, begin + (fault.delay_ms + jitter) / 1000)
        self._under_way.append(None if self._is_losing else frame)
        loop.call_later(self._arrives_at - now, self._arrive)

    def _arrive(self) -> None:
        # Timers of nearly the same time may come in any order.
        frame = self._under_way.popleft()
        if frame is None:
            self.transport.close()
        else:
            self._write(frame)

    def _write(self, frame: bytes) -> None:
        if self.transport.is_closing():
            return
        unsent = self.transport.get_write_buffer_size()
        if unsent <= UNSENT_BYTES_MAX:
            self._longest = 0
        elif unsent > UNSENT_BYTES_MAX + self._longest:
            emit_sparingly("warning", "region.too_slow", link=self.number)
            self.transport.abort()
            return
        self._longest = max(self._longest, len(frame))
        self.transport.write(frame)

    def close(self) -> None:
        self._is_silent = False  # frames that arrive now are ignored
        self._gossip.links.pop(self.number, None)
        self.transport.close()


def _why_not(problem: OSError) -> str:
    """Why there is no connection, as a text for operators."""
    if isinstance(problem, TimeoutError):
        return f"no answer within {DIAL_TIMEOUT_S:g} s"
    if isinstance(problem, ssl.SSLError):
        return sentence(problem)
    if isinstance(problem, socket.gaierror) or not problem.errno:
        return problem.strerror or str(problem)
    return os.strerror(problem.errno)


def bound(bind: str, port: int) -> list[socket.socket]:
    """Sockets that have the gossip port; raises :class:`ConfigError` if that is impossible."""
    return bind_all(bind, port, _OPTION)


class SocketTransport:
    """Connections to other regions as sockets of the event loop, each known by a number."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        tls: RegionTls | None = None,
        admission: Admission | None = None,
        handshake_s: Callable[[], float] = lambda: DIAL_TIMEOUT_S,
        scheduler: Scheduler | None = None,
    ) -> None:
        """``handshake_s``: the deadline of TLS, and again of the handshake.

        Without a ``scheduler`` frames are processed as they arrive, without slices.
        """
        self.loop = loop
        self.scheduler = Scheduler(time.monotonic_ns) if scheduler is None else scheduler
        self.handshake_s = handshake_s
        self._admission = admission or Admission()
        self._acceptor = Acceptor(
            self._admission,
            ConnectionKind.STRANGER,
            lambda place: self._link(None, place),
            tls=TlsHandshake(
                lambda: None if self.tls is None else self.tls.accepting,
                handshake_s,
                lambda address, problem: self.handshake_failed((address, 0), problem),
            ),
        )
        self.tls = tls
        """TLS of later connections; None for none."""
        self.on_tls_refused: Callable[[str, str], None] = lambda address, reason: None
        """Called with an address and why there is no connection with it."""
        self._reported_at = -ANY_S  # the last report of any address
        self._refused: dict[str, tuple[str, float]] = {}  # by address: the last report and its time
        self.replicator: Replicator
        self.links: dict[int, _Link] = {}
        self.faults: dict[int, Fault] = {}  # by region
        self.on_heard: Callable[[], None] = lambda: None
        """Called when frames have been received."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._next = 0

    def next_number(self) -> int:
        """The number of the next link; no number is used twice."""
        self._next += 1
        return self._next

    def now_ms(self) -> float:
        """A monotonic clock; that of uvloop has only whole milliseconds."""
        return time.monotonic() * 1000

    def open(self, replicator: Replicator, sockets: list[socket.socket]) -> None:
        """Listen for other regions at sockets of :func:`bound`.

        Raises :class:`ConfigError` if that is impossible.
        """
        self.replicator = replicator
        self._acceptor.open(listening(sockets, BACKLOG, _OPTION))

    def move(self, bind: str, port: int) -> None:
        """Listen at other addresses; connections stay.

        After a ConfigError nothing listens: restore the settings and call this again.
        """
        self._acceptor.close()  # first, because the present sockets may occupy the new addresses
        self._acceptor.open(listening(bound(bind, port), BACKLOG, _OPTION))

    def shut_down(self) -> None:
        """Close the port and all links, and give up all dials."""
        self._acceptor.close()
        self._acceptor.cancel()
        for task in self._tasks:
            task.cancel()
        for link in list(self.links.values()):
            link.close()

    # -- for the replicator -------------------------------------------------------------------

    def send(self, link: int, frame: bytes) -> None:
        """Send a frame behind all earlier ones; nothing if the link is gone."""
        known = self.links.get(link)
        if known is not None:
            known.send(frame)

    def close(self, link: int) -> None:
        """Close a link when all its frames are sent; nothing if it is gone."""
        known = self.links.get(link)
        if known is not None:
            known.close()

    def dial(self, host: str, port: int) -> None:
        """Connect to another region; the replicator is told of the outcome."""
        self._begin(self._dial(host, port))

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _link(
        self, dialled: tuple[str, int] | None, place: Place | None = None
    ) -> asyncio.Protocol:
        return cast("asyncio.Protocol", _Link(self, dialled, place))

    async def _dial(self, host: str, port: int) -> None:
        if self._is_cut(host, port):
            self.replicator.sessions.dial_failed(host, port, self.now_ms(), "the link is cut")
            return
        context = None if self.tls is None else self.tls.dialling
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await self.loop.create_connection(
                    lambda: self._link((host, port)), host, port, ssl=context
                )
        except (OSError, TimeoutError) as problem:
            self.replicator.sessions.dial_failed(host, port, self.now_ms(), _why_not(problem))
            if isinstance(problem, ssl.SSLError | ConnectionResetError | ConnectionAbortedError):
                self.handshake_failed((host, port), problem)

    # -- TLS ----------------------------------------------------------------------------------

    def left_at_once(self, address: tuple[str, int], problem: Exception | None) -> None:
        """A region that was dialled has sent nothing.

        In TLS 1.3 the side that dialled has finished before the other one has seen its certificate.
        """
        if isinstance(problem, ssl.SSLError):
            self.handshake_failed(address, problem)
        elif self.tls is not None:
            self.refused(address, "it closed the connection; its log has the reason")

    def handshake_failed(self, address: tuple[str, int] | None, problem: OSError) -> None:
        """A TLS handshake has failed."""
        if self.tls is not None:
            self.refused(address, sentence(problem))

    def refused(self, address: tuple[str, int] | None, reason: str) -> None:
        """Report a failure, unless the same was reported of this address a short while ago."""
        shown = "?" if address is None else address[0]
        last, at = self._refused.get(shown, ("", 0.0))
        now = self.loop.time()
        if (last != reason or now - at >= AGAIN_S) and now - self._reported_at >= ANY_S:
            self._reported_at = now
            if len(self._refused) >= ADDRESSES_MAX:
                self._refused.clear()
            self._refused[shown] = reason, now
            self.on_tls_refused(shown, reason)

    def expiries(self) -> dict[int, int]:
        """When certificates expire, in seconds since 1970, by region."""
        found = {}
        for number, link in self.links.items():
            region = self.replicator.region_of(number)
            if region is not None and link.expires is not None:
                found[region] = link.expires
        return found

    # -- faults -------------------------------------------------------------------------------

    def fault_of(self, link: int) -> Fault | None:
        """The fault that is applied to a link."""
        if not self.faults:
            return None
        region = self.replicator.region_of(link)
        return None if region is None else self.faults.get(region)

    def _is_cut(self, host: str, port: int) -> bool:
        """Whether the link to the region at an address is paused."""
        region = (
            self.replicator.sessions.handshaker.region_at((host, port)) if self.faults else None
        )
        return region is not None and self.faults.get(region, NO_FAULT).paused

    def cut_ms(self, region: int) -> float | None:
        """For how many ms an operator has paused the link to a region; None if not."""
        at_ms = self.faults.get(region, NO_FAULT).cut_at_ms
        return None if at_ms is None else self.now_ms() - at_ms

    def fault(self, region: int) -> Fault:
        """The fault of a region, to be changed; call :meth:`released` afterwards."""
        return self.faults.setdefault(region, Fault())

    def released(self) -> None:
        """Faults have changed: send frames that are not delayed any more."""
        for fault in self.faults.values():
            fault.cut_at_ms = (fault.cut_at_ms or self.now_ms()) if fault.paused else None
        self.faults = {region: each for region, each in self.faults.items() if not each.is_none}
        for link in list(self.links.values()):
            link.go_on()
