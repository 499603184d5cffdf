"""Joins two states of one stream, without the effects that led to them.

Each state comes with the version vector of its region, which is enough: what one state has, and the
other region has seen but does not have, was removed there. What the other region has not seen is
new to it. So the result is the state in which both regions would be if each had applied the effects
of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

from anabranch.stream import by_number, register
from anabranch.stream.groups.group import Group, group_of_regions
from anabranch.stream.groups.home import GroupHome
from anabranch.stream.groups.progress import Creation
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog
from anabranch.stream.shared import (
    ALL_GROUPS,
    BY_DOT,
    Dot,
    Removals,
    Shared,
    newest_removals,
    removals_of,
    with_row,
)
from anabranch.stream.stream import Stream

_T = TypeVar("_T")

Vector = Mapping[int, int]


def join_dots(
    ours: dict[Dot, _T], theirs: dict[Dot, _T], our: Vector, their: Vector
) -> dict[Dot, _T]:
    """Add what is new in a table by dots, and drop what the other side has dropped.

    Returns the table, which is a new one if ours was the common empty table.
    """
    for dot in [dot for dot in ours if dot not in theirs and dot[1] <= their.get(dot[0], 0)]:
        del ours[dot]
    for dot, value in theirs.items():
        if dot not in ours and dot[1] > our.get(dot[0], 0):
            ours = with_row(ours, dot, value)
    return ours


def join_streams(
    ours: Stream,
    theirs: Stream,
    our: Vector,
    their: Vector,
    flushes: tuple[Mapping[Dot, None], Mapping[Dot, None]],
) -> None:
    """Join another state of a stream into ours; do not use the other one afterwards.

    ``flushes`` are the effects that removed all groups of the database, here and there. Compute
    counters and look-up tables again afterwards.
    """
    mine, other = ours.shared, theirs.shared
    our_removals = newest_removals({**mine.tombstones, **dict.fromkeys(flushes[0], ALL_GROUPS)})
    their_removals = newest_removals({**other.tombstones, **dict.fromkeys(flushes[1], ALL_GROUPS)})
    _keep_places(ours)
    for replica_id in [*theirs.logs, *(each for each in ours.logs if each not in theirs.logs)]:
        _join_logs(
            ours.log_of(replica_id),
            theirs.log_of(replica_id),
            our.get(replica_id, 0),
            their.get(replica_id, 0),
        )
    _join_groups(ours, theirs, our, their, our_removals, their_removals)
    _join_shared(mine, other, our, their)
    for group in ours.groups.values():
        for replica_id, log in ours.logs.items():
            group.drop_between(replica_id, 0, log.floor)


def replace_shared(ours: Stream, fresh: Stream) -> None:
    """Replace what regions share by that of another stream; do not use that one afterwards.

    Deliveries and pending entries of this region stay. Tombstones stay, too: either side may have
    forgotten some, and a superfluous one does no harm. Compute counters and look-up tables again
    afterwards.
    """
    _keep_places(ours)
    for dot, tombstone in ours.shared.tombstones.items():
        fresh.shared.set_tombstones(with_row(fresh.shared.tombstones, dot, tombstone))
    ours.shared = fresh.shared
    ours.logs = fresh.logs
    groups = ours.groups
    ours.groups = fresh.groups
    for name, group in fresh.groups.items():
        known = groups.get(name)
        if known is None or group.shared.creations.keys().isdisjoint(known.shared.creations):
            continue
        _join_acknowledged(ours, known, group, group.shared.creations)
        _join_home(known, group.home, group.shared.creations)
        known.shared.creations, known.shared.acknowledged = (
            group.shared.creations,
            group.shared.acknowledged,
        )
        for replica_id, log in ours.logs.items():
            known.drop_between(replica_id, 0, log.floor)
        ours.groups[name] = known


def _keep_places(stream: Stream) -> None:
    """Call this before entries are removed, and what was created or acknowledged changes."""
    for group in stream.groups.values():
        if group.pending.order is not None:
            group.pending.order.begin(group.pending.lists)
        group.shared.place(stream.logs)
        group.shared.settled.clear()


def _join_home(group: Group, other: GroupHome | None, alive: Collection[Dot]) -> None:
    """Take over what the other side knows of the home of a group with these creations."""
    if group.home is not None or other is not None:
        group.home = group.home or GroupHome()
        group.home.join(other, alive)


def _join_acknowledged(stream: Stream, group: Group, other: Group, alive: Collection[Dot]) -> None:
    """Take over what the other side knows to be acknowledged under these creations."""
    for dot, by_replica_id in other.shared.acknowledged.items():
        if dot not in alive:
            continue
        known = group.shared.acknowledged.setdefault(dot, {})
        for replica_id, ranges in by_replica_id.items():
            before = known.setdefault(replica_id, Ranges())
            unseen = ranges.without(before)
            before.update(ranges)
            log = stream.log_of(replica_id)
            if unseen:
                if group.home is not None and group.home.watch is not None:
                    group.home.repeated.update(group.home.watch.repeated(replica_id, log, unseen))
                group.drop_acknowledged(replica_id, unseen)
                group.progress.see(by_number.id_upto(log, unseen.highs[-1]))


def _join_logs(ours: RegionLog, theirs: RegionLog, our: int, their: int) -> None:
    """Join entries and counters of one replica ID; each side has seen all up to its number."""
    _clear_forgotten(ours, theirs, their)
    _clear_forgotten(theirs, ours, our)
    both = min(our, their)
    for low, high in _numbers(ours, both).without(_numbers(theirs, both)):
        by_number.remove(ours, low, high)
    by_number.remove(theirs, 0, our)
    ours.adopt(theirs)


def _clear_forgotten(log: RegionLog, other: RegionLog, seen: int) -> None:
    """Clear a log that the other side has cleared.

    That side has seen an entry but counts none so new: it has deleted the key since. It may have
    forgotten how far, because all members had the deletion. A side can still lack the deletion if
    it has its data from a region that was removed.
    """
    newest, position = log.newest_number, log.next_position
    if newest > seen:  # a removed region may have added entries that no member got
        newest, position = by_number.newest_slot_upto(log, seen)
    if other.newest_number < newest:
        by_number.clear_upto(log, newest, position)


def _numbers(log: RegionLog, top: int) -> Ranges:
    """The numbers of the live entries up to a number."""
    found = Ranges()
    for block, low, high in by_number.spans(log, 0, top):
        found.add_numbers(block.numbers_of(low, high))
    return found


def _join_shared(mine: Shared, other: Shared, our: Vector, their: Vector) -> None:
    _join_small(mine, other, our, their)
    for name in BY_DOT:
        setattr(mine, name, join_dots(getattr(mine, name), getattr(other, name), our, their))
    mine.set_tombstones(mine.tombstones)
    if mine.counts or other.counts:
        ours, theirs = register.read_counts(mine.counts), register.read_counts(other.counts)
        mine.counts = register.pack_counts(register.join_counts(ours, theirs, our, their))
    for pid in set(mine.accepted) | set(other.accepted):
        records = mine.accepted_of(pid)
        join_dots(records, other.accepted.get(pid, {}), our, their)
        if not records:
            del mine.accepted[pid]
    for pid in set(mine.tags) | set(other.tags):
        table, other_table = mine.tags_of(pid), other.tags.get(pid, {})
        for iid in set(table) | set(other_table):
            dots = table.setdefault(iid, {})
            for dot, tag in other_table.get(iid, {}).items():
                if dot in dots and tag.answered < dots[dot].answered:
                    dots[dot] = tag
            join_dots(dots, other_table.get(iid, {}), our, their)
            if not dots:
                del table[iid]
        if not table:
            del mine.tags[pid]


def _join_small(mine: Shared, other: Shared, our: Vector, their: Vector) -> None:
    for kind in {**mine.elements, **other.elements}:
        elements = mine.elements_of(kind)
        elements.join(other.elements_of(kind), our, their)
        mine.settle(elements)
    for dot, write in mine.writes.items():
        if dot in other.writes:
            deadlines = dict(write.deadlines)
            join_dots(deadlines, dict(other.writes[dot].deadlines), our, their)
            mine.writes[dot] = write._replace(deadlines=deadlines)


def _join_groups(
    ours: Stream,
    theirs: Stream,
    our: Vector,
    their: Vector,
    our_removals: Removals,
    their_removals: Removals,
) -> None:
    for name in set(ours.groups) | set(theirs.groups):
        mine, other = ours.groups.get(name), theirs.groups.get(name)
        my_creations = {} if mine is None else mine.shared.creations
        other_creations = {} if other is None else other.shared.creations
        alive = {
            **_surviving(name, my_creations, other_creations, our, their, their_removals),
            **_surviving(name, other_creations, my_creations, their, our, our_removals),
        }
        if not alive:
            ours.groups.pop(name, None)
            continue
        if mine is None or alive.keys().isdisjoint(mine.shared.creations):
            # Nothing of our group is left: what was delivered here was delivered for another group.
            assert other is not None
            mine = ours.groups[name] = group_of_regions(other.progress.last_delivered_id)
        mine.shared.creations = alive
        _join_home(mine, None if other is None else other.home, alive)
        for dot in [dot for dot in mine.shared.acknowledged if dot not in alive]:
            del mine.shared.acknowledged[dot]
        if other is not None:
            _join_acknowledged(ours, mine, other, alive)


def _surviving(
    name: bytes,
    some: dict[Dot, Creation],
    others: dict[Dot, Creation],
    seen: Vector,
    seen_there: Vector,
    removals_there: Removals,
) -> dict[Dot, Creation]:
    """Creations of one side that the other side has, or has neither seen nor removed."""
    return {
        dot: creation
        for dot, creation in some.items()
        if dot in others
        or (
            dot[1] > seen_there.get(dot[0], 0)
            and not any(
                number > max(seen.get(replica_id, 0), creation.context.get(replica_id, 0))
                for replica_id, number in removals_of(removals_there, name)
            )
        )
    }
