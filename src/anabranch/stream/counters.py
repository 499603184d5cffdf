"""How far one ID has come in a stream: logical positions and lag, by Redis's rules.

``entries_read`` is a logical position ("how many entries had ever been added up to the group's
last-delivered-id"), or None when unknown. Deletions make positions uncertain; the rules below
say exactly when, and clients' test-suites assert the resulting nulls, so they are kept as they
are although the log could count exactly. Source: docs/counters-and-lag.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.compiling import mypyc_attr
from anabranch.stream.region_log import RegionLog

MAX_ENTRIES_ADDED: Final = (1 << 63) - 1


@mypyc_attr(acyclic=True)
class Counted:
    """What is counted of a stream: the base of :class:`anabranch.stream.stream.Stream`.

    A class and no protocol: machine code reads the attributes of a class without a look-up by name.
    """

    __slots__ = ("added_surplus", "last_id", "local", "logs", "max_deleted_id")

    logs: dict[int, RegionLog]
    """By replica ID."""
    local: RegionLog
    """The log of this region."""
    last_id: int
    """last-generated-id; survives deletion."""
    max_deleted_id: int
    added_surplus: int
    """What XSETID has added to entries-added."""

    @property
    def entries_added(self) -> int:
        """Entries ever added, also deleted ones."""
        added = self.added_surplus
        if len(self.logs) == 1:
            added += self.local.next_position
        else:
            for log in self.logs.values():
                added += log.next_position
        return added if added <= MAX_ENTRIES_ADDED else MAX_ENTRIES_ADDED

    @entries_added.setter
    def entries_added(self, count: int) -> None:
        self.added_surplus = count - sum(log.next_position for log in self.logs.values())

    @property
    def length(self) -> int:
        """Live entries of all regions."""
        if len(self.logs) == 1:
            return self.local.length
        return sum(log.length for log in self.logs.values())

    @property
    def first_id(self) -> int:
        """recorded-first-entry-id: the oldest live entry, 0 when empty."""
        if len(self.logs) == 1:
            return self.local.first_id
        return min((log.first_id for log in self.logs.values() if log.length), default=0)


def estimate(stream: Counted, entry_id: int) -> int | None:
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


def _deletion_from(stream: Counted, entry_id: int) -> bool:
    """Whether an explicit deletion may lie at or after ``entry_id``."""
    return bool(stream.length and stream.max_deleted_id and entry_id <= stream.max_deleted_id)


def entries_read_after(
    stream: Counted, read: int | None, cursor: int, delivered: Sequence[int]
) -> int | None:
    """The entries-read of a group after the new entries ``delivered`` were delivered.

    ``cursor`` and ``read`` are its last-delivered-id and entries-read before. The result is at most
    entries-added, which XSETID may have lowered, so that the lag is never negative.
    """
    first = stream.first_id
    deleted = stream.max_deleted_id
    for index, entry_id in enumerate(delivered):
        if (
            read is not None
            and cursor >= first
            and (cursor > deleted or not _deletion_from(stream, cursor))
        ):
            # and so for all that follow
            return min(read + len(delivered) - index, stream.entries_added)
        if stream.entries_added:
            read = estimate(stream, entry_id)
        cursor = entry_id
    return read


def lag(stream: Counted, read: int | None, cursor: int) -> int | None:
    """Entries not yet delivered to such a group, None where Redis answers null."""
    added = stream.entries_added
    if not added or not stream.length:
        return 0
    first = stream.first_id
    if cursor < first and stream.max_deleted_id < first:
        return stream.length
    if read is not None and not _deletion_from(stream, cursor):
        return added - read
    position = estimate(stream, cursor)
    return None if position is None else added - position
