"""How late: entries in the other region, and local writes while a peer is lost.

Both ends of the lag are seen by one loop with one clock: the reply to XADD in one region, the
entry in a reply to XREAD BLOCK in the other. Entries come ten a millisecond, whether the replies
to those before have come or not.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from contextlib import ExitStack

import hiredis

from benchmarks.shared.figures import Figure, of_rounds, percentile
from benchmarks.versus_redis.load import Connection, Window, windows

from .cluster import Cluster
from .load import one_by_one, sensor_adds

KEY = "bench:lag"
WINDOW = 10
WINDOWS_PER_S = 1000
RECEIVE_BYTES = 1 << 20
QUIET_S = 20.0

ROUNDS, QUICK_ROUNDS = 5, 3
PEER_ROUNDS, QUICK_PEER_ROUNDS = 25, 5
"""Many: the p99 of one round is half or twice that of another."""
WRITES_PER_ROUND = 1000


def steady_lag(*, quick: bool) -> list[Figure]:
    """From the reply to XADD until another region shows the entry, at 10,000 entries/s."""
    seconds = 1 if quick else 6
    with Cluster(2) as cluster:
        writer, reader = (region.server.port for region in cluster.regions)
        _lags(writer, reader, WINDOWS_PER_S // 2)
        lags, took = _lags(writer, reader, seconds * WINDOWS_PER_S)
    note = f"{len(lags) / took:,.0f} entries/s for {took:.1f} s"
    return [
        Figure("lag, p50", percentile(lags, 0.5) * 1e3, "ms", note=note, is_less=quick),
        Figure("lag, p99", percentile(lags, 0.99) * 1e3, "ms", note=note, is_less=quick),
    ]


def _lags(writer_port: int, reader_port: int, count: int) -> tuple[list[float], float]:
    """Write so many windows to one region; each entry's lag in the other, and how long it took.

    In seconds.
    """
    script = windows(sensor_adds(KEY, count * WINDOW), WINDOW)
    replied: dict[bytes, float] = {}
    shown: dict[bytes, float] = {}
    with (
        socket.create_connection(("127.0.0.1", writer_port)) as writer,
        socket.create_connection(("127.0.0.1", reader_port)) as reader,
    ):
        for each in (writer, reader):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        replies, entries = hiredis.Reader(), hiredis.Reader()
        reader.sendall(_read(b"$"))
        time.sleep(0.1)  # it has to be blocked: "$" is what there is when it arrives
        start = time.perf_counter()
        sent = 0
        while len(shown) < count * WINDOW:
            now = time.perf_counter()
            while sent < count and now >= start + sent / WINDOWS_PER_S:
                writer.sendall(script[sent].payload)
                sent += 1
            wait_s = start + sent / WINDOWS_PER_S - now if sent < count else QUIET_S
            ready, _, _ = select.select([writer, reader], [], [], max(0.0, wait_s))
            if not ready and sent == count:
                raise RuntimeError("entries have not arrived in the other region")
            if writer in ready:
                replies.feed(writer.recv(RECEIVE_BYTES))
                now = time.perf_counter()
                while (reply := replies.gets()) is not False:
                    replied[reply] = now
            if reader in ready:
                entries.feed(reader.recv(RECEIVE_BYTES))
                now = time.perf_counter()
                while (reply := entries.gets()) is not False:
                    found = reply[0][1]
                    shown.update((entry_id, now) for entry_id, _ in found)
                    reader.sendall(_read(found[-1][0]))
        took = time.perf_counter() - start
    return [max(0.0, shown[entry_id] - at) for entry_id, at in replied.items()], took


def _read(after: bytes) -> bytes:
    return hiredis.pack_command(("XREAD", "BLOCK", 0, "STREAMS", KEY, after))  # type: ignore[arg-type, no-any-return]


def lost_peer(*, quick: bool) -> list[Figure]:
    """The p99 of XADD one by one, with a peer that is dead or stands still, against without."""
    with ExitStack() as stack:
        alone, dead, still = (stack.enter_context(Cluster(count)) for count in (1, 2, 2))
        dead.regions[1].kill()
        still.regions[1].freeze()
        connections = [each.regions[0].connection for each in (alone, dead, still)]
        script = windows(sensor_adds(KEY, WRITES_PER_ROUND), 1)
        for connection in connections:
            one_by_one(connection, script)
        ratios: list[tuple[float, float]] = []
        for _ in range(QUICK_PEER_ROUNDS if quick else PEER_ROUNDS):
            without, with_dead, with_still = (_p99(each, script) for each in connections)
            ratios.append((with_dead / without, with_still / without))
    names = ("a dead peer", "a peer that stands still")
    return [
        of_rounds(f"XADD p99 with {name} against none", values, "ratio")
        for name, values in zip(names, zip(*ratios, strict=True), strict=True)
    ]


def _p99(connection: Connection, script: list[Window]) -> float:
    gc.collect()
    gc.disable()
    try:
        return percentile(one_by_one(connection, script), 0.99)
    finally:
        gc.enable()
