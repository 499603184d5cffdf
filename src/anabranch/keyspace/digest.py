"""Digests of values and keyspaces: equal data has equal digests.

The digest covers what clients can see. It does not cover the internal form: nodes and times of day.
The *exact* digest covers these, too: everything that a restart must restore. Digests of keys are
combined by exclusive or, so the order of keys does not matter, and an empty keyspace has digest 0.
"""

from __future__ import annotations

from hashlib import sha1
from typing import TYPE_CHECKING

from anabranch.keyspace.values import ListValue, StringValue, Value
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.group import LOCAL_REPLICA_ID, Group
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from hashlib import _Hash

    from anabranch.keyspace.database import Database
    from anabranch.keyspace.keyspace import Keyspace

_DIGEST_BYTES = 20


def keyspace_digest(keyspace: Keyspace, *, exact: bool = False) -> bytes:
    """One digest of all databases, 20 bytes."""
    total = 0
    for database in keyspace.databases:
        for key, value in database.values.items():
            total ^= int.from_bytes(_key_digest(database, key, value, exact=exact), "big")
    if exact:
        for name, line in keyspace.users.items():
            digest = sha1(b"user", usedforsecurity=False)
            _feed(digest, name, line)
            total ^= int.from_bytes(digest.digest(), "big")
        for library in keyspace.libraries.values():
            digest = sha1(b"library", usedforsecurity=False)
            _feed(digest, library.name, library.code)
            total ^= int.from_bytes(digest.digest(), "big")
    return total.to_bytes(_DIGEST_BYTES, "big")


def _key_digest(database: Database, key: bytes, value: Value, *, exact: bool) -> bytes:
    deadline = database.deadlines.get(key) if exact else key in database.deadlines
    digest = sha1(usedforsecurity=False)
    _feed(digest, database.index, key, deadline, value_digest(value, exact=exact))
    return digest.digest()


def value_digest(value: Value, *, exact: bool = False) -> bytes:
    """A digest of one value, 20 bytes."""
    digest = sha1(value.type_name, usedforsecurity=False)
    if isinstance(value, Stream):
        _feed_stream(digest, value)
        if exact:
            _feed_inside(digest, value)
    elif isinstance(value, StringValue):
        _feed(digest, value.data)
    elif isinstance(value, ListValue):
        _feed(digest, *value.items)
    else:
        _feed(digest, *sorted(value.members))
    return digest.digest()


def _feed(digest: _Hash, *parts: bytes | bytearray | int | None) -> None:
    """Add parts with their lengths, so that different sequences give different bytes."""
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
    progress = group.progress
    _feed(digest, progress.last_delivered_id, progress.entries_read, *sorted(group.consumers))
    for entry in group.pending.between(MIN_ID, MAX_ID):
        owner = None if entry.consumer is None else entry.consumer.name
        _feed(digest, entry.entry_id, owner, entry.delivery_count)
    _feed(digest, *(entry.entry_id for entry in group.pending.released))


def _feed_inside(digest: _Hash, stream: Stream) -> None:
    """Add what clients do not see: blocks, positions, cursors, times, and their order.

    Not the times at which consumers were seen: a read that gets nothing is not in the log.
    """
    for replica_id, log in sorted(stream.logs.items()):
        _feed(digest, replica_id, stream.incarnation, log.next_position, log.trimmed)
        for block in log.blocks:
            _feed(digest, block.first_id, block.first_position, block.slots, block.weight)
            for low, high in block.runs(0, block.count):
                _feed(digest, *block.ids[low:high], *map(block.position, range(low, high)))
    for name in sorted(stream.groups):
        group = stream.groups[name]
        _feed(digest, LOCAL_REPLICA_ID, group.progress.last_delivered_id)
        for consumer in group.consumers.values():
            _feed(digest, consumer.name, consumer.active_ms)
        pending = list(group.pending.between(MIN_ID, MAX_ID))
        _feed(digest, *(entry.delivery_ms for entry in pending))
        pending.sort(key=lambda entry: (entry.delivery_ms, entry.stamp))
        _feed(digest, *(entry.entry_id for entry in pending))
    for pid, record in stream.ledger.records.items():
        _feed(digest, pid, *record)
    for pid in sorted(stream.producers.tables):
        _feed(digest, *(at_ms for _, at_ms in stream.producers.tables[pid].values()))
