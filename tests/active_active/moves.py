"""Groups of streams that are copied, or dumped and restored: what they must be where they come.

What a group still delivers comes from its reader, who knows what was handed out; who holds what,
and since when, is asked for before and afterwards. No code of the engine is used for either.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.effects import kinds
from anabranch.simulator.facts import Added
from anabranch.simulator.formulas import Shown
from tests.active_active.comparison import id_of, pairs
from tests.active_active.readers import GroupReader
from tests.support.mesh import Node

if TYPE_CHECKING:
    from tests.active_active.checked_cluster import CheckedCluster

__all__ = ["Standing", "goes_on", "standings"]

_Row = tuple[int, bytes, int, int]  # ID, consumer, delivery time, delivery count


@dataclass
class Standing:
    """Where a group stands before its stream is moved."""

    last_id: int
    due: set[int]
    """IDs of what it still delivers."""
    processed: set[int]
    """IDs of what may count as acknowledged: it was settled by somebody, or before the start."""
    held: list[_Row]
    consumers: list[Any]
    is_vague: bool
    """Whether that cannot be told: equal IDs, acknowledgements that may not count, or a cursor that
    was set below the start of the group, so that it says less than the group has behind it."""


def standings(cluster: CheckedCluster, node: Node, key: bytes) -> dict[bytes, Standing]:
    """Of all groups of a key in a region."""
    shown = cluster.shown(node, key)
    if cluster.is_over(node, shown) or not shown.exists:
        return {}
    found = {}
    ids = Counter(entry.effect.entry_id for entry in shown.entries)
    facts = cluster.mesh.history.facts[0, key]
    given = Counter(fact.effect.entry_id for fact in facts if isinstance(fact.effect, kinds.Add))
    for name, (last_id, held, consumers) in _asked(node, key).items():
        reader = cluster.reader(node, key, name, shown)
        is_vague = reader.is_vague or any(count > 1 for count in ids.values())
        # Which entry a row means is not shown: it may be deleted, and another one have its ID.
        is_vague = is_vague or any(
            given[row[0]] > 1 or (row[0] in ids and (key, row[0]) in cluster.alone) for row in held
        )
        is_vague = is_vague or len({row[0] for row in held}) < len(held)
        due = {entry.effect.entry_id for entry in reader.deliverable(shown, name)}
        is_vague = is_vague or any(i > last_id and i not in due for i in ids)
        is_vague = is_vague or any(
            _may_count(cluster, key, name, shown, entry) for entry in shown.entries
        )
        found[name] = Standing(
            last_id,
            due,
            {
                entry.effect.entry_id
                for entry in shown.entries
                if _is_done(cluster, key, name, shown, entry)
            },
            held,
            consumers,
            is_vague,
        )
    return found


def _may_count(
    cluster: CheckedCluster, key: bytes, group: bytes, shown: Shown, entry: Added
) -> bool:
    """Whether an entry was acknowledged under a creation that is gone, and under no other one.

    This region does not deliver it again, others do, and a copy may take it either way.
    """
    alive = {fact.dot for fact in shown.groups[group]}
    settled = cluster.settled.get(((0, key), group, entry.dot), set())
    return bool(settled - alive) and not settled & alive


def _is_done(cluster: CheckedCluster, key: bytes, group: bytes, shown: Shown, entry: Added) -> bool:
    alive = {fact.dot for fact in shown.groups[group]}
    settled = cluster.settled.get(((0, key), group, entry.dot), set())
    is_settled = bool(settled & alive) or shown.is_acknowledged(group, entry)
    return is_settled or not shown.delivers(group, entry)


def _asked(node: Node, key: bytes) -> dict[bytes, tuple[int, list[_Row], list[Any]]]:
    """By group: last-delivered-id, pending entries, and all about consumers but their rows."""
    info = pairs(node.do("XINFO", "STREAM", key, "FULL", "COUNT", 0))
    found = {}
    for group in map(pairs, info[b"groups"]):
        held = [(id_of(row[0]), *row[1:]) for row in group[b"pending"]]
        consumers = [pairs(row) for row in group[b"consumers"]]
        told = [{k: v for k, v in row.items() if k != b"pending"} for row in consumers]
        found[group[b"name"]] = id_of(group[b"last-delivered-id"]), held, told
    return found


def goes_on(
    cluster: CheckedCluster,
    node: Node,
    key: bytes,
    before: dict[bytes, Standing],
    *,
    is_payload: bool,
) -> None:
    """Groups of a key that has just been written must stand where they stood.

    What was late is released in a payload, and still to be delivered in a copy. A payload tells of
    nothing that was given up or jumped over: it counts as done.
    """
    shown = cluster.shown(node, key)
    after = _asked(node, key)
    ids = {entry.effect.entry_id for entry in shown.entries}
    cluster.alone |= {
        (key, row[0]) for _, held, _ in after.values() for row in held if row[0] not in ids
    }
    assert set(after) == set(before), f"{key!r} has groups {set(after)} instead of {set(before)}"
    for name, standing in before.items():
        last_id, held, consumers = after[name]
        late = {i for i in standing.due if i <= standing.last_id} if is_payload else set[int]()
        reader = cluster.reader(node, key, name, shown)
        reader.is_plain = reader.is_counted = False
        if standing.is_vague:
            _believe(node, key, name, reader, shown)
        else:
            due = standing.held + [(i, b"", 0, 0) for i in late - {row[0] for row in standing.held}]
            assert held == sorted(due), f"{name!r} of {key!r} holds {held} instead of {due}"
            assert consumers == standing.consumers, f"{consumers} instead of {standing.consumers}"
            assert last_id == standing.last_id, "last-delivered-id"
            reader.delivered |= {
                entry.dot
                for entry in shown.entries
                if entry.effect.entry_id not in standing.due - late
            }
            cluster.reached["late entry moved"] += len(late) + any(
                i <= last_id for i in standing.due - late
            )
            cluster.reached["pending entry moved"] += len(held)
        open_ids = {row[0] for row in held} | late
        done = ids - standing.due
        done = (done if is_payload else standing.processed) - open_ids
        for entry in shown.entries:
            is_done = shown.is_acknowledged(name, entry)
            if standing.is_vague or entry.effect.entry_id in done:
                if is_done:
                    cluster.settled.setdefault(((0, key), name, entry.dot), set()).update(
                        reader.creations
                    )
            else:
                assert not is_done, f"{entry.dot} in {name!r} of {key!r}: nobody settled it"
        cluster.reached["group moved"] += 1


def _believe(node: Node, key: bytes, name: bytes, reader: GroupReader, shown: Shown) -> None:
    """Take what the region delivers as what it has to deliver."""
    stream: Any = node.region.keyspace.databases[0].values[key]
    dots = set()
    for replica_id, (block, low, high) in stream.spans_for(stream.groups[name]):
        dots |= {(replica_id, number) for number in block.numbers_of(low, high)}
    reader.delivered |= {entry.dot for entry in shown.entries if entry.dot not in dots}
