"""The physical floor: a process that receives the same requests and sends replies that are ready.

It parses nothing, keeps nothing and encodes nothing. Its cost is what sockets and the kernel cost,
below which no server can come that reads the same bytes and writes as many. It blocks in its calls,
so it does not pay for a loop of events either.

`Floor` starts the process and plays scripts to it. The module is also the program of the process:
``python -m benchmarks.versus_redis.floor PORT``.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from typing import TYPE_CHECKING

from .load import Connection
from .servers import Recipe, Server, cpu_between

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from .load import Window

BUFFER_BYTES = 1 << 20
_PONG = b"+PONG\r\n"
_COUNT = struct.Struct("<I")
_WINDOW = struct.Struct("<III")
"""Bytes of the requests, bytes of the replies, lines of the replies."""


class Floor:
    """The running process, on the core of the servers; a context manager."""

    def __init__(self) -> None:
        """Start the process."""
        self._server = Server(Recipe("floor", _command))

    def __enter__(self) -> Floor:
        """Wait until the process accepts connections."""
        self._server.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the process."""
        self._server.__exit__(kind, error, traceback)

    def play(self, script: Sequence[Window], reply_sizes: Sequence[int]) -> tuple[int, int]:
        """Play windows whose replies have these sizes in bytes; return CPU and wall nanoseconds."""
        plan = b"".join(
            _WINDOW.pack(len(window.payload), size, window.lines)
            for window, size in zip(script, reply_sizes, strict=True)
        )
        with Connection(self._server.port) as connection:
            connection.send(_COUNT.pack(len(script)) + plan)
            connection.drain(1)  # the process has made the replies
            before = self._server.cpu()
            started = time.perf_counter_ns()
            connection.replay(script)
            wall = time.perf_counter_ns() - started
            return cpu_between(before, self._server.cpu()), wall


def _command(port: int, directory: Path) -> list[str]:
    del directory
    return [sys.executable, "-m", "benchmarks.versus_redis.floor", str(port)]


def serve(port: int) -> None:
    """Serve one connection after the other, until the process is ended."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with socket.create_server(("127.0.0.1", port)) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                head = _receive(connection, _COUNT.size)
                if head == b"*1\r\n":  # a PING that asks whether the process is ready
                    connection.sendall(_PONG)
                    continue
                if len(head) == _COUNT.size:
                    _follow(connection, _COUNT.unpack(head)[0], buffer)


def _follow(connection: socket.socket, count: int, buffer: memoryview) -> None:
    """Receive a plan of `count` windows and answer each of them with its ready replies."""
    plan = list(_WINDOW.iter_unpack(_receive(connection, count * _WINDOW.size)))
    ready = {(size, lines): b" " * (size - lines) + b"\n" * lines for _, size, lines in plan}
    connection.sendall(b"\n")
    receive = connection.recv_into
    for expected, size, lines in plan:
        missing = expected
        while missing:
            received = receive(buffer, min(missing, BUFFER_BYTES))
            if not received:
                return
            missing -= received
        connection.sendall(ready[size, lines])


def _receive(connection: socket.socket, size: int) -> bytes:
    """Return exactly `size` bytes, or fewer where the other side ended."""
    data = bytearray()
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return bytes(data)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
