"""The load generator: pre-encoded requests in windows, replies counted and not parsed.

A `Window` is what one connection has under way at a time: `depth` requests sent in one call,
then as many replies awaited. To count replies cheaply the generator counts line ends: no payload
of these benchmarks holds one, so each reply has a known number of lines (an XRANGE of ten entries
with three fields has 161) and counting costs less than a memory copy. What the replies *say* is
looked at once per workload and server, in the rehearsal, with a real parser.
"""

from __future__ import annotations

import hashlib
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import hiredis

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import TracebackType

BUFFER_BYTES = 1 << 20
REPLY_TIMEOUT_S = 240.0
_PING, _PONG = b"PING\r\n", b"+PONG\r\n"


class RefusedError(Exception):
    """The server answered with an error, or with something that was not asked for."""


@dataclass(frozen=True, slots=True)
class Request:
    """One encoded command and the number of lines its reply will have; 0 if any is right."""

    payload: bytes
    lines: int


@dataclass(frozen=True, slots=True)
class Window:
    """Requests sent together, and what must come back before the next window is sent."""

    payload: bytes
    replies: int
    lines: int


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What came back when replies were looked at: a hash of the bytes, and their sizes."""

    digest: str
    reply_sizes: list[int]
    """Bytes, by window."""


Word = bytes | str | int


def request(*words: Word, lines: int = 1) -> Request:
    """Encode one command whose reply has `lines` lines."""
    return Request(_encode(words), lines)


def windows(requests: Sequence[Request], depth: int) -> list[Window]:
    """Pack requests into windows of `depth`; the last one may be smaller."""
    packed = []
    for start in range(0, len(requests), depth):
        part = requests[start : start + depth]
        payload = b"".join(one.payload for one in part)
        packed.append(Window(payload, len(part), sum(one.lines for one in part)))
    return packed


def _encode(words: tuple[Word, ...]) -> bytes:
    # The stub of hiredis asks for a tuple of one item.
    return hiredis.pack_command(words)  # type: ignore[arg-type, no-any-return]


class Connection:
    """A blocking client connection; a context manager."""

    def __init__(self, port: int, buffer_bytes: int = BUFFER_BYTES) -> None:
        """Connect to a server on this machine."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=REPLY_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(buffer_bytes)

    def __enter__(self) -> Connection:
        """Return the open connection."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def ask(self, *words: Word) -> object:
        """Send one command and return its parsed reply; an error reply is raised."""
        self.send(_encode(words))
        reader = hiredis.Reader()
        while (reply := reader.gets()) is False:
            reader.feed(self._receive())
        if isinstance(reply, hiredis.ReplyError):
            raise RefusedError(str(reply))
        return reply

    def send(self, payload: bytes) -> None:
        """Send bytes that are encoded already."""
        self._socket.sendall(payload)

    def send_and_skim(self, payload: bytes) -> None:
        """Send commands and read their replies without looking at more than the first byte.

        A PING behind them tells where the replies end.
        """
        sender = threading.Thread(target=self._socket.sendall, args=(payload + _PING,))
        sender.start()  # a server may answer the first before it has read the last
        end = first = b""
        while end != _PONG:
            size = self._socket.recv_into(self._buffer)
            if not size:
                raise ConnectionError("the server closed the connection")
            first = first or bytes(self._buffer[:100])
            end = (end + self._buffer[max(size - len(_PONG), 0) : size])[-len(_PONG) :]
        sender.join()
        if first.startswith(b"-"):
            raise RefusedError(first.partition(b"\r\n")[0].decode(errors="replace"))

    def drain(self, lines: int) -> None:
        """Read until `lines` lines have come."""
        buffer = self._buffer
        receive = self._socket.recv_into
        while lines > 0:
            size = receive(buffer)
            if not size:
                raise ConnectionError("the server closed the connection")
            lines -= buffer.count(b"\n", 0, size)
        if lines:
            raise RefusedError("more came back than was asked for")

    def replay(self, script: Iterable[Window]) -> None:
        """Send each window and await its replies; the timed path."""
        for window in script:
            self._socket.sendall(window.payload)
            self.drain(window.lines)

    def rehearse(self, script: Iterable[Window]) -> Rehearsal:
        """Replay with a parser: refuse errors and wrong sizes."""
        digest = hashlib.sha256()
        sizes = []
        reader = hiredis.Reader()
        for window in script:
            self.send(window.payload)
            replies = lines = size = 0
            while replies < window.replies:
                data = self._receive()
                digest.update(data)
                size += len(data)
                lines += data.count(b"\n")
                reader.feed(data)
                while (reply := reader.gets()) is not False:
                    if isinstance(reply, hiredis.ReplyError):
                        raise RefusedError(str(reply))
                    replies += 1
            if window.lines and lines != window.lines:
                raise RefusedError(f"a window gave {lines} lines where {window.lines} are right")
            sizes.append(size)
        return Rehearsal(digest.hexdigest(), sizes)

    def _receive(self) -> bytes:
        data = self._socket.recv(BUFFER_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data
