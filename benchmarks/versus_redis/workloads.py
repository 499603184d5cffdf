"""What is asked of the servers: the catalogue of workloads.

A `Workload` is a row of the result: a name and a function that builds its plan. A `Script` is a
plan that one connection replays: set-up windows (not timed) before each round, then the timed
windows. The same script is replayed to both servers in every round, which is why prefilled
entries have explicit IDs. A `FanOut` is the plan that needs many connections.

Sizes are for a full run and were chosen so that one round keeps redis-server busy for some tens
of milliseconds; `scale` shrinks them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from .load import Request, Window, request, windows

SENSOR_KEY = "bench:sensors"
SENSOR_ENTRIES = 100_000
GROUP_KEY = SENSOR_KEY
WRITE_KEY = "bench:write"
SEED = 20_240_229
FIRST_MS = 1_700_000_000_000

ENTRY_LINES = {1: 8, 3: 16}
"""Lines of one entry in a reply, by its number of fields: `*2`, the ID, `*2n`, 2n strings."""
ADD_LINES = 2
"""An XADD reply: `$n` and the ID."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream that plans read, which is written once on each server."""

    key: str
    fill: Callable[[], list[Window]]
    rest_s: float = 0.0
    """How long to wait after it was written."""
    age: str = "up to minutes old"
    """How old its entries are when they are read, and the form of their nodes if that is fixed."""


@dataclass(frozen=True, slots=True)
class Script:
    """A plan for one connection; `units` is what the cost is divided by."""

    timed: list[Window]
    units: int
    setup: list[Window] = field(default_factory=list)
    stream: Stream | None = None
    same_replies: bool = True
    """Whether both servers must answer byte for byte the same (not so with IDs from the clock)."""


@dataclass(frozen=True, slots=True)
class FanOut:
    """A plan for many connections: all block in XREAD, one XADD wakes them; a phase is counted."""

    readers: int
    wakes: int
    phase: Literal["block", "wake"]

    @property
    def units(self) -> int:
        """Return how many readers a round wakes."""
        return self.readers * self.wakes


Plan = Script | FanOut
Builder = Callable[[float], Plan]


@dataclass(frozen=True, slots=True)
class Workload:
    """One row: what it is called, how its plan is built, and what its figures are per."""

    name: str
    family: str
    depth: int
    build: Builder
    build_baseline: Builder | None = None
    unit: str = "command"
    units_per_command: int = 1
    note: str = ""


def dice() -> random.Random:
    """Return the source of all chance: seeded, so that each run asks for the same."""
    return random.Random(SEED)  # noqa: S311 - nothing here is secret


def sensor_id(index: int) -> str:
    """Return the ID of the entry at `index` of a prefilled stream: four entries a millisecond."""
    return f"{FIRST_MS + index // 4}-{index % 4}"


def sensor_fields(chance: random.Random) -> list[str]:
    """Return one entry of three sensor fields as field, value, field, value, ..."""
    return [
        *("temperature", f"{chance.uniform(-20, 40):.2f}"),
        *("humidity", f"{chance.uniform(10, 95):.1f}"),
        *("pressure", f"{chance.uniform(950, 1050):.2f}"),
    ]


def fill(key: str, entries: int) -> list[Window]:
    """Return the windows that add `entries` sensor entries with explicit IDs."""
    chance = dice()
    adds = [
        request("XADD", key, sensor_id(index), *sensor_fields(chance), lines=ADD_LINES)
        for index in range(entries)
    ]
    return windows(adds, 256)


def scaled(size: int, scale: float) -> int:
    """Return how many commands a round of this size has, at least one."""
    return max(1, round(size * scale))


SENSORS = Stream(SENSOR_KEY, lambda: fill(SENSOR_KEY, SENSOR_ENTRIES))


