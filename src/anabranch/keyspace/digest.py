"""Digests of values and keyspaces: equal data, equal digest.

What counts is what clients can see, not how it is kept: neither nodes nor times of day play a
part. Digests of keys are combined by exclusive or, so the order of keys does not matter either,
and an empty keyspace has digest 0.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

from anabranch.keyspace.values import ListValue, StringValue, Value
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.group import Group
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from hashlib import _Hash

    from anabranch.keyspace.database import Database
    from anabranch.keyspace.keyspace import Keyspace

__all__ = ["keyspace_digest", "value_digest"]

_DIGEST_BYTES = 20


def keyspace_digest(keyspace: Keyspace) -> bytes:
    """One digest of all databases, 20 bytes."""
    total = 0
    for database in keyspace.databases:
        for key, value in database.values.items():
            total ^= int.from_bytes(_key_digest(database, key, value), "big")
    return total.to_bytes(_DIGEST_BYTES, "big")


def _key_digest(database: Database, key: bytes, value: Value) -> bytes:
    has_deadline = key in database.deadlines
    digest = sha1(usedforsecurity=False)
    _feed(digest, database.index, key, has_deadline, value_digest(value))
    return digest.digest()


def value_digest(value: Value) -> bytes:
    """A digest of one value, 20 bytes."""
    digest = sha1(value.type_name, usedforsecurity=False)
    if isinstance(value, Stream):
        _feed_stream(digest, value)
    elif isinstance(value, StringValue):
        _feed(digest, value.data)
    elif isinstance(value, ListValue):
        _feed(digest, *value.items)
    else:
        _feed(digest, *sorted(value.members))
    return digest.digest()


def _feed(digest: _Hash, *parts: bytes | bytearray | int | None) -> None:
    """Add parts with their lengths, so that no two sequences look the same."""
    for part in parts:
        data = part if isinstance(part, bytes | bytearray) else str(part).encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)


def _feed_stream(digest: _Hash, stream: Stream) -> None:
    _feed(digest, stream.length, stream.last_id, stream.max_deleted_id, stream.entries_added)
    for block, low, high in stream.spans(MIN_ID, MAX_ID):
        digest.update(block.slice(low, high))
    for name in sorted(stream.groups):
        _feed(digest, name)
        _feed_group(digest, stream.groups[name])
    producers = stream.producers
    _feed(digest, producers.duration_s, producers.maxsize)
    _feed(digest, producers.iids_added, producers.duplicates)
    for pid in sorted(producers.tables):
        _feed(digest, pid)
        for iid, (entry_id, _) in producers.tables[pid].items():
            _feed(digest, iid, entry_id)


def _feed_group(digest: _Hash, group: Group) -> None:
    _feed(digest, group.last_delivered_id, group.entries_read, *sorted(group.consumers))
    for entry in group.between(MIN_ID, MAX_ID):
        owner = None if entry.consumer is None else entry.consumer.name
        _feed(digest, entry.entry_id, owner, entry.delivery_count)
    _feed(digest, *group.released)
