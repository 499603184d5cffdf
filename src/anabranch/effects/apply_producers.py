"""Applies effects on idempotent producers and on conflicts between their IDs; decides nothing.

What regions did concurrently is all kept, and one part of it counts
(:mod:`anabranch.stream.shared`).
"""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.effects.streams import (
    begun_stream,
    known_stream,
    remembered_tags,
    renew_producers,
    wake_held_back,
)
from anabranch.keyspace.held_tags import HeldTag
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica, region_of
from anabranch.stream import by_number
from anabranch.stream.producer import Accepted
from anabranch.stream.shared import Dot, Limits, Tag
from anabranch.stream.stream import Stream


def remember(keyspace: Keyspace, effect: kinds.Remember) -> None:
    """Let an idempotent ID stand for an entry; retries get the smallest ID of several entries.

    It replaces the tags for the same idempotent ID that it knew of. With those that it did not know
    of there is a conflict, which is noted.
    """
    replica = keyspace.replica
    stream = begun_stream(keyspace, effect.db, effect.key)
    if not replica.is_regional:
        stream.producers.remember(effect.pid, effect.iid, effect.entry_id, effect.at_ms)
        return
    held = _held_tag(replica, stream, effect)
    displaced = stream.shared.remember(
        stream,
        (replica.replica_id, replica.number),
        effect.pid,
        effect.iid,
        Tag(effect.entry_id, effect.at_ms, effect.yields),
        replica.knows,
    )
    if displaced:
        replica.conflicts.displaced.add((effect.db, effect.key), effect.pid, displaced)
    if replica.replica_id != replica.own:
        # the context of an own effect is everything that is here
        replica.conflicts.detect(held)
    replica.conflicts.hold(held)


def _held_tag(replica: Replica, stream: Stream, effect: kinds.Remember) -> HeldTag:
    """The held tag, which conflicts with concurrent effects are found by."""
    replica_id, number = replica.dot
    return HeldTag(
        replica_id,
        number,
        effect.db,
        effect.key,
        effect.pid,
        effect.iid,
        effect.entry_id,
        _entry(stream, replica_id, effect.entry_id),
        effect.at_ms,
        effect.yields,
        replica.conflicts.context_of(replica.context, is_own=replica_id == replica.own),
    )


def count_duplicate(keyspace: Keyspace, effect: kinds.CountDuplicate) -> None:
    """Count retries of a producer, for which nothing was added."""
    producers = begun_stream(keyspace, effect.db, effect.key).producers
    producers.duplicates += effect.count
    producers.iids_added += effect.accepted


def configure_producers(keyspace: Keyspace, effect: kinds.ConfigureProducers) -> None:
    """Set the limits of idempotence and drop the pairs in its context."""
    replica = keyspace.replica
    replica.hybrid_ms = max(replica.hybrid_ms, effect.stamp_ms)
    stream = begun_stream(keyspace, effect.db, effect.key)
    limits = Limits(
        effect.stamp_ms, region_of(replica.replica_id), effect.duration_s, effect.maxsize
    )
    before = remembered_tags(keyspace, effect.db, effect.key, stream)
    if stream.shared.set_limits(stream, replica.dot, limits, replica.knows):
        replica.conflicts.displaced.remove((effect.db, effect.key), replica.knows)
        renew_producers(keyspace, effect.db, effect.key, stream, before)


def forget_producers(keyspace: Keyspace, effect: kinds.ForgetProducers) -> None:
    """Forget the oldest idempotent IDs of a producer, which have expired."""
    stream = begun_stream(keyspace, effect.db, effect.key)
    stream.producers.drop_oldest(effect.pid, effect.count)
    stream.drop_tags(effect.pid)
    keyspace.replica.conflicts.displaced.forget((effect.db, effect.key), effect.pid)


def accept(keyspace: Keyspace, effect: kinds.Accept) -> None:
    """Note a batch of a bulk producer; of concurrent records the highest batch counts."""
    replica = keyspace.replica
    stream = begun_stream(keyspace, effect.db, effect.key)
    record = Accepted(effect.batch, effect.rows, effect.crc, effect.at_ms)
    stream.ledger.accept(
        effect.pid, stream.shared.accept(effect.pid, replica.dot, record, replica.knows)
    )


