"""Figures of all streams, renewed while a page is open.

A survey goes through all streams in slices of time. The next one begins two seconds later, or as
much later as keeps surveys below 0.5 % of a core. Without an open page there is no survey.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from time import monotonic
from typing import Any, Final

import msgspec

from anabranch.keyspace.memory import stream_parts
from anabranch.keyspace.replica import region_of
from anabranch.region.region import Region
from anabranch.scheduling import Steps
from anabranch.stream.groups.group import Group
from anabranch.stream.stream import Stream
from anabranch.web.answers import shown_name
from anabranch.web.slices import Spent, in_slices
from anabranch.web.stream_metrics import find_stream, keep, pages, real_window_ms

EVERY_S: Final = 2.0
SHARE: Final = 200
"""A survey that took one second is followed by a pause of so many."""

AGES_S: Final = (1, 10, 60, 600)
"""Ends of the columns of the heat map; the last column has what is older."""

DELIVERIES: Final = (1, 2, 4)
"""Ends of the rows of the side bar, likewise."""

GROUPS_SHOWN: Final = 12
PENDING_LOOKED_AT: Final = 2_000
STREAMS_WEIGHED: Final = 30
"""Streams whose memory is divided among causes: the largest ones."""

GROUPS_MAX: Final = 100
"""Groups of a stream that are looked at."""


class StreamSurvey:
    """The latest figures; :meth:`run` renews them."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self.rows = Rows()
        self.memory: dict[tuple[int, bytes], dict[str, int]] = {}
        self.heat: list[dict[str, Any]] = []
        self.took_s = 0.0
        self.taken_s = 0.0
        """When the latest survey ended, by the monotonic clock."""
        self.count = 0
        """How many surveys are complete."""
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._viewers = 0

    # -- while a page is open ------------------------------------------------------------------

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """While a page is open: surveys are taken all the time, and the latest is not old."""
        await self.refresh()
        self._viewers += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self.stop()

    def stop(self) -> None:
        """Take no further surveys."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s())
            async with self._turn:
                await self._take()

    def _pause_s(self) -> float:
        return max(EVERY_S, self.took_s * SHARE)

    async def refresh(self) -> None:
        """Without an open page: take a survey if the latest one is old."""
        if self.count and self._task is not None:
            return
        async with self._turn:
            if not self.count or monotonic() - self.taken_s > self._pause_s():
                await self._take()

    async def _take(self) -> None:
        spent = Spent()
        await in_slices(self._steps(), spent)
        self.took_s = spent.ns / 1e9
        self.taken_s = monotonic()

    # -- one survey ---------------------------------------------------------------------------

    def _steps(self) -> Steps[None]:
        keyspace, now_s = self._region.keyspace, monotonic()
        now_ms = self._region.clock.now_us() // 1000
        heaviest: list[tuple[int, int, bytes]] = []
        fullest: list[tuple[int, int, bytes, bytes]] = []
        for page in pages(keyspace):
            yield
            for db, key, stream in page:
                self.rows.put(self._row(db, key, stream, now_s, now_ms))
                keep(heaviest, (max(stream.counted_bytes, 0), db, key), STREAMS_WEIGHED)
                for name, group in islice(stream.groups.items(), GROUPS_MAX):
                    if count := group.pending.count:
                        keep(fullest, (count, db, key, name), GROUPS_SHOWN)
                yield
        yield from self.rows.forget_before(now_s)
        memory: dict[tuple[int, bytes], dict[str, int]] = {}
        for _, db, key in heaviest:
            if (heavy := find_stream(keyspace, db, key)) is not None:
                memory[db, key] = stream_parts(heavy)
            yield
        self.memory = memory
        heat = []
        for _, db, key, name in sorted(fullest, reverse=True):
            found = find_stream(keyspace, db, key)
            group_found = None if found is None else found.groups.get(name)
            if group_found is not None:
                row = yield from _heat(db, key, name, group_found, now_ms)
                heat.append(row)
        self.heat = heat
        self.count += 1

    def _row(self, db: int, key: bytes, stream: Stream, now_s: float, now_ms: int) -> StreamRow:
        groups = list(islice(stream.groups.values(), GROUPS_MAX))
        producers = stream.producers
        added = stream.entries_added
        lag = max(
            (sum(group.progress.exact_lag(stream.logs).values()) for group in groups), default=0
        )
        pending = sum(group.pending.count for group in groups)
        acknowledged = sum(group.pending.acknowledgements for group in groups)
        delivered = acknowledged + pending
        before = self.rows.find(db, key)

        def rate(now: int, then: Callable[[StreamRow], int]) -> float:
            if before is None or now_s <= before.at_s:
                return 0.0
            return round(max(now - then(before), 0) / (now_s - before.at_s), 1)

        return StreamRow(
            at_s=now_s,
            db=db,
            key=key,
            length=stream.length,
            added=added,
            delivered=delivered,
            acknowledged=acknowledged,
            added_rate=rate(added, lambda row: row.added),
            delivered_rate=rate(delivered, lambda row: row.delivered),
            acknowledged_rate=rate(acknowledged, lambda row: row.acknowledged),
            groups=len(stream.groups),
            lag=lag,
            pending=pending,
            size=max(stream.counted_bytes, 0),
            duplicates=producers.duplicates,
            remembered=producers.tracked,
            attempts=producers.iids_added + producers.duplicates,
            window_ms=real_window_ms(producers, now_ms),
            duration_s=producers.duration_s,
            room=len(producers.tables) * producers.maxsize,
            regions=_regions(stream),
        )


def _regions(stream: Stream) -> int:
    """The regions that have written a stream, each as a bit."""
    found = 0
    for replica_id, log in stream.logs.items():
        if log.next_position:
            found |= 1 << region_of(replica_id)
    return found


def _heat(db: int, key: bytes, name: bytes, group: Group, now_ms: int) -> Steps[dict[str, Any]]:
    """How old the pending entries of a group are, and how often they were delivered."""
    ages = [0] * (len(AGES_S) + 1)
    deliveries = [0] * (len(DELIVERIES) + 1)
    looked_at = 0
    for pending in list(group.pending.lists.values()):
        entries, _ = pending.some_between(0, 1 << 128, PENDING_LOOKED_AT - looked_at)
        looked_at += len(entries)
        for at in range(0, len(entries), 200):
            for entry in entries[at : at + 200]:
                ages[_column(AGES_S, (now_ms - entry.delivery_ms) / 1000)] += 1
                deliveries[_column(DELIVERIES, entry.delivery_count - 0.5)] += 1
            yield
    return {
        "db": db,
        "key": key,
        "group": name,
        "ages": ages,
        "deliveries": deliveries,
        "count": group.pending.count,
        "looked_at": looked_at,
        "released": len(group.pending.released),
    }


def _column(ends: tuple[int, ...], value: float) -> int:
    for number, end in enumerate(ends):
        if value < end:
            return number
    return len(ends)


# -- what a survey found of each stream -------------------------------------------------------


SHARDS: Final = 256
"""With a million streams a shard has 4,000: to copy it takes a fraction of a millisecond."""

ROWS_PER_STEP: Final = 200


class StreamRow(msgspec.Struct, frozen=True, gc=False):
    """One stream at a survey; rates are per second.

    The garbage collector of the interpreter does not visit rows: they hold numbers and bytes.
    """

    at_s: float
    """When the survey began, by the monotonic clock."""
    db: int
    key: bytes
    length: int
    added: int
    delivered: int
    acknowledged: int
    added_rate: float
    delivered_rate: float
    acknowledged_rate: float
    groups: int
    lag: int
    pending: int
    size: int
    duplicates: int
    remembered: int
    attempts: int
    window_ms: int
    duration_s: int
    room: int
    """How many idempotent IDs its producers may have remembered in all."""
    regions: int
    """The numbers of the regions that have written it, as bits."""

    def described(self) -> dict[str, Any]:
        """The row for JSON."""
        found = {**msgspec.structs.asdict(self), "key": shown_name(self.key)}
        del found["at_s"]
        found["regions"] = [n for n in range(self.regions.bit_length()) if self.regions >> n & 1]
        return found


class Rows:
    """The latest row of each stream.

    They are in shards, because a table of a million rows takes long to copy and to grow. A reader
    may go through them while a survey puts rows.
    """

    def __init__(self) -> None:
        self._shards: list[dict[tuple[int, bytes], StreamRow]] = [{} for _ in range(SHARDS)]

    def find(self, db: int, key: bytes) -> StreamRow | None:
        """The row of a stream."""
        place = db, key
        return self._shards[hash(place) % SHARDS].get(place)

    def put(self, row: StreamRow) -> None:
        """Add a row, or replace the one of its stream."""
        place = row.db, row.key
        self._shards[hash(place) % SHARDS][place] = row

    def some(self) -> Iterator[list[StreamRow]]:
        """All rows, some at a time."""
        rows: list[StreamRow] = []
        for shard in self._shards:
            rows += shard.values()
            if len(rows) >= ROWS_PER_STEP:
                for start in range(0, len(rows), ROWS_PER_STEP):
                    yield rows[start : start + ROWS_PER_STEP]
                rows = []
        yield rows

    def forget_before(self, at_s: float) -> Steps[None]:
        """Remove the rows of surveys that began earlier: these streams are gone."""
        for rows in self.some():
            for row in rows:
                if row.at_s < at_s:
                    place = row.db, row.key
                    self._shards[hash(place) % SHARDS].pop(place, None)
            yield
