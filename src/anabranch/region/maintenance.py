"""Background work in bounded slices.

Keys past their deadline, idempotent IDs past their age, the end of a CLIENT PAUSE: ``run`` is
called many times a second, and each call does at most one slice of each kind, so that no client
waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.effects import kinds
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.region.region import Region

__all__ = ["run"]

EXPIRE_KEYS_MAX = 1000
"""Keys removed per slice: about a millisecond of work."""

PRODUCER_STREAMS_MAX = 1000
"""Streams examined for old idempotent IDs per slice."""


def run(region: Region, now_ms: int) -> None:
    """One slice of everything."""
    context = region.context
    context.now_ms = now_ms
    if region.dispatcher.pause_until_ms and region.dispatcher.pause_until_ms <= now_ms:
        region.unpause()
    if region.active_expire:
        _expire_keys(region, now_ms)
    _forget_producers(region, now_ms)


def _expire_keys(region: Region, now_ms: int) -> None:
    if not region.stats.expire_on_access:
        return
    for database in region.keyspace.databases:
        for _ in range(EXPIRE_KEYS_MAX):
            key = database.deadlines.first_due(now_ms)
            if key is None:
                break
            region.context.expire_if_due(database, key)


def _forget_producers(region: Region, now_ms: int) -> None:
    if now_ms < region.producers_due_ms:
        return
    region.producers_due_ms = now_ms + 1000
    for database in region.keyspace.databases:
        for key, value in database.values.items():
            if type(value) is Stream and value.producers.tracked:
                for pid, count in list(value.producers.expired(now_ms)):
                    region.context.emit(kinds.ForgetProducers(database.index, key, pid, count))
