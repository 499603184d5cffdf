"""What crowds cost: many waiters, consumers, groups or connections, and one command for them all.

Each row runs alone on both servers, while a canary (`canary.py`) pings each millisecond. Noted are
the canary's longest wait and the server's CPU; both count.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from .floods import TIMEOUT_S, Door, Flood, count_lines, lines_of, run_side_by_side
from .load import Connection, RefusedError, Request, Word, request, windows
from .longest import FLOOR_MS, TIMES_REDIS, LongRow, Waits

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator

    from .servers import Recipe

NAME = "crowd: "
"""What the names of these rows begin with."""
KEY, GROUP = "crowd:s", "readers"
FAR_ID = "9999999999999"
FILES = 16_384
"""Files that this process may have open: one for each client."""
BUSY_ADDRESS = "10.11.12.13:1"


def crowds() -> list[Flood]:
    """Return all kinds in the order in which they are run and listed."""
    return [
        Flood("200 XADD, 6,000 blocked readers of one group", _group_readers),
        Flood("200 XADD, 3,000 readers wait for far IDs", _far_readers),
        Flood("one reader of 5,000 streams blocks and wakes, 5 times", _wide_reader(grouped=False)),
        Flood("one reader of 5,000 streams in a group, 5 times", _wide_reader(grouped=True)),
        Flood("200 RPUSH, 6,000 blocked BLPOP", _pops),
        Flood("a chain of 300 blocked BLMOVE, 5 times", _chain),
        Flood("200 SET of a key that 3,000 watch", _watchers),
        Flood("20 PUBLISH to 9,000 subscribers", _subscribers),
        Flood("10 CLIENT LIST of 3,000 connections", _connections(("CLIENT", "LIST"), times=10)),
        Flood(
            "10 CLIENT LIST TYPE of 3,000 connections",
            _connections(("CLIENT", "LIST", "TYPE", "pubsub"), times=10),
        ),
        Flood(
            "100 CLIENT KILL with filters that none of 3,000 passes",
            _connections(
                ("CLIENT", "KILL", "TYPE", "normal", "USER", "default", "ADDR", BUSY_ADDRESS),
                times=100,
            ),
        ),
        Flood("CLIENT KILL of 3,000 connections", _killing),
        Flood("200 XADD of 500 fields", _on_stream(_wide_adds)),
        Flood(
            "20 XPENDING of 10,000 consumers",
            _on_stream(lambda: [request("XPENDING", KEY, GROUP)] * 20, consumers=10_000),
        ),
        Flood(
            "20 XINFO CONSUMERS of 10,000",
            _on_stream(lambda: [request("XINFO", "CONSUMERS", KEY, GROUP)] * 20, consumers=10_000),
        ),
        Flood(
            "10 XINFO STREAM FULL of 10,000 consumers",
            _on_stream(lambda: [request("XINFO", "STREAM", KEY, "FULL")] * 10, consumers=10_000),
        ),
        Flood(
            "20 XINFO GROUPS of 10,000",
            _on_stream(lambda: [request("XINFO", "GROUPS", KEY)] * 20, groups=10_000),
        ),
        Flood(
            "20 XINFO STREAM FULL of 1,000 groups",
            _on_stream(
                lambda: [request("XINFO", "STREAM", KEY, "FULL")] * 20, entries=10, groups=1000
            ),
        ),
        Flood(
            "XAUTOCLAIM COUNT 100 over 100,000 entries",
            _on_stream(_autoclaims, entries=100_000, consumers=1),
        ),
        Flood(
            "5 XREADGROUP of a history of 100,000 entries",
            _on_stream(
                lambda: [request("XREADGROUP", "GROUP", GROUP, "c0", "STREAMS", KEY, 0)] * 5,
                entries=100_000,
                consumers=1,
            ),
        ),
        Flood("KEYS and SCAN of 100,000 keys", _keys),
    ]


def run_crowds(
    baseline: Recipe, subject: Recipe, wanted: list[Flood], rounds: int
) -> Iterator[LongRow]:
    """Run each of them on both servers, in turns."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    yield from run_side_by_side(baseline, subject, wanted, rounds, NAME, _judged)


def _judged(crowd: Flood, theirs: Waits, ours: Waits) -> LongRow:
    at_most_ms = max(FLOOR_MS, TIMES_REDIS * theirs.worst_ms.median)
    at_most_cpu_ms = max(FLOOR_MS, TIMES_REDIS * theirs.cpu_ms.median)
    passed = ours.worst_ms.median <= at_most_ms and ours.cpu_ms.median <= at_most_cpu_ms
    return LongRow(NAME + crowd.name, "", theirs, ours, at_most_ms, passed, at_most_cpu_ms)


