"""A region whose disk tells something else than it was told: until the others say so."""

from __future__ import annotations

import select
import socket
import time

import hiredis

from anabranch.effects import kinds
from anabranch.oplog.batch import Batch
from benchmarks.shared.figures import Figure, of_rounds
from tests.support.diverging import rewrite_log

from .cluster import Cluster, Region
from .load import RANDOM, add

ROUNDS, QUICK_ROUNDS = 3, 1
KEYS, QUICK_KEYS = 1_000, 100
ENTRIES_PER_KEY = 100
INTERVAL_S = 2
GIVE_UP_S = 30.0

TRUTH, LIE = b"truth", b"false"


def alarm(*, quick: bool) -> list[Figure]:
    """One value of one entry is another one in one region's log, from which it starts."""
    keys = QUICK_KEYS if quick else KEYS
    taken = []
    for _ in range(QUICK_ROUNDS if quick else ROUNDS):
        with Cluster(2, "--digest-interval", str(INTERVAL_S)) as cluster:
            ahead, behind = cluster.regions
            for number in range(keys):
                add(ahead.connection, f"bench:key:{number}", RANDOM, ENTRIES_PER_KEY)
            ahead.ask("XADD", "bench:key:0", "*", "f", TRUTH)
            cluster.converge()
            behind.end()
            rewrite_log(behind.server.data / "appendonlydir", _lie)
            taken.append(_alarm_s(ahead, behind))
    note = f"{keys:,} keys, {keys * ENTRIES_PER_KEY:,} entries, digest-interval {INTERVAL_S} s"
    return [
        of_rounds(
            "from divergence to alarm",
            [each / INTERVAL_S for each in taken],
            "x digest-interval",
            note,
        )
    ]


def _lie(_: Batch, effect: kinds.Effect) -> kinds.Effect:
    if isinstance(effect, kinds.AddRun):
        effect.data = effect.data.replace(TRUTH, LIE)
    return effect


def _alarm_s(ahead: Region, behind: Region) -> float:
    """Seconds from when a region that differs serves until the other one tells of it."""
    with socket.create_connection(("127.0.0.1", ahead.server.port)) as events:
        reader = hiredis.Reader()
        events.sendall(hiredis.pack_command(("SUBSCRIBE", "__region__")))  # type: ignore[arg-type]
        behind.server.begin()
        began = time.perf_counter()
        while select.select([events], [], [], GIVE_UP_S)[0]:
            reader.feed(events.recv(65536))
            while (message := reader.gets()) is not False:
                said = message[2]
                if isinstance(said, bytes) and said.startswith(b"divergence region=2 "):
                    if b" key=bench:key:0 " not in said:
                        raise RuntimeError(f"another key differs: {said!r}")
                    return time.perf_counter() - began
    raise RuntimeError("nobody has said that the regions differ")
