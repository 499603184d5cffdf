"""Figures of streams, groups and consumers for ``/metrics``, collected in short steps."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from anabranch.scheduling import Steps
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.keyspace.keyspace import Keyspace
    from anabranch.stream.group import Group
    from anabranch.stream.producer import Producers

__all__ = ["Add", "collect", "largest", "oldest_pending_ms", "real_window_ms", "shown", "streams"]

GROUPS_MAX: Final = 100
"""Groups of one stream with series of their own."""

CONSUMERS_MAX: Final = 100
"""Consumers of one group with series of their own."""

PENDING_LOOKED_AT: Final = 10_000
"""Pending entries, from the lowest ID on, among which the oldest delivery is searched."""

LABEL_CHARACTERS_MAX: Final = 200
"""Longer names are cut."""

_KEYS_PER_STEP: Final = 200
_PENDING_PER_STEP: Final = 1000
_PRODUCERS_LOOKED_AT: Final = 1000

Add = Callable[[str, tuple[str, ...], float], None]
"""Takes the name of a metric, label values, and the value."""

Largest = tuple[list[tuple[int, int, bytes]], int]
"""Lengths, databases and keys of streams, in any order, and how many there are beside these."""


def shown(name: bytes) -> str:
    """A name as a label value: text, not too long."""
    text = name.decode("utf-8", "backslashreplace")
    return text if len(text) <= LABEL_CHARACTERS_MAX else text[: LABEL_CHARACTERS_MAX - 1] + "…"


def streams(keyspace: Keyspace) -> Iterator[tuple[int, bytes, Stream]]:
    """All streams; those that are deleted meanwhile are passed over."""
    for database in keyspace.databases:
        for key in list(database.values):
            value = database.values.get(key)
            if type(value) is Stream:
                yield database.index, key, value


def largest(keyspace: Keyspace, most: int, may_see: Callable[[bytes], bool]) -> Steps[Largest]:
    """The streams with the most entries among those that somebody may see."""
    heap: list[tuple[int, int, bytes]] = []
    left_out = 0
    for number, (db, key, stream) in enumerate(streams(keyspace), 1):
        if may_see(key):
            if len(heap) < most:
                heapq.heappush(heap, (stream.length, db, key))
            else:
                left_out += 1
                if heap and stream.length > heap[0][0]:
                    heapq.heapreplace(heap, (stream.length, db, key))
        if not number % _KEYS_PER_STEP:
            yield
    return heap, left_out


def collect(
    keyspace: Keyspace,
    chosen: list[tuple[int, int, bytes]],
    now_ms: Callable[[], int],
    add: Add,
    *,
    per_consumer: bool,
) -> Steps[int]:
    """Add the series of these streams; returns how many groups were left out."""
    left_out = 0
    for _, db, key in chosen:
        stream = keyspace.databases[db].values.get(key)
        if type(stream) is not Stream:
            continue
        labels = (str(db), shown(key))
        _collect_stream(stream, labels, now_ms(), add)
        yield
        left_out += max(len(stream.groups) - GROUPS_MAX, 0)
        for name in sorted(islice(stream.groups, GROUPS_MAX)):
            group = stream.groups.get(name)
            if group is None:
                continue
            of_group = (*labels, shown(name))
            _collect_group(stream, group, of_group, add)
            oldest_ms = yield from oldest_pending_ms(group)
            age_ms = 0 if oldest_ms is None else max(now_ms() - oldest_ms, 0)
            add("stream_group_oldest_pending_seconds", of_group, age_ms / 1000)
            if per_consumer:
                for consumer in list(islice(group.consumers.values(), CONSUMERS_MAX)):
                    each = (*of_group, shown(consumer.name))
                    pending = consumer.pending_count
                    idle_ms = max(now_ms() - consumer.seen_ms, 0)
                    add("stream_group_consumer_messages_pending", each, pending)
                    add("stream_group_consumer_idle_seconds", each, idle_ms / 1000)
            yield
    return left_out


def _collect_stream(stream: Stream, labels: tuple[str, ...], now_ms: int, add: Add) -> None:
    producers = stream.producers
    add("stream_length", labels, stream.length)
    add("stream_bytes", labels, max(stream.counted_bytes, 0))
    add("stream_entries_added_total", labels, stream.entries_added)
    add("stream_groups", labels, len(stream.groups))
    add("stream_producers", labels, len(producers.tables))
    add("stream_idempotent_ids", labels, producers.tracked)
    add("stream_duplicates_total", labels, producers.duplicates)
    add("stream_dedup_duration_seconds", labels, producers.duration_s)
    add("stream_dedup_window_seconds", labels, real_window_ms(producers, now_ms) / 1000)


def _collect_group(stream: Stream, group: Group, labels: tuple[str, ...], add: Add) -> None:
    add("stream_group_lag", labels, sum(group.exact_lag(stream.logs).values()))
    add("stream_group_messages_pending", labels, group.pending_count)
    add("stream_group_consumers", labels, len(group.consumers))
    read = group.read_count(stream)
    if read is not None:
        add("stream_group_entries_read", labels, read)
    add("stream_group_redelivered_total", labels, group.redeliveries)
    add("stream_group_released_total", labels, group.releases)
    add("stream_group_acked_total", labels, group.acknowledgements)


def real_window_ms(producers: Producers, now_ms: int) -> int:
    """How long an idempotent ID is remembered at present.

    A producer that has reached ``maxsize`` forgets an ID with each new one: then it is the age of
    its oldest. Up to a thousand producers are looked at.
    """
    window_ms = producers.duration_s * 1000
    for table in islice(producers.tables.values(), _PRODUCERS_LOOKED_AT):
        if len(table) >= producers.maxsize:
            _, oldest_ms = next(iter(table.values()))
            window_ms = min(window_ms, max(now_ms - oldest_ms, 0))
    return window_ms


def oldest_pending_ms(group: Group) -> Steps[int | None]:
    """When the oldest delivery was that is pending; None without any."""
    if group.by_age:
        return group.by_age[0][0]
    oldest: int | None = None
    for pending in list(group.pending.values()):
        start = looked_at = 0
        while start <= MAX_ID and looked_at < PENDING_LOOKED_AT:
            some, upto = pending.some_between(start, MAX_ID, _PENDING_PER_STEP)
            found = min((entry.delivery_ms for entry in some), default=None)
            if found is not None and (oldest is None or found < oldest):
                oldest = found
            looked_at += _PENDING_PER_STEP
            start = upto + 1
            yield
    return oldest
