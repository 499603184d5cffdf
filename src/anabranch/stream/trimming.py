"""What MAXLEN or MINID would remove: a plan, which changes nothing.

``=`` removes the oldest entries one by one. ``~`` with KEEPREF removes only whole nodes, and never
an entry that ``=`` would keep. With DELREF and ACKED, ``~`` also removes entries one by one, and
only LIMIT counts by nodes. Source: docs/compatibility.md, Redis 8.2+.
"""

from __future__ import annotations

from collections import deque

from anabranch.compiling import mypyc_attr
from anabranch.stream.block import Block
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.references import ACKED, KEEPREF, Policy, References
from anabranch.stream.stream import Stream


@mypyc_attr(acyclic=True)
class TrimRule:
    """The trimming options of XADD and XTRIM.

    Exactly one of ``maxlen`` and ``minid`` is set. ``limit`` of 0 means none; it is only
    consulted when ``approximate``.
    """

    def __init__(self) -> None:
        self.maxlen: int | None = None
        self.minid: int | None = None
        self.approximate = False
        self.limit = 0
        self.policy: Policy = KEEPREF


@mypyc_attr(acyclic=True)
class TrimPlan:
    """Entries to remove: everything below a position per region, and single IDs."""

    def __init__(self, below: list[tuple[int, int]], ids: list[int]) -> None:
        self.below = below
        self.ids = ids


def limit_default(node_entries_max: int) -> int:
    """LIMIT when ``~`` is given without it: a hundred nodes, at most a million entries."""
    limit = 100 * node_entries_max
    return min(limit if limit > 0 else 10_000, 1_000_000)


def plan_trim(stream: Stream, rule: TrimRule) -> TrimPlan | None:
    """What the rule removes now; None if nothing."""
    length = stream.length
    if not length or (rule.maxlen is not None and length <= rule.maxlen):
        return None
    if rule.policy is not KEEPREF:
        ids = _plan_entries(stream, rule)
        return TrimPlan([], ids) if ids else None
    below = _plan_nodes(stream, length, rule) if rule.approximate else _plan_prefix(stream, rule)
    return TrimPlan(below, []) if below else None


def _plan_prefix(stream: Stream, rule: TrimRule) -> list[tuple[int, int]]:
    """``=``: remove the oldest entries until the rule holds, as one position for each region."""
    excess = -1 if rule.maxlen is None else stream.length - rule.maxlen
    end = (1 << 128) - 1 if rule.minid is None else rule.minid - 1
    if end < 0:
        return []
    below: dict[int, int] = {}
    for replica_id, block, high in _oldest(stream, end, excess):
        below[replica_id] = block.position(high - 1) + 1
    return list(below.items())


def _oldest(stream: Stream, end: int, limit: int) -> list[tuple[int, Block, int]]:
    """The last span of each region among the oldest entries up to ``end``."""
    found: list[tuple[int, Block, int]] = []
    if len(stream.logs) == 1:
        newest = deque(stream.local.spans(0, end, limit), maxlen=1)
        return [(stream.own, block, high) for block, _, high in newest]
    for replica_id, (block, low, high) in stream.spans_by_region(limit):
        if block.ids[low] > end:
            break
        found.append((replica_id, block, min(high, block.index_after(end))))
    return found


def _plan_nodes(stream: Stream, length: int, rule: TrimRule) -> list[tuple[int, int]]:
    """``~``: remove whole nodes from the oldest one, within LIMIT."""
    if len(stream.logs) > 1:
        return _plan_nodes_of_regions(stream, rule)
    last = None
    removed = 0
    excess = 0 if rule.maxlen is None else length - rule.maxlen
    at = 0
    while (block := stream.local.oldest(at)) is not None:
        at += 1
        live = block.live
        if rule.maxlen is not None:
            qualifies = removed + live <= excess
        else:
            qualifies = block.ids[-1] < (rule.minid or 0)
        if not qualifies or (rule.limit and removed + live > rule.limit):
            break
        removed += live
        last = block
    return [] if last is None else [(stream.own, last.position(last.count - 1) + 1)]


def _plan_nodes_of_regions(stream: Stream, rule: TrimRule) -> list[tuple[int, int]]:
    """What ``~`` removes from several logs: nodes without an entry that ``=`` leaves, in order."""
    exact = dict(_plan_prefix(stream, rule))
    nodes = [
        (block.ids[-1], replica_id, block)
        for replica_id, position in exact.items()
        for block in stream.logs[replica_id].blocks
        if block.position(block.count - 1) < position
    ]
    below: dict[int, int] = {}
    removed = 0
    for _, replica_id, block in sorted(nodes, key=lambda node: node[:2]):
        removed += block.live
        if rule.limit and removed > rule.limit:
            break
        below[replica_id] = block.position(block.count - 1) + 1
    return list(below.items())


def _plan_entries(stream: Stream, rule: TrimRule) -> list[int]:
    """DELREF and ACKED: remove single entries from the oldest one; ACKED skips referenced ones."""
    references = References(stream) if rule.policy is ACKED else None
    doomed: list[int] = []
    length = stream.length
    node = None
    end = MAX_ID if references is None else references.end
    for block, low, high in stream.spans(0, end):
        if block is not node:
            node = block
            if rule.approximate and rule.limit and len(doomed) + block.live > rule.limit:
                break
        for entry_id in block.ids[low:high]:
            if rule.maxlen is not None and length <= rule.maxlen:
                return doomed
            if rule.minid is not None and entry_id >= rule.minid:
                return doomed
            if references is not None and references.holds(entry_id):
                continue
            doomed.append(entry_id)
            length -= 1
    return doomed
