"""A digest of what all regions must agree on once they have applied the same effects.

The digest covers everything that follows from effects alone: entries with the effects that added
them, groups with their creations and the acknowledgements under each, deadline and counters. It
does not cover what belongs to one region (deliveries, pending entries) and what depends on the
clock (idempotent IDs). Two regions with equal version vectors and different digests have diverged.

Each fact is hashed separately and the hashes are added, so their order does not matter, and the sum
over a block of entries can be kept while the block does not change.

On a server of its own the digest uses entry IDs: equal contents have equal digests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Final

from xxhash import xxh3_128_intdigest

from anabranch.keyspace.values import StringValue, Value
from anabranch.scheduling import Steps
from anabranch.stream.block import Block
from anabranch.stream.groups.group import Group
from anabranch.stream.region_log import RegionLog
from anabranch.stream.register import read_counts
from anabranch.stream.shared import Shared
from anabranch.stream.stream import Stream

_MODULUS: Final = 1 << 128
_STEP: Final = 200
"""Entries digested in one step."""


def agreement_digest(value: Value, deadline_ms: int | None) -> int:
    """128 bits of a value; ``deadline_ms`` is when it expires, None for never."""
    if type(value) is not Stream:
        facts = [_hash("deadline", deadline_ms), *_facts_beside(value.shared)]
        if isinstance(value, StringValue):
            facts.append(_hash("string", value.data))
        return sum(facts) % _MODULUS
    stream = value
    total = sum(_facts_beside(stream.shared)) if stream.shared.has_small else 0
    total += sum(_entries(replica_id, log) for replica_id, log in stream.logs.items())
    total += _hash("counters", stream.last_id, stream.entries_added, stream.max_deleted_id)
    total += _hash("deadline", deadline_ms)
    for name, group in stream.groups.items():
        total += _hash("group", name)
        total += sum(_creations(name, group))
    return total % _MODULUS


def _facts_beside(shared: Shared) -> list[int]:
    """Everything beside a stream that regions share, also what another value or write hides.

    Counts that are not alive are no fact: each region forgets them at a time of its own.
    """
    facts = [elements.digest for elements in shared.elements.values()]
    for dot, (stamp_ms, data, deadlines) in shared.writes.items():
        facts.append(_hash("write", dot, stamp_ms, data, sorted(deadlines.items())))
    for replica_id, row in read_counts(shared.counts).items():
        if row.is_alive:
            facts.append(_hash("count", replica_id, row.number, row.amount, row.at_ms))
    if facts:
        facts += [_hash("setting", dot, at_ms) for dot, at_ms in shared.deadlines.items()]
    return facts


def _hash(*fact: object) -> int:
    return xxh3_128_intdigest(repr(fact).encode())


def prepared(value: Value, most: int) -> int:
    """Compute digests of blocks with about ``most`` entries in advance.

    Returns the count of digested entries; less than ``most`` means that none are left.
    """
    done = 0
    for replica_id, log in value.logs.items() if type(value) is Stream else ():
        for block in log.blocks:
            if block.digest is None and not block.is_open:
                block.digest = _block(replica_id, block)
                done += block.live
                if done >= most:
                    return done
    return done


def preparing(stream: Stream) -> Steps[None]:
    """Compute digests of all full blocks, in short steps; the stream may change between steps."""
    done = 0
    for replica_id, log in list(stream.logs.items()):
        for block in log.blocks[:]:
            if block.digest is None and not block.is_open:
                block.digest = _block(replica_id, block)
                done += block.live
                if done >= _STEP:
                    done = 0
                    yield


def _entries(replica_id: int, log: RegionLog) -> int:
    total = 0
    for block in log.blocks:
        digest = block.digest
        if digest is None:
            digest = _block(replica_id, block)
            if not block.is_open:
                block.digest = digest
        total += digest
    return total


def _block(replica_id: int, block: Block) -> int:
    total = 0
    for low, high in block.runs(0, block.count):
        # The fragment contains the ID; it begins with "*", which ends the number.
        numbers = block.numbers_of(low, high) if replica_id else repeat(0)
        for number, fragment in zip(numbers, block.fragments(low, high), strict=False):
            total += xxh3_128_intdigest(b"%d:%d%b" % (replica_id, number, fragment))
    return total % _MODULUS


def _creations(name: bytes, group: Group) -> Iterator[int]:
    if group.home is not None:
        for dot, home in group.home.epochs.items():
            yield _hash("home", name, dot, *home)
    for dot, (context, start, offset) in group.shared.creations.items():
        known = sorted(each for each in context.items() if each[1])
        yield _hash("creation", name, dot, start, known, *([offset] if offset else ()))
    for dot, by_replica_id in group.shared.acknowledged.items():
        for replica_id, ranges in by_replica_id.items():
            if ranges:
                yield _hash("acknowledged", name, dot, replica_id, ranges.flat())
