"""The pending entries of a group: XACK, XNACK, XPENDING, XCLAIM, XAUTOCLAIM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.commands.stream.options import interval_start, stream_and_group
from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace
from anabranch.engine import texts
from anabranch.engine.arguments import (
    IDS_AT_ONCE,
    id_argument,
    id_list,
    id_list_steps,
    integer,
    integer_or_none,
    options_of,
)
from anabranch.engine.context import Context
from anabranch.engine.holding import still_held, use_name
from anabranch.engine.homing import check_home
from anabranch.engine.releasing import (
    CLAIM,
    FATAL,
    NACK,
    SILENT,
    Released,
    give_up,
    release,
)
from anabranch.errors import CommandError
from anabranch.resp.encode import ZERO, array_header, bulk
from anabranch.resp.encode import integer as integer_reply
from anabranch.scheduling import Steps
from anabranch.stream.block import Block
from anabranch.stream.entry_id import MAX_ID, InvalidId, parse, text
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending import MAX_DELIVERIES
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.stream import Stream
from anabranch.stream.turns import is_ahead, settle_order

_ACKNOWLEDGE: Final = kinds.Acknowledge  # a name of an interpreted module is looked up each time

AUTOCLAIM_COUNT = 100
"""COUNT of XAUTOCLAIM when not given."""

AUTOCLAIM_COUNT_MAX = 1 << 40
"""Redis cannot allocate more; no group can have that many pending entries."""

AUTOCLAIM_ATTEMPTS = 10
"""Pending entries that XAUTOCLAIM examines for each one that it may return."""


def xack(ctx: Context, args: list[bytes]) -> bytes | None:
    """Acknowledge entries; replies how many were pending."""
    stream = ctx.read_stream(args[1])
    group = None if stream is None else stream.groups.get(args[2])
    if group is None:
        return ZERO
    if len(args) > IDS_AT_ONCE:
        return ctx.in_slices(args, _xack(ctx, args))
    return _acknowledge(ctx, args, group, id_list(args[3:]))


def _xack(ctx: Context, args: list[bytes]) -> Steps[list[bytes]]:
    ids = yield from id_list_steps(args[3:])
    stream = ctx.stream(args[1])
    group = None if stream is None else stream.groups.get(args[2])
    return [ZERO if group is None else _acknowledge(ctx, args, group, ids)]


def _acknowledge(ctx: Context, args: list[bytes], group: Group, ids: list[int]) -> bytes:
    acked = group.pending.among(ids)
    if group.policed is not None:
        acked = still_held(ctx, args[1], args[2], group, acked)
    if not acked:
        return ZERO
    before = group.pending.acknowledgements
    ctx.emit(_ACKNOWLEDGE(ctx.db.index, args[1], args[2], acked))
    done = group.pending.acknowledgements - before  # several regions may have used one ID
    ctx.changes += done
    return integer_reply(done)


def _check_home(ctx: Context, key: bytes, name: bytes, group: Group) -> None:
    """HOMED, if this region must not deliver."""
    # That module is not compiled: a group without policies must not call it.
    if group.policed is not None or ctx.db.policies.is_rebinding:
        check_home(ctx, key, name, group)


# -- XNACK ------------------------------------------------------------------------------------


_CAUSES: Final = {b"SILENT": SILENT, b"FAIL": NACK, b"FATAL": FATAL}


class _NackOptions:
    """What a request of XNACK says: the mode, the IDs and what to set."""

    mode = b""
    ids: list[bytes] | None = None
    retry_count: int | None = None
    force = False


def _nack_options(args: list[bytes]) -> _NackOptions:
    options = _NackOptions()
    options.mode = args[3].upper()
    if options.mode not in (b"SILENT", b"FAIL", b"FATAL"):
        raise CommandError("ERR mode must be SILENT, FAIL, or FATAL")
    index = 4
    while index < len(args):
        word = args[index].upper()
        more = len(args) - index - 1
        if word == b"IDS" and more:  # the last of several blocks counts
            count = integer_or_none(args[index + 1])
            if count is None or not 0 < count <= (1 << 31) - 1:
                raise CommandError("ERR numids must be a positive integer")
            options.ids = args[index + 2 : index + 2 + count]
            if len(options.ids) < count:
                raise CommandError("ERR number of IDs doesn't match numids")
            index += 2 + count
        elif word == b"RETRYCOUNT" and more:
            options.retry_count = integer(args[index + 1])
            if options.retry_count < 0:
                raise CommandError("ERR Invalid RETRYCOUNT value, must be >= 0")
            index += 2
        elif word == b"FORCE":
            options.force = True
            index += 1
        else:
            raise CommandError(b"ERR Unrecognized XNACK option '%b'" % texts.shown(args[index]))
    if options.ids is None:
        raise CommandError("ERR syntax error, expected IDS keyword")
    return options


def _nacked_count(options: _NackOptions, entry: PendingEntry | None) -> int:
    """The delivery count of a released entry (``entry`` None: made pending by FORCE)."""
    if options.retry_count is not None:
        return options.retry_count
    if options.mode == b"FATAL":
        return MAX_DELIVERIES
    if entry is None:
        return 0
    return max(entry.delivery_count - 1, 0) if options.mode == b"SILENT" else entry.delivery_count


def xnack(ctx: Context, args: list[bytes]) -> bytes:
    """Release entries: they are pending without a consumer, and first for the next CLAIM."""
    key, name = args[1], args[2]
    stream, group = stream_and_group(ctx, key, name)
    _check_home(ctx, key, name, group)
    options = _nack_options(args)
    assert options.ids is not None
    handled = 0
    rows: dict[int, list[Released]] = {}  # by ID
    whose = GroupPlace(ctx.db.index, key, name, stream, group)
    ids = id_list(options.ids)
    if group.policed is not None:
        ids = still_held(ctx, key, name, group, ids)
    for entry_id in ids:
        if entry_id in rows:  # a repeated ID moves to the end, and counts down, again
            handled += _release(ctx, whose, rows, options.mode)
            rows = {}
        some = [
            (entry_id, region, 0, _nacked_count(options, entry))
            for region, entry in _to_release(stream, group, entry_id, force=options.force)
        ]
        if some:
            rows[entry_id] = some
    handled += _release(ctx, whose, rows, options.mode)
    ctx.changes += handled
    return integer_reply(handled)


def _to_release(
    stream: Stream, group: Group, entry_id: int, *, force: bool
) -> Sequence[tuple[int, PendingEntry | None]]:
    """``(replica_id, pending entry)`` of what has an ID; None for what FORCE makes pending."""
    known = group.pending.with_id(entry_id)
    if not force and len(known) <= 1:  # nearly always, and the stream need not be searched
        return known
    found: list[tuple[int, PendingEntry | None]] = []
    for live, entry in stream.claimable(group, entry_id):
        if entry is not None:
            found.append((group.pending.region_of(entry), entry))
        elif live is not None and force:
            found.append((live[0], None))
    return found


def _release(ctx: Context, whose: GroupPlace, rows: dict[int, list[Released]], mode: bytes) -> int:
    """Release pending entries; returns how many."""
    flat = [row for some in rows.values() for row in some]
    release(ctx, whose, flat, _CAUSES[mode])
    return len(flat)


# -- XCLAIM -----------------------------------------------------------------------------------


class _ClaimOptions:
    """The options of XCLAIM; None where not given."""

    delivery_ms: int | None = None
    retry_count: int | None = None
    force = False
    justid = False
    last_id = 0

    @property
    def delivers(self) -> bool:
        """Whether it counts as a delivery."""
        return not self.justid and self.retry_count is None


def _claim_ids(args: list[bytes]) -> list[int]:
    """Arguments from the fifth on are IDs up to the first that is none; the rest are options."""
    ids = []
    for raw in args[5:]:
        if raw[:1].isalpha():  # an option; an exception takes longer
            break
        try:
            ids.append(parse(raw))
        except InvalidId:
            break
    return ids


_CLAIM: Final = {
    **dict.fromkeys((b"FORCE", b"JUSTID"), 0),
    **dict.fromkeys((b"IDLE", b"TIME", b"RETRYCOUNT", b"LASTID"), 1),
}


def _claim_options(words: list[bytes], now_ms: int) -> _ClaimOptions:
    claim = _ClaimOptions()
    for name, values in options_of(words, _CLAIM, b"ERR Unrecognized XCLAIM option '%b'"):
        if name == b"FORCE":
            claim.force = True
        elif name == b"JUSTID":
            claim.justid = True
        elif name == b"LASTID":
            claim.last_id = id_argument(values[0])
        else:
            value = integer(values[0], f"ERR Invalid {name.decode()} option argument for XCLAIM")
            if name == b"IDLE":
                claim.delivery_ms = now_ms - value
            elif name == b"TIME":
                claim.delivery_ms = value
            else:
                claim.retry_count = value
    if claim.delivery_ms is not None and not 0 <= claim.delivery_ms <= now_ms:
        claim.delivery_ms = now_ms
    return claim


def _min_idle(raw: bytes, command: str) -> int:
    return max(integer(raw, f"ERR Invalid min-idle-time argument for {command}"), 0)


def xclaim(ctx: Context, args: list[bytes]) -> bytes:
    """Assign pending entries to a consumer by ID."""
    key, name, consumer = args[1], args[2], args[3]
    stream, group = stream_and_group(ctx, key, name)
    _check_home(ctx, key, name, group)
    min_idle = _min_idle(args[4], "XCLAIM")
    ids = _claim_ids(args)
    asked = _claim_options(args[5 + len(ids) :], ctx.now_ms)
    db = ctx.db.index
    if asked.last_id > group.progress.last_delivered_id:
        ctx.emit(kinds.AdvanceGroup(db, key, name, asked.last_id), 1)
    _settle(stream, group)
    claim = _Claim(ctx, key, name, group, consumer)
    too_often: list[PendingEntry] = []
    place = stream, group
    for entry_id in ids:
        if entry_id in claim.taken or group.pending.order is not None:
            claim.assign()  # its time and count have changed, or whose turn it is
            _settle(stream, group)
        candidates = stream.claimable(group, entry_id)
        ghosts = [entry for found, entry in candidates if found is None and entry is not None]
        if ghosts:  # at once: forgetting one may acknowledge the others of this ID
            ctx.emit(_forgotten(ctx, key, name, group, ghosts), len(ghosts))
        for found, entry in candidates:
            if found is None:
                continue
            if entry is None and (not asked.force or _must_wait(stream, group, found)):
                continue
            if entry is not None and not _is_idle(place, entry, consumer, ctx.now_ms, min_idle):
                continue
            if entry is not None and asked.delivers and group.gives_up(entry):
                too_often.append(entry)
                continue
            before = 1 if entry is None else entry.delivery_count
            if asked.retry_count is not None and asked.retry_count >= 0:
                count = asked.retry_count
            else:
                count = before if asked.justid else min(before + 1, MAX_DELIVERIES)
            delivery_ms = ctx.now_ms if asked.delivery_ms is None else asked.delivery_ms
            claim.add(found, entry_id, delivery_ms, count, justid=asked.justid)
    claimed = claim.reply()
    _settle(stream, group)  # while what FORCE has made pending exists
    if too_often:
        give_up(ctx, GroupPlace(db, key, name, stream, group), too_often, CLAIM)
    return claimed


def _settle(stream: Stream, group: Group) -> None:
    """Know whose turn it is, if the group has an order per key."""
    if group.policed is not None and group.policed.order is not None:
        settle_order(stream, group)


def _must_wait(stream: Stream, group: Group, found: tuple[int, Block, int]) -> bool:
    """Whether an entry that is not pending has to wait for others of its key."""
    order = group.pending.order
    if order is None:
        return False
    block, index = found[1:]
    entry_id = block.ids[index]
    if not order.is_settled or group.progress.is_undelivered(stream.logs, entry_id):
        return True
    key = order.key_of(bytes(block.fragment(index)))
    return key is not None and not order.admits(key, entry_id, None)


def _forgotten(
    ctx: Context, key: bytes, name: bytes, group: Group, ghosts: list[PendingEntry]
) -> kinds.Acknowledge:
    """Remove pending entries whose stream entry does not exist any more."""
    ids = [entry.entry_id for entry in ghosts if not entry.number]
    dots = [(group.pending.region_of(entry), entry.number) for entry in ghosts if entry.number]
    return kinds.Acknowledge(ctx.db.index, key, name, ids, dots)


def _is_idle(
    place: tuple[Stream, Group], entry: PendingEntry, claimer: bytes, now_ms: int, min_idle: int
) -> bool:
    """Whether an entry may be claimed; a released one always may.

    What another consumer holds by a lease, or what has to wait for its backoff, is not idle: it may
    be claimed without a minimum alone. What waits for another entry of its key is not idle at all.
    """
    stream, group = place
    owner = entry.consumer
    policed = group.policed
    order = None if policed is None else policed.order
    if policed is not None and order is not None:
        is_next = order.is_settled and order.may_go(entry) and entry not in policed.halted
        if not is_next or (owner is None and is_ahead(stream, group, entry)):
            return False
    if owner is None:
        return not min_idle or group.is_due(entry, now_ms)
    if group.is_leased and min_idle > 0:
        return owner.name == claimer and now_ms - entry.delivery_ms >= min_idle
    return now_ms - entry.delivery_ms >= min_idle


class _Claim:
    """Entries that one command assigns to another consumer, and the reply that lists them."""

    __slots__ = ("_consumer", "_ctx", "_key", "_name", "_parts", "_rows", "taken")

    def __init__(
        self, ctx: Context, key: bytes, name: bytes, group: Group, consumer: bytes
    ) -> None:
        self._ctx = ctx
        self._key = key
        self._name = name
        self._consumer = consumer
        self._parts: list[bytes] = []
        self._rows: list[tuple[int, int, int, int]] = []
        self.taken: set[int] = set()  # IDs of the entries of these rows
        if consumer not in group.consumers:
            ctx.emit(kinds.CreateConsumer(ctx.db.index, key, name, consumer, ctx.now_ms), 1)
        group.consumers[consumer].seen_ms = ctx.now_ms  # no effect if it gets nothing
        if group.policed is not None:
            use_name(ctx, key, name, group, consumer)

    def add(
        self, found: tuple[int, Block, int], entry_id: int, at_ms: int, count: int, *, justid: bool
    ) -> None:
        """Add one entry to the reply; :meth:`reply` assigns it at the latest."""
        region, block, index = found
        self._rows.append((entry_id, region, at_ms, count))
        self.taken.add(entry_id)
        self._parts.append(bulk(text(entry_id)) if justid else block.fragment(index))

    def assign(self) -> None:
        """Assign what was taken until now."""
        rows = self._rows
        if rows:
            ctx = self._ctx
            ctx.changes += len(rows)
            self._rows = []
            self.taken.clear()
            ctx.emit(
                kinds.Assign(
                    ctx.db.index,
                    self._key,
                    self._name,
                    self._consumer,
                    rows,
                    ctx.now_ms,
                    active=True,
                )
            )

    def reply(self) -> bytes:
        """The claimed entries (or their IDs) as an array."""
        self.assign()
        return b"".join([array_header(len(self._parts)), *self._parts])


# -- XAUTOCLAIM -------------------------------------------------------------------------------


def xautoclaim(ctx: Context, args: list[bytes]) -> bytes:
    """Claim entries that are idle for long enough, a part of the pending list at a time."""
    key, name, consumer = args[1], args[2], args[3]
    min_idle = _min_idle(args[4], "XAUTOCLAIM")
    start = interval_start(args[5])
    count, justid = _autoclaim_options(args)
    stream, group = stream_and_group(ctx, key, name)
    _check_home(ctx, key, name, group)
    _settle(stream, group)
    claim = _Claim(ctx, key, name, group, consumer)
    attempts = count * AUTOCLAIM_ATTEMPTS
    ghosts: list[PendingEntry] = []
    too_often: list[PendingEntry] = []
    place = stream, group
    next_start = 0
    taken = 0
    window: list[PendingEntry] = []
    for entry in group.pending.between(start, MAX_ID):  # a copy: claiming changes the lists
        if len(window) > attempts and entry.entry_id != window[-1].entry_id:
            break
        window.append(entry)
    last_id = -1
    for entry in window:
        # Not between entries with one ID: the next call would begin with the first of them again.
        if entry.entry_id != last_id and (attempts <= 0 or taken + len(ghosts) >= count):
            next_start = entry.entry_id
            break
        last_id = entry.entry_id
        attempts -= 1
        found = stream.find_pending(group, entry)
        if found is None:
            ghosts.append(entry)
            continue
        if not _is_idle(place, entry, consumer, ctx.now_ms, min_idle):
            continue
        if not justid and group.gives_up(entry):
            too_often.append(entry)
            continue
        deliveries = (
            entry.delivery_count if justid else min(entry.delivery_count + 1, MAX_DELIVERIES)
        )
        claim.add(found, entry.entry_id, ctx.now_ms, deliveries, justid=justid)
        taken += 1
    claimed = claim.reply()
    if too_often:
        give_up(ctx, GroupPlace(ctx.db.index, key, name, stream, group), too_often, CLAIM)
    if ghosts:
        ctx.emit(_forgotten(ctx, key, name, group, ghosts), len(ghosts))
    return b"".join(
        [
            b"*3\r\n",
            bulk(text(next_start)),
            claimed,
            ctx.reply([text(entry.entry_id) for entry in ghosts]),
        ]
    )


_AUTOCLAIM: Final = {b"COUNT": 1, b"JUSTID": 0}


def _autoclaim_options(args: list[bytes]) -> tuple[int, bool]:
    count = AUTOCLAIM_COUNT
    justid = False
    for name, values in options_of(args[6:], _AUTOCLAIM):
        if name == b"JUSTID":
            justid = True
            continue
        value = integer_or_none(values[0])
        if value is None or not 0 < value <= (1 << 63) // 16 - 1:
            raise CommandError("ERR COUNT must be > 0")
        if value > AUTOCLAIM_COUNT_MAX:
            raise CommandError(
                "ERR Insufficient memory, failed allocating transient memory, COUNT too high."
            )
        count = value
    return count, justid
