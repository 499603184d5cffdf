"""What the policies of a stream remove now: a plan, which changes nothing.

Whole nodes go first, the oldest one first. A node goes if all its entries are too old, or if the
stream is still as long, or as large, as is allowed without it. With ``exact`` single entries of the
oldest node follow, by age and length; sizes are known by nodes. What groups need stays, and all
that the same region added after it, up to the ``keep-limit``.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, merge
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from anabranch.stream import by_position
from anabranch.stream.entry_id import MAX_ID, SEQ_BITS
from anabranch.stream.retained import UNACKED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from anabranch.stream.groups.group import Group
    from anabranch.stream.region_log import RegionLog
    from anabranch.stream.retained import Retained, StreamPolicy
    from anabranch.stream.stream import Stream

_NODES: Final = 200
"""Nodes that one plan removes at most: well under a millisecond."""


class RetentionPlan(NamedTuple):
    """What to remove, and when to look again."""

    below: list[tuple[int, int]]
    """Everything below a position, by replica ID."""
    next_ms: int
    """When time alone may have made more to remove; 0: a change of the stream is needed."""


class _Bounds(NamedTuple):
    """What is allowed."""

    oldest: int
    """Entries with lower IDs are too old."""
    length: int
    """Entries; -1: any number."""
    weight: int
    """Bytes of names and values; -1: any number."""


class HeldBack(NamedTuple):
    """What stays in spite of the limits, and for whom."""

    entries: int
    """Entries that the limits would remove next, whole nodes first, if no group needed them."""
    needs: list[tuple[int, bytes]]
    """The ID of the first entry that a group needs, and the group; the lowest ID first."""


def plan_retention(stream: Stream, retained: Retained, now_ms: int) -> RetentionPlan:
    """What is to be removed now, a slice of it if it is much."""
    policy = retained.policy
    groups, next_ms = _that_count(stream, retained, now_ms)
    needed = _needed_by(stream, groups.values(), policy.keep)
    below: dict[int, int] = {}
    if policy.has_limits:
        below = _plan(stream, retained, _limits(policy, now_ms), needed)
        next_ms = _sooner(next_ms, _next_ms(stream, policy.max_age_ms, policy.exact, now_ms))
    elif needed is not None:
        below = _plan(stream, retained, _Bounds(MAX_ID + 1, -1, -1), needed)
    limit = policy.keep_limit
    if needed is not None and (limit.ms or limit.bytes):
        bounds = _Bounds(_oldest(limit.ms, now_ms), -1, limit.bytes or -1)
        for replica_id, position in _plan(stream, retained, bounds, None).items():
            below[replica_id] = max(position, below.get(replica_id, 0))
        next_ms = _sooner(next_ms, _next_ms(stream, limit.ms, policy.exact, now_ms))
    return RetentionPlan(list(below.items()), next_ms)


def held_back(stream: Stream, retained: Retained, now_ms: int) -> HeldBack:
    """What ``keep`` holds back at present: entries are counted in as many nodes as a plan has."""
    policy = retained.policy
    groups, _ = _that_count(stream, retained, now_ms)
    unacked = policy.keep == UNACKED
    needs = []
    for name, group in groups.items():
        found = []
        for replica_id, log in stream.logs.items():
            first = _needed_from(stream, group, replica_id, unacked)
            spans = by_position.spans(log, first, log.next_position)
            found += [block.ids[low] for block, low, _ in islice(spans, 1)]
        if found:
            needs.append((min(found), name))
    entries = 0
    if policy.has_limits and needs:
        for replica_id, end in _plan(stream, retained, _limits(policy, now_ms), None).items():
            entries += by_position.live_below(stream.logs[replica_id], end)
    return HeldBack(entries, sorted(needs))


def _that_count(
    stream: Stream, retained: Retained, now_ms: int
) -> tuple[Mapping[bytes, Group], int]:
    """The groups for which something is kept, and when to look at them again; 0: never."""
    if retained.policy.keep == "none":
        return {}, 0
    return retained.awake(stream.groups, now_ms)


def _needed_by(stream: Stream, groups: Collection[Group], keep: str) -> dict[int, int] | None:
    """By replica ID the position of the first entry that one of the groups needs."""
    if not groups:
        return None
    unacked = keep == UNACKED
    return {
        replica_id: min(_needed_from(stream, each, replica_id, unacked) for each in groups)
        for replica_id in stream.logs
    }


def _limits(policy: StreamPolicy, now_ms: int) -> _Bounds:
    """What the limits of a policy allow."""
    oldest = _oldest(policy.max_age_ms, now_ms)
    return _Bounds(oldest, policy.max_length or -1, policy.max_bytes or -1)


def _oldest(age_ms: int, now_ms: int) -> int:
    """The lowest ID that is not too old."""
    return max(now_ms - age_ms, 0) << SEQ_BITS if age_ms else 0


def _sooner(one_ms: int, other_ms: int) -> int:
    """The earlier of two times, of which 0 is never."""
    return min(one_ms or other_ms, other_ms or one_ms)


def _needed_from(stream: Stream, group: Group, replica_id: int, unacked: bool) -> int:
    """The position of the first entry of a replica ID that a group still needs."""
    log = stream.logs[replica_id]
    position = log.next_position
    if not log.length:
        return position
    for block, low, _ in group.progress.spans(replica_id, log, 1):
        position = block.position(low)
        break
    for _, (block, low, _) in group.passed_over({replica_id: log}):
        position = min(position, block.position(low))
        break
    pending = group.pending.lists.get(replica_id) if unacked else None
    if pending:
        for entry in pending.between(log.first_id, MAX_ID):
            found = stream.find_pending(group, entry)
            if found is not None and found[0] == replica_id:
                return min(position, found[1].position(found[2]))
    elif group.pending.order is not None:  # what waits for others of its key was given to nobody
        for entry in group.pending.released:
            if not entry.delivery_count:
                found = stream.find_pending(group, entry)
                if found is not None and found[0] == replica_id:
                    position = min(position, found[1].position(found[2]))
    return position


def _next_ms(stream: Stream, age_ms: int, exact: bool, now_ms: int) -> int:
    """When the oldest node, or entry, is too old; 0 if it is so now, or never will be."""
    found = 0
    for log in stream.logs.values() if age_ms else ():
        if log.length:
            end_ms = ((log.first_id if exact else _end(log, 0)) >> SEQ_BITS) + age_ms + 1
            if end_ms > now_ms:
                found = _sooner(found, end_ms)
    return found


def _end(log: RegionLog, at: int) -> int:
    """An ID up to which the entries of a block reach; does not open the block."""
    after = log.oldest(at + 1)
    return log.last_id if after is None else after.first_id - 1


def _plan(
    stream: Stream, retained: Retained, bounds: _Bounds, needed: Mapping[int, int] | None
) -> dict[int, int]:
    """By replica ID the position below which entries are too many; whole nodes first."""
    below = _plan_of_nodes(stream, retained, bounds, needed)
    if not below and retained.policy.exact:
        below = _plan_of_entries(stream, bounds, needed)
    return below


def _plan_of_nodes(
    stream: Stream, retained: Retained, bounds: _Bounds, needed: Mapping[int, int] | None
) -> dict[int, int]:
    logs = stream.logs
    surplus = stream.length - bounds.length if bounds.length >= 0 else 0
    too_large = retained.weight(logs) - bounds.weight if bounds.weight >= 0 else 0
    heads = [(_end(log, 0), replica_id, 0) for replica_id, log in logs.items() if log.length]
    heapify(heads)
    below: dict[int, int] = {}
    for _ in range(_NODES):
        if not heads:
            break
        end, replica_id, at = heappop(heads)
        log = logs[replica_id]
        block = log.oldest(at)
        assert block is not None
        after = block.position(block.count - 1) + 1
        if needed is not None and after > needed[replica_id]:
            continue  # other regions may have more that nobody needs
        if end >= bounds.oldest and block.live > surplus and block.weight > too_large:
            break
        surplus -= block.live
        too_large -= block.weight
        below[replica_id] = after
        if log.oldest(at + 1) is not None:
            heappush(heads, (_end(log, at + 1), replica_id, at + 1))
    return below


def _plan_of_entries(
    stream: Stream, bounds: _Bounds, needed: Mapping[int, int] | None
) -> dict[int, int]:
    """Entries of the oldest node of each region."""
    left = stream.length - bounds.length if bounds.length >= 0 else 0
    below: dict[int, int] = {}
    heads = [_entries_of(replica_id, log, needed) for replica_id, log in stream.logs.items()]
    for entry_id, replica_id, after in merge(*heads):
        if entry_id >= bounds.oldest and left <= 0:
            break
        below[replica_id] = after
        left -= 1
    return below


def _entries_of(
    replica_id: int, log: RegionLog, needed: Mapping[int, int] | None
) -> Iterable[tuple[int, int, int]]:
    """ID, replica ID and the position behind, of the entries of the oldest node that may go."""
    block = log.oldest(0)
    if block is None:
        return
    for low, high in block.runs(0, block.count):
        for index in range(low, high):
            position = block.position(index)
            if needed is not None and position >= needed[replica_id]:
                return
            yield block.ids[index], replica_id, position + 1
