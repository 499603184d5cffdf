"""How long others wait while floods come: what a canary sees beside clients that send much.

A flood is many requests in one go, from one client or from many, or one request that wakes many.
Each runs alone on both servers while a canary (`canary.py`) pings each millisecond.
"""

from __future__ import annotations

import select
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from os import urandom
from typing import TYPE_CHECKING

import trustme

from .canary import Canary
from .load import Connection, RefusedError, request, windows
from .longest import FLOOR_MS, LongRow, Waits, waits
from .servers import Recipe, Server, cpu_between, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LARGE = "large, {}: "
"""What the names of the rows of large values begin with; ``appendfsync`` stands in it."""
TIMES_REDIS_LARGE = 2.0
LARGE_BYTES = 50_000_000
MANY_WORDS = 1_100_000
CHANGES = 100
NAME = "flood: "
"""What the names of these rows begin with."""
TIMEOUT_S = 240.0
SEND_BYTES = 64 * 1024
READ_BYTES = 1 << 20
SETTLE_S = 0.05
EXPIRE_S = 1.5
END, LAST = b"QUIT\r\n", b"+OK\r\n"
READERS = 800
SUBSCRIBERS, MESSAGES = 200, 500
VISITS, VISITORS = 2000, 50

BIG = "flood:b"
ADD = request("XADD", "flood:s", "*", "f", "v").payload
ADD_AND_TRIM = request("XADD", "flood:s", "MAXLEN", "~", 1000, "*", "f", "v").payload
UNKNOWN = request("nosuch").payload
PUBLISH = request("PUBLISH", "flood:news", "x").payload
SUBSCRIBE = request("SUBSCRIBE", "flood:news").payload
WAIT = request("XREAD", "BLOCK", 0, "STREAMS", "flood:w", "$").payload
TRANSACTION = b"MULTI\r\n" + b"PING\r\n" * 100 + b"EXEC\r\n"


@dataclass(frozen=True, slots=True)
class Door:
    """Where a server listens on this machine."""

    port: int
    tls_port: int = 0

    def connect(self, *, tls: bool = False) -> socket.socket:
        """Connect, and shake hands."""
        plain = socket.create_connection(
            ("127.0.0.1", self.tls_port if tls else self.port), TIMEOUT_S
        )
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not tls:
            return plain
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # whoever listens there was started by us
        return context.wrap_socket(plain)


@dataclass(frozen=True, slots=True)
class Flood:
    """One kind: what is opened before the canary looks, and what comes then."""

    name: str
    open: Callable[[Door, ExitStack], Callable[[], None]]


Judge = Callable[[Flood, Waits, Waits], LongRow]
"""Makes the row of a flood from what both servers did."""


def floods() -> list[Flood]:
    """Return all kinds in the order in which they are run and listed."""
    return [
        _pipeline("inline errors", lambda: b"a\n" * 150_000),
        _pipeline("inline errors of 20 clients", lambda: b"a\n" * 20_000, clients=20),
        _pipeline("unknown commands", lambda: UNKNOWN * 150_000),
        _pipeline("PING", lambda: b"*1\r\n$4\r\nPING\r\n" * 400_000),
        _pipeline("XADD", lambda: ADD * 80_000),
        _pipeline("XADD of 30 clients", lambda: ADD_AND_TRIM * 3000, clients=30),
        _pipeline("small transactions", lambda: TRANSACTION * 1000),
        _pipeline(
            "a transaction of 40,000, discarded",
            lambda: b"MULTI\r\n" + ADD * 40_000 + b"DISCARD\r\n",
        ),
        _pipeline("PUBLISH", lambda: PUBLISH * 150_000),
        Flood("PUBLISH to 200 subscribers", _to_subscribers),
        _pipeline("SUBSCRIBE to 20,000 channels", _subscriptions),
        Flood("one XADD wakes 800 readers", _wakes_readers),
        Flood("2,000 clients come and go", _visitors),
        Flood("30,000 keys expire", _expiries),
        _pipeline("TLS, XADD", lambda: ADD * 60_000, tls=True),
        _pipeline("TLS, inline errors", lambda: b"a\n" * 100_000, tls=True),
        _pipeline("TLS, XADD of 20 clients", lambda: ADD_AND_TRIM * 3000, clients=20, tls=True),
    ]


def large_values() -> list[Flood]:
    """Return those in which few requests have many bytes, or many words."""
    words = [f"w{index % 1000}" for index in range(MANY_WORDS)]
    return [
        _pipeline("XADD of 50 MB that compress", lambda: _added(_readings())),
        _pipeline("XADD of 50 MB of random bytes", lambda: _added(urandom(LARGE_BYTES))),
        _pipeline("XADD of 100 MB of random bytes", lambda: _added(urandom(2 * LARGE_BYTES))),
        _pipeline("SET of 50 MB", lambda: request("SET", BIG, urandom(LARGE_BYTES)).payload),
        _pipeline("XADD of 1.1 million words", lambda: request("XADD", BIG, "*", *words).payload),
        _changes("APPEND to 50 MB", "APPEND", BIG, "x"),
        _changes("SETRANGE in 50 MB", "SETRANGE", BIG, 1000, "x"),
    ]


