"""What a stream remembers beside its entries where several regions write it.

Everything is kept under the *dot* of the effect that brought it, because two rules need to know
which effect that was: a removal takes away what it has seen, and a setting replaces the settings
it has seen. What several regions did concurrently stays side by side, and what is shown is
computed from that: so every region shows the same, whatever the order in which it heard.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from anabranch.stream.entry_id import make, split
from anabranch.stream.ledger import Accepted
from anabranch.stream.producer import Producers

__all__ = [
    "ALL_GROUPS",
    "NOTHING_SHARED",
    "NO_GROUP",
    "Dot",
    "Limits",
    "Shared",
    "Tag",
    "Tombstone",
    "age_rank",
    "drop_covered",
    "winner",
]

Tombstone = bytes | bool
"""Which groups a removal beats that were created without knowing of it."""

ALL_GROUPS: Final = True
NO_GROUP: Final = False

Dot = tuple[int, int]
"""(replica ID, number) of an effect."""

Covered = Callable[[Dot], bool]
"""Whether an effect was known to the one that is applied."""

_T = TypeVar("_T")


class Limits(NamedTuple):
    """XCFGSET: of concurrent ones the one with the greatest (stamp, region) counts."""

    stamp_ms: int
    region: int
    duration_s: int
    maxsize: int


class Tag(NamedTuple):
    """One entry that a producer's idempotent ID stands for."""

    entry_id: int
    at_ms: int
    yields: bool
    """Its entry goes if another region accepted the same ID for a smaller one."""
    stays: int = 0
    """The ID of the entry that stays in its place, if it lost; 0 if it has not."""

    @property
    def answered(self) -> int:
        """The ID that a retry is answered with."""
        return self.stays or self.entry_id


class Bearer(Protocol):
    """The stream that bears it: what follows from agreement is derived there."""

    producers: Producers
    last_id: int
    max_deleted_id: int
    added_surplus: int

    def recount(self) -> None:
        """Derive the counters anew."""

    def set_ids(self, last_id: int, entries_added: int | None, max_deleted_id: int | None) -> None:
        """Set the counters, up or down."""

    def renew_producers(self, duration_s: int, maxsize: int) -> None:
        """Derive limits and look-up tables anew."""

    def remember(self, pid: bytes, iid: bytes) -> None:
        """Derive what a retry with an idempotent ID is answered with."""


