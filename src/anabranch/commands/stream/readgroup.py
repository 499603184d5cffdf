"""XREADGROUP: new entries, a consumer's history, and claimed entries of other consumers.

Each stream of the request is treated separately: an explicit ID reads pending entries of this
consumer; ``>`` first claims (with CLAIM), then delivers new entries. If one stream fails, the whole
command fails before anything is delivered. A read that gets nothing has no effect: it sets the time
at which the consumer was seen, as a read sets the access time of a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.commands.stream.group import begin_group
from anabranch.commands.stream.read_request import (
    ReadRequest,
    ReplyBudget,
    is_over,
    parse_read,
    read_reply,
)
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.arguments import id_argument
from anabranch.engine.context import Context
from anabranch.engine.holding import use_name
from anabranch.engine.homing import check_home
from anabranch.engine.releasing import CLAIM, Whose, acknowledge, give_up, gives_up
from anabranch.errors import CommandError
from anabranch.keyspace.values import Value
from anabranch.keyspace.waiter import Condition
from anabranch.pattern import compile_glob
from anabranch.resp.encode import bulk, null_array
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import MAX_ID, text
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.ordering import Ordering
from anabranch.stream.groups.pending import MAX_DELIVERIES
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer
from anabranch.stream.groups.policy import Policed
from anabranch.stream.packed_ids import between
from anabranch.stream.region_log import Span
from anabranch.stream.stream import Stream
from anabranch.stream.turns import is_ahead, settle_order

_MEANINGLESS = (
    "ERR The {0} ID is meaningless in the context of XREADGROUP: you want to read the history of "
    "this consumer by specifying a proper ID, or use the > ID to get new messages. The {0} ID "
    "would just return an empty result set."
)

_DELIVER: Final = kinds.Deliver  # a name of an interpreted module is looked up each time
_CREATE_CONSUMER: Final = kinds.CreateConsumer

_DELIVERY_BYTES = len(b":0\r\n:0\r\n")
"""What CLAIM adds to a new entry in the reply."""

_WAITING_AT_ONCE: Final = 1000
"""Entries that one read lets wait: some milliseconds."""

_SORTED: Final = 500
"""Entries that are sorted by age in one step: half a millisecond."""

_Served = list[tuple[bytes, list[bytes], int]]
_Row = tuple[int, int, int, int]


def xreadgroup(ctx: Context, args: list[bytes]) -> bytes | None:
    """Read as a consumer of a group; may wait for new entries."""
    if ctx.waiter is None:
        request = parse_read(args, grouped=True, now_ms=ctx.now_ms)
    else:
        request = ctx.waiter.request
    name = request.group
    assert name is not None
    if request.claim_ms is not None and ctx.waiter is None and _has_unsorted(ctx, request):
        prepared = ctx.in_slices(args, _sorted_by_age(ctx, request))
        if prepared is None:
            return None
    plans = _plans(ctx, request, name)
    for consumer in request.visited:
        consumer.seen_ms = ctx.now_ms
    budget = ReplyBudget(request) if request.is_limited else None
    served: _Served = []
    for key, stream, group, after in plans:
        if budget is not None and budget.exhausted:
            break
        is_new = request.consumer not in group.consumers
        if is_new:  # on its first read, even if it gets nothing
            ctx.emit(_CREATE_CONSUMER(ctx.db.index, key, name, request.consumer, ctx.now_ms))
            ctx.changes += 1
        consumer = group.consumers[request.consumer]
        consumer.seen_ms = ctx.now_ms
        policed = group.policed
        if policed is not None and ctx.waiter is None:
            use_name(ctx, key, name, group, request.consumer)
        chunks: list[bytes] = []
        count = 0
        if after is not None:
            chunks, count = _history(ctx, key, stream, group, request, after, budget)
        elif not is_new or request.claim_ms is not None or _may_have(stream, group):
            chunks, count = _deliver(ctx, key, stream, group, request, budget)
        if after is None and not count:
            if ctx.waiter is None:
                request.visited.append(consumer)
            continue
        if policed is not None and ctx.waiter is not None:  # waiting was no sign of life
            use_name(ctx, key, name, group, request.consumer)
        served.append((key, chunks, count))
    if served:
        return read_reply(ctx, served)
    if request.block_ms is None or ctx.in_exec or is_over(ctx, request.keys):
        return null_array(ctx.resp3)
    ctx.block(
        request.keys,
        args,
        request.deadline_ms(ctx.now_ms),
        _News(name, ctx.replica.region, claims=request.claim_ms is not None),
        null_array(ctx.resp3),
        fails_without_key=True,
        recheck_ms=_next_look(ctx, plans, request),
        request=request,
    )
    return None


_Plan = tuple[bytes, Stream, Group, int | None]
"""A stream, its group, and behind which ID the consumer reads its history; None: new entries."""


def _plans(ctx: Context, request: ReadRequest, name: bytes) -> list[_Plan]:
    """What is to be read; fails if a stream or group is missing, before anything is delivered.

    Of many streams, nearly all have nothing for the group as a rule. If a visit is all there is to
    record, ``visited`` of the request gets the consumer, and there is no plan. If the command runs
    again, only streams that have changed are looked at; those with CLAIM wait for time as well.
    """
    plans: list[_Plan] = []
    absent: dict[bytes, int | None] = {}  # where a group begins that a policy makes
    consumer = request.consumer
    visited: list[Consumer] = []
    is_wide = len(request.keys) > 1 and request.claim_ms is None and not request.is_limited
    keys, ids = request.keys, request.ids
    if ctx.waiter is not None and request.claim_ms is None:
        places = ctx.waiter.places(keys)
        keys, ids = [keys[at] for at in places], [ids[at] for at in places]
    for at in range(len(keys)):  # machine code needs no tuple for it
        key, raw = keys[at], ids[at]
        stream = ctx.read_stream(key)
        group = None if stream is None else stream.groups.get(name)
        after = None
        if stream is None or group is None:
            absent[key] = _start_of_absent(ctx, key, name)
        if raw != b">":
            after = _history_start(raw)
        if stream is None or group is None:
            continue
        if group.policed is not None or ctx.db.policies.rebinding is not None:
            check_home(ctx, key, name, group)
        known = group.consumers.get(consumer) if is_wide and after is None else None
        if known is not None and not _has_for(stream, group):
            visited.append(known)
            if group.policed is not None and ctx.waiter is None:
                use_name(ctx, key, name, group, consumer)
        else:
            plans.append((key, stream, group, after))
    if absent:
        for key, start in absent.items():
            begin_group(ctx, key, name, start)
            ctx.stats.policy_created_groups += 1
        return _plans(ctx, request, name)
    if ctx.waiter is None:
        request.visited = visited
    ctx.stats.keyspace_hits += len(keys)  # Redis looks twice, and counts both
    return plans


def _start_of_absent(ctx: Context, key: bytes, name: bytes) -> int | None:
    """Where ``auto-create-group`` lets a missing group begin, None for ``$``; NOGROUP without."""
    if ctx.db.policies.rules:
        made = ctx.db.policies.of_stream(key).get("auto-create-group")
        if made is not None and made.name:
            matches = compile_glob(made.name.encode("utf-8", "surrogateescape"))
            if matches(name):
                return None if made.is_new_only else 0
    raise CommandError(
        b"NOGROUP No such key '%b' or consumer group '%b' in XREADGROUP with GROUP option"
        % (texts.shown(key), texts.shown(name))
    )


def _has_for(stream: Stream, group: Group) -> bool:
    """Whether a plain read may get something."""
    policed = group.policed
    if policed is not None and (order := policed.order) is not None:
        if not settle_order(stream, group) or policed.ripe or order.must_look:
            return True
        return not order.stuck and stream.has_for(group)
    if stream.has_for(group):
        return True
    if policed is None or not policed.policy.redelivers:
        return False
    return bool(policed.ripe if policed.policy.backoff else group.pending.released)


def _may_have(stream: Stream, group: Group) -> bool:
    """The same, and a delay of an order per key may have ended since somebody looked."""
    policed = group.policed
    return (policed is not None and policed.order is not None) or _has_for(stream, group)


def _history_start(raw: bytes) -> int | None:
    """Behind which ID the history is read; None for the greatest ID, which means ``>``."""
    if raw in (b"$", b"+"):
        raise CommandError(_MEANINGLESS.format(raw.decode()))
    beyond = id_argument(raw)
    return None if beyond == MAX_ID else beyond


class _News:
    """The condition of a blocked reader: there is something that its group must deliver.

    All readers of a group have the same: of many only as many run again as there is work for. It
    must be reported that the key or the group is missing, or that its home is another region.
    Readers that claim look whenever something happens.
    """

    __slots__ = ("_claims", "_name", "_region")

    def __init__(self, name: bytes, region: int, *, claims: bool) -> None:
        self._name = name
        self._region = region
        self._claims = claims

    def __hash__(self) -> int:
        return hash(self._name)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _News) and other._name == self._name and other._claims == self._claims
        )

    def __call__(self, value: Value | None) -> bool:
        """Whether running the command again can end the wait."""
        if type(value) is not Stream:
            return True
        group = value.groups.get(self._name)
        return (
            group is None
            or self._claims
            or value.is_sealed
            or _has_for(value, group)
            or (group.policed is not None and group.is_away(self._region))
        )


# -- history ----------------------------------------------------------------------------------


def _history(
    ctx: Context,
    key: bytes,
    stream: Stream,
    group: Group,
    request: ReadRequest,
    after: int,
    budget: ReplyBudget | None,
) -> tuple[list[bytes], int]:
    """Pending entries of this consumer behind an ID; a deleted one is ``[id, null]``."""
    consumer = group.consumers[request.consumer]
    chunks: list[bytes] = []
    rows: list[_Row] = []
    if budget is not None:
        budget.begin_stream(key)
    last_id = -1
    for entry in consumer.between(after + 1, MAX_ID):
        is_full = 0 < request.count <= len(chunks) or (budget is not None and budget.exhausted)
        if is_full and entry.entry_id != last_id:
            break  # not between entries with one ID: the next call would skip the second
        last_id = entry.entry_id
        found = stream.find_pending(group, entry)
        if found is None:
            chunk: bytes = b"*2\r\n%b%b" % (
                bulk(text(entry.entry_id)),
                null_array(ctx.resp3),
            )
        else:
            region, block, index = found
            chunk = block.fragment(index)
            count = min(entry.delivery_count + 1, MAX_DELIVERIES)
            rows.append((entry.entry_id, region, ctx.now_ms, count))
        if budget is not None:
            budget.spend(len(chunk))
        chunks.append(chunk)
    if rows:
        assert request.group is not None
        ctx.emit(kinds.Assign(ctx.db.index, key, request.group, request.consumer, rows, ctx.now_ms))
    return chunks, len(chunks)


# -- claiming ---------------------------------------------------------------------------------


def _claim(
    ctx: Context,
    plan: _Plan,
    request: ReadRequest,
    budget: ReplyBudget | None,
    most: int,
) -> list[bytes]:
    """Released entries in NACK order, then entries idle for long enough, the oldest first."""
    _, stream, group, _ = plan
    candidates = _claimable(stream, group, ctx.now_ms, request.claim_ms or 0, most)
    chunks, rows = _taken(ctx, plan, request, budget, most, candidates)
    _assign(ctx, plan, request, rows)
    return chunks


def _has_unsorted(ctx: Context, request: ReadRequest) -> bool:
    """Whether a group has many pending entries that are not sorted by their age."""
    return any(
        each.pending.count > _SORTED and not each.pending.is_sorted
        for each in _groups(ctx, request)
    )


def _groups(ctx: Context, request: ReadRequest) -> Iterator[Group]:
    """The groups of a request that are there."""
    for key in request.keys:
        stream = ctx.db.values.get(key)
        if type(stream) is Stream and request.group in stream.groups:
            yield stream.groups[request.group]


def _sorted_by_age(ctx: Context, request: ReadRequest) -> Steps[list[bytes]]:
    """Sort all pending entries of the groups by their age, some at a time."""
    while _has_unsorted(ctx, request):
        for group in _groups(ctx, request):
            group.pending.sort_some(_SORTED)
        yield
    return []


def _taken(
    ctx: Context,
    plan: _Plan,
    request: ReadRequest,
    budget: ReplyBudget | None,
    most: int,
    candidates: Iterable[PendingEntry],
) -> tuple[list[bytes], list[_Row]]:
    """What of these pending entries the reader gets; what failed too often is given up."""
    key, stream, group, _ = plan
    chunks: list[bytes] = []
    rows: list[_Row] = []
    too_often: list[PendingEntry] = []
    for entry in candidates:
        if len(chunks) == most or (budget is not None and budget.exhausted):
            break
        found = stream.find_pending(group, entry)
        if found is None:
            continue  # a ghost stays pending
        if group.policed is not None and gives_up(group, entry):
            too_often.append(entry)
            continue
        region, block, index = found
        chunk = block.fragment(index)
        if request.claim_ms is not None:
            idle_ms = max(ctx.now_ms - entry.delivery_ms, 0)
            chunk = _with_delivery(chunk, idle_ms, entry.delivery_count)
        count = min(entry.delivery_count + 1, MAX_DELIVERIES)
        rows.append((entry.entry_id, region, ctx.now_ms, count))
        if budget is not None:
            budget.spend(len(chunk))
        chunks.append(chunk)
    if too_often:
        assert request.group is not None
        give_up(ctx, Whose(ctx.db.index, key, request.group, group), too_often, CLAIM)
    return chunks, rows


def _assign(ctx: Context, plan: _Plan, request: ReadRequest, rows: list[_Row]) -> None:
    """The consumer has these entries from now on."""
    if rows:
        name, consumer = request.group, request.consumer
        assert name is not None
        ctx.emit(kinds.Assign(ctx.db.index, plan[0], name, consumer, rows, ctx.now_ms, active=True))


def _claimable(
    stream: Stream, group: Group, now_ms: int, min_idle_ms: int, most: int
) -> Iterator[PendingEntry]:
    """Candidates in the order in which CLAIM serves them. Nothing must change meanwhile.

    With an order per key there are at most so many released ones.
    """
    policed = group.policed
    if policed is not None and policed.order is not None:
        yield from _in_order(stream, group, policed, now_ms, most)
    else:
        for entry in stream.released(group):
            if not min_idle_ms or _is_due(group, entry, now_ms):
                yield entry
    if _is_leased(group) and min_idle_ms:
        return  # what a consumer holds is not idle
    oldest_ms = stream.oldest_delivery_ms(group)
    if oldest_ms is None or now_ms - oldest_ms < min_idle_ms:
        return
    for delivery_ms, _, entry in group.pending.oldest_first():
        if now_ms - delivery_ms < min_idle_ms:
            break
        yield entry


def _is_due(group: Group, entry: PendingEntry, now_ms: int) -> bool:
    """Whether a released entry has not to wait for its backoff."""
    return group.policed is None or group.policed.policy.due_ms(entry) <= now_ms


def _is_leased(group: Group) -> bool:
    return group.policed is not None and bool(group.policed.policy.lease.mode)


def _with_delivery(fragment: bytes, idle_ms: int, deliveries: int) -> bytes:
    """An entry as CLAIM replies show it: idle time and delivery count behind the fields."""
    return b"*4\r\n%b:%d\r\n:%d\r\n" % (bytes(fragment[4:]), idle_ms, deliveries)


def _next_look(ctx: Context, plans: list[_Plan], request: ReadRequest) -> int:
    """The time at which a blocked reader must look again, 0 for never."""
    found = _next_claim(ctx, plans, request)
    for _, _, group, _ in plans:
        at_ms = next_turn_ms(group, ctx.now_ms)
        if at_ms:
            found = min(found or at_ms, at_ms)
    return found


def next_turn_ms(group: Group, now_ms: int) -> int:
    """The time at which a reader that got nothing must look again although nothing happens.

    With an order per key a read may have left something to do, or time decides whose turn it is.
    0: never.
    """
    policed = group.policed
    if policed is None or policed.order is None:
        return 0
    at_ms = now_ms if policed.order.must_look else policed.next_due_ms()
    return 0 if at_ms is None else max(at_ms, now_ms + 1)


def _next_claim(ctx: Context, plans: list[_Plan], request: ReadRequest) -> int:
    """The time at which a reader with CLAIM must look again, 0 for never.

    A pending entry may reach the idle time before anything else happens. If nothing is pending, an
    entry may become pending now and reach it after the whole idle time.
    """
    if request.claim_ms is None:
        return 0
    oldest = [
        stream.oldest_delivery_ms(group)
        for _, stream, group, _ in plans
        if not (_is_leased(group) and request.claim_ms)
    ]
    if not oldest:  # what is released wakes the reader
        return 0
    first = min((each for each in oldest if each is not None), default=ctx.now_ms)
    return max(first + request.claim_ms, ctx.now_ms) + 1


# -- new entries ------------------------------------------------------------------------------


def _within_room(group: Group, request: ReadRequest, limit: int) -> int:
    """How many entries ``max-pending`` leaves of a limit; -1 is any number."""
    policed = group.policed
    if policed is None or not policed.policy.room.most or request.noack:
        return limit
    if policed.policy.room.is_group:
        used = group.pending.count - len(group.pending.released)
    else:
        used = group.consumers[request.consumer].pending_count
    left = max(policed.policy.room.most - used, 0)
    return left if limit < 0 else min(left, limit)


def _redeliverable(
    stream: Stream, group: Group, policed: Policed, now_ms: int, most: int
) -> Iterable[PendingEntry]:
    """Released entries as plain reads get them. Nothing must change meanwhile."""
    if policed.order is not None:
        return _in_order(stream, group, policed, now_ms, most)
    return _ripe(group, policed, now_ms) if policed.policy.backoff else stream.released(group)


def _ripe(group: Group, policed: Policed, now_ms: int) -> Iterator[PendingEntry]:
    """Released entries whose delay is over, in the order of its end."""
    released = group.pending.released
    for entry in policed.ripen(released, now_ms):
        if entry in released and policed.policy.due_ms(entry) <= now_ms:
            yield entry


def _in_order(
    stream: Stream, group: Group, policed: Policed, now_ms: int, most: int
) -> list[PendingEntry]:
    """Released entries whose turn it is, at most so many (-1: any number); they exist."""
    order = policed.order
    assert order is not None
    ripe = policed.ripen(group.pending.released, now_ms)
    while True:
        found: list[PendingEntry] = []
        gone: list[PendingEntry] = []
        for entry in ripe:
            if len(found) == most:
                break
            if policed.policy.due_ms(entry) > now_ms:
                continue
            if stream.find_pending(group, entry) is None:
                gone.append(entry)
            elif not is_ahead(stream, group, entry):
                found.append(entry)
        if not gone:
            return found
        order.deleted(gone)


def _forget_deleted(ctx: Context, plan: _Plan, request: ReadRequest, order: Ordering) -> None:
    """Acknowledge deleted entries that no consumer has: nobody else would, as nobody gets them."""
    key, stream, group, _ = plan
    while order.suspects:
        suspects = list(order.suspects)
        order.suspects.clear()
        order.deleted([each for each in suspects if stream.find_pending(group, each) is None])
    gone = [
        entry
        for entry in dict.fromkeys(order.gone)
        if entry in group.pending.released and stream.find_pending(group, entry) is None
    ]
    order.gone.clear()
    order.stuck = False
    if gone:
        assert request.group is not None
        acknowledge(ctx, Whose(ctx.db.index, key, request.group, group), gone)


def _redeliver(
    ctx: Context,
    plan: _Plan,
    request: ReadRequest,
    budget: ReplyBudget | None,
    most: int,
    *,
    is_rest: bool = False,
) -> list[bytes]:
    """Released entries in the order of release, if a policy gives them to plain reads.

    With NOACK they are acknowledged at once, as new entries are. ``is_rest``: what is new has had
    its share.
    """
    key, stream, group, _ = plan
    policed = group.policed
    if policed is None or not policed.policy.redelivers or not group.pending.released:
        return []
    if most < 0:
        most = request.maxcount or -1
    if most > 0 and not is_rest and stream.has_for(group):
        new = sum(high - low for _, (_, low, high) in stream.spans_for(group, most))
        most = policed.share(most, new)
    if not most:
        return []
    candidates = _redeliverable(stream, group, policed, ctx.now_ms, most)
    chunks, rows = _taken(ctx, plan, request, budget, most, candidates)
    ctx.stats.policy_redelivered += len(rows)
    if rows and request.noack:
        assert request.group is not None
        ids = [row[0] for row in rows]
        ctx.emit(kinds.Acknowledge(ctx.db.index, key, request.group, ids))
    else:
        _assign(ctx, plan, request, rows)
    return chunks


_Fresh = dict[int, list[int]]
"""The IDs of new entries by replica ID, ascending."""


def _hand_out(
    ctx: Context, plan: _Plan, request: ReadRequest, by_region: _Fresh, *, is_pending: bool
) -> None:
    """The consumer has these entries from now on, or has had them with NOACK."""
    key, stream, group, _ = plan
    for region, ids in by_region.items():
        assert request.group is not None
        ctx.emit(
            _DELIVER(
                ctx.db.index,
                key,
                request.group,
                request.consumer,
                region,
                ids,
                ctx.now_ms,
                group.progress.entries_read_after(stream, ids),
                is_pending,
            )
        )


def _new_in_order(
    ctx: Context, plan: _Plan, request: ReadRequest, budget: ReplyBudget | None, limit: int
) -> list[bytes]:
    """New entries that wait for no other one of their key.

    Those before them that do are pending without a consumer from now on.
    """
    key, stream, group, _ = plan
    sorting = _Sorting(group, request)
    if limit and not (budget is not None and budget.exhausted):
        for region, (block, low, high) in stream.spans_for(group):
            if not sorting.take(region, (block, low, high), budget, limit):
                break
    by_region, waiting = sorting.by_region, sorting.waiting
    if not by_region:
        return []
    _hand_out(ctx, plan, request, by_region, is_pending=not request.noack or bool(waiting))
    if waiting:
        assert request.group is not None
        ctx.emit(kinds.Assign(ctx.db.index, key, request.group, None, waiting))
        ctx.changes += 1
        if request.noack:
            pending = group.pending
            found = [pending.lists[region].entries[each] for region, each in sorting.given]
            acknowledge(ctx, Whose(ctx.db.index, key, request.group, group), found)
    sorting.order.settle_as(group.pending.lists, sorting.keys)
    return sorting.chunks


class _Sorting:
    """The new entries of one read: those that are given, and those that have to wait."""

    __slots__ = (
        *("_group", "_request", "_room", "_taken"),
        *("by_region", "chunks", "given", "keys", "order", "waiting"),
    )

    def __init__(self, group: Group, request: ReadRequest) -> None:
        policed = group.policed
        assert policed is not None
        assert policed.order is not None
        self._group = group
        self._request = request
        self.order = policed.order
        self._room = policed.policy.waiting_max - len(group.pending.released)
        self._taken: set[bytes] = set()
        self.by_region: _Fresh = {}
        self.chunks: list[bytes] = []
        self.given: list[tuple[int, int]] = []
        self.keys: dict[int, list[bytes | None]] = {}
        self.waiting: list[_Row] = []

    def take(self, region: int, span: Span, budget: ReplyBudget | None, limit: int) -> bool:
        """Take the entries of a span; False if the read is over."""
        block, low, high = span
        order = self.order
        is_claim, noack = self._request.claim_ms is not None, self._request.noack
        ids = self.by_region.setdefault(region, [])
        keys = self.keys.setdefault(region, [])
        for index in range(low, high):
            if len(self.chunks) == limit:
                break
            fragment = bytes(block.fragment(index))
            entry_id = block.ids[index]
            key = order.key_of(fragment)
            if key is not None and self._must_wait(region, entry_id, key):
                if not self._may_wait():
                    break
                self.waiting.append((entry_id, region, 0, 0))
                self._taken.add(key)
            else:
                extra = _DELIVERY_BYTES if is_claim else 0
                if budget is not None and budget.cut(block, index, index + 1, extra) == index:
                    break
                if key is not None and not noack:
                    self._taken.add(key)
                self.chunks.append(_with_delivery(fragment, 0, 0) if is_claim else fragment)
                if noack:
                    self.given.append((region, entry_id))
            ids.append(entry_id)
            keys.append(key)
        else:
            return True
        if not ids:
            del self.by_region[region]
        return False

    def _must_wait(self, region: int, entry_id: int, key: bytes) -> bool:
        """Whether it is not the turn of a new entry."""
        if key in self._taken:
            return True
        if self.order.is_free(key):
            return False
        pending = self._group.pending.lists.get(region)
        known = None if pending is None else pending.get(entry_id)
        return not self.order.admits(key, entry_id, known)

    def _may_wait(self) -> bool:
        """Whether one more may wait."""
        waiting, order = len(self.waiting), self.order
        order.stuck = waiting >= self._room
        order.must_look = not order.stuck and waiting >= _WAITING_AT_ONCE
        return not order.stuck and not order.must_look


def _deliver_in_order(
    ctx: Context, plan: _Plan, request: ReadRequest, budget: ReplyBudget | None
) -> list[bytes]:
    """What :func:`_deliver` gives, of each key one entry."""
    _, stream, group, _ = plan
    policed = group.policed
    assert policed is not None
    assert policed.order is not None
    order = policed.order
    order.must_look = not settle_order(stream, group)
    chunks: list[bytes] = []
    while not order.must_look:
        _forget_deleted(ctx, plan, request, order)
        limit = _within_room(group, request, request.count)
        if not limit:
            break
        give = _redeliver if request.claim_ms is None else _claim
        chunks = give(ctx, plan, request, budget, limit)
        left = limit - len(chunks) if limit > 0 else limit
        chunks += _new_in_order(ctx, plan, request, budget, left)
        if limit > len(chunks) and request.claim_ms is None:
            left = limit - len(chunks)
            chunks += _redeliver(ctx, plan, request, budget, left, is_rest=True)
        if chunks or not order.gone:  # otherwise what is gone has let others go
            order.must_look |= bool(order.gone)
            break
    ctx.changes += len(chunks) > 0
    return chunks


def _deliver(
    ctx: Context,
    key: bytes,
    stream: Stream,
    group: Group,
    request: ReadRequest,
    budget: ReplyBudget | None,
) -> tuple[list[bytes], int]:
    """Claimed entries if requested, then new ones, together at most COUNT."""
    chunks: list[bytes] = []
    if budget is not None:
        budget.begin_stream(key)
    limit = request.count
    policed = group.policed
    if policed is not None:
        if policed.order is not None:
            chunks = _deliver_in_order(ctx, (key, stream, group, None), request, budget)
            return chunks, len(chunks)
        limit = _within_room(group, request, limit)
        if not limit:
            return [], 0
    if request.claim_ms is not None:
        chunks = _claim(ctx, (key, stream, group, None), request, budget, limit)
    elif policed is not None:
        chunks = _redeliver(ctx, (key, stream, group, None), request, budget, limit)
    if limit > 0:
        limit -= len(chunks)
    count = len(chunks)
    extra = 0 if request.claim_ms is None else _DELIVERY_BYTES
    by_region: _Fresh = {}
    for region, (block, low, span_high) in stream.spans_for(group, limit):
        high = span_high if budget is None else budget.cut(block, low, span_high, extra)
        if high > low:
            count += high - low
            ids = by_region.get(region)
            if ids is None:
                by_region[region] = between(block.ids, low, high)
            else:
                ids += between(block.ids, low, high)
            if request.claim_ms is None:
                chunks.append(block.slice(low, high))
            else:
                chunks += [_with_delivery(block.fragment(i), 0, 0) for i in range(low, high)]
        if high < span_high:
            break
    if by_region:
        plan = key, stream, group, None
        _hand_out(ctx, plan, request, by_region, is_pending=not request.noack)
    if chunks:
        ctx.changes += 1
    return chunks, count


def news_of(name: bytes, region: int) -> Condition:
    """The condition of those who wait for what a group must deliver."""
    return _News(name, region, claims=False)


def check_groups(ctx: Context, request: ReadRequest) -> None:
    """Make groups that a policy makes; CommandError if another stream or group is missing."""
    assert request.group is not None
    _plans(ctx, request, request.group)
