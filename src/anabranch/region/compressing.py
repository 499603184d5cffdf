"""Packs the blocks of streams that have been full for a while, in slices of time.

One round after the other looks at all streams. A round packs what the round before found full
already, so a block is packed when it has been full for one to two times
``stream-compression-age``. If much becomes full meanwhile, *early* rounds come between, so that
what is not packed takes little more memory than what is opened may. Who reads a packed block opens
it (:mod:`anabranch.stream.compression`); a round that is not early shuts what was opened before the
last such one.

While all data take less than ``stream-memory-hot``, blocks are packed lightly, if that makes them
much smaller, and what is opened may take a part of that memory. Above it, blocks are compressed at
once, and then the older half of those that were not, stream by stream, until the data take less
again; what was read since the last such pass is spared once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from anabranch.region.state import RegionState
from anabranch.stream import by_position
from anabranch.stream.block import Block
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream

_KEYS: Final = 100
"""How many are looked at in one step."""

_FILLED_SHARE: Final = 8
"""An early round begins when the blocks that became full since the last round have as many bytes as
this part of ``stream-compression-cache``."""

_FILLED_MIN: Final = 1 << 20
"""Or so many, if that is more."""

_REST: Final = 20
"""The pause between two rounds is at least so many times as long as the work of a round."""

_SHORT_REST: Final = 1
"""The same before an early round."""

_OPENED_SHARE: Final = 16
"""Below ``stream-memory-hot`` opened blocks may hold this part of it."""

_MACHINE_SHARE: Final = 8
_MAXMEMORY_SHARE: Final = 4
_HOT_MIN: Final = 128 << 20


def hot_bytes(setting: int, maxmemory: int, machine_bytes: int) -> int:
    """So many bytes may all data take before anything is compressed; settings of 0 are unset."""
    if setting:
        return setting
    if maxmemory:
        return maxmemory // _MAXMEMORY_SHARE
    return max(machine_bytes // _MACHINE_SHARE, _HOT_MIN)


class Compressing:
    """The rounds of one region, and how far the present one has come."""

    def __init__(self, region: RegionState) -> None:
        self._region = region
        self._due_ms = 0  # when the next round begins
        self._early_ms = 0  # when an early one may begin
        self._is_early = False  # the present one
        self._spent_ns = 0  # for the present round
        self._opens_before = 0  # when the last round began
        self._steps: Iterator[None] | None = None

    def rest_no_longer(self) -> None:
        """Begin the next round as soon as the present one has ended: the clock was set back."""
        self._due_ms = self._early_ms = 0

    def begin_if_due(self, now_ms: int) -> None:
        """Begin a round, unless one is under way or the last one was not long ago."""
        cache = self._region.keyspace.block_cache
        if self._steps is not None:
            return
        self._is_early = now_ms < self._due_ms
        settings = self._region.settings
        much = max(settings.stream_compression_cache // _FILLED_SHARE, _FILLED_MIN)
        if self._is_early and (cache.filled < much or now_ms < self._early_ms):
            return
        cache.filled = 0
        self._spent_ns = 0
        self._steps = self._round()
        if self._go_on():
            self._region.scheduler.schedule(self._go_on)

    def _go_on(self) -> bool:
        """A :data:`anabranch.scheduling.Work`."""
        region = self._region
        if region.scheduler.is_exclusive:
            return True
        assert self._steps is not None
        began_ns = region.scheduler.ticks_ns()
        is_left = False
        for _ in self._steps:
            if region.scheduler.is_over():
                is_left = True
                break
        self._spent_ns += region.scheduler.ticks_ns() - began_ns
        if not is_left:
            self._steps = None
            spent_ms = self._spent_ns // 1_000_000
            age_ms = region.settings.stream_compression_age * 1000
            now_ms = region.clock.now_us() // 1000
            self._early_ms = now_ms + spent_ms * _SHORT_REST
            if not self._is_early:
                self._due_ms = now_ms + max(age_ms, spent_ms * _REST)
        return is_left

    def _round(self) -> Iterator[None]:
        """Compress what is due in all streams, in short steps; they may change meanwhile.

        A round that is not early shuts what was opened before the last such one.
        """
        keyspace = self._region.keyspace
        cache = keyspace.block_cache
        room = self._opened_bytes()
        while cache.held > room and cache.shut_oldest(cache.opens):
            yield
        cache.bytes_max = room
        if not self._is_early:
            upto, self._opens_before = self._opens_before, cache.opens
            while cache.shut_oldest(upto):
                yield
        if not self._region.settings.stream_compression:
            return
        for stream in self._streams():
            if stream is None:
                yield
                continue
            for log in list(stream.logs.values()):
                yield from self._pack(log, stream)
        is_any = True
        while is_any and self._is_over():
            is_any = False
            for stream in self._streams():
                if stream is not None:
                    for block in chain.from_iterable(
                        by_position.loose_blocks(log) for log in list(stream.logs.values())
                    ):
                        is_any |= self._compress(block, stream)
                        yield
                yield
                if not self._is_over():
                    return

    def _hot_bytes(self) -> int:
        settings = self._region.settings
        return hot_bytes(settings.stream_memory_hot, settings.maxmemory, self._region.machine_bytes)

    def _is_over(self) -> bool:
        """Whether all data take more than what need not be compressed."""
        return self._region.keyspace.account.used_bytes > self._hot_bytes()

    def _opened_bytes(self) -> int:
        """So many bytes may blocks hold that were opened."""
        hot = 0 if self._is_over() else self._hot_bytes()
        return max(self._region.settings.stream_compression_cache, hot // _OPENED_SHARE)

    def _streams(self) -> Iterator[Stream | None]:
        """All streams, and now and then None; what is bound meanwhile may be left out."""
        for database in self._region.keyspace.databases:
            for keys in database.order.pages(_KEYS) if database.values else ():
                for key in keys:
                    stream = database.values.get(key)
                    if type(stream) is Stream:
                        yield stream
                if len(keys) >= _KEYS:  # more may follow
                    yield None

    def _pack(self, log: RegionLog, stream: Stream) -> Iterator[None]:
        """Pack the blocks of a log that have become full, each in a step."""
        keyspace = self._region.keyspace
        is_any = False
        for block in by_position.idle_blocks(log):
            if self._is_over():
                is_any |= block.compress(keyspace.block_cache)
            else:
                is_any |= block.compress(keyspace.block_cache, lightly=True)
            yield
        if is_any and not stream.is_due:
            keyspace.account.changed(stream)

    def _compress(self, block: Block, stream: Stream) -> bool:
        """Compress a block, unless it was read since the last pass; whether there is any hope."""
        if block.is_read:
            block.is_read = False
            return True
        keyspace = self._region.keyspace
        before = block.content_bytes
        if not block.compress(keyspace.block_cache):
            return False
        keyspace.account.saved(stream, before - block.content_bytes)
        return True
