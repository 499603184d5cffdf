"""Which acknowledgements of a consumer group travel to other regions, and as which effects.

As a rule a region tells others of a *prefix*: of the entries that it delivered one after the other,
those before the first one that is pending (:mod:`anabranch.stream.groups.runs`). With the policy
``acks all`` it tells them of every acknowledgement in the turn in which it happens. What was held
back before the policy was set is told in pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from anabranch.effects import kinds
from anabranch.effects.adopting import SETTLED_RANGES_MAX
from anabranch.stream import by_number
from anabranch.stream.groups.group import Group
from anabranch.stream.ranges import Ranges, gaps
from anabranch.stream.shared import Dot
from anabranch.stream.stream import Stream

HELD_BACK_ENTRIES: Final = 500
"""Pending entries that are passed in one piece: well under a millisecond."""

_ACKNOWLEDGE_RUNS: Final = kinds.AcknowledgeRuns  # otherwise it is looked up each time

Told = tuple[int, int, int]
"""Acknowledged numbers of a replica ID: ``(replica_id, low, high)``, above low and up to high."""


class GroupPlace(NamedTuple):
    """A group, and where it is."""

    db: int
    key: bytes
    name: bytes
    stream: Stream
    group: Group


def dots_of(effect: kinds.Acknowledge | kinds.Deliver, group: Group) -> list[Dot]:
    """The entries that an effect acknowledges; call this before it is applied."""
    if isinstance(effect, kinds.Deliver):
        return [(effect.replica_id, number) for number in effect.numbers]
    dots = list(effect.dots)
    for entry_id in effect.ids:
        for replica_id, entry in group.pending.with_id(entry_id):
            dots.append((replica_id, entry.number))
    return dots


def each_told(place: GroupPlace, dots: Iterable[Dot], prefixes: Sequence[Told]) -> list[Told]:
    """Acknowledged entries that are in none of the prefixes, which are told in any case.

    Left out is what was not delivered to this group here, as after XCLAIM FORCE: every region
    still delivers that.
    """
    runs, logs = place.group.runs, place.stream.logs
    numbers: dict[int, Ranges] = {}
    for replica_id, number in sorted(dots):
        if not runs.contains(replica_id, number) or any(
            replica_id == each and low < number <= high for each, low, high in prefixes
        ):
            continue
        # From the entry before it on: what has a number between them is of another key, or gone.
        log = logs.get(replica_id)
        low = number - 1 if log is None else by_number.newest_slot_upto(log, number - 1)[0]
        numbers.setdefault(replica_id, Ranges()).add(low, number)
    return [(replica_id, *pair) for replica_id, some in numbers.items() for pair in some]


def waiting_no_more(place: GroupPlace) -> list[Told]:
    """What is acknowledged here and no other region knows, after what it waited for has gone."""
    group = place.group
    return [
        (replica_id, low, high)
        for replica_id, low, high in group.runs.grown(place.stream.logs, group.pending)
        if any(gaps(group.shared.acknowledged_of(replica_id), low, high))
    ]


def told_by(place: GroupPlace, ranges: Sequence[Told]) -> Iterator[kinds.Effect]:
    """The effects that tell all regions of acknowledged entries."""
    logs = place.stream.logs
    for at in range(0, len(ranges), SETTLED_RANGES_MAX):
        some = ranges[at : at + SETTLED_RANGES_MAX]
        tops: dict[int, int] = {}
        for replica_id, _, high in some:
            if replica_id in logs:
                tops[replica_id] = max(high, tops.get(replica_id, 0))
        greatest = 0
        for replica_id, high in tops.items():
            greatest = max(greatest, by_number.id_upto(logs[replica_id], high))
        yield _ACKNOWLEDGE_RUNS(
            place.db,
            place.key,
            place.name,
            list(place.group.shared.creations),
            list(some),
            greatest,
        )


def held_back(place: GroupPlace) -> tuple[list[Told], bool]:
    """A piece of what was acknowledged and not told yet; and whether more may be left."""
    stream, group = place.stream, place.group
    assert group.policed is not None
    told = group.policed.told
    for replica_id in group.runs.by_replica_id:
        log = stream.logs.get(replica_id)
        above = told.get(replica_id, 0)
        if log is None or above >= log.newest_number:
            continue
        done = [each for each in group.shared.acknowledged_of(replica_id) if each]
        ranges, top = group.runs.held_back(
            replica_id, log, group.pending, done, above, HELD_BACK_ENTRIES
        )
        told[replica_id] = top
        return [(replica_id, *pair) for pair in ranges], True
    return [], False
