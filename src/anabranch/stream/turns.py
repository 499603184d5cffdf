"""Whose turn it is in a group with an order per key, as far as that takes a look at the entries."""

from __future__ import annotations

from functools import partial

from anabranch.stream.groups.group import Group
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.stream import Stream


def settle_order(stream: Stream, group: Group) -> bool:
    """Find out which pending entries of a group with an order have equal keys.

    False if a step was not enough.
    """
    policed = group.policed
    assert policed is not None
    order = policed.order
    assert order is not None
    if group.pending.order is None:
        group.pending.order = order
        order.begin(group.pending.lists)
    if not order.is_settled:
        order.settle(group.pending.lists, partial(_fragment_of, stream, group))
    return order.is_settled


def _fragment_of(stream: Stream, group: Group, entry: PendingEntry) -> bytes | None:
    """The wire bytes of a pending entry, None if it was deleted."""
    found = stream.find_pending(group, entry)
    return None if found is None else bytes(found[1].fragment(found[2]))


def is_ahead(stream: Stream, group: Group, entry: PendingEntry) -> bool:
    """Whether a group with an order will get a pending entry as a new one, in its turn.

    That is so after XGROUP SETID has gone back, and with FORCE.
    """
    progress = group.progress
    if len(stream.logs) == 1 and not entry.number:
        return entry.entry_id > progress.last_delivered_id
    return progress.is_undelivered(stream.logs, entry.entry_id)
