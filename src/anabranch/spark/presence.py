"""Whether a stream or a group is there: what can be proved of replicas that change meanwhile.

Each replica is looked at three times, and has heard of the others' looks in between or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from anabranch.spark.standings import Standing

__all__ = ["ITSELF", "Thing", "has_lasted", "lacking_of", "things_of"]

Thing = tuple[int, str]
"""The stream, or a group of it: (1, name)."""

ITSELF: Final[Thing] = (0, "")


def things_of(standing: Standing | None) -> set[Thing]:
    """A stream that exists, and its groups."""
    if standing is None:
        return set()
    return {ITSELF, *((1, name) for name in standing.groups)}


def has_lasted(thing: Thing, was: Standing | None, now: Standing | None) -> bool:
    """Whether a stream or a group was there all the time, and not deleted and made anew.

    A stream of which nothing is left that was there before counts as made anew, though it may have
    been trimmed: nobody can tell.
    """
    if was is None or now is None:
        return False
    if thing == ITSELF:
        return (
            was == now
            or any(
                origin in now.logs and log.first < log.next and now.logs[origin].first < log.next
                for origin, log in was.logs.items()
            )
            or any(
                not made.isdisjoint(now.groups.get(name, ())) for name, made in was.groups.items()
            )
        )
    before, after = (each.groups.get(thing[1]) for each in (was, now))
    if before is None or after is None:
        return False
    return before == after or not before.isdisjoint(after)


def lacking_of(
    shows: Sequence[Sequence[bool]],
    heard: Sequence[Sequence[bool]],
    heard_later: Sequence[Sequence[bool]],
) -> list[int] | None:
    """Which replicas lack a thing for good; None if somebody lacks it, and it cannot be told.

    Seen at three moments, with tokens taken and waited for between each two: who lacks it must have
    heard of its making, and who has it must have heard of its end, if that was its end.
    """
    before, first, second = shows
    everyone = range(len(second))
    lacking = [each for each in everyone if not first[each] and not second[each]]
    having = [each for each in everyone if second[each]]
    proved = [
        each
        for each in lacking
        if any(before[knower] and heard[each][knower] for knower in having)
        and any(heard_later[knower][each] for knower in having)
    ]
    return proved if proved or not lacking else None
