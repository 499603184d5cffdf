"""What readers must get: groups as one region knows them, and cursors that wander between regions.

The shared part of a group (creations, acknowledgements) comes from the formulas. What only its
region knows is kept here, in the plainest way: the dots that were handed out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from anabranch.simulator import looking
from anabranch.simulator.facts import Added, Dot, Vector
from anabranch.simulator.formulas import Shown

__all__ = ["GroupReader", "token_of"]

_NONE: Final[frozenset[Dot]] = frozenset()


def token_of(entry: Added) -> bytes:
    """The value of an entry's only field, unlike that of any other XADD."""
    return looking.token_of(entry.effect.fragment)


@dataclass
class GroupReader:
    """One region's own knowledge of a group."""

    creations: frozenset[Dot] = _NONE
    """The live ones when last looked at; when none of them is left, it is another group."""
    delivered: set[Dot] = field(default_factory=set)
    place: dict[int, int] = field(default_factory=dict)
    """By replica ID, the number up to which XGROUP SETID made all count as delivered."""
    ignored: frozenset[Dot] = frozenset()
    """Acknowledgements that were there before XGROUP SETID and do not count."""
    is_vague: bool = False
    """Whether acknowledgements that are ignored may have come again with a full sync."""
    offset: tuple[int, int] | None = None
    """Of XGROUP SETID, the least and the most that it may be; None without one."""
    is_plain: bool = True
    """Whether nothing was jumped over, given up or re-created."""
    is_counted: bool = True
    """Whether entries-read was counted here from the beginning."""

    def copy(self) -> GroupReader:
        """The same, whatever becomes of this one."""
        return replace(self, delivered=set(self.delivered), place=dict(self.place))

    def look(self, shown: Shown, group: bytes) -> None:
        """Notice that the group was removed, and maybe created again, since the last time."""
        creations = shown.creations.get(group, _NONE)
        if creations is self.creations:
            return
        if self.creations.isdisjoint(creations):
            self.delivered.clear()
            self.place.clear()
            self.ignored = frozenset()
            self.is_vague = False
            self.is_plain = self.is_counted = True
            self.offset = None
        elif creations != self.creations:
            self.is_plain = False
        self.creations = creations

    def seems_another(self, shown: Shown, group: bytes) -> bool:
        """Whether no creation that lives was there when last looked at."""
        creations = shown.creations.get(group, _NONE)
        return creations is not self.creations and self.creations.isdisjoint(creations)

    def deliverable(self, shown: Shown, group: bytes, *, sure: bool = False) -> list[Added]:
        """What ``>`` returns here, in order; only what is ``sure`` to be, if that matters."""
        return list(self._deliverable(shown, group, sure=sure))

    def _deliverable(self, shown: Shown, group: bytes, *, sure: bool) -> Iterator[Added]:
        ignored = frozenset[Dot]() if sure and self.is_vague else self.ignored
        for entry in shown.entries:
            replica_id, number = entry.dot
            if entry.dot in self.delivered or number <= self.place.get(replica_id, 0):
                continue
            if shown.is_acknowledged(group, entry, ignored) and (
                sure or not self.may_be_open(shown, group, entry)
            ):
                continue
            if replica_id in self.place or shown.delivers(group, entry):
                yield entry

    def read(self, shown: Shown, group: bytes, lag: int) -> tuple[int, int]:
        """The least and the most that entries-read may be.

        What was deleted right behind the last entry that was passed may count as read or not.
        """
        if not self.is_counted:
            return 0, shown.entries_added
        most = max(created.effect.offset for created in shown.groups[group])
        low, high = (most, most) if self.offset is None else self.offset
        added = shown.entries_added
        least = self._least_counted(shown, group) + low
        return min(max(least, 0), added), min(max(added - lag + high, 0), added)

    def offset_of(self, shown: Shown, group: bytes, read: int, lag: int) -> tuple[int, int]:
        """Between what an offset is if the group has read so much now."""
        return read - (shown.entries_added - lag), read - self._least_counted(shown, group)

    def _least_counted(self, shown: Shown, group: bytes) -> int:
        if self.is_vague:
            return 0
        unread = {entry.dot for entry in self._deliverable(shown, group, sure=False)}
        for replica_id in {fact.replica_id for fact in shown.added}:
            cursor = self._cursor(shown, group, replica_id)
            some = {fact.dot for fact in shown.added if fact.replica_id == replica_id}
            unread |= {dot for dot in some if dot[1] > cursor}
        return shown.entries_added - len(unread)

    def _cursor(self, shown: Shown, group: bytes, replica_id: int) -> int:
        """The greatest number that was passed for certain."""
        passed = [number for where, number in self.delivered if where == replica_id]
        for fact in shown.acknowledged[group]:
            if fact.dot not in self.ignored:
                passed += [high for where, _, high in fact.effect.ranges if where == replica_id]
        if replica_id in self.place:
            return max([self.place[replica_id], *passed])
        begin = min(
            created.context.get(replica_id, 0)
            if created.effect.start is None
            else _upto(shown, replica_id, created.effect.start)
            for created in shown.groups[group]
        )
        return max([begin, *passed])

    def may_be_open(self, shown: Shown, group: bytes, entry: Added) -> bool:
        """Whether an acknowledged entry may count as open here.

        A full sync does not say who acknowledged: an acknowledgement that it repeats after SETID
        may go unnoticed.
        """
        others = frozenset(fact.dot for fact in shown.acknowledged[group]) - self.ignored
        return self.is_vague and shown.is_acknowledged(group, entry, others)

    def move(self, shown: Shown, group: bytes, seen: Vector, start: int | None) -> None:
        """XGROUP SETID: behind an ID, or (None) behind everything seen."""
        replica_ids = {*seen, *(replica_id for replica_id, _ in self.delivered), *self.place}
        self.delivered.clear()
        self.is_plain = self.is_vague = False
        self.ignored = frozenset(fact.dot for fact in shown.acknowledged[group])
        for replica_id in replica_ids:
            self.place[replica_id] = (
                seen.get(replica_id, 0) if start is None else _upto(shown, replica_id, start)
            )

    def jump(self, shown: Shown, start: int) -> None:
        """XCLAIM LASTID: everything up to an ID counts as delivered."""
        self.is_plain = False
        self.delivered |= {entry.dot for entry in shown.entries if entry.effect.entry_id <= start}


def _upto(shown: Shown, replica_id: int, start: int) -> int:
    return max(
        (
            entry.number
            for entry in shown.entries
            if entry.replica_id == replica_id and entry.effect.entry_id <= start
        ),
        default=0,
    )
