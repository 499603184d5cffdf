"""What being a region costs in CPU: a local write against a server of its own, and applying it.

In every round the same XADDs go to a server of its own and to a region with one peer; what both
regions ran is set against what the server ran.
"""

from __future__ import annotations

import gc

from benchmarks.shared.figures import Figure, of_rounds
from benchmarks.versus_redis.load import Connection, Window, request, windows
from benchmarks.versus_redis.servers import Server, anabranch_recipe, cpu_between

from .cluster import Cluster
from .load import BATCH, sensor_adds

KEY = "bench:cost"
ROUNDS, QUICK_ROUNDS = 5, 3
SIZES = ((1, 3_000), (BATCH, 25_000))
"""Depths, each with the entries of a round."""


def local_write(*, quick: bool) -> list[Figure]:
    """CPU of XADD in a region, and of applying it in another one, against standalone."""
    figures = []
    with (
        Server(anabranch_recipe("everysec")) as server,
        Connection(server.port) as alone,
        Cluster(2) as cluster,
    ):
        for depth, size in SIZES:
            entries = size // 5 if quick else size
            script = windows(sensor_adds(KEY, entries), depth)
            here, there = [], []
            for turn in range(1 + (QUICK_ROUNDS if quick else ROUNDS)):
                ratios = _round(server, alone, cluster, script)
                if turn:  # the first one warms up
                    here.append(ratios[0])
                    there.append(ratios[1])
            figures += [
                of_rounds(f"CPU of XADD in a region, depth {depth}", here, "of standalone"),
                of_rounds(f"CPU of applying an entry, depth {depth}", there, "of standalone XADD"),
            ]
    return figures


def _round(
    server: Server, alone: Connection, cluster: Cluster, script: list[Window]
) -> tuple[float, float]:
    writer, receiver = cluster.regions
    for connection in (alone, writer.connection):
        connection.replay(windows([request("DEL", KEY)], 1))
    cluster.converge()
    gc.collect()
    before = server.cpu()
    alone.replay(script)
    standalone_s = cpu_between(before, server.cpu()) / 1e9
    writing, applying = writer.cpu(), receiver.cpu()
    writer.connection.replay(script)
    receiver.wait_for(writer.token())
    return writer.cpu_s(writing) / standalone_s, receiver.cpu_s(applying) / standalone_s
