"""Where a group stands: logical positions of IDs and lag, by Redis's rules.

``entries_read`` is a logical position ("how many entries had ever been added up to the group's
last-delivered-id"), or None when unknown. Tombstones make positions uncertain; the rules below
say exactly when, and clients' test-suites assert the resulting nulls, so they are kept as they
are although the log could count exactly. Source: docs/counters-and-lag.md.
"""

from __future__ import annotations

from collections.abc import Sequence

from anabranch.stream.group import Group
from anabranch.stream.stream import Stream

__all__ = ["counted_read", "entries_read", "entries_read_after", "estimate", "exact_lag", "lag"]


def estimate(stream: Stream, entry_id: int) -> int | None:
    """Logical position of an ID, None when it cannot be known."""
    added = stream.entries_added
    if not added:
        return 0
    if not stream.length and entry_id <= stream.last_id:
        return added
    deleted = stream.max_deleted_id
    if entry_id and entry_id < deleted:
        return None
    if entry_id == stream.last_id:
        return added
    if entry_id > stream.last_id:
        return None
    first = stream.first_id
    if not deleted or deleted < first:
        if entry_id < first:
            return added - stream.length
        if entry_id == first:
            return added - stream.length + 1
    return None


def _tombstone_from(stream: Stream, entry_id: int) -> bool:
    """Whether an explicit deletion may lie at or after ``entry_id``."""
    return bool(stream.length and stream.max_deleted_id and entry_id <= stream.max_deleted_id)


def entries_read_after(stream: Stream, group: Group, delivered: Sequence[int]) -> int | None:
    """The group's entries-read once it has been given the new entries ``delivered``.

    Never more than was added, although XSETID may have lowered that: lag is not negative.
    """
    read = group.entries_read
    cursor = group.last_delivered_id
    first = stream.first_id
    for index, entry_id in enumerate(delivered):
        if read is not None and cursor >= first and not _tombstone_from(stream, cursor):
            # and so for all that follow
            return min(read + len(delivered) - index, stream.entries_added)
        if stream.entries_added:
            read = estimate(stream, entry_id)
        cursor = entry_id
    return read


def entries_read(stream: Stream, group: Group) -> int | None:
    """How many of the entries ever added the group has behind it, None where that is unknown."""
    if group.creations:
        read = counted_read(stream, group) + group.read_offset()
        return min(max(read, 0), stream.entries_added)
    return group.entries_read


def counted_read(stream: Stream, group: Group) -> int:
    """How many entries of all regions a group has behind it, whatever ENTRIESREAD said."""
    logs = stream.logs
    return stream.entries_added - sum(
        group.unread(replica_id, log) for replica_id, log in logs.items()
    )


def lag(stream: Stream, group: Group) -> int | None:
    """Entries not yet delivered to the group, None where Redis answers null.

    Where several regions write it is counted, and so always known.
    """
    if group.creations:
        return sum(exact_lag(stream, group).values())
    added = stream.entries_added
    if not added or not stream.length:
        return 0
    cursor = group.last_delivered_id
    first = stream.first_id
    if cursor < first and stream.max_deleted_id < first:
        return stream.length
    if group.entries_read is not None and not _tombstone_from(stream, cursor):
        return added - group.entries_read
    position = estimate(stream, cursor)
    return None if position is None else added - position


def exact_lag(stream: Stream, group: Group) -> dict[int, int]:
    """By replica ID, the live entries that the group was not given yet: counted, whatever went."""
    return {replica_id: group.count(replica_id, log) for replica_id, log in stream.logs.items()}
