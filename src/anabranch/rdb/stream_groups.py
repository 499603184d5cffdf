"""Consumer groups and idempotent producers: the second half of a stream's bytes.

A group: name, last ID, entries read (type 19 on; -1 as unsigned 64 bits: unknown); its pending
entries (raw ID, time, count of deliveries); its consumers (name, seen time, from type 21 on active
time, and the raw IDs each owns); from type 27 on the raw IDs that nobody owns, in NACK order.

From type 26 on, after the groups: duration, maxsize, producers (ID; pairs of idempotent ID and
entry ID, oldest first), lifetime counts of added and duplicate IDs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.rdb.errors import PayloadFormatError
from anabranch.rdb.kinds import StreamType
from anabranch.rdb.lengths import Cursor, length_bytes, string_bytes
from anabranch.scheduling import Steps
from anabranch.stream.image import (
    ConsumerImage,
    GroupImage,
    PendingCheck,
    PendingImage,
    ProducerImage,
    StreamImage,
)
from anabranch.stream.producer import DURATION_DEFAULT_S, MAXSIZE_DEFAULT

_UNKNOWN: Final = (1 << 64) - 1
_MAX_COUNT: Final = (1 << 63) - 1
_SEQ_MASK: Final = (1 << 64) - 1

# The fewest bytes that one item can take; they bound the number of items a payload may announce.
_GROUP_MIN: Final = 5
_PENDING_MIN: Final = 25
_CONSUMER_MIN: Final = 10
_ID_BYTES: Final = 16
_PRODUCER_MIN: Final = 2
_IID_MIN: Final = 3

_STEP: Final = 500
"""Pending entries handled in one step."""


def decode_id(cursor: Cursor) -> int:
    """An ID written as two lengths."""
    ms = cursor.length()
    return ms << 64 | cursor.length()


def encode_id(entry_id: int) -> bytes:
    """The reverse of :func:`decode_id`."""
    return length_bytes(entry_id >> 64) + length_bytes(entry_id & _SEQ_MASK)


def decode_groups(cursor: Cursor, stream_type: StreamType) -> Steps[list[GroupImage]]:
    """All groups; their pending entries are verified, the rest is not yet."""
    groups = []
    for _ in range(cursor.count(_GROUP_MIN)):
        group = yield from _group(cursor, stream_type)
        groups.append(group)
    return groups


def _group(cursor: Cursor, stream_type: StreamType) -> Steps[GroupImage]:
    name = cursor.string()
    last_id = decode_id(cursor)
    entries_read = None
    if stream_type.has_counters:
        read = cursor.length()
        entries_read = None if read == _UNKNOWN else read
    unowned: dict[int, PendingImage] = {}
    order = []
    for index in range(cursor.count(_PENDING_MIN)):
        entry_id = cursor.raw_id()
        time_ms = cursor.time_ms()
        # An entry at the maximum (XNACK FATAL) that is delivered again may be written beyond it.
        count = min(cursor.length(), _MAX_COUNT)
        unowned[entry_id] = image = PendingImage(entry_id, time_ms, count, None)
        order.append(image)
        if not index % _STEP:
            yield
    if len(unowned) != len(order):
        raise PayloadFormatError("stream: an entry pending twice")
    consumers = []
    for _ in range(cursor.count(_CONSUMER_MIN)):
        consumer = yield from _consumer(cursor, stream_type, unowned)
        consumers.append(consumer)
    nacked = []
    if stream_type.has_nacked:
        nacked = [cursor.raw_id() for _ in range(cursor.count(_ID_BYTES))]
    group = GroupImage(
        name,
        last_id,
        entries_read,
        order,
        consumers,
        nacked,
        estimate_entries_read=not stream_type.has_counters,
    )
    check = PendingCheck(group)
    for index, image in enumerate(order):
        check.add(image)
        if not index % _STEP:
            yield
    check.end()
    return group


def _consumer(
    cursor: Cursor, stream_type: StreamType, unowned: dict[int, PendingImage]
) -> Steps[ConsumerImage]:
    """One consumer, and the pending entries that it lists."""
    name = cursor.string()
    seen_ms = cursor.time_ms()
    active_ms = cursor.time_ms() if stream_type.has_active_time else seen_ms
    for index in range(cursor.count(_ID_BYTES)):
        held = unowned.pop(cursor.raw_id(), None)
        if held is None:
            raise PayloadFormatError("stream: a consumer has an entry that its group does not")
        held.consumer = name
        if not index % _STEP:
            yield
    return ConsumerImage(name, seen_ms, active_ms)


def decode_producers(cursor: Cursor, image: StreamImage) -> None:
    """Fill in all that concerns idempotent production."""
    image.idmp_duration = cursor.length()
    image.idmp_maxsize = cursor.length()
    for _ in range(cursor.count(_PRODUCER_MIN)):
        pid = cursor.string()
        iids = [(cursor.string(), decode_id(cursor)) for _ in range(cursor.count(_IID_MIN))]
        # Redis writes producers whose IDs have all expired, without IDs, and skips them on loading.
        if iids:
            image.producers.append(ProducerImage(pid, iids))
    image.iids_added = cursor.length()
    image.iids_duplicates = cursor.length()


def encode_group(
    parts: list[bytes],
    group: GroupImage,
    pending: Iterable[PendingImage],
    stream_type: StreamType,
) -> Steps[None]:
    """Append the bytes of a group; ``pending`` are its pending entries.

    Raises ValueError if entries are NACKed and the type has only entries with a consumer: the
    group would lose them without that, and they belong to no consumer.
    """
    if group.nacked and not stream_type.has_nacked:
        raise ValueError(f"stream type {stream_type.value} has no place for NACKed entries")
    parts.append(string_bytes(group.name) + encode_id(group.last_id))
    if stream_type.has_counters:
        read = group.entries_read
        parts.append(length_bytes(_UNKNOWN if read is None else read))
    held: dict[bytes, bytearray] = {consumer.name: bytearray() for consumer in group.consumers}
    check = PendingCheck(group)
    counted_at = len(parts)
    parts.append(b"")
    count = 0
    piece: list[bytes] = []
    for item in pending:
        check.add(item)
        raw = item.entry_id.to_bytes(_ID_BYTES, "big")
        time = item.delivery_time_ms.to_bytes(8, "little")
        piece.append(raw + time + length_bytes(item.delivery_count))
        if item.consumer is not None:
            held[item.consumer] += raw
        count += 1
        if not count % _STEP:
            parts.append(b"".join(piece))
            piece = []
            yield
    check.end()
    parts += piece
    parts[counted_at] = length_bytes(count)
    parts.append(length_bytes(len(group.consumers)))
    for consumer in group.consumers:
        parts.append(string_bytes(consumer.name))
        parts.append(consumer.seen_time_ms.to_bytes(8, "little"))
        if stream_type.has_active_time:
            parts.append(consumer.active_time_ms.to_bytes(8, "little", signed=True))
        parts.append(length_bytes(len(held[consumer.name]) // _ID_BYTES))
        parts.append(bytes(held[consumer.name]))
        yield
    if stream_type.has_nacked:
        parts.append(length_bytes(len(group.nacked)))
        parts += [entry_id.to_bytes(_ID_BYTES, "big") for entry_id in group.nacked]


def encode_producers(image: StreamImage) -> bytes:
    """The reverse of :func:`decode_producers`; settings left to the server are its defaults."""
    duration = DURATION_DEFAULT_S if image.idmp_duration is None else image.idmp_duration
    maxsize = MAXSIZE_DEFAULT if image.idmp_maxsize is None else image.idmp_maxsize
    parts = [length_bytes(duration), length_bytes(maxsize), length_bytes(len(image.producers))]
    for producer in image.producers:
        parts.append(string_bytes(producer.pid))
        parts.append(length_bytes(len(producer.iids)))
        for iid, entry_id in producer.iids:
            parts.append(string_bytes(iid) + encode_id(entry_id))
    parts.append(length_bytes(image.iids_added) + length_bytes(image.iids_duplicates))
    return b"".join(parts)