# -- kinds ------------------------------------------------------------------------------------


def _group_readers(door: Door, stack: ExitStack) -> Callable[[], None]:
    writer = _writer(door, stack)
    writer.ask("XGROUP", "CREATE", KEY, GROUP, "$", "MKSTREAM")
    readers = _sleepers(
        door,
        stack,
        writer,
        [
            ("XREADGROUP", "GROUP", GROUP, f"c{index}", "BLOCK", 0, "STREAMS", KEY, ">")
            for index in range(6000)
        ],
    )

    def run() -> None:
        writer.replay(windows([request("XADD", KEY, "*", "f", "v", lines=2)] * 200, 1))
        _count_all(readers, 200 * 13)

    return run


def _far_readers(door: Door, stack: ExitStack) -> Callable[[], None]:
    writer = _writer(door, stack)
    blocking = [("XREAD", "BLOCK", 0, "STREAMS", KEY, f"{FAR_ID}-{n}") for n in range(3000)]
    _sleepers(door, stack, writer, blocking)
    adds = [request("XADD", KEY, "*", "f", "v", lines=2)] * 200
    return lambda: writer.replay(windows(adds, 1))


def _wide_reader(*, grouped: bool) -> Callable[[Door, ExitStack], Callable[[], None]]:
    keys = [f"crowd:{index}" for index in range(5000)]

    def begin(door: Door, stack: ExitStack) -> Callable[[], None]:
        writer = _writer(door, stack)
        create = [request("XGROUP", "CREATE", key, GROUP, "$", "MKSTREAM") for key in keys]
        writer.replay(windows(create, 500))
        if grouped:
            blocking: tuple[Word, ...] = ("XREADGROUP", "GROUP", GROUP, "c", "BLOCK", 0)
            blocking += ("STREAMS", *keys, *[">"] * len(keys))
        else:
            blocking = ("XREAD", "BLOCK", 0, "STREAMS", *keys, *["$"] * len(keys))
        reader = stack.enter_context(door.connect())
        payload = request(*blocking).payload

        def run() -> None:
            for turn in range(5):
                reader.sendall(payload)
                _await_blocked(writer, 1)
                writer.ask("XADD", keys[turn * 1000], "*", "f", "v")
                count_lines([reader], 13)

        return run

    return begin


def _pops(door: Door, stack: ExitStack) -> Callable[[], None]:
    writer = _writer(door, stack)
    poppers = _sleepers(door, stack, writer, [("BLPOP", KEY, 0)] * 6000)

    def run() -> None:
        writer.replay(windows([request("RPUSH", KEY, "v")] * 200, 1))
        _count_all(poppers, 200 * 5)

    return run


def _chain(door: Door, stack: ExitStack) -> Callable[[], None]:
    writer = _writer(door, stack)
    moves = [("BLMOVE", f"l{n}", f"l{n + 1}", "LEFT", "RIGHT", 0) for n in range(300)]
    movers = _sleepers(door, stack, writer, moves * 5)

    def run() -> None:
        for _ in range(5):
            writer.ask("RPUSH", "l0", "v")
        count_lines(movers, 2)

    return run


def _watchers(door: Door, stack: ExitStack) -> Callable[[], None]:
    writer = _writer(door, stack)
    watchers = [stack.enter_context(door.connect()) for _ in range(3000)]
    _all_ask(watchers, request("WATCH", KEY).payload, 1)
    return lambda: writer.replay(windows([request("SET", KEY, "v")] * 200, 1))


def _subscribers(door: Door, stack: ExitStack) -> Callable[[], None]:
    writer = _writer(door, stack)
    subscribers = [stack.enter_context(door.connect()) for _ in range(9000)]
    _all_ask(subscribers, request("SUBSCRIBE", KEY).payload, 6)

    def run() -> None:
        writer.replay(windows([request("PUBLISH", KEY, "v")] * 20, 1))
        count_lines(subscribers, 20 * 7)

    return run


def _connections(
    words: tuple[Word, ...], times: int
) -> Callable[[Door, ExitStack], Callable[[], None]]:
    def begin(door: Door, stack: ExitStack) -> Callable[[], None]:
        asking = _writer(door, stack)
        _idle(door, stack, 3000)
        return lambda: _skim(asking, [request(*words)] * times)

    return begin


def _killing(door: Door, stack: ExitStack) -> Callable[[], None]:
    asking = _writer(door, stack)
    idle = _idle(door, stack, 3000, name="idle", subscribed=True)

    def run() -> None:
        asking.ask("CLIENT", "KILL", "TYPE", "pubsub")
        deadline = time.monotonic() + TIMEOUT_S
        for sock in idle:
            sock.settimeout(max(deadline - time.monotonic(), 0.01))
            with suppress(ConnectionResetError):
                if sock.recv(1):
                    raise RefusedError("a client was not closed")

    return run