# -- kinds ------------------------------------------------------------------------------------


def _added(data: bytes) -> bytes:
    return request("XADD", BIG, "*", "f", data).payload


def _readings() -> bytes:
    """As JSON of sensors: a ninth is left of it when it is compressed."""
    some = [
        b'{"sensor":"thermo-%06d","value":%d.5,"unit":"C","time":1700000%06d}'
        % (index * 7_368_787 % 10**6, index * 7919 % 97, index)
        for index in range(LARGE_BYTES // 68)
    ]
    return b"".join(some)


def _changes(name: str, *words: str | int) -> Flood:
    def begin(door: Door, stack: ExitStack) -> Callable[[], None]:
        with Connection(door.port) as client:
            client.ask("SET", BIG, bytes(LARGE_BYTES))
        sock = stack.enter_context(door.connect())
        return partial(pour, [sock], request(*words).payload * CHANGES + END)

    return Flood(name, begin)


def _pipeline(
    name: str, payload: Callable[[], bytes], *, clients: int = 1, tls: bool = False
) -> Flood:
    def begin(door: Door, stack: ExitStack) -> Callable[[], None]:
        sent = payload() + END
        sockets = [stack.enter_context(door.connect(tls=tls)) for _ in range(clients)]
        return partial(pour, sockets, sent)

    return Flood(name, begin)


def _subscriptions() -> bytes:
    names = [f"flood:{index}" for index in range(20_000)]
    return b"".join([request("SUBSCRIBE", name).payload for name in names])


def _to_subscribers(door: Door, stack: ExitStack) -> Callable[[], None]:
    subscribers = [stack.enter_context(door.connect()) for _ in range(SUBSCRIBERS)]
    for sock in subscribers:
        sock.sendall(SUBSCRIBE)
        sock.recv(READ_BYTES)
    publisher = stack.enter_context(door.connect())

    def run() -> None:
        publisher.sendall(PUBLISH * MESSAGES)
        count_lines([publisher], MESSAGES)
        count_lines(subscribers, MESSAGES * 7)

    return run


def _wakes_readers(door: Door, stack: ExitStack) -> Callable[[], None]:
    readers = [stack.enter_context(door.connect()) for _ in range(READERS)]
    for sock in readers:
        sock.sendall(WAIT)
    writer = stack.enter_context(Connection(door.port))
    deadline = time.monotonic() + TIMEOUT_S
    while f"blocked_clients:{READERS}".encode() not in writer.ask("INFO", "clients"):  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise RefusedError("the readers do not block")

    def run() -> None:
        writer.ask("XADD", "flood:w", "*", "f", "v")
        count_lines(readers, 11)

    return run


def _visitors(door: Door, stack: ExitStack) -> Callable[[], None]:
    def run() -> None:
        for _ in range(VISITS // VISITORS):
            pour([stack.enter_context(door.connect()) for _ in range(VISITORS)], END)

    return run


def _expiries(door: Door, stack: ExitStack) -> Callable[[], None]:
    client = stack.enter_context(Connection(door.port))
    due_ms = int((time.time() + EXPIRE_S) * 1000)
    sets = [request("SET", f"flood:{index}", "v", "PXAT", due_ms) for index in range(30_000)]
    client.replay(windows(sets, 1000))

    def run() -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while client.ask("DBSIZE"):
            if time.monotonic() > deadline:
                raise RefusedError("keys do not expire")
            time.sleep(SETTLE_S)

    return run


# -- sending and reading ----------------------------------------------------------------------


class _Client:
    """One connection that has something to send, and is closed by the server afterwards."""

    def __init__(self, sock: socket.socket, sent: bytes) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.unsent = memoryview(sent)
        self.tail = b""

    def send(self) -> None:
        """Send some."""
        try:
            self.unsent = self.unsent[self.sock.send(self.unsent[:SEND_BYTES]) :]
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass

    def read(self) -> bool:
        """Read what is there; whether more may come."""
        try:
            while data := self.sock.recv(READ_BYTES):
                self.tail = (self.tail + data)[-len(LAST) :]
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except ssl.SSLEOFError:  # closed without a word, as Redis does
            pass
        return False


def pour(sockets: Iterable[socket.socket], sent: bytes) -> None:
    """Send the same from all of them and read the replies; the last request must be QUIT."""
    clients = {sock: _Client(sock, sent) for sock in sockets}
    deadline = time.monotonic() + TIMEOUT_S
    while clients:
        if time.monotonic() > deadline:
            raise RefusedError(f"{len(clients)} clients were not answered")
        sending = [sock for sock, client in clients.items() if client.unsent]
        readable, writable, _ = select.select(list(clients), sending, [], 1.0)
        for sock in writable:
            clients[sock].send()
        for sock in readable:
            if not clients[sock].read():
                client = clients.pop(sock)
                sock.close()
                if client.tail != LAST or client.unsent:
                    raise RefusedError("a client was closed before its last reply")


def count_lines(sockets: Iterable[socket.socket], lines: int) -> None:
    """Read so many lines from each of them."""
    left = dict.fromkeys(sockets, lines)
    for sock, found in lines_of(left):
        left[sock] -= found
        if left[sock] <= 0:
            del left[sock]


def lines_of(sockets: Collection[socket.socket]) -> Iterator[tuple[socket.socket, int]]:
    """Wait for lines from these sockets, until the container is empty; yields how many came."""
    deadline = time.monotonic() + TIMEOUT_S
    with selectors.DefaultSelector() as selector:
        for sock in sockets:
            selector.register(sock, selectors.EVENT_READ)
        while sockets:
            if time.monotonic() > deadline:
                raise RefusedError("some clients were not answered")
            for key, _ in selector.select(1.0):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                yield sock, sock.recv(READ_BYTES).count(b"\n")
                if sock not in sockets:
                    selector.unregister(sock)


# -- both servers -----------------------------------------------------------------------------


def certificate_options(directory: Path, port: int) -> list[str]:
    """Write a certificate; return the options with which either server listens with TLS."""
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1")
    names = [directory / name for name in ("ca.pem", "cert.pem", "key.pem")]
    authority.cert_pem.write_to_path(str(names[0]))
    made.cert_chain_pems[0].write_to_path(str(names[1]))
    made.private_key_pem.write_to_path(str(names[2]))
    return [
        *("--tls-port", str(port), "--tls-auth-clients", "no"),
        *("--tls-ca-cert-file", str(names[0])),
        *("--tls-cert-file", str(names[1]), "--tls-key-file", str(names[2])),
    ]


def run_floods(
    baseline: Recipe,
    subject: Recipe,
    wanted: list[Flood],
    rounds: int,
    *,
    name: str = NAME,
    times_redis: float = 1.0,
) -> Iterator[LongRow]:
    """Run each of the floods on both servers, in turns; ``name`` is what the rows begin with."""

    def judged(flood: Flood, theirs: Waits, ours: Waits) -> LongRow:
        at_most_ms = max(FLOOR_MS, times_redis * theirs.worst_ms.median)
        passed = ours.worst_ms.median <= at_most_ms
        return LongRow(name + flood.name, "", theirs, ours, at_most_ms, passed)

    return run_side_by_side(baseline, subject, wanted, rounds, name, judged)


def run_side_by_side(
    baseline: Recipe,
    subject: Recipe,
    wanted: list[Flood],
    rounds: int,
    prefix: str,
    judged: Judge,
) -> Iterator[LongRow]:
    """The same, for rows whose names begin otherwise and that are judged in another way."""
    if not wanted:
        return
    with ExitStack() as stack:
        sides = []
        for recipe in (baseline, subject):
            tls_port = free_port()
            server = stack.enter_context(Server(_with_tls(recipe, tls_port)))
            canary = stack.enter_context(Canary(server.port, server.pid))
            sides.append((server, Door(server.port, tls_port), canary))
        for flood in wanted:
            taken: list[list[tuple[float, float]]] = [[] for _ in sides]
            try:
                for _ in range(rounds):
                    for samples, side in zip(taken, sides, strict=True):
                        samples.append(_sample(flood, *side))
            except (RefusedError, OSError) as error:
                yield LongRow(prefix + flood.name, str(error), None, None, FLOOR_MS, None)
                continue
            theirs, ours = map(waits, taken)
            yield judged(flood, theirs, ours)


def _sample(flood: Flood, server: Server, door: Door, canary: Canary) -> tuple[float, float]:
    """Milliseconds: the canary's longest wait, and the server's CPU."""
    with ExitStack() as stack:
        run = flood.open(door, stack)
        before = server.cpu()
        canary.look()
        run()
        time.sleep(SETTLE_S)
        worst_ms = canary.look().worst_ms
        cpu_ms = cpu_between(before, server.cpu()) / 1e6
    with Connection(door.port) as connection:
        connection.ask("FLUSHALL")
    return worst_ms, cpu_ms


def _with_tls(recipe: Recipe, tls_port: int) -> Recipe:
    def command(port: int, directory: Path) -> list[str]:
        options = certificate_options(directory.parent, tls_port)
        return [*recipe.command(port, directory), *options]

    return Recipe(recipe.name, command)
