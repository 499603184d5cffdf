"""Pending entries as rows of a reply, written at once as bytes: a group may have millions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from anabranch.stream.entry_id import SEQ_BITS
from anabranch.stream.pending import PendingEntry

__all__ = ["pending_rows"]


def pending_rows(
    entries: Iterable[PendingEntry], tail_of: Callable[[PendingEntry], bytes], fields: int = 4
) -> list[bytes]:
    """An array of ``fields`` for each entry: its ID and what ``tail_of`` writes behind it.

    Neighbours usually have the owner, time and count in common, and the millisecond of the ID: what
    these become is written once.
    """
    rows: list[bytes] = []
    append = rows.append
    owner: object = rows  # nobody's
    time_ms = count = high = base = -1
    tail = prefix = b""
    for entry in entries:
        if (
            entry.consumer is not owner
            or entry.delivery_ms != time_ms
            or entry.delivery_count != count
        ):
            owner, time_ms, count = entry.consumer, entry.delivery_ms, entry.delivery_count
            tail = tail_of(entry)
        entry_id = entry.entry_id
        if entry_id >> SEQ_BITS != high:
            high = entry_id >> SEQ_BITS
            base = high << SEQ_BITS
            prefix = b"%d-" % high
        shown = b"%b%d" % (prefix, entry_id - base)
        append(b"*%d\r\n$%d\r\n%b\r\n%b" % (fields, len(shown), shown, tail))
    return rows
