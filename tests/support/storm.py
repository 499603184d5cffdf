"""Many short connections at once: each sends its attack, and must be let go by the server.

`Storm.run` keeps a number of connections busy from one selector. A connection that ends with
`EOF` says that it has no more to send and reads until the server closes; what it read must be
whole replies, and for a counted attack so many of them. Nothing may take longer than `patience`.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.support.hostile import CLOSE, EOF, RESET, Attack
from tests.support.wire import Incomplete, ProtocolError, end_of_reply

_ERROR = ord("-")
_LINGER_NOT = struct.pack("ii", 1, 0)  # close() sends a reset


class StormFailed(AssertionError):
    """The server did not behave; the message holds the attack."""


class Storm:
    """A crowd of hostile clients in one thread."""

    def __init__(
        self, port: int, unix_path: Path | None, *, width: int = 48, patience: float = 120
    ):
        """`width` connections at once, half of them over the Unix socket if there is one."""
        self.port = port
        self.unix_path = unix_path
        self.width = width
        self.patience = patience
        self.sequences: Counter[str] = Counter()
        self.replies: Counter[tuple[str, str]] = Counter()  # by kind of attack, errors apart
        self.connections = 0
        self._selector = selectors.DefaultSelector()

    def run(self, attacks: Iterator[Attack], sequences: int) -> None:
        """Send so many hostile sequences; all connections are gone when this returns."""
        wanted = self.sequences.total() + sequences
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            try:
                while self.sequences.total() < wanted or selector.get_map():
                    while len(selector.get_map()) < self.width and self.sequences.total() < wanted:
                        self._open(next(attacks))
                    self._turn()
            finally:
                for key in list(selector.get_map().values()):
                    key.data.socket.close()

    def _open(self, attack: Attack) -> None:
        self.connections += 1
        self.sequences[attack.kind] += attack.sequences
        if self.unix_path is not None and self.connections % 2:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(str(self.unix_path))
        else:
            sock = socket.create_connection(("127.0.0.1", self.port), self.patience)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        client = _Client(sock, attack, time.monotonic() + self.patience)
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, client)

    def _turn(self) -> None:
        ready = self._selector.select(1.0)
        for key, events in ready:
            client: _Client = key.data
            try:
                if events & selectors.EVENT_WRITE and client.write():
                    if client.attack.ending != EOF:
                        self._end(client)
                        continue
                    client.socket.shutdown(socket.SHUT_WR)
                    self._selector.modify(client.socket, selectors.EVENT_READ, client)
                if events & selectors.EVENT_READ and client.read():
                    self._end(client)
            except (ConnectionError, OSError) as gone:
                # A server may close while we still send: after an error, or for good reason.
                client.lost = gone
                self._end(client)
        if not ready or self.connections % 64 == 0:
            now = time.monotonic()
            for key in list(self._selector.get_map().values()):
                if now > key.data.deadline:
                    raise StormFailed(
                        f"not let go within {self.patience} s, {len(key.data.received)} bytes "
                        f"of replies so far: {key.data.attack.described()}"
                    )

    def _end(self, client: _Client) -> None:
        self._selector.unregister(client.socket)
        attack = client.attack
        if attack.ending == RESET and client.socket.family != socket.AF_UNIX:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        client.socket.close()
        self._judge(client)

    def _judge(self, client: _Client) -> None:
        """Whole replies, as many as wanted, none of them a confession."""
        attack = client.attack
        data = client.received
        if b"internal error" in data:
            at = data.index(b"internal error")
            number = count_replies(data[:at])
            blamed = attack.requests[number] if number < len(attack.requests) else None
            raise StormFailed(f"internal error for {blamed!r} in {attack.described()}")
        at = count = 0
        try:
            while at < len(data):
                kind = "error" if data[at] == _ERROR else "reply"
                at = end_of_reply(data, at)
                self.replies[attack.kind, kind] += 1
                count += 1
        except (Incomplete, ProtocolError, ValueError) as problem:
            if attack.ending == EOF and client.lost is None:
                raise StormFailed(
                    f"not a reply ({problem!r}): {bytes(data[at : at + 200])!r} "
                    f"for {attack.described()}"
                ) from None
        if attack.replies is not None and count != attack.replies:
            raise StormFailed(
                f"{count} replies instead of {attack.replies}, lost: {client.lost!r}, the last "
                f"{bytes(data[-300:])!r} for {attack.described()}"
            )


def count_replies(data: bytes | bytearray) -> int:
    """How many whole replies these bytes hold."""
    at = count = 0
    try:
        while at < len(data):
            at = end_of_reply(data, at)
            count += 1
    except Incomplete:
        pass
    return count


class _Client:
    """One connection of the storm."""

    __slots__ = ("attack", "chunks", "deadline", "lost", "received", "socket")

    def __init__(self, sock: socket.socket, attack: Attack, deadline: float) -> None:
        self.socket = sock
        self.attack = attack
        self.deadline = deadline
        self.chunks = [memoryview(chunk) for chunk in attack.chunks]
        self.received = bytearray()
        self.lost: OSError | None = None

    def write(self) -> bool:
        """Send at most one chunk, so that the server sees them apart; True when all is sent."""
        if self.chunks:
            sent = self.socket.send(self.chunks[0])
            if sent == len(self.chunks[0]):
                self.chunks.pop(0)
            else:
                self.chunks[0] = self.chunks[0][sent:]
        return not self.chunks

    def read(self) -> bool:
        """Take what has come; True at the end."""
        data = self.socket.recv(1 << 18)
        self.received += data
        return not data


__all__ = ["CLOSE", "Storm", "StormFailed", "count_replies"]