def drop_records(keyspace: Keyspace, effect: kinds.DropRecords) -> None:
    """Remove records of bulk producers; records that were accepted concurrently stay."""
    stream = begun_stream(keyspace, effect.db, effect.key)
    for pid in effect.pids:
        left = stream.shared.drop_accepted(pid, keyspace.replica.knows)
        if left is not None:
            stream.ledger.accept(pid, left)
        else:  # another region may have dropped it at the same time
            stream.ledger.records.pop(pid, None)


def _entry(stream: Stream, replica_id: int, entry_id: int) -> Dot:
    """The dot of the entry with an ID: usually that of the newest effect of its replica ID."""
    log = stream.logs.get(replica_id)
    if log is not None and log.newest_id == entry_id:
        return replica_id, log.newest_number
    for each in [replica_id, *stream.ranked()]:
        log = stream.logs.get(each)
        if log is not None and (found := log.find(entry_id)) is not None:
            block, index = found
            return each, block.number(index)
    return 0, 0


def resolve_conflict(keyspace: Keyspace, effect: kinds.ResolveConflict) -> None:
    """Keep one entry of an idempotent ID that had several. Several regions make the same effect."""
    replica = keyspace.replica
    conflicts = replica.conflicts
    dot = effect.replica_id, effect.number
    replica_id, number = effect.winner
    conflicts.record_beaten(dot, (effect.entry_id, replica_id & 0xFF, replica_id, number))
    place = effect.db, effect.key
    due = conflicts.due.get(place, {})
    if dot in due and region_of(replica.replica_id) == replica.region:
        del due[dot]  # what another region resolves we resolve as well: we may know more of groups
        if not due:
            del conflicts.due[place]
    stream = known_stream(keyspace, *place)
    if stream is None:  # deleted, and forgotten by all
        return
    is_new = _answer_with(stream, effect)
    record_processed(replica, stream, place, effect.goes, effect.stays, effect.entry_id)
    if effect.removed and effect.goes[1]:
        is_new = collapse(replica, stream, effect.goes) or is_new
        for group in stream.groups.values():
            wake_held_back(keyspace, *place, group)
    if is_new:
        keyspace.databases[effect.db].touch(effect.key)


def collapse(replica: Replica, stream: Stream, goes: Dot) -> bool:
    """Remove one of two entries that stand for the same; returns whether it was there."""
    replica_id, number = goes
    log = stream.log_of(replica_id)
    is_there = by_number.find(log, number) is not None  # otherwise it was removed before
    if is_there:
        replica.apply_stats.collapsed += 1
        stream.keep_places(replica_id, log, number)
        by_number.remove(log, number - 1, number)
    for group in stream.groups.values():
        group.drop_between(replica_id, number - 1, number)
    stream.recount()
    return is_there


def _answer_with(stream: Stream, effect: kinds.ResolveConflict) -> bool:
    """Answer retries of the tag that lost with the ID of the entry that stays, from now on.

    Returns whether this is new.
    """
    dots = stream.shared.tags.get(effect.pid, {}).get(effect.iid)
    dot = effect.replica_id, effect.number
    tag = None if dots is None else dots.get(dot)
    if dots is None or tag is None or effect.entry_id >= tag.answered:
        return False
    dots[dot] = tag._replace(stays=effect.entry_id)
    stream.remember(effect.pid, effect.iid, is_new=False)
    return True


def record_processed(
    replica: Replica,
    stream: Stream,
    place: tuple[int, bytes],
    goes: Dot,
    stays: Dot,
    entry_id: int,
) -> None:
    """Do not deliver the entry that stays to groups that have processed the other one here."""
    if not goes[1] or not stays[1]:
        return
    for name, group in stream.groups.items():
        where = *place, name
        if (
            (where, goes) in replica.conflicts.processed
            and group.has_processed(*goes)
            and not group.shared.is_acknowledged(*stays)
        ):
            replica.apply_stats.processed.append((*where, stays, entry_id))
