"""The state of streams on one region's server: the log of each origin, and the groups.

An *origin* is a region in one epoch; its name is the region's number, with the epoch if that is not
the first (``1``, ``1.2``), and empty on a server without regions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.spark.client import facts_of, stream_key, text_of
from anabranch.spark.digests import Id
from anabranch.spark.offsets import parse_id
from anabranch.spark.replicas import Replica

__all__ = [
    "ITSELF", "NOWHERE", "Creations", "GroupState", "Log", "Standing", "Thing", "group_state",
    "has_lasted", "lacking_of", "standings", "things_of",
]  # fmt: skip

NOWHERE: Final[Id] = (0, 0)
"""Below every entry."""

_AT_ONCE: Final = 500  # streams asked for in one pipeline

Creations = frozenset[tuple[int, ...]]
"""Region, epoch and number of each valid creation of a group; none without regions."""

GroupState = tuple[Any, Any]
"""Creations and acknowledgements of a group, from AB.INFO."""


@dataclass(frozen=True, slots=True)
class Log:
    """The log of one origin, in one stream, on one replica."""

    first: int
    next: int
    """Positions of the first live entry and of the next one to come."""
    trimmed: int
    """How many positions, from the first ever, trimming has passed."""
    newest: Id
    """Of the newest entry it ever had, live or not, since the key was last deleted."""
    first_id: Id | None
    """Of the first live entry."""

    @property
    def horizon(self) -> Id:
        """The ID below which trimming has removed all entries."""
        if self.first_id is not None:
            return self.first_id
        return self.newest[0] + 1, 0


@dataclass(frozen=True, slots=True)
class Standing:
    """One stream on one replica."""

    logs: dict[str, Log] = field(default_factory=dict)
    groups: dict[str, Creations] = field(default_factory=dict)

    def newest(self, origin: str) -> Id:
        """The newest ID in the log of an origin; `NOWHERE` if there is none."""
        log = self.logs.get(origin)
        return NOWHERE if log is None else log.newest


def standings(replica: Replica, streams: Sequence[str]) -> list[Standing | None]:
    """One for each stream, None where it does not exist. Raises `ServerRefused`."""
    found: list[Standing | None] = []
    for at in range(0, len(streams), _AT_ONCE):
        found += _standings(replica, streams[at : at + _AT_ONCE])
    return found


def _standings(replica: Replica, streams: Sequence[str]) -> list[Standing | None]:
    keys = [stream_key(each) for each in streams]
    infos = replica.client.ask([("AB.INFO", key) for key in keys])
    heads = _offsets(replica, keys, [{}] * len(keys))
    # Each log with entries gets one of them, so the newest below that end is the first.
    ends = [{row[0].decode(): row[7] for row in rows or ()} for rows in heads]
    firsts = [
        {row[0]: row[11] for row in rows or () if row[11] != b"0-0"}
        for rows in _offsets(replica, keys, ends)
    ]
    found: list[Standing | None] = []
    for info, rows, first_ids in zip(infos, heads, firsts, strict=True):
        if info is None or rows is None:  # a key that was deleted in between counts as missing
            found.append(None)
            continue
        facts = facts_of(info)
        newest = {
            _origin(each["region"], each["epoch"]): parse_id(each["last-id"].decode())
            for each in map(facts_of, facts["origins"])
        }
        logs = {}
        for raw, incarnation, first, stop, _, live, trimmed, *_ in rows:
            origin = raw.decode()
            first_id = first_ids.get(raw) if live else None
            logs[origin] = Log(
                *(first, stop, max(trimmed - incarnation, 0)),
                newest.get(origin, NOWHERE),
                None if first_id is None else parse_id(first_id.decode()),
            )
        groups = {
            text_of(each["name"]): frozenset(tuple(place) for *place, _ in each["creations"])
            for each in map(facts_of, facts["groups"])
        }
        found.append(Standing(logs, groups))
    return found


def _offsets(
    replica: Replica, keys: Sequence[bytes], read: Sequence[Mapping[str, int]]
) -> list[Any]:
    """For each key the rows of AB.OFFSETS for a reader that reads one entry more."""
    words = ("AB.OFFSETS", "FROM", json.dumps(read), "LIMIT", 1, "STREAMS")
    found: list[Any] = replica.call(*words, *keys)
    return found


def _origin(region: int, epoch: int) -> str:
    if not region:
        return ""
    return f"{region}.{epoch}" if epoch else str(region)


def group_state(replica: Replica, stream: str) -> tuple[Any, dict[str, GroupState]]:
    """Of one moment: the replica's version vector, and the shared part of each group."""
    key = stream_key(stream)
    *_, replies = replica.client.ask([("MULTI",), ("AB.INFO",), ("AB.INFO", key), ("EXEC",)])
    region, info = replies
    states: dict[str, GroupState] = {}
    if not isinstance(info, Exception):
        for each in map(facts_of, facts_of(info)["groups"]):
            states[text_of(each["name"])] = (each["creations"], each["acknowledged"])
    return facts_of(region)["vector"], states


# ------------------------------------------------------------------------------- what has lasted

Thing = tuple[int, str]
"""The stream, or a group of it: (1, name)."""

ITSELF: Final[Thing] = (0, "")


def things_of(standing: Standing | None) -> set[Thing]:
    """A stream that exists, and its groups."""
    if standing is None:
        return set()
    return {ITSELF, *((1, name) for name in standing.groups)}


def has_lasted(thing: Thing, was: Standing | None, now: Standing | None) -> bool:
    """Whether a stream or a group existed all the time, and was not deleted and made again.

    A stream without any of its former entries counts as made again, although it may have been
    trimmed: the difference is not visible.
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
    """Which replicas lack an entry or group permanently; None if that cannot be decided.

    There are three observations, with tokens taken and waited for between each two: a replica that
    lacks it must have applied its creation, and a replica that has it must have applied its
    deletion, if there was one.
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
