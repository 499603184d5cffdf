"""XREADGROUP: new entries, a consumer's history, and claimed entries of other consumers.

Each stream of the request is treated separately: an explicit ID reads pending entries of this
consumer; ``>`` first claims (with CLAIM), then delivers new entries. If one stream fails, the whole
command fails before anything is delivered. A read that gets nothing has no effect: it sets the time
at which the consumer was seen, as a read sets the access time of a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from anabranch.commands.stream.giving import (
    DELIVERY_BYTES,
    Fresh,
    PendingRow,
    Plan,
    claim,
    hand_out,
    redeliver,
    with_delivery,
    within_room,
)
from anabranch.commands.stream.group import begin_group
from anabranch.commands.stream.key_order import deliver_in_order
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
from anabranch.errors import CommandError
from anabranch.keyspace.values import Value
from anabranch.keyspace.waiter import Condition
from anabranch.pattern import compile_glob
from anabranch.resp.encode import bulk, null_array
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import MAX_ID, text
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending import MAX_DELIVERIES
from anabranch.stream.groups.pending_list import Consumer
from anabranch.stream.packed_ids import between
from anabranch.stream.stream import Stream
from anabranch.stream.turns import settle_order

_MEANINGLESS = (
    "ERR The {0} ID is meaningless in the context of XREADGROUP: you want to read the history of "
    "this consumer by specifying a proper ID, or use the > ID to get new messages. The {0} ID "
    "would just return an empty result set."
)

_CREATE_CONSUMER: Final = kinds.CreateConsumer


_SORTED: Final = 500
"""Entries that are sorted by age in one step: half a millisecond."""

_Served = list[tuple[bytes, list[bytes], int]]


def xreadgroup(ctx: Context, args: list[bytes]) -> bytes | None:
    """Read as a consumer of a group; may wait for new entries."""
    if ctx.waiter is None:
        request = parse_read(args, grouped=True, now_ms=ctx.now_ms)
    else:
        request = ctx.waiter.request
    name = request.group
    if request.claim_ms is not None and ctx.waiter is None and _has_unsorted(ctx, request):
        prepared = ctx.in_slices(args, _sorted_by_age(ctx, request))
        if prepared is None:
            return None
    plans = _plans(ctx, request, name)
    for visitor in request.visited:
        visitor.seen_ms = ctx.now_ms
    budget = ReplyBudget(request) if request.is_limited else None
    served: _Served = []
    for key, stream, group, after in plans:
        if budget is not None and budget.exhausted:
            break
        consumer = group.consumers.get(request.consumer)
        is_new = consumer is None
        if consumer is None:  # on its first read, even if it gets nothing
            ctx.emit(_CREATE_CONSUMER(ctx.db.index, key, name, request.consumer, ctx.now_ms), 1)
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
        request.block_ms,
        _News(name, ctx.replica.region, claims=request.claim_ms is not None),
        null_array(ctx.resp3),
        fails_without_key=True,
        recheck_ms=_next_look(ctx, plans, request),
        request=request,
    )
    return None


def _plans(ctx: Context, request: ReadRequest, name: bytes) -> list[Plan]:
    """What is to be read; fails if a stream or group is missing, before anything is delivered.

    Of many streams, nearly all have nothing for the group as a rule. If a visit is all there is to
    record, ``visited`` of the request gets the consumer, and there is no plan. If the command runs
    again, only streams that have changed are looked at; those with CLAIM wait for time as well.
    """
    plans: list[Plan] = []
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
        if group.policed is not None or ctx.db.policies.is_rebinding:
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
    """Whether a read may find something: a delay may have ended that nobody has looked at."""
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
    rows: list[PendingRow] = []
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
        ctx.emit(kinds.Assign(ctx.db.index, key, request.group, request.consumer, rows, ctx.now_ms))
    return chunks, len(chunks)


# -- before claims, and when to look again -----------------------------------------------------


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


def _next_look(ctx: Context, plans: list[Plan], request: ReadRequest) -> int:
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


def _next_claim(ctx: Context, plans: list[Plan], request: ReadRequest) -> int:
    """The time at which a reader with CLAIM must look again, 0 for never.

    A pending entry may reach the idle time before anything else happens. If nothing is pending, an
    entry may become pending now and reach it after the whole idle time.
    """
    if request.claim_ms is None:
        return 0
    oldest = [
        stream.oldest_delivery_ms(group)
        for _, stream, group, _ in plans
        if not (group.is_leased and request.claim_ms)
    ]
    if not oldest:  # what is released wakes the reader
        return 0
    first = min((each for each in oldest if each is not None), default=ctx.now_ms)
    return max(first + request.claim_ms, ctx.now_ms) + 1


# -- new entries ------------------------------------------------------------------------------


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
            chunks = deliver_in_order(ctx, (key, stream, group, None), request, budget)
            return chunks, len(chunks)
        limit = within_room(group, request, limit)
        if not limit:
            return [], 0
    if request.claim_ms is not None:
        chunks = claim(ctx, (key, stream, group, None), request, budget, limit)
    elif policed is not None:
        chunks = redeliver(ctx, (key, stream, group, None), request, budget, limit)
    if limit > 0:
        limit -= len(chunks)
    count = len(chunks)
    extra = 0 if request.claim_ms is None else DELIVERY_BYTES
    by_region: Fresh = {}
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
                chunks += [with_delivery(block.fragment(i), 0, 0) for i in range(low, high)]
        if high < span_high:
            break
    if by_region:
        plan = key, stream, group, None
        hand_out(ctx, plan, request, by_region, is_pending=not request.noack)
    if chunks:
        ctx.changes += 1
    return chunks, count


def news_of(name: bytes, region: int) -> Condition:
    """The condition of those who wait for what a group must deliver."""
    return _News(name, region, claims=False)


def check_groups(ctx: Context, request: ReadRequest) -> None:
    """Make groups that a policy makes; CommandError if another stream or group is missing."""
    _plans(ctx, request, request.group)
