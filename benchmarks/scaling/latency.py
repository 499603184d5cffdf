"""What a request waits at half of each server's own maximum.

Clients do not wait for each other: requests are due at moments drawn before, at random, and a wait
counts from the moment at which a request was due, even if it was sent later. So a server that
stands still for a moment is charged for everything that was due meanwhile. The maximum is
measured first, with clients that send the next request when a reply has come.
"""

from __future__ import annotations

import gc
import random
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle

import hiredis

from benchmarks.shared.figures import Figure, percentile
from benchmarks.versus_redis.load import Connection, RefusedError, windows
from benchmarks.versus_redis.servers import Server, anabranch_recipe, cpu_between, redis_recipe
from benchmarks.versus_redis.workloads import SEED, sensor_id

from .sizes import BATCH, FIELDS, GROUP, KEY, request

CLIENTS = 32
ENTRIES = 100_000
SHARES = {"XADD": 60, "XRANGE": 25, "XREADGROUP": 15}
"""Percent of the requests."""
SECONDS, QUICK_SECONDS = 10.0, 2.0
PERCENTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
BUFFER_BYTES = 1 << 16


class _Client:
    """A connection that does not block, with the moments at which its requests were due."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()
        self._due: deque[float] = deque()

    def send(self, payload: bytes, due: float) -> None:
        """Send a request; it fits the socket's buffer, or the server has stopped reading."""
        self._due.append(due)
        self.socket.sendall(payload)

    def receive(self, waits: list[float]) -> int:
        """Read what has come, note the wait of each reply, return how many replies came."""
        data = self.socket.recv(BUFFER_BYTES)
        now = time.perf_counter()
        if not data:
            raise ConnectionError("the server closed the connection")
        self._reader.feed(data)
        count = 0
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                raise RefusedError(str(reply))
            waits.append(now - self._due.popleft())
            count += 1
        return count


def at_half_load(*, quick: bool) -> list[Figure]:
    """Return the waits in microseconds, and the load at which they were measured."""
    seconds = QUICK_SECONDS if quick else SECONDS
    figures = []
    for recipe in (redis_recipe(), anabranch_recipe()):
        with Server(recipe) as server:
            _fill(server)
            with ExitStack() as stack:
                clients = [_Client(server.port) for _ in range(CLIENTS)]
                for client in clients:
                    stack.callback(client.socket.close)
                requests = cycle(_requests())
                gc.disable()
                try:
                    _saturate(clients, requests, seconds / 4)
                    before = server.cpu()
                    most = _saturate(clients, requests, seconds / 2)
                    busy = cpu_between(before, server.cpu()) / 1e9 / (seconds / 2)
                    waits = _load(clients, requests, most / 2, seconds)
                finally:
                    gc.enable()
        note = f"half of {most:,.0f} requests/s, at which the server ran {busy:.0%} of the time"
        figures += [
            Figure(
                f"{recipe.name}: {name} of the waits at half load",
                percentile(waits, share) * 1e6,
                "µs",
                note=note,
                is_less=quick,
            )
            for name, share in PERCENTILES.items()
        ]
    return figures


def _fill(server: Server) -> None:
    with Connection(server.port) as connection:
        adds = [request("XADD", KEY, sensor_id(index), *FIELDS) for index in range(ENTRIES)]
        connection.rehearse(windows(adds, 256))
        connection.ask("XGROUP", "CREATE", KEY, GROUP, "0")


def _requests() -> list[bytes]:
    """Return the mix of requests, in an order drawn at random."""
    chance = random.Random(SEED)  # noqa: S311 - nothing here is secret
    kinds = chance.choices(list(SHARES), list(SHARES.values()), k=10_000)
    take = ("XREADGROUP", "GROUP", GROUP, "consumer", "COUNT", BATCH, "NOACK")
    made = []
    for kind in kinds:
        if kind == "XADD":
            words = ("XADD", KEY, "MAXLEN", "~", 2 * ENTRIES, "*", *FIELDS)
        elif kind == "XRANGE":
            place = sensor_id(chance.randrange(ENTRIES - BATCH))
            words = ("XRANGE", KEY, place, "+", "COUNT", BATCH)
        else:
            words = (*take, "STREAMS", KEY, ">")
        made.append(request(*words).payload)
    return made


def _saturate(clients: Sequence[_Client], requests: Iterator[bytes], seconds: float) -> float:
    """Send the next request of a client when its reply has come; return requests a second."""
    waits: list[float] = []
    with selectors.EpollSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
            client.send(next(requests), 0.0)
        began = now = time.perf_counter()
        while now - began < seconds:
            for key, _ in selector.select():
                if key.data.receive(waits):
                    key.data.send(next(requests), now)
            now = time.perf_counter()
        done = len(waits)
        _await_replies(selector, waits, done + len(clients))
    return done / (now - began)


def _load(
    clients: Sequence[_Client], requests: Iterator[bytes], rate: float, seconds: float
) -> list[float]:
    """Send requests at a mean rate, at random moments; return the wait of each in seconds."""
    chance = random.Random(SEED)  # noqa: S311 - nothing here is secret
    waits: list[float] = []
    turns = cycle(clients)
    sent = 0
    with selectors.EpollSelector() as selector:
        for client in clients:
            selector.register(client.socket, selectors.EVENT_READ, client)
        began = time.perf_counter()
        due = began + chance.expovariate(rate)
        while due - began < seconds:
            while due <= time.perf_counter():
                next(turns).send(next(requests), due)
                sent += 1
                due += chance.expovariate(rate)
            for key, _ in selector.select(0):  # without sleeping: a sleep would end late
                key.data.receive(waits)
        _await_replies(selector, waits, sent)
    return waits


def _await_replies(selector: selectors.BaseSelector, waits: list[float], count: int) -> None:
    while len(waits) < count:
        for key, _ in selector.select():
            key.data.receive(waits)