class Shared:
    """The shared state of one key."""

    keeps_key = False
    """Whether the key exists until it is deleted, even without entries and groups. If not, a key
    exists by what is in it, which regions agree on."""

    __slots__ = (
        "accepted",
        "deadlines",
        "deleted_ids",
        "last_ids",
        "limits",
        "surpluses",
        "tags",
        "tombstones",
    )

    def __init__(self) -> None:
        # DEL, XGROUP DESTROY and expiry, until they are stable
        self.tombstones: dict[Dot, Tombstone] = {}
        self.deadlines: dict[Dot, int | None] = {}  # EXPIRE; None for PERSIST
        self.last_ids: dict[Dot, int] = {}  # XSETID
        self.deleted_ids: dict[Dot, int] = {}  # XSETID MAXDELETEDID
        self.surpluses: dict[Dot, int] = {}  # XSETID ENTRIESADDED: how much it added
        self.limits: dict[Dot, Limits] = {}
        self.tags: dict[bytes, dict[bytes, dict[Dot, Tag]]] = {}  # producer -> ID -> entries
        self.accepted: dict[bytes, dict[Dot, Accepted]] = {}  # bulk producer -> records

    @property
    def is_blank(self) -> bool:
        """Nothing is remembered."""
        return not (
            self.tombstones
            or self.deadlines
            or self.last_ids
            or self.deleted_ids
            or self.surpluses
            or self.limits
            or self.tags
            or self.accepted
        )

    def deadline_of(self, known: int | None) -> int | None:
        """When a key goes of which this was known: what counts of the settings."""
        return self.deadline_ms

    @property
    def deadline_ms(self) -> int | None:
        """The latest of concurrent settings, None (never) beating all."""
        if not self.deadlines:
            return None
        times = self.deadlines.values()
        return None if None in times else max(time for time in times if time is not None)

    def bury(self, dot: Dot, tombstone: Tombstone, unstable: dict[Dot, None]) -> None:
        """The key or a group of it was removed: a tombstone stays until it is stable."""
        self.tombstones[dot] = tombstone
        unstable[dot] = None

    def clear(self, covered: Covered) -> None:
        """The key was deleted by a region that had applied these effects. Tombstones stay."""
        drop_covered(self.deadlines, covered)
        drop_covered(self.last_ids, covered)
        drop_covered(self.deleted_ids, covered)
        drop_covered(self.surpluses, covered)
        drop_covered(self.limits, covered)
        self.drop_tags(covered)
        for pid in list(self.accepted):
            drop_covered(self.accepted[pid], covered)
            if not self.accepted[pid]:
                del self.accepted[pid]

    def drop_tags(self, covered: Covered) -> None:
        """Drop the tags whose dots are covered."""
        for pid in list(self.tags):
            table_of = self.tags[pid]
            for iid in list(table_of):
                drop_covered(table_of[iid], covered)
                if not table_of[iid]:
                    del table_of[iid]
            if not table_of:
                del self.tags[pid]

    # -- settings -----------------------------------------------------------------------------
    #
    # Each replaces those it has seen. What a region alone does instead is in the class below.

    def set_ids(
        self,
        stream: Bearer,
        dot: Dot,
        last_id: int,
        entries_added: int | None,
        max_deleted_id: int | None,
    ) -> None:
        """XSETID: counters only rise, and ``entries_added`` is the difference."""
        self.last_ids[dot] = last_id
        if entries_added:
            self.surpluses[dot] = entries_added
        if max_deleted_id is not None:
            self.deleted_ids[dot] = max_deleted_id
        stream.recount()

    def set_deadline(self, dot: Dot, at_ms: int | None, covered: Covered) -> int | None:
        """EXPIRE; returns the deadline that counts."""
        drop_covered(self.deadlines, covered)
        self.deadlines[dot] = at_ms
        return self.deadline_ms

    def set_limits(self, stream: Bearer, dot: Dot, limits: Limits, covered: Covered) -> None:
        """XCFGSET; idempotent IDs that it has seen are forgotten."""
        drop_covered(self.limits, covered)
        self.limits[dot] = limits
        self.drop_tags(covered)
        stream.renew_producers(limits.duration_s, limits.maxsize)

    def remember(
        self,
        stream: Bearer,
        dot: Dot,
        pid: bytes,
        iid: bytes,
        entry_id: int,
        at_ms: int,
        yields: bool,
        covered: Covered,
    ) -> None:
        """A producer's idempotent ID stands for an entry; see :class:`Tag`."""
        dots = self.tags.setdefault(pid, {}).setdefault(iid, {})
        if dots:
            drop_covered(dots, covered)
        dots[dot] = Tag(entry_id, at_ms, yields)
        stream.remember(pid, iid)

    def accept(self, pid: bytes, dot: Dot, record: Accepted, covered: Covered) -> Accepted:
        """A bulk producer's batch; returns the record that counts."""
        records = self.accepted.setdefault(pid, {})
        drop_covered(records, covered)
        records[dot] = record
        return max(records.values())

    def drop_accepted(self, pid: bytes, covered: Covered) -> Accepted | None:
        """A bulk producer is forgotten; returns the record that counts still, if any does."""
        records = self.accepted.get(pid, {})
        drop_covered(records, covered)
        if records:
            return max(records.values())
        self.accepted.pop(pid, None)
        return None

    # -- to be kept ---------------------------------------------------------------------------

    @property
    def tables(self) -> tuple[dict[Dot, Any], ...]:
        """What is kept under dots alone."""
        return (
            *(self.tombstones, self.deadlines, self.last_ids),
            *(self.deleted_ids, self.surpluses, self.limits),
        )

    def written(self) -> list[Any] | None:
        """All of it as plain values, for a snapshot; None if nothing is shared."""
        return [
            [[*dot, tombstone] for dot, tombstone in self.tombstones.items()],
            [[*dot, at_ms] for dot, at_ms in self.deadlines.items()],
            [[*dot, split(entry_id)] for dot, entry_id in self.last_ids.items()],
            [[*dot, split(entry_id)] for dot, entry_id in self.deleted_ids.items()],
            [[*dot, count] for dot, count in self.surpluses.items()],
            [[*dot, *limits] for dot, limits in self.limits.items()],
            [
                [pid, iid, *dot, split(tag.entry_id), tag.at_ms, tag.yields, split(tag.stays)]
                for pid, table in self.tags.items()
                for iid, dots in table.items()
                for dot, tag in dots.items()
            ],
            [
                [pid, *dot, *each]
                for pid, dots in self.accepted.items()
                for dot, each in dots.items()
            ],
        ]

    @classmethod
    def restored(cls, written: list[Any]) -> Shared:
        """What :meth:`written` gave."""
        tombstones, deadlines, last_ids, deleted_ids, surpluses, limits, tags, accepted = written
        shared = cls()
        shared.tombstones = {(each, number): what for each, number, what in tombstones}
        shared.deadlines = {(each, number): at_ms for each, number, at_ms in deadlines}
        shared.last_ids = {(each, number): make(*pair) for each, number, pair in last_ids}
        shared.deleted_ids = {(each, number): make(*pair) for each, number, pair in deleted_ids}
        shared.surpluses = {(each, number): count for each, number, count in surpluses}
        shared.limits = {(each, number): Limits(*rest) for each, number, *rest in limits}
        for pid, iid, replica_id, number, pair, at_ms, yields, *stays in tags:
            dots = shared.tags.setdefault(pid, {}).setdefault(iid, {})
            replaced = [make(*each) for each in stays]
            dots[replica_id, number] = Tag(make(*pair), at_ms, yields, *replaced)
        for pid, replica_id, number, *rest in accepted:
            shared.accepted.setdefault(pid, {})[replica_id, number] = Accepted(*rest)
        return shared

    def check(self, stream: Bearer) -> None:
        """Assert that the counters of the stream are what follows from it."""
        counters = stream.last_id, stream.max_deleted_id, stream.added_surplus
        stream.recount()
        assert counters == (stream.last_id, stream.max_deleted_id, stream.added_surplus)