def _keys(door: Door, stack: ExitStack) -> Callable[[], None]:
    writer = _writer(door, stack)
    sets = [request("SET", f"crowd:{index}", "v") for index in range(100_000)]
    writer.replay(windows(sets, 1000))

    def run() -> None:
        _skim(writer, [request("KEYS", "crowd:*7")] * 3)
        cursor: object = b"0"
        while True:
            assert isinstance(cursor, bytes)
            reply = writer.ask("SCAN", cursor, "COUNT", 1000)
            assert isinstance(reply, list)
            cursor = reply[0]
            if cursor == b"0":
                return

    return run


def _on_stream(
    requests: Callable[[], list[Request]], *, entries: int = 0, groups: int = 0, consumers: int = 0
) -> Callable[[Door, ExitStack], Callable[[], None]]:
    """Send commands about a stream.

    It has so many groups, and each consumer of one of them has as many pending entries as another.
    """

    def begin(door: Door, stack: ExitStack) -> Callable[[], None]:
        writer = _writer(door, stack)
        count = entries or consumers
        writer.replay(windows([request("XADD", KEY, "*", "f", "v", lines=2)] * count, 1000))
        names = [f"g{index}" for index in range(groups)]
        create = [request("XGROUP", "CREATE", KEY, name, 0, "MKSTREAM") for name in names]
        if consumers:
            create.append(request("XGROUP", "CREATE", KEY, GROUP, 0))
        create += [
            request(
                *("XREADGROUP", "GROUP", name, "c", "STREAMS", KEY, ">"),
                lines=5 + count * 8 if count else 1,
            )
            for name in names
        ]
        share = count // max(consumers, 1)
        read = ("XREADGROUP", "GROUP", GROUP)
        create += [
            request(*read, f"c{n}", "COUNT", share, "STREAMS", KEY, ">", lines=5 + share * 8)
            for n in range(consumers)
        ]
        writer.replay(windows(create, 500))
        made = requests()
        return lambda: _skim(writer, made)

    return begin


def _wide_adds() -> list[Request]:
    words = [f"{word}{index}" for index in range(500) for word in ("field", "value")]
    return [request("XADD", KEY, "*", *words)] * 200


def _autoclaims() -> list[Request]:
    claim = ("XAUTOCLAIM", KEY, GROUP)
    return [request(*claim, f"h{turn}", 0, "-", "COUNT", 100) for turn in range(500)]


# -- clients ----------------------------------------------------------------------------------


def _writer(door: Door, stack: ExitStack) -> Connection:
    return stack.enter_context(Connection(door.port))


def _skim(connection: Connection, requests: Iterable[Request]) -> None:
    connection.send_and_skim(b"".join(one.payload for one in requests))


def _idle(
    door: Door, stack: ExitStack, count: int, name: str = "", *, subscribed: bool = False
) -> list[socket.socket]:
    """Connect clients that do nothing more."""
    sockets = [stack.enter_context(door.connect()) for _ in range(count)]
    _all_ask(sockets, request("CLIENT", "SETNAME", name or "crowd").payload, 1)
    if subscribed:
        _all_ask(sockets, request("SUBSCRIBE", KEY).payload, 6)
    return sockets


def _count_all(sockets: Iterable[socket.socket], lines: int) -> None:
    """Read so many lines from any of them."""
    left = dict.fromkeys(sockets)
    for _, found in lines_of(left):
        lines -= found
        if lines <= 0:
            left.clear()


def _all_ask(sockets: Sequence[socket.socket], payload: bytes, lines: int) -> None:
    for sock in sockets:
        sock.sendall(payload)
    count_lines(sockets, lines)


def _sleepers(
    door: Door, stack: ExitStack, writer: Connection, blocking: Sequence[tuple[Word, ...]]
) -> list[socket.socket]:
    """Connect a client for each of these commands, and wait until all of them are blocked."""
    sockets = []
    for index, words in enumerate(blocking):
        sock = stack.enter_context(door.connect())
        sock.sendall(request(*words).payload)
        sockets.append(sock)
        if index % 100 == 99 or index + 1 == len(blocking):  # they block in this order
            _await_blocked(writer, index + 1)
    return sockets


def _await_blocked(writer: Connection, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while f"blocked_clients:{count}\r\n".encode() not in writer.ask("INFO", "clients"):  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise RefusedError("the readers do not block")