def ping(depth: int, size: int) -> Workload:
    """PING: what a command costs that does nothing."""

    def build(scale: float) -> Script:
        count = scaled(size, scale)
        return Script(windows([request("PING")] * count, depth), count)

    return Workload(f"PING, depth {depth}", "PING", depth, build)


def add(depth: int, fields: int, size: int, options: tuple[str, ...] = ()) -> Workload:
    """XADD with IDs from the clock to a new stream."""
    words = " ".join(["XADD", *options])
    plural = "field" if fields == 1 else "fields"
    return Workload(
        f"{words}, {fields} {plural}, depth {depth}",
        "XADD",
        depth,
        _add_builder(depth, fields, size, lambda _: options),
    )


def add_idempotent(kind: Literal["IDMP", "IDMPAUTO"], depth: int, size: int) -> Workload:
    """XADD with IDMP or IDMPAUTO, every one of them new; the baseline gets a plain XADD."""

    def options(index: int) -> tuple[str, ...]:
        return (
            ("IDMP", "producer-1", f"message-{index}") if kind == "IDMP" else (kind, "producer-1")
        )

    return Workload(
        f"XADD {kind}, 3 fields, depth {depth}",
        "idempotent XADD",
        depth,
        _add_builder(depth, 3, size, options),
        build_baseline=_add_builder(depth, 3, size, lambda _: ()),
        note=f"redis-server 7.0 has no {kind}: beside its plain XADD",
    )


def read(command: Literal["XRANGE", "XREVRANGE", "XREAD"], count: int, depth: int) -> Workload:
    """A read of `count` entries from a random place of the prefilled stream."""

    def build(scale: float) -> Script:
        chance = dice()
        reads = scaled(_read_size(count, depth), scale)
        requests = [
            _read_request(command, count, chance.randrange(count, SENSOR_ENTRIES - count))
            for _ in range(reads)
        ]
        return Script(windows(requests, depth), reads, stream=SENSORS)

    return Workload(f"{command} COUNT {count}, depth {depth}", command, depth, build)


