"""Figures of streams, groups and consumers for ``/metrics``, collected in short steps."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from anabranch.keyspace.keyspace import Keyspace
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.groups.group import Group
from anabranch.stream.producer import Producers
from anabranch.stream.stream import Stream

GROUPS_MAX: Final = 100
"""Groups of one stream with series of their own."""

CONSUMERS_MAX: Final = 100
"""Consumers of one group with series of their own."""

PENDING_LOOKED_AT: Final = 10_000
"""Pending entries, from the lowest ID on, among which the oldest delivery is searched."""

LABEL_CHARACTERS_MAX: Final = 200
"""Longer names are cut."""

DIGEST_BYTES: Final = 8
"""The length of the digest that ends a label which is not the whole name."""

_KEYS_PER_STEP: Final = 200
_PENDING_PER_STEP: Final = 1000
_PRODUCERS_LOOKED_AT: Final = 1000

Add = Callable[[tuple[str, ...], Mapping[str, float | None]], None]
"""Takes label values, and values by the names of metrics; None stands for an unknown value."""

_DB_BYTES: Final = 2
_LENGTH_BYTES: Final = 8


def shown(name: bytes) -> str:
    """A name as a label value: text, not too long, and another one for each name.

    What is not the whole name ends with an ellipsis and a digest of the name.
    """
    text = name.decode("utf-8", "backslashreplace")
    if len(text) <= LABEL_CHARACTERS_MAX and "…" not in text and text.encode() == name:
        return text
    end = "…" + hashlib.blake2b(name, digest_size=DIGEST_BYTES).hexdigest()
    return text[: LABEL_CHARACTERS_MAX - len(end)] + end


def pages(keyspace: Keyspace) -> Iterator[list[tuple[int, bytes, Stream]]]:
    """All streams with databases and keys, some at a time.

    A page is made in a short time, however many keys there are, and may be empty. Keys may come and
    go between two pages; a stream that is there all the time is returned once.
    """
    for database in keyspace.databases:
        for keys in database.order.pages(_KEYS_PER_STEP):
            values = database.values
            yield [
                (database.index, key, value)
                for key in keys
                if type(value := values.get(key)) is Stream
            ]


def find_stream(keyspace: Keyspace, db: int, key: bytes) -> Stream | None:
    """The stream at a key; None if there is none."""
    value = keyspace.databases[db].values.get(key)
    return value if type(value) is Stream else None


def largest(
    keyspace: Keyspace, most: int, may_see: Callable[[bytes], bool]
) -> Steps[tuple[list[bytes], int]]:
    """The streams with the most entries among those that the client may see, and how many are left.

    Each stream is length, database and key as bytes: so they compare, and the garbage collector of
    the interpreter does not visit them. The order of the streams has no meaning.
    """
    heap: list[bytes] = []
    count = 0
    for page in pages(keyspace):
        for db, key, stream in page:
            if may_see(key):
                place = db.to_bytes(_DB_BYTES, "big") + key
                keep(heap, stream.length.to_bytes(_LENGTH_BYTES, "big") + place, most)
                count += 1
        yield
    return heap, count - len(heap)


def keep(heap: list[Any], item: Any, most: int) -> None:
    """Keep the largest items, ``most`` of them."""
    if len(heap) < most:
        heapq.heappush(heap, item)
    elif heap and item > heap[0]:
        heapq.heapreplace(heap, item)


def collect(
    keyspace: Keyspace,
    chosen: list[bytes],
    now_ms: Callable[[], int],
    add: Add,
    *,
    per_consumer: bool,
) -> Steps[int]:
    """Add the series of the streams of :func:`largest`; returns how many groups were left out."""
    left_out = 0
    for item in chosen:
        db = int.from_bytes(item[_LENGTH_BYTES : _LENGTH_BYTES + _DB_BYTES], "big")
        key = item[_LENGTH_BYTES + _DB_BYTES :]
        stream = find_stream(keyspace, db, key)
        if stream is None:
            continue
        labels = (str(db), shown(key))
        add(labels, _of_stream(stream, now_ms()))
        yield
        left_out += max(len(stream.groups) - GROUPS_MAX, 0)
        for name in sorted(islice(stream.groups, GROUPS_MAX)):
            group = stream.groups.get(name)
            if group is None:
                continue
            of_group = (*labels, shown(name))
            oldest_ms = yield from oldest_pending_ms(group)
            age_ms = 0 if oldest_ms is None else max(now_ms() - oldest_ms, 0)
            add(of_group, _of_group(stream, group, age_ms))
            if per_consumer:
                for consumer in list(islice(group.consumers.values(), CONSUMERS_MAX)):
                    idle_ms = max(now_ms() - consumer.seen_ms, 0)
                    add(
                        (*of_group, shown(consumer.name)),
                        {
                            "stream_group_consumer_messages_pending": consumer.pending_count,
                            "stream_group_consumer_idle_seconds": idle_ms / 1000,
                        },
                    )
            yield
    return left_out


def _of_stream(stream: Stream, now_ms: int) -> dict[str, float | None]:
    producers = stream.producers
    return {
        "stream_length": stream.length,
        "stream_bytes": max(stream.counted_bytes, 0),
        "stream_entries_added_total": stream.entries_added,
        "stream_groups": len(stream.groups),
        "stream_producers": len(producers.tables),
        "stream_idempotent_ids": producers.tracked,
        "stream_duplicates_total": producers.duplicates,
        "stream_dedup_duration_seconds": producers.duration_s,
        "stream_dedup_window_seconds": real_window_ms(producers, now_ms) / 1000,
    }


def _of_group(stream: Stream, group: Group, oldest_ms: int) -> dict[str, float | None]:
    return {
        "stream_group_lag": sum(group.progress.exact_lag(stream.logs).values()),
        "stream_group_messages_pending": group.pending.count,
        "stream_group_consumers": len(group.consumers),
        "stream_group_entries_read": group.progress.read_count(stream),
        "stream_group_oldest_pending_seconds": oldest_ms / 1000,
        "stream_group_redelivered_total": group.pending.redeliveries,
        "stream_group_released_total": group.pending.releases,
        "stream_group_acked_total": group.pending.acknowledgements,
    }


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
    if group.pending.by_age and group.pending.is_sorted:
        return group.pending.by_age[0][0]
    oldest: int | None = None
    for pending in list(group.pending.lists.values()):
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
