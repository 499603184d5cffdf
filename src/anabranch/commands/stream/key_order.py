"""Reading as a consumer of a group with an order per key (``key-field``): of each key one entry.

New entries that must wait for an earlier one of their key become pending without a consumer, and
are given like others that were released, when it is their turn (:mod:`anabranch.stream.turns`).
"""

from __future__ import annotations

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
from anabranch.commands.stream.read_request import (
    ReadRequest,
    ReplyBudget,
)
from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace
from anabranch.engine.context import Context
from anabranch.engine.releasing import acknowledge
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.ordering import Ordering
from anabranch.stream.region_log import Span
from anabranch.stream.turns import settle_order

_WAITING_AT_ONCE: Final = 1000
"""Entries that one read lets wait: some milliseconds."""


def _forget_deleted(ctx: Context, plan: Plan, request: ReadRequest, order: Ordering) -> None:
    """Acknowledge deleted entries that no consumer has: nobody else would, as nobody gets them."""
    key, stream, group, _ = plan
    released = group.pending.released
    while order.suspects:
        suspects = [each for each in order.suspects if each in released]
        order.suspects.clear()
        order.deleted([each for each in suspects if stream.find_pending(group, each) is None])
    gone = [
        entry
        for entry in dict.fromkeys(order.gone)
        if entry in released and stream.find_pending(group, entry) is None
    ]
    order.gone.clear()
    order.stuck = False
    if gone:
        acknowledge(ctx, GroupPlace(ctx.db.index, key, request.group, stream, group), gone)


def _new_in_order(
    ctx: Context, plan: Plan, request: ReadRequest, budget: ReplyBudget | None, limit: int
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
    hand_out(ctx, plan, request, by_region, is_pending=not request.noack or bool(waiting))
    if waiting:
        ctx.emit(kinds.Assign(ctx.db.index, key, request.group, None, waiting), 1)
        if request.noack:
            pending = group.pending
            found = [pending.lists[region].entries[each] for region, each in sorting.given]
            acknowledge(ctx, GroupPlace(ctx.db.index, key, request.group, stream, group), found)
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
        self.by_region: Fresh = {}
        self.chunks: list[bytes] = []
        self.given: list[tuple[int, int]] = []
        self.keys: dict[int, list[bytes | None]] = {}
        self.waiting: list[PendingRow] = []

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
                extra = DELIVERY_BYTES if is_claim else 0
                if budget is not None and budget.cut(block, index, index + 1, extra) == index:
                    break
                if key is not None and not noack:
                    self._taken.add(key)
                self.chunks.append(with_delivery(fragment, 0, 0) if is_claim else fragment)
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


def deliver_in_order(
    ctx: Context, plan: Plan, request: ReadRequest, budget: ReplyBudget | None
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
        limit = within_room(group, request, request.count)
        if not limit:
            break
        give = redeliver if request.claim_ms is None else claim
        chunks = give(ctx, plan, request, budget, limit)
        left = limit - len(chunks) if limit > 0 else limit
        chunks += _new_in_order(ctx, plan, request, budget, left)
        if limit > len(chunks) and request.claim_ms is None:
            left = limit - len(chunks)
            chunks += redeliver(ctx, plan, request, budget, left, is_rest=True)
        if chunks or not order.gone:  # otherwise what is gone has let others go
            order.must_look |= bool(order.gone)
            break
    ctx.changes += len(chunks) > 0
    return chunks
