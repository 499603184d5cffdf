"""Coming back: a link that works again, a backlog, a log that was cut, a region that starts.

A link is cut by AB.LINK PAUSE. That it works again is told by the event `reachable` of the region
behind, that it has caught up by AB.WAITFOR there.
"""

from __future__ import annotations

import json
import select
import socket
import time

import hiredis

from benchmarks.shared.figures import Figure, of_rounds

from .cluster import Cluster, Region, wait_until
from .load import BATCH, RANDOM, add

KEY = "bench:backlog"
BACKLOG, QUICK_BACKLOG = 1_000_000, 50_000
SINGLES, QUICK_SINGLES = 20_000, 3_000
GIVE_UP_S = 60.0
CUTS, QUICK_CUTS = 2, 1

KEYS, QUICK_KEYS = 5_000, 500
ENTRIES_PER_KEY = 40
CHANGED_SHARE = 0.01

RETURNS, QUICK_RETURNS = 3, 1
RETURNING_ENTRIES = 100_000


def healing(*, quick: bool) -> list[Figure]:
    """A link that was given up works again; one entry was written meanwhile."""
    connected, converged = [], []
    with Cluster(2) as cluster:
        ahead, behind = cluster.regions
        for _ in range(QUICK_CUTS if quick else CUTS):
            _cut(ahead, behind)
            add(ahead.connection, KEY, RANDOM, 1)
            after, then = _heal(ahead, behind)
            connected.append(after)
            converged.append(then)
    return [
        of_rounds("connected after the link works", connected, "s"),
        of_rounds("converged after that, nothing to catch up", converged, "s"),
    ]


def backlog(*, quick: bool) -> list[Figure]:
    """A backlog of a million entries of 100 bytes; and what applying it takes of a core."""
    entries = QUICK_BACKLOG if quick else BACKLOG
    singles = QUICK_SINGLES if quick else SINGLES
    with Cluster(2) as cluster:
        ahead, behind = cluster.regions
        _cut(ahead, behind)
        add(ahead.connection, KEY, RANDOM, entries)
        sending, applying = ahead.cpu(), behind.cpu()
        after, then = _heal(ahead, behind)
        sent_s, applied_s = ahead.cpu_s(sending), behind.cpu_s(applying)
        connected = f"{entries:,} entries, connected after {after:.2f} s"

        cluster.converge()
        ahead.ask("AB.LINK", behind.number, "PAUSE")
        add(ahead.connection, KEY, RANDOM, singles, depth=1)
        applying = behind.cpu()
        ahead.ask("AB.LINK", behind.number, "RESUME")
        behind.wait_for(ahead.token())
        single_s = behind.cpu_s(applying)
    return [
        Figure("caught up with a backlog", after + then, "s", note=connected, is_less=quick),
        Figure("sent per second of one core", entries / sent_s, "entries/s"),
        Figure(
            f"applied per second of one core, batches of {BATCH}", entries / applied_s, "entries/s"
        ),
        Figure("applied per second of one core, one by one", singles / single_s, "entries/s"),
    ]


def _cut(ahead: Region, behind: Region) -> None:
    """Cut a link and return when both sides have given it up."""
    ahead.ask("AB.LINK", behind.number, "PAUSE")
    sides = ((ahead, behind), (behind, ahead))
    wait_until(
        lambda: all(one.peer(other.number)["connected-ms"] is None for one, other in sides),
        "the link is given up",
    )


def _heal(ahead: Region, behind: Region) -> tuple[float, float]:
    """Let a link work again; seconds until it is up, and from then until all has arrived."""
    subscribe = ("SUBSCRIBE", "__region__")
    await_all = ("AB.WAITFOR", ahead.token(), 0)
    address = ("127.0.0.1", behind.server.port)
    with (
        socket.create_connection(address) as events,
        socket.create_connection(address) as waiting,
    ):
        reader = hiredis.Reader()
        events.sendall(hiredis.pack_command(subscribe))  # type: ignore[arg-type]
        reader.feed(events.recv(4096))
        reader.gets()
        waiting.sendall(hiredis.pack_command(await_all))  # type: ignore[arg-type]
        ahead.ask("AB.LINK", behind.number, "RESUME")
        began = time.perf_counter()
        connected = done = 0.0
        while not (connected and done):
            ready, _, _ = select.select([events, waiting], [], [], GIVE_UP_S)
            now = time.perf_counter()
            if not ready:
                raise RuntimeError("the region behind has not caught up")
            if events in ready:
                reader.feed(events.recv(4096))
                while (message := reader.gets()) is not False:
                    if message[2].startswith(b"reachable"):
                        connected = now
            if waiting in ready and waiting.recv(4096):
                done = now
    return connected - began, max(0.0, done - connected)


def cut_log(*, quick: bool) -> list[Figure]:
    """A region returns when the log that it lacks is gone, and one key of a hundred changed."""
    keys = QUICK_KEYS if quick else KEYS
    with Cluster(2) as cluster:
        ahead, behind = cluster.regions
        size = sum(
            add(ahead.connection, f"bench:key:{number}", RANDOM, ENTRIES_PER_KEY)
            for number in range(keys)
        )
        cluster.converge()
        behind.end()
        for number in range(0, keys, round(1 / CHANGED_SHARE)):
            add(ahead.connection, f"bench:key:{number}", RANDOM, 1)
        ahead.ask("CONFIG", "SET", "oplog-max-bytes", 0)
        ahead.rewrite()
        token = ahead.token()
        ahead.end()
        ahead.server.begin()  # or it would find the newest batches in its memory
        began = time.perf_counter()
        behind.server.begin()
        behind.wait_for(token)
        took = time.perf_counter() - began
        peer = behind.peer(ahead.number)
        bytes_ = behind.count(ahead.number, "received-bytes")
        bytes_ += behind.count(ahead.number, "sent-bytes")
        if not peer["full-catch-ups"]:
            raise RuntimeError("the log was not cut: the region caught up from it")
    return [
        Figure(
            "traffic after the log was cut, 1 % of keys changed", bytes_ / size, "of the data",
            note=f"{keys:,} keys, {size / 1e6:.1f} MB; {took:.2f} s from its start",
        ),
    ]  # fmt: skip


def returning(*, quick: bool) -> list[Figure]:
    """From the start of a region's process until it serves a read, others being ahead."""
    entries = RETURNING_ENTRIES // 10 if quick else RETURNING_ENTRIES
    whole, beyond = [], []
    with Cluster(2) as cluster:
        ahead, behind = cluster.regions
        add(behind.connection, KEY, RANDOM, entries)
        for _ in range(QUICK_RETURNS if quick else RETURNS):
            cluster.converge()
            behind.end()
            add(ahead.connection, KEY, RANDOM, BATCH)
            began = time.perf_counter()
            behind.server.begin()
            assert behind.ask("XREVRANGE", KEY, "+", "-", "COUNT", 1)
            took = time.perf_counter() - began
            whole.append(took)
            beyond.append(took - _recovery_s(behind))
    note = f"{entries:,} entries in its log"
    return [
        of_rounds("first read of a returning region", whole, "s", note),
        of_rounds("first read of a returning region, beyond recovery", beyond, "s", note),
    ]


def _recovery_s(region: Region) -> float:
    """How long the last recovery of a region took, as its log of events says."""
    for line in reversed(region.server.said()):
        if '"recovery.done"' in line:
            return float(json.loads(line)["seconds"])
    raise RuntimeError("the region has not told of its recovery")
