"""What bulk commands cost the server, and how long they keep others waiting."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from statistics import median
from struct import unpack_from

from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis.load import Connection
from benchmarks.versus_redis.servers import Server, anabranch_recipe, cpu_between

from .data import fill, fill_by_xadd, payload

KEY = "bench:serve"
FRESH = "bench:fresh"
"""Entries that were just added one by one: the server has not packed them yet."""

ENTRIES, QUICK_ENTRIES = 1_000_000, 100_000
ROUNDS, QUICK_ROUNDS = 5, 2
COST_ROUNDS = 15
"""More, as one reads for less than a tenth of a second of processor time."""

EXPORT = ("MAXBYTES", 2 << 20, "CODEC", "NODES")
"""What the source asks of AB.EXPORT."""

PAGE = 10_000
IMPORTS, QUICK_IMPORTS = 200, 40
PAUSE_S = 0.001
"""Between two questions of who is kept waiting."""


def cost(*, quick: bool) -> list[Figure]:
    """CPU of reading all entries by AB.EXPORT and by XRANGE."""
    entries = QUICK_ENTRIES if quick else ENTRIES
    ratios, exports = [], []
    with Server(anabranch_recipe("everysec")) as server, Connection(server.port) as connection:
        fill(connection, KEY, entries)
        for turn in range(1 + (QUICK_ROUNDS if quick else COST_ROUNDS)):
            exported = _cpu(server, lambda: _export(connection))
            ranged = _cpu(server, lambda: _range(connection))
            if turn:  # the first one warms up
                ratios.append(exported / ranged)
                exports.append(exported / entries / 1e3)
    return [
        of_rounds("server CPU of an exported entry", ratios, "of XRANGE", f"{entries:,} entries"),
        of_rounds("server CPU of an exported entry, alone", exports, "µs"),
    ]


def _cpu(server: Server, action: Callable[[], None]) -> int:
    before = server.cpu()
    action()
    return cpu_between(before, server.cpu())


def _export(connection: Connection, key: str = KEY) -> None:
    rows = connection.ask("AB.OFFSETS", "STREAMS", key)
    assert isinstance(rows, list)
    _, _, at, end, *_ = rows[0][0]
    while at < end:
        reply = connection.ask("AB.EXPORT", key, "", at, end, *EXPORT)
        assert isinstance(reply, bytes)
        (at,) = unpack_from("<Q", reply, 8)


def _range(connection: Connection) -> None:
    start = "-"
    while page := connection.ask("XRANGE", KEY, start, "+", "COUNT", PAGE):
        assert isinstance(page, list)
        start = f"({page[-1][0].decode()}"


def stalls(*, quick: bool) -> list[Figure]:
    """The longest that a PING of another process waits meanwhile."""
    imports = QUICK_IMPORTS if quick else IMPORTS
    figures = []
    with Server(anabranch_recipe("everysec")) as server, Connection(server.port) as connection:
        entries = QUICK_ENTRIES if quick else ENTRIES
        fill(connection, KEY, entries)
        turns = range(QUICK_ROUNDS if quick else ROUNDS)
        idle = median(_longest(server, lambda: time.sleep(1)) for _ in turns)
        whole = payload()

        def bring() -> None:
            for _ in range(imports):
                connection.ask("AB.IMPORT", "bench:more", whole)

        def take() -> None:
            _export(connection)
            _export(connection, FRESH)

        fill_by_xadd(connection, FRESH, entries // 4)
        for what, action in (("exporting", take), ("importing", bring)):
            longest = [_longest(server, action) for _ in turns]
            note = f"{idle:.1f} ms when nothing else is done"
            figures.append(of_rounds(f"longest wait of others, {what}", longest, "ms", note))
    return figures


def _longest(server: Server, action: Callable[[], None]) -> float:
    """Milliseconds."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    pinger = context.Process(target=_ping, args=(server.port, theirs), daemon=True)
    pinger.start()
    ours.recv()
    action()
    ours.send(None)
    longest: float = ours.recv()
    pinger.join()
    return longest * 1e3


def _ping(port: int, pipe: Pipe) -> None:
    longest = 0.0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        pipe.send(None)
        while not pipe.poll():
            began = time.perf_counter()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            longest = max(longest, time.perf_counter() - began)
            time.sleep(PAUSE_S)
    pipe.send(longest)
