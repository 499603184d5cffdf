"""Compresses the blocks of streams that have been full for a while, in slices of time.

One round after the other looks at all streams. A round compresses what the round before found full
already, so a block is compressed when it has been full for one to two times
``stream-compression-age``. If much becomes full meanwhile, *early* rounds come between, so that
what is not compressed takes little more memory than what is opened may. Who reads a compressed
block opens it (:mod:`anabranch.stream.compression`); a round that is not early shuts what was
opened before the last such one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from anabranch.stream import by_position
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.region.state import RegionState

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
        much = max(cache.bytes_max // _FILLED_SHARE, _FILLED_MIN)
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
        if not self._is_early:
            upto, self._opens_before = self._opens_before, cache.opens
            while cache.shut_oldest(upto):
                yield
        if not self._region.settings.stream_compression:
            return
        for database in keyspace.databases:
            cursor = 0
            while database.values:
                cursor, keys = database.order.page(cursor, _KEYS)
                for key in keys:
                    stream = database.values.get(key)
                    if type(stream) is Stream:
                        yield from self._compress(stream)
                if not cursor:
                    break
                yield

    def _compress(self, stream: Stream) -> Iterator[None]:
        keyspace = self._region.keyspace
        cache = keyspace.block_cache
        for log in list(stream.logs.values()):
            is_any = False
            for block in by_position.idle_blocks(log):
                is_any |= block.compress(cache)
                yield
            if is_any and not stream.is_due:
                keyspace.account.changed(stream)
