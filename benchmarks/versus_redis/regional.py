"""How long others wait for what only regions do: streams written again, and whole states joined.

Where several regions write, RENAME, COPY and RESTORE write all entries again under new numbers, and
a region that has missed too much joins the state of another one. redis-server has nothing like it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from benchmarks.regions.cluster import Cluster, Region

from .canary import Canary
from .load import RefusedError, request, windows
from .longest import BASE, BULK, CHUNK, FLOOR_MS, GROUP, OWNER, SETTLE_S, WORK, LongRow, waits
from .servers import cpu_between
from .workloads import ADD_LINES

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "regions: "
"""What the names of these rows begin with."""
JOINING = "joining a state"
JOINING_KEYS = "joining a state of many keys"
"""The same with a stream of one entry for each ten entries, half of them deleted."""
KEYS_SHARE = 10

Sample = Callable[[Cluster, Canary], tuple[float, float]]


def regional_names() -> list[str]:
    """Return the names of all rows."""
    return [*_COMMANDS, JOINING, JOINING_KEYS]


def run_regional(wanted: list[str], entries: int, rounds: int) -> Iterator[LongRow]:
    """Run them on two regions; the canary pings the one that does the work."""
    for name in wanted:
        try:
            samples = [_sample(name, entries) for _ in range(rounds)]
        except (RefusedError, OSError) as error:
            yield LongRow(NAME + name, str(error), None, None, FLOOR_MS, None)
            continue
        ours = waits(samples)
        passed = ours.worst_ms.median <= FLOOR_MS
        yield LongRow(NAME + name, "", None, ours, FLOOR_MS, passed)


def _sample(name: str, entries: int) -> tuple[float, float]:
    with Cluster(2) as cluster:
        if name == JOINING:
            return _joining(cluster, lambda region: _fill(region, entries))
        if name == JOINING_KEYS:
            return _joining(cluster, lambda region: _fill_keys(region, entries // KEYS_SHARE))
        return _command(cluster, name, entries)


def _command(cluster: Cluster, name: str, entries: int) -> tuple[float, float]:
    one = cluster.regions[0]
    _fill(one, entries)
    cluster.converge()
    words = _COMMANDS[name](one)
    return _watched(one, lambda: one.ask(*words))


def _joining(cluster: Cluster, fill: Callable[[Region], None]) -> tuple[float, float]:
    ahead, behind = cluster.regions
    behind.end()
    fill(ahead)
    ahead.ask("CONFIG", "SET", "oplog-max-bytes", 0)
    ahead.rewrite()
    token = ahead.token()
    ahead.end()
    behind.server.begin()

    def join() -> None:
        ahead.server.begin()
        behind.wait_for(token)

    return _watched(behind, join)


def _watched(region: Region, work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds: the canary's longest wait while a region works, and its CPU."""
    with Canary(region.server.port, region.server.pid) as canary:
        before = region.cpu()
        canary.look()
        work()
        time.sleep(SETTLE_S)
        worst_ms = canary.look().worst_ms
        return worst_ms, cpu_between(before, region.cpu()) / 1e6


def _fill(region: Region, entries: int) -> None:
    for first in range(0, entries, CHUNK):
        adds = [
            request("XADD", BASE, "*", "v", f"{index:08}", lines=ADD_LINES)
            for index in range(first, min(first + CHUNK, entries))
        ]
        region.connection.replay(windows(adds, 256))
    region.ask("XGROUP", "CREATE", BASE, GROUP, 0)
    region.ask("XREADGROUP", "GROUP", GROUP, OWNER, "COUNT", 1, "STREAMS", BASE, ">")


def _fill_keys(region: Region, keys: int) -> None:
    for first in range(0, keys, CHUNK):
        names = [f"{BASE}:{index}" for index in range(first, min(first + CHUNK, keys))]
        adds = [request("XADD", name, "*", "v", "1", lines=ADD_LINES) for name in names]
        region.connection.replay(windows(adds, 256))
        region.connection.replay(windows([request("DEL", name) for name in names[::2]], 256))


def _restore(region: Region) -> tuple[str | int | bytes, ...]:
    payload = region.ask("DUMP", BASE)
    assert isinstance(payload, bytes)
    return "RESTORE", WORK, 0, payload


_COMMANDS: dict[str, Callable[[Region], tuple[str | int | bytes, ...]]] = {
    "RENAME": lambda _: ("RENAME", BASE, BULK),
    "COPY": lambda _: ("COPY", BASE, WORK),
    "RESTORE": _restore,
    "DEL": lambda _: ("DEL", BASE),
}
