"""Moves the oldest blocks of streams to a file when memory becomes short.

With ``stream-tiering yes`` and a ``maxmemory``, blocks are moved when data and buffers hold more
than :data:`BEGIN_PERCENT` of it, until they hold less than :data:`END_PERCENT`. Of each log the
older half of the blocks in memory goes, then the next log has its turn, so the newest blocks of all
streams stay. What readers have opened is shut after that. All this is done in slices of time; a
command that ``maxmemory`` would refuse does as much as it needs itself. Who reads a block finds it
as before (:mod:`anabranch.stream.offloading`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from anabranch.keyspace.database import Database
from anabranch.keyspace.keyspace import Keyspace
from anabranch.region.state import RegionState
from anabranch.stream import by_position
from anabranch.stream.compression import BlockCache
from anabranch.stream.offloading import BlockFile
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream

BEGIN_PERCENT: Final = 75
END_PERCENT: Final = 70

_KEYS: Final = 100
"""How many are looked at in one step."""

_FRUITLESS_MAX: Final = 5
"""So many steps in a row that find nothing are enough for one command."""

_REST_MS: Final = 1000
"""The pause of the background work after a round over all streams that found nothing, and of all
work when the file has no room."""

_MEASURED_MAX: Final = 200
_MEASURED_AT_ONCE: Final = 20
_MEASURING_NS: Final = 1_000_000


class Tiering:
    """The rounds of one region, and how far the present one has come."""

    def __init__(self, region: RegionState) -> None:
        self._region = region
        self.open_file: Callable[[], BlockFile] | None = None
        """Makes the file when the first block goes there; None: blocks stay in memory."""
        self._steps: Iterator[int] | None = None
        self._rests_until_ms = 0  # a round has found nothing
        self._full_until_ms = 0  # the file had no room

    @property
    def _percent_used(self) -> float:
        region = self._region
        return 100 * region.dispatcher.used_memory() / region.settings.maxmemory

    @property
    def _is_possible(self) -> bool:
        settings = self._region.settings
        return (
            settings.stream_tiering
            and settings.maxmemory > 0
            and self.open_file is not None
            and self._now_ms() >= self._full_until_ms
        )

    @property
    def _is_due(self) -> bool:
        """Whether the background work may begin or go on."""
        return self._is_possible and self._now_ms() >= self._rests_until_ms

    def _now_ms(self) -> int:
        return self._region.clock.ticks_ns() // 1_000_000

    # -- in the background --------------------------------------------------------------------

    def begin_if_due(self) -> None:
        """Begin to move blocks if data and buffers hold too much."""
        file = self._region.keyspace.block_cache.file
        if file is not None:
            file.collect()
        if self._is_due and self._percent_used > BEGIN_PERCENT and self._go_on():
            self._region.scheduler.schedule(self._go_on)

    def _go_on(self) -> bool:
        """A :data:`anabranch.scheduling.Work`."""
        scheduler = self._region.scheduler
        if scheduler.is_exclusive:
            return True
        while self._is_due and self._percent_used > END_PERCENT:
            self._step()
            if scheduler.is_over():
                return True
        return False

    # -- at once ------------------------------------------------------------------------------

    def make_room(self) -> bool:
        """Move blocks until ``maxmemory`` allows commands to add data; returns whether it does."""
        fruitless = 0
        region = self._region
        is_exceeded = region.dispatcher.is_over_maxmemory
        while is_exceeded():
            # What changed since it was measured is extrapolated: measure it.
            region.keyspace.account.measure_changed(
                _MEASURED_AT_ONCE, region.clock.ticks_ns, _MEASURING_NS
            )
            if not is_exceeded():
                break
            if fruitless == _FRUITLESS_MAX or not self._is_possible:
                return False
            fruitless = 0 if self._step() else fruitless + 1
        return True

    def relieve(self, loading: Keyspace) -> None:
        """Move blocks of a keyspace that is being loaded, if it and the others hold too much."""
        if not self._is_due:
            return
        region = self._region
        maxmemory = region.settings.maxmemory
        loading.account.measure_changed(_MEASURED_MAX, region.clock.ticks_ns, _MEASURING_NS)

        def used() -> int:
            if loading is region.keyspace:
                return region.dispatcher.used_memory()
            counted = region.holdings.by_holder["full-sync"]  # some time ago
            return region.dispatcher.used_memory() - counted + loading.account.used_bytes

        if 100 * used() <= BEGIN_PERCENT * maxmemory:
            return
        saved = 0
        for each in self._round(loading):
            saved += each
            if 100 * used() <= END_PERCENT * maxmemory or not self._is_possible:
                return
        if not saved:
            self._rest()

    # -- moving -------------------------------------------------------------------------------

    def _step(self) -> int:
        """Move a block, or look at some keys; returns the bytes that this saved."""
        if self._steps is None:
            self._steps = self._rounds()
        return next(self._steps)

    def _rounds(self) -> Iterator[int]:
        keyspace = self._region.keyspace
        saved = 1
        while saved:
            saved = 0
            for each in chain(self._round(keyspace), _shutting(keyspace.block_cache)):
                saved += each
                yield each
        self._rest()
        yield 0

    def _rest(self) -> None:
        """Begin with the first stream next time."""
        self._steps = None
        self._rests_until_ms = self._now_ms() + _REST_MS

    def _round(self, keyspace: Keyspace) -> Iterator[int]:
        """Move what can be moved of all streams, in short steps; they may change meanwhile."""
        for database in keyspace.databases:
            for keys in database.order.pages(_KEYS) if database.values else ():
                for key in keys:
                    for replica_id in _logs_of(database, key):
                        yield from self._offload(keyspace, database, key, replica_id)
                yield 0

    def _offload(
        self, keyspace: Keyspace, database: Database, key: bytes, replica_id: int
    ) -> Iterator[int]:
        """Move the older half of the blocks of a log that are in memory.

        Between two steps nothing refers to the stream: it may be deleted, and its memory is free.
        """
        log = _log_of(database, key, replica_id)
        end = 0 if log is None else by_position.older_half(log)
        del log
        while (saved := self._offload_next(keyspace, database, key, replica_id, end)) is not None:
            yield saved
        if end and key in database.values:
            # It was measured on samples: what has moved may have stood for more than it was.
            keyspace.account.measure(database.values[key])

    def _offload_next(
        self, keyspace: Keyspace, database: Database, key: bytes, replica_id: int, end: int
    ) -> int | None:
        """Move the oldest block in memory, if its position is below ``end``; None: not one."""
        log = _log_of(database, key, replica_id)
        if log is None:
            return None
        first = by_position.in_memory(log)
        if first >= len(log.blocks) - 1 or log.blocks[first].first_position >= end:
            return None
        block = log.blocks[first]
        cache = self._region.keyspace.block_cache
        if cache.file is None and self.open_file is not None:
            cache.file = self.open_file()
        saved = block.offload(cache)
        if saved is None:
            self._full_until_ms = self._now_ms() + _REST_MS
            return None
        log.offloaded = block.first_position + 1
        keyspace.account.saved(database.values[key], saved)
        return saved


def _shutting(cache: BlockCache) -> Iterator[int]:
    """Shut what readers have opened, oldest first; the bytes that each step saves."""
    held = cache.held
    while cache.shut_oldest(cache.opens):
        yield held - cache.held
        held = cache.held


def _logs_of(database: Database, key: bytes) -> list[int]:
    stream = database.values.get(key)
    return list(stream.logs) if type(stream) is Stream else []


def _log_of(database: Database, key: bytes, replica_id: int) -> RegionLog | None:
    stream = database.values.get(key)
    return stream.logs.get(replica_id) if type(stream) is Stream else None
