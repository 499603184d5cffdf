"""Releases pending entries of a group, by XNACK or by a policy, and gives up what failed too often.

Released entries are pending without a consumer (:class:`kinds.Assign`), whoever released them. An
entry that was delivered as often as ``max-deliveries`` allows is not released: its copy goes to the
dead-letter stream of the group, and it is acknowledged. All effects of that are in one turn, which
the log has as a whole or not at all, and other regions apply as a whole; so there is one copy
whatever ends the process. Regions that give up the same entry add copies with the same idempotent
ID, of which one stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace
from anabranch.engine.adding import add_entry
from anabranch.engine.leases import LeasePlace
from anabranch.resp.encode import array_of
from anabranch.resp.values import read_value
from anabranch.stream.entry_id import text
from anabranch.stream.groups.ordering import value_of
from anabranch.stream.groups.pending import MAX_DELIVERIES
from anabranch.stream.groups.policy import Attempt
from anabranch.stream.producer import DURATION_MAX_S, MAXSIZE_MAX
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from anabranch.engine.context import Context
    from anabranch.stream.groups.pending_entry import PendingEntry
    from anabranch.stream.groups.policy import GroupPolicy, Policed

Released = tuple[int, int, int, int]
"""``(entry ID, replica ID, delivery ms, delivery count)`` of an entry that is released."""

LEASE: Final = b"lease"
NACK: Final = b"nack"
FATAL: Final = b"fatal"
SILENT: Final = b"silent"
CLAIM: Final = b"claim"
"""Why an entry is released or given up: a policy, XNACK, or it was to be handed out once more.
What is handed over in silence has no backoff."""

DEAD_PRODUCER: Final = b"ab-dead-letter"
"""Begins the producer ID of copies in dead-letter streams."""


def release(ctx: Context, whose: GroupPlace, rows: Sequence[Released], cause: bytes) -> None:
    """Release entries, which are pending or exist, in this order; or give them up."""
    group = whose.group
    policed = group.policed
    if policed is not None:
        given_up: list[PendingEntry] = []
        stay: list[Released] = []
        for row in rows:
            entry_id, replica_id, _, count = row
            entry = group.pending.lists[replica_id].get(entry_id)
            if entry is not None and entry.consumer is not None:
                attempt = Attempt(entry.consumer.name, entry.delivery_ms, ctx.now_ms, cause)
                policed.note(entry, attempt)
            if entry is not None and policed.policy.gives_up(count):
                given_up.append(entry)
            else:
                stay.append(row)
        rows = stay + give_up(ctx, whose, given_up, cause)
        if rows and policed.policy.backoff:
            rows = _delayed(ctx, whose, policed.policy, rows, cause)
    if rows:
        ctx.emit(kinds.Assign(whose.db, whose.key, whose.name, None, list(rows)))


def _delayed(
    ctx: Context, whose: GroupPlace, policy: GroupPolicy, rows: list[Released], cause: bytes
) -> list[Released]:
    """The rows as released now; the group is looked at when the first delay may be over."""
    place = LeasePlace(whose.db, whose.key, whose.name, False)
    if cause == SILENT:
        ctx.server.leases.look(place, ctx.now_ms)
        return rows
    ctx.server.leases.look(place, ctx.now_ms + min(policy.backoff))
    return [(entry_id, replica_id, ctx.now_ms, count) for entry_id, replica_id, _, count in rows]


def give_up(
    ctx: Context, whose: GroupPlace, entries: Iterable[PendingEntry], reason: bytes
) -> list[Released]:
    """Move entries to the dead-letter stream, and acknowledge them.

    Without such a stream they are acknowledged. Returns those that cannot be moved: they stay
    pending, and must be released. With ``on-poison halt`` entries that have a key are copied, but
    not acknowledged: they are released, and stop their key.
    """
    policed = whose.group.policed
    assert policed is not None
    done: list[PendingEntry] = []
    kept: list[Released] = []
    halting: list[Released] = []
    for entry in entries:
        region = whose.group.pending.region_of(entry)
        stops = policed.policy.halts and _has_key(whose, policed.policy, entry)
        needs_copy = not stops or (_target(whose, policed) and not policed.policy.is_halted(entry))
        if needs_copy and not _copy(ctx, whose, policed, entry, reason):
            kept.append((entry.entry_id, region, 0, entry.delivery_count))
        elif stops:
            halting.append((entry.entry_id, region, 0, MAX_DELIVERIES))
        else:
            done.append(entry)
    if halting:
        _halt(ctx, whose, halting)
    if done:
        acknowledge(ctx, whose, done)
        for entry in done:
            policed.past.pop(entry, None)
    return kept


def _halt(ctx: Context, whose: GroupPlace, rows: list[Released]) -> None:
    """Release entries that stop their keys."""
    ctx.stats.policy_halted += len(rows)
    ctx.emit(kinds.Assign(whose.db, whose.key, whose.name, None, rows), len(rows))
    if ctx.server.events.flags:
        ctx.server.events.publish([("t", "xhalt", whose.db, whose.key)] * len(rows))


def _target(whose: GroupPlace, policed: Policed) -> bytes | None:
    """Where copies go; nowhere from the stream of dead letters itself."""
    target = policed.policy.dead_letter
    return None if target == whose.key else target


def _has_key(whose: GroupPlace, policy: GroupPolicy, entry: PendingEntry) -> bool:
    """Whether an entry exists and has the field that orders the entries of its group."""
    found = whose.stream.find_pending(whose.group, entry)
    if found is None or policy.key_field is None:
        return False
    return value_of(bytes(found[1].fragment(found[2])), policy.key_field) is not None


def acknowledge(ctx: Context, whose: GroupPlace, entries: list[PendingEntry]) -> None:
    """Acknowledge entries; of several with one ID those that are named by their numbers."""
    pending = whose.group.pending
    ids: list[int] = []
    dots: list[tuple[int, int]] = []
    for entry in entries:
        if entry.number and len(pending.with_id(entry.entry_id)) > 1:
            dots.append((pending.region_of(entry), entry.number))
        else:
            ids.append(entry.entry_id)
    ctx.emit(kinds.Acknowledge(whose.db, whose.key, whose.name, ids, dots), len(entries))


# -- copies in dead-letter streams ------------------------------------------------------------


def _copy(
    ctx: Context, whose: GroupPlace, policed: Policed, entry: PendingEntry, reason: bytes
) -> bool:
    """Copy an entry if it has to be; False if that is impossible at present."""
    target = _target(whose, policed)
    found = whose.stream.find_pending(whose.group, entry)
    if found is None:  # there is nothing to copy any more
        return True
    if target is None:
        ctx.stats.policy_given_up += 1
        if ctx.server.events.flags:
            ctx.server.events.publish([("t", "xgiveup", whose.db, whose.key)])
        return True
    replica_id, block, index = found
    origin = text(entry.entry_id)
    if entry.number:
        origin += b"@%d.%d" % (replica_id, entry.number)
        if whose.group.shared.is_acknowledged(replica_id, entry.number):
            # It was given back: no region's copy of that time may stand for this one.
            own = ctx.replica.own
            origin += b"+%d.%d" % (own, ctx.replica.vector.get(own, 0))
    pid = b":".join((DEAD_PRODUCER, whose.key, whose.name))
    fields = _fields(whose, policed.policy, policed.past.get(entry, []), entry, reason)
    _, words = read_value(bytes(block.fragment(index)))
    is_there = add_once(ctx, whose.db, target, (pid, origin), array_of([*fields, *words]))
    ctx.stats.policy_dead_lettered += is_there
    return is_there


def _fields(
    whose: GroupPlace,
    policy: GroupPolicy,
    past: list[Attempt],
    entry: PendingEntry,
    reason: bytes,
) -> list[bytes]:
    """Fields and values of a copy, before those of the entry."""
    consumer = past[-1].consumer if past else b""
    first_ms = past[0].delivered_ms if past else entry.delivery_ms
    last_ms = past[-1].delivered_ms if past else entry.delivery_ms
    if entry.consumer is not None:
        consumer, last_ms = entry.consumer.name, entry.delivery_ms
    attempts = [
        {
            "consumer": each.consumer.decode("utf-8", "backslashreplace"),
            "delivered": each.delivered_ms,
            "ended": each.ended_ms,
            "reason": each.reason.decode(),
        }
        for each in past
    ]
    return [
        *(b"ab-origin", whose.key, b"ab-id", text(entry.entry_id), b"ab-group", whose.name),
        *(b"ab-consumer", consumer, b"ab-deliveries", b"%d" % entry.delivery_count),
        *(b"ab-reason", reason, b"ab-first", b"%d" % first_ms, b"ab-last", b"%d" % last_ms),
        *(b"ab-attempts", msgspec.json.encode(attempts)),
    ]


def add_once(ctx: Context, db: int, key: bytes, tag: tuple[bytes, bytes], fields: bytes) -> bool:
    """Add an entry, unless one with this tag is there; False if that is impossible at present.

    ``fields`` are its fields and values, as an array of bulk strings. A stream that is made for it
    remembers tags for as long as a stream can.
    """
    database = ctx.keyspace.databases[db]
    value = ctx.lookup_in(database, key)
    if value is not None and type(value) is not Stream:
        return False
    stream: Stream | None = value
    if stream is not None:
        known = stream.producers.find(*tag, ctx.now_ms)
        if known is not None and stream.find(known) is not None:
            return True
    added = add_entry(ctx, database, key, stream, fields)
    if added is None:
        return False
    made = database.values[key]
    assert type(made) is Stream
    if stream is None:
        ctx.emit(kinds.ConfigureProducers(db, key, DURATION_MAX_S, MAXSIZE_MAX))
    ctx.effects.remember(database, key, made, *tag, added)
    return True
