"""The counting rules of Redis 8.10 for consumer groups, as a small independent model.

Redis 7.0 counts differently once entries were deleted, trimmed or numbered by hand, so it is
no oracle for `entries-read` and `lag` then. Instead our own replies are held against the
rules: the lag against the other fields of the same XINFO STREAM FULL, and entries-read
against the entries that an XREADGROUP between two such replies delivered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from tests.support.wire import Reply

Id = tuple[int, int]
ZERO: Id = (0, 0)


def parse_id(text: bytes) -> Id:
    """`5-1` as (5, 1)."""
    ms, _, seq = text.partition(b"-")
    return int(ms), int(seq)


def fields_of(reply: Reply) -> dict[bytes, Reply]:
    """The fields of an XINFO reply: a map, or a flat array in RESP2."""
    kind, value = reply
    if kind == "%":
        return {key[1]: item for key, item in value}
    if kind == "*" and value is not None and len(value) % 2 == 0:
        return {value[at][1]: value[at + 1] for at in range(0, len(value), 2)}
    raise ValueError(f"not the fields of an XINFO reply: {reply!r}")


@dataclass(frozen=True, slots=True)
class StreamCounters:
    """What counting depends on, as XINFO STREAM shows it."""

    length: int
    added: int
    last: Id
    max_deleted: Id
    first: Id

    @classmethod
    def of(cls, fields: dict[bytes, Reply]) -> Self:
        """From the fields of XINFO STREAM."""
        return cls(
            length=fields[b"length"][1],
            added=fields[b"entries-added"][1],
            last=parse_id(fields[b"last-generated-id"][1]),
            max_deleted=parse_id(fields[b"max-deleted-entry-id"][1]),
            first=parse_id(fields[b"recorded-first-entry-id"][1]),
        )

    def tombstones_from(self, start: Id) -> bool:
        """Whether an entry at or after `start` may have been deleted."""
        return self.length > 0 and self.max_deleted != ZERO and start <= self.max_deleted

    def estimate(self, entry: Id) -> int | None:
        """How many entries had been added up to `entry`, if that can be known."""
        if self.added == 0:
            return 0
        if self.length == 0 and entry <= self.last:
            return self.added
        if entry != ZERO and entry < self.max_deleted:
            return None
        if entry == self.last:
            return self.added
        if entry > self.last:
            return None
        if self.max_deleted == ZERO or self.max_deleted < self.first:
            if entry < self.first:
                return self.added - self.length
            if entry == self.first:
                return self.added - self.length + 1
        return None


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """A group's place and its count."""

    delivered: Id
    read: int | None
    lag: int | None

    @classmethod
    def of(cls, fields: dict[bytes, Reply]) -> Self:
        """From the fields of a group."""
        return cls(
            delivered=parse_id(fields[b"last-delivered-id"][1]),
            read=fields[b"entries-read"][1],
            lag=fields[b"lag"][1],
        )

    def expected_lag(self, stream: StreamCounters) -> int | None:
        """The lag by the rules."""
        if stream.added == 0 or stream.length == 0:
            return 0
        if self.delivered < stream.first and stream.max_deleted < stream.first:
            return stream.length
        if self.read is not None and not stream.tombstones_from(self.delivered):
            return stream.added - self.read
        known = stream.estimate(self.delivered)
        return None if known is None else stream.added - known

    def after_delivery(self, stream: StreamCounters, entry: Id) -> GroupCounters:
        """The group after XREADGROUP delivered a new entry."""
        read = self.read
        if (
            read is not None
            and self.delivered >= stream.first
            and not stream.tombstones_from(self.delivered)
        ):
            read = min(read + 1, stream.added)
        elif stream.added > 0:
            read = stream.estimate(entry)
        return replace(self, delivered=entry, read=read)


def groups_of(full: Reply) -> tuple[StreamCounters, dict[bytes, GroupCounters]]:
    """The counters in a reply to XINFO STREAM FULL."""
    fields = fields_of(full)
    groups = {}
    for item in fields[b"groups"][1]:
        group = fields_of(item)
        groups[group[b"name"][1]] = GroupCounters.of(group)
    return StreamCounters.of(fields), groups


def wrong_lag(full: Reply) -> str | None:
    """What is wrong with the lags of an XINFO STREAM FULL reply, if anything."""
    if full[0] == "-":
        return None
    stream, groups = groups_of(full)
    for name, group in groups.items():
        expected = group.expected_lag(stream)
        if group.lag != expected:
            return f"lag of group {name!r} is {group.lag}, by the rules {expected} ({stream})"
    return None


def wrong_groups(full: Reply, groups: Reply) -> str | None:
    """Where XINFO GROUPS tells other counters than XINFO STREAM FULL did just before."""
    if full[0] == "-" or groups[0] == "-":
        return None
    _, expected = groups_of(full)
    shown = {}
    for item in groups[1]:
        fields = fields_of(item)
        shown[fields[b"name"][1]] = GroupCounters.of(fields)
    return None if shown == expected else f"XINFO GROUPS {shown}, XINFO STREAM FULL {expected}"


def wrong_count(before: Reply, group: bytes, read: Reply, after: Reply) -> str | None:
    """What is wrong with a group's entries-read after an XREADGROUP `>` of one stream."""
    if "-" in (before[0], read[0], after[0]):
        return None
    stream, groups = groups_of(before)
    counters = groups.get(group)
    if counters is None:
        return None
    entries = []
    if read[0] == "%":
        entries = read[1][0][1][1]
    elif read[1] is not None:
        entries = read[1][0][1][1][1]
    for entry in entries:
        counters = counters.after_delivery(stream, parse_id(entry[1][0][1]))
    shown = groups_of(after)[1].get(group)
    if shown is None or (shown.read, shown.delivered) != (counters.read, counters.delivered):
        return f"group {group!r} is at {shown}, by the rules at {counters} ({stream})"
    return None