class _Empty(dict[Any, Any]):
    """A table that is empty and stays so."""

    def __setitem__(self, key: object, value: object) -> None:
        raise TypeError("nobody else writes this key, so there is nothing to share")

    def setdefault(self, key: object, default: object = None) -> Any:
        self[key] = default

    def update(self, *args: Any, **more: Any) -> None:
        self[args] = more


_NONE = _Empty()


class _Nothing(Shared):
    """Nobody else writes the key. Its tables are empty and cannot be changed."""

    keeps_key = True
    __slots__ = ()

    def __init__(self) -> None:
        for name in Shared.__slots__:
            setattr(self, name, _NONE)

    @property
    def tables(self) -> tuple[dict[Dot, Any], ...]:
        return ()

    def bury(self, dot: Dot, tombstone: Tombstone, unstable: dict[Dot, None]) -> None:
        """Nobody creates it concurrently."""

    def deadline_of(self, known: int | None) -> int | None:
        return known

    def written(self) -> list[Any] | None:
        return None

    def check(self, stream: Bearer) -> None:
        """XSETID may have lowered them."""

    def set_ids(
        self,
        stream: Bearer,
        dot: Dot,
        last_id: int,
        entries_added: int | None,
        max_deleted_id: int | None,
    ) -> None:
        stream.set_ids(last_id, entries_added, max_deleted_id)

    def set_deadline(self, dot: Dot, at_ms: int | None, covered: Covered) -> int | None:
        return at_ms

    def set_limits(self, stream: Bearer, dot: Dot, limits: Limits, covered: Covered) -> None:
        stream.producers.configure(limits.duration_s, limits.maxsize)

    def remember(
        self,
        stream: Bearer,
        dot: Dot,
        pid: bytes,
        iid: bytes,
        entry_id: int,
        at_ms: int,
        yields: bool,
        covered: Covered,
    ) -> None:
        stream.producers.remember(pid, iid, entry_id, at_ms)

    def accept(self, pid: bytes, dot: Dot, record: Accepted, covered: Covered) -> Accepted:
        return record

    def drop_accepted(self, pid: bytes, covered: Covered) -> Accepted | None:
        return None


NOTHING_SHARED: Final[Shared] = _Nothing()
"""Of every stream of a region alone."""


def drop_covered(table: dict[Dot, _T], covered: Covered) -> None:
    """Drop the dots that a removal or a new setting covers."""
    for dot in [dot for dot in table if covered(dot)]:
        del table[dot]


def winner(dots: dict[Dot, Tag]) -> Dot:
    """Of several entries for one idempotent ID the one that is answered: the smallest ID."""
    return min(dots, key=lambda dot: (dots[dot].answered, dot[0] & 0xFF, dot))


def age_rank(dots: dict[Dot, Tag]) -> tuple[int, int, int, int]:
    """Of a producer's idempotent IDs those of the greatest ranks are remembered.

    Epochs of one region number anew, so the replica ID counts as well.
    """
    if len(dots) == 1:
        (((replica_id, number), tag),) = dots.items()
        return tag.at_ms, replica_id & 0xFF, replica_id, number
    return max((tag.at_ms, dot[0] & 0xFF, *dot) for dot, tag in dots.items())
