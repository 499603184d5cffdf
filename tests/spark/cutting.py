"""Servers that go away: one that is killed and comes back, and a wire that is cut in mid-reply."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import threading
from typing import Self

from tests.support.servers import AnabranchServer


class ReturningServer(AnabranchServer):
    """Our server, which can be killed and started again at the same address."""

    starts = 1

    def crash(self) -> None:
        """As ``kill -9`` and an immediate restart do."""
        self.kill()
        self.come_back()

    def come_back(self) -> None:
        """Start again with the same port and directory."""
        self._launch()
        self.starts += 1


class CuttingWire:
    """A proxy that ends the first `cuts` connections after a random number of bytes."""

    def __init__(self, port: int, cuts: int, most: int, seed: int) -> None:
        """`most`: bytes, both ways together, that a connection may live to see."""
        self._target = port
        self._left = cuts
        self._most = most
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._pumps: list[tuple[socket.socket, threading.Thread]] = []
        self.cut = 0

    def __enter__(self) -> Self:
        """Listening."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for client, pump in self._pumps:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            pump.join(10)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                budget = None
                if self._left:
                    self._left -= 1
                    budget = self._random.randrange(200, self._most)
                pump = threading.Thread(target=self._carry, args=(client, budget), daemon=True)
                pump.start()
                self._pumps.append((client, pump))

    def _carry(self, client: socket.socket, budget: int | None) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            other = {client: server, server: client}
            with contextlib.suppress(OSError):
                while True:
                    for source in select.select(list(other), [], [])[0]:
                        data = source.recv(4096)
                        if not data:
                            return
                        if budget is not None:
                            data = data[:budget]
                            budget -= len(data)
                        other[source].sendall(data)
                        if budget == 0:
                            self.cut += 1
                            return
