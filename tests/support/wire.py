"""A small synchronous client that keeps what the wire says.

A reply is `(type, value)`, type being the RESP type character: `('$', b'..')`, `(':', 5)`,
`('*', [...])`, `('%', [(key, value), ...])`. The three nulls stay apart: `('$', None)`,
`('*', None)`, `('_', None)`. So a bulk string is told from a status, and a map from an array.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

Reply: TypeAlias = tuple[str, Any]
Argument: TypeAlias = bytes | str | int

_BULK = frozenset(b"$=!")
_AGGREGATE = frozenset(b"*~>")
_PAIRS = frozenset(b"%|")
_SCALAR = frozenset(b"+-:_,#(")


class Incomplete(Exception):
    """The bytes end before the reply does."""


class ProtocolError(Exception):
    """The bytes are not RESP."""


class ConnectionLost(Exception):
    """The server closed the connection."""


def encode(argument: Argument) -> bytes:
    """One argument as bytes."""
    if isinstance(argument, bytes):
        return argument
    return str(argument).encode()


def encode_command(arguments: Iterable[Argument]) -> bytes:
    """A command as it goes over the wire."""
    parts = [encode(argument) for argument in arguments]
    head = b"*%d\r\n" % len(parts)
    return head + b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts])


def end_of_reply(data: bytes | bytearray, at: int) -> int:
    """Where the reply that starts at `at` ends; nothing is built."""
    wanted = 1
    size = len(data)
    while wanted:
        end = data.find(b"\r\n", at)
        if end < 0:
            raise Incomplete
        kind = data[at]
        if kind in _BULK:
            length = int(data[at + 1 : end])
            at = end + 2 + (length + 2 if length >= 0 else 0)
            if at > size:
                raise Incomplete
        elif kind in _AGGREGATE:
            wanted += max(0, int(data[at + 1 : end]))
            at = end + 2
        elif kind in _PAIRS:
            wanted += 2 * int(data[at + 1 : end]) + (kind == 0x7C)
            at = end + 2
        elif kind in _SCALAR:
            at = end + 2
        else:
            raise ProtocolError(f"not a reply: {bytes(data[at : at + 60])!r}")
        wanted -= 1
    return at


def parse_reply(data: bytes | bytearray, at: int = 0) -> tuple[Reply, int]:
    """The reply that starts at `at`, and where it ends."""
    end = data.find(b"\r\n", at)
    if end < 0:
        raise Incomplete
    kind = chr(data[at])
    rest = bytes(data[at + 1 : end])
    at = end + 2
    if kind in "$=!":
        length = int(rest)
        if length < 0:
            return (kind, None), at
        if len(data) < at + length + 2:
            raise Incomplete
        return (kind, bytes(data[at : at + length])), at + length + 2
    if kind == ":":
        return (kind, int(rest)), at
    if kind in "+-,(":
        return (kind, rest), at
    if kind in "*~>":
        count = int(rest)
        if count < 0:
            return (kind, None), at
        items: list[Reply] = []
        for _ in range(count):
            item, at = parse_reply(data, at)
            items.append(item)
        return (kind, items), at
    if kind == "%":
        pairs: list[tuple[Reply, Reply]] = []
        for _ in range(int(rest)):
            key, at = parse_reply(data, at)
            value, at = parse_reply(data, at)
            pairs.append((key, value))
        return (kind, pairs), at
    if kind == "_":
        return (kind, None), at
    if kind == "#":
        return (kind, rest == b"t"), at
    raise ProtocolError(f"not a reply: {kind!r}{rest[:60]!r}")


class RespClient:
    """One connection, synchronous, every wait bounded by `timeout` seconds."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", *, resp: int = 2, timeout: float = 60.0
    ) -> None:
        """Connect; with resp=3 also say HELLO 3."""
        self.timeout = timeout
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = bytearray()
        if resp == 3:
            hello = self.call("HELLO", 3)
            if hello[0] != "%":
                self.close()
                raise ProtocolError(f"HELLO 3 is refused: {hello!r}")

    def __enter__(self) -> RespClient:
        """The client itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def close(self) -> None:
        """Close the connection; a second time is harmless."""
        self.socket.close()

    def send_raw(self, data: bytes) -> None:
        """Send these bytes as they are."""
        self.socket.settimeout(self.timeout)
        self.socket.sendall(data)

    def send(self, *arguments: Argument) -> None:
        """Send a command without waiting for its reply."""
        self.send_raw(encode_command(arguments))

    def read_reply(self, timeout: float | None = None) -> Reply:
        """The next reply, pushes included; TimeoutError if it does not come."""
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            try:
                end = end_of_reply(self._data, 0)
            except Incomplete:
                self._receive(deadline)
                continue
            reply, _ = parse_reply(self._data)
            del self._data[:end]
            return reply

    def call(self, *arguments: Argument) -> Reply:
        """Send one command, return its reply."""
        self.send(*arguments)
        return self.read_reply()

    def pipeline(self, commands: Iterable[Sequence[Argument]]) -> list[Reply]:
        """Send all commands at once, return all replies."""
        lines = [encode_command(command) for command in commands]
        (raw,) = exchange([self], b"".join(lines), len(lines), self.timeout)
        return [parse_reply(one)[0] for one in raw]

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no reply in time")
        self.socket.settimeout(left)
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionLost("the server closed the connection")
        self._data += data


def exchange(
    clients: Sequence[RespClient], request: bytes, replies: int, timeout: float
) -> list[list[bytes]]:
    """Send the same bytes on all connections at once and read `replies` replies from each.

    Writing and reading go on together, so that neither side waits for the other however
    long the pipeline is. Returns the replies of each connection, raw, one by one.
    """
    states = [_Exchange(client, request, replies) for client in clients]
    deadline = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for state in states:
            state.client.socket.setblocking(False)
            selector.register(
                state.client.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, state
            )
        waiting = len(states)
        while waiting:
            left = deadline - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                missing = ", ".join(f"{len(state.raw)} of {replies}" for state in states)
                raise TimeoutError(f"replies that came in {timeout} s: {missing}")
            for key, events in ready:
                one: _Exchange = key.data
                if events & selectors.EVENT_WRITE and one.write():
                    selector.modify(key.fileobj, selectors.EVENT_READ, one)
                if events & selectors.EVENT_READ and one.read():
                    selector.unregister(key.fileobj)
                    waiting -= 1
    return [state.raw for state in states]


class _Exchange:
    """One connection's part of an exchange."""

    def __init__(self, client: RespClient, request: bytes, replies: int) -> None:
        self.client = client
        self.rest = memoryview(request)
        self.replies = replies
        self.raw: list[bytes] = []
        self._at = 0

    def write(self) -> bool:
        """Send what the socket takes; True when all is sent."""
        try:
            self.rest = self.rest[self.client.socket.send(self.rest) :]
        except BlockingIOError:
            return False
        return not self.rest

    def read(self) -> bool:
        """Take what has come; True when all replies are there."""
        client = self.client
        try:
            data = client.socket.recv(1 << 18)
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionLost(
                f"the server closed the connection after {len(self.raw)} of {self.replies} replies"
            )
        buffer = client._data
        buffer += data
        at = self._at
        try:
            while len(self.raw) < self.replies:
                end = end_of_reply(buffer, at)
                self.raw.append(bytes(buffer[at:end]))
                at = end
        except Incomplete:
            self._at = at
            return False
        del buffer[:at]
        return True