def group_read(count: int, depth: int, size: int) -> Workload:
    """XREADGROUP of new entries and XACK of them, as pairs; `depth` pairs under way."""

    def build(scale: float) -> Script:
        rounds = min(scaled(size, scale), SENSOR_ENTRIES // count)
        requests = list(_group_requests(count, rounds))
        setup = [
            request("XGROUP", "DESTROY", GROUP_KEY, "bench"),
            request("XGROUP", "CREATE", GROUP_KEY, "bench", "0"),
        ]
        return Script(
            windows(requests, 2 * depth),
            rounds * count,
            setup=windows(setup, 1),
            stream=SENSORS,
        )

    return Workload(
        f"XREADGROUP+XACK COUNT {count}, depth {depth}",
        "XREADGROUP+XACK",
        depth,
        build,
        unit="entry",
        units_per_command=count,
    )


def delete(order: Literal["random", "front"], depth: int, size: int) -> Workload:
    """XDEL of every entry of a stream, one ID a command."""

    def build(scale: float) -> Script:
        count = scaled(size, scale)
        indices = list(range(count))
        if order == "random":
            dice().shuffle(indices)
        deletes = [request("XDEL", WRITE_KEY, sensor_id(index)) for index in indices]
        setup = [*windows([request("DEL", WRITE_KEY)], 1), *fill(WRITE_KEY, count)]
        return Script(windows(deletes, depth), count, setup=setup)

    return Workload(f"XDEL {order}, depth {depth}", "XDEL", depth, build)


def fan_out(readers: int, phase: Literal["block", "wake"], size: int) -> Workload:
    """One XADD wakes `readers` connections blocked in XREAD BLOCK 0; cost per reader."""

    def build(scale: float) -> FanOut:
        return FanOut(readers, scaled(size, scale), phase)

    what = {"block": "XREAD BLOCK goes to sleep", "wake": "XADD wakes all of them"}[phase]
    return Workload(f"{readers} readers: {what}", "fan-out", 1, build, unit="reader")


def catalogue() -> list[Workload]:
    """Return all workloads in the order in which they are run and listed."""
    approximate = ("MAXLEN", "~", "1000")
    reads: list[Literal["XRANGE", "XREVRANGE", "XREAD"]] = ["XRANGE", "XREVRANGE", "XREAD"]
    return [
        *(ping(depth, size) for depth, size in _DEPTHS),
        *(add(depth, 1, size) for depth, size in _DEPTHS),
        *(add(depth, 3, size) for depth, size in _DEPTHS),
        *(add(depth, 3, size, approximate) for depth, size in _DEPTHS),
        add_idempotent("IDMP", 256, 25_000),
        add_idempotent("IDMPAUTO", 256, 25_000),
        *(read("XRANGE", count, 1) for count in (10, 100)),
        *(read(command, count, 16) for command in reads for count in (1, 10, 100, 1000)),
        *(group_read(count, 1, 1000) for count in (1, 10, 100)),
        *(group_read(count, 16, 1000) for count in (10, 100)),
        group_read(1, 16, 10_000),
        delete("front", 16, 20_000),
        delete("random", 16, 20_000),
        fan_out(100, "block", 40),
        fan_out(100, "wake", 40),
    ]


def durable_catalogue(appendfsync: str) -> list[Workload]:
    """Return what is played with the log of both servers on, and how it is synced."""
    # A sync costs the same for one command as for many: few commands, or it takes for ever.
    shrink = {"always": 0.2}.get(appendfsync, 1.0)
    plays = [
        add(depth, fields, round(size * shrink)) for depth, size in _DEPTHS for fields in (1, 3)
    ]
    plays += [group_read(1, 16, round(10_000 * shrink)), group_read(100, 16, round(1000 * shrink))]
    return [replace(one, name=f"appendfsync {appendfsync}: {one.name}") for one in plays]


_DEPTHS = ((1, 3_000), (16, 25_000), (256, 50_000))
"""Depths, each with the number of commands of a full round."""


def _read_size(count: int, depth: int) -> int:
    if depth == 1:
        return 2_000
    return {1: 10_000, 10: 8_000, 100: 1_600, 1000: 240}[count]


def _read_request(command: str, count: int, index: int) -> Request:
    start = sensor_id(index)
    lines = 1 + count * ENTRY_LINES[3]
    if command == "XRANGE":
        return request("XRANGE", SENSOR_KEY, start, "+", "COUNT", count, lines=lines)
    if command == "XREVRANGE":
        return request("XREVRANGE", SENSOR_KEY, start, "-", "COUNT", count, lines=lines)
    # `*1`, `*2` and the key come before the entries.
    return request("XREAD", "COUNT", count, "STREAMS", SENSOR_KEY, start, lines=lines + 4)


def _group_requests(count: int, rounds: int) -> Iterator[Request]:
    take = request(
        *("XREADGROUP", "GROUP", "bench", "worker", "COUNT", count, "STREAMS", GROUP_KEY, ">"),
        lines=5 + count * ENTRY_LINES[3],
    )
    for first in range(0, rounds * count, count):
        yield take
        ids = (sensor_id(index) for index in range(first, first + count))
        yield request("XACK", GROUP_KEY, "bench", *ids)


def _add_builder(
    depth: int, fields: int, size: int, options: Callable[[int], tuple[str, ...]]
) -> Builder:
    def build(scale: float) -> Script:
        chance = dice()
        count = scaled(size, scale)
        adds = []
        for index in range(count):
            pairs = sensor_fields(chance)[: 2 * fields]
            words = ("XADD", WRITE_KEY, *options(index), "*", *pairs)
            adds.append(request(*words, lines=ADD_LINES))
        return Script(
            windows(adds, depth),
            count,
            setup=windows([request("DEL", WRITE_KEY)], 1),
            same_replies=False,
        )

    return build
