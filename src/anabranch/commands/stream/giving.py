"""What a reader of a group gets, and that it has it from now on: new entries and pending ones.

Pending entries are claimed (CLAIM), or given to plain reads if a policy says so. What failed too
often is given up instead. All of it is for one stream of a request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.commands.stream.read_request import (
    ReadRequest,
    ReplyBudget,
)
from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace
from anabranch.engine.context import Context
from anabranch.engine.releasing import CLAIM, give_up
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending import MAX_DELIVERIES
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.policy import Policed
from anabranch.stream.stream import Stream
from anabranch.stream.turns import is_ahead

_DELIVER: Final = kinds.Deliver  # a name of an interpreted module is looked up each time

DELIVERY_BYTES = len(b":0\r\n:0\r\n")
"""What CLAIM adds to a new entry in the reply."""

PendingRow = tuple[int, int, int, int]

Plan = tuple[bytes, Stream, Group, int | None]
"""A stream, its group, and behind which ID the consumer reads its history; None: new entries."""

Fresh = dict[int, list[int]]
"""The IDs of new entries by replica ID, ascending."""


def claim(
    ctx: Context,
    plan: Plan,
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


def _taken(
    ctx: Context,
    plan: Plan,
    request: ReadRequest,
    budget: ReplyBudget | None,
    most: int,
    candidates: Iterable[PendingEntry],
) -> tuple[list[bytes], list[PendingRow]]:
    """What of these pending entries the reader gets; what failed too often is given up."""
    key, stream, group, _ = plan
    chunks: list[bytes] = []
    rows: list[PendingRow] = []
    too_often: list[PendingEntry] = []
    for entry in candidates:
        if len(chunks) == most or (budget is not None and budget.exhausted):
            break
        found = stream.find_pending(group, entry)
        if found is None:
            continue  # a ghost stays pending
        if group.gives_up(entry):
            too_often.append(entry)
            continue
        region, block, index = found
        chunk = block.fragment(index)
        if request.claim_ms is not None:
            idle_ms = max(ctx.now_ms - entry.delivery_ms, 0)
            chunk = with_delivery(chunk, idle_ms, entry.delivery_count)
        count = min(entry.delivery_count + 1, MAX_DELIVERIES)
        rows.append((entry.entry_id, region, ctx.now_ms, count))
        if budget is not None:
            budget.spend(len(chunk))
        chunks.append(chunk)
    if too_often:
        give_up(ctx, GroupPlace(ctx.db.index, key, request.group, stream, group), too_often, CLAIM)
    return chunks, rows


def _assign(ctx: Context, plan: Plan, request: ReadRequest, rows: list[PendingRow]) -> None:
    """The consumer has these entries from now on."""
    if rows:
        name, consumer = request.group, request.consumer
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
            if not min_idle_ms or group.is_due(entry, now_ms):
                yield entry
    if group.is_leased and min_idle_ms:
        return  # what a consumer holds is not idle
    oldest_ms = stream.oldest_delivery_ms(group)
    if oldest_ms is None or now_ms - oldest_ms < min_idle_ms:
        return
    for delivery_ms, _, entry in group.pending.oldest_first():
        if now_ms - delivery_ms < min_idle_ms:
            break
        yield entry


def with_delivery(fragment: bytes, idle_ms: int, deliveries: int) -> bytes:
    """An entry as CLAIM replies show it: idle time and delivery count behind the fields."""
    return b"*4\r\n%b:%d\r\n:%d\r\n" % (bytes(fragment[4:]), idle_ms, deliveries)


def within_room(group: Group, request: ReadRequest, limit: int) -> int:
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
    if policed.policy.backoff:
        return _ripe(group, policed, now_ms, most)
    return stream.released(group)


def _ripe(group: Group, policed: Policed, now_ms: int, most: int) -> Iterator[PendingEntry]:
    """Released entries whose delay is over, in the order of its end: so many, if they are there."""
    released = group.pending.released
    for entry in policed.ripen(released, now_ms, most):
        if entry in released and policed.policy.due_ms(entry) <= now_ms:
            yield entry


def _in_order(
    stream: Stream, group: Group, policed: Policed, now_ms: int, most: int
) -> list[PendingEntry]:
    """Released entries whose turn it is, at most so many (-1: any number); they exist."""
    order = policed.order
    assert order is not None
    ripe = policed.ripen(group.pending.released, now_ms, -1)
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


def redeliver(
    ctx: Context,
    plan: Plan,
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
        ids = [row[0] for row in rows]
        ctx.emit(kinds.Acknowledge(ctx.db.index, key, request.group, ids))
    else:
        _assign(ctx, plan, request, rows)
    return chunks


def hand_out(
    ctx: Context, plan: Plan, request: ReadRequest, by_region: Fresh, *, is_pending: bool
) -> None:
    """The consumer has these entries from now on, or has had them with NOACK."""
    key, stream, group, _ = plan
    for region, ids in by_region.items():
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
