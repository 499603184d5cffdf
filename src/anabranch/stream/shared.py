"""The state of a stream beside its entries that several regions share.

Everything is stored under the *dot* of the effect that caused it, because two rules depend on this
effect: a removal removes what is in its context, and a setting replaces the settings in its
context. Concurrent changes stay side by side, and the visible state is computed from all of them.
So every region shows the same, whatever the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from anabranch.compiling import mypyc_attr
from anabranch.stream import register
from anabranch.stream.elements import LIST, SET, Elements
from anabranch.stream.producer import Accepted, Producers
from anabranch.stream.register import Cut, Write

Tombstone = bytes | bool
"""The groups that a removal beats although they were created concurrently."""

STRING: Final = "string"

STRINGS_LEVEL: Final = 4
ELEMENTS_LEVEL: Final = 5
"""The feature levels from which a region knows strings and counters, and sets and lists."""

ALL_GROUPS: Final = True
NO_GROUP: Final = False

Dot = register.Dot

Removals = dict[Tombstone, tuple[Dot, ...]]
"""By what tombstones remove, the newest dot of each replica ID: a context that contains it contains
the older ones."""

Covered = Callable[[Dot], bool]
"""Whether an effect is in the context of the effect that is being applied."""

_K = TypeVar("_K")
_T = TypeVar("_T")


class Limits(NamedTuple):
    """XCFGSET: of concurrent ones the one with the greatest (stamp, region) counts."""

    stamp_ms: int
    region: int
    duration_s: int
    maxsize: int


class Tag(NamedTuple):
    """One entry for which an idempotent ID of a producer stands."""

    entry_id: int
    at_ms: int
    yields: bool
    """Whether its entry is removed if another region accepted the same ID for a smaller one."""
    stays: int = 0
    """The ID of the entry that stays instead, if this one lost; 0 if not."""

    @property
    def answered(self) -> int:
        """The ID in the reply to a retry."""
        return self.stays or self.entry_id


class Bearer(Protocol):
    """The stream to which the shared state belongs; it computes what follows from that state."""

    producers: Producers
    last_id: int
    max_deleted_id: int
    added_surplus: int

    def recount(self) -> None:
        """Compute the counters again."""

    def set_ids(self, last_id: int, entries_added: int | None, max_deleted_id: int | None) -> None:
        """Set the counters, to greater or smaller values."""

    def remember(self, pid: bytes, iid: bytes) -> Collection[Dot]:
        """Compute the reply to a retry with an idempotent ID; returns the displaced tags."""


class _Empty(dict[Any, Any]):
    """The table of all streams that have none of their own: empty, and it cannot be changed."""

    def __setitem__(self, key: object, value: object) -> None:
        raise TypeError("an empty table that streams have in common cannot be changed")

    def setdefault(self, key: object, default: object = None) -> Any:
        self[key] = default

    def update(self, *args: Any, **more: Any) -> None:
        self[args] = more

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self[other] = None


_NONE: Final = _Empty()

BY_DOT: Final = (
    *("tombstones", "deadlines", "last_ids", "deleted_ids", "surpluses", "limits", "writes"),
)
"""The tables of :class:`Shared` that have dots as their only keys."""


@mypyc_attr(acyclic=True)
class Shared:
    """The shared state of one key."""

    keeps_key = False
    """Whether the key exists until it is deleted, even without entries and groups. If not, its
    contents determine whether a key exists, and regions agree on them."""

    def __init__(self) -> None:
        # Most streams have none of these: a table is made when something is put into it.
        # DEL, XGROUP DESTROY and expiry, until they are stable
        self.tombstones: dict[Dot, Tombstone] = _NONE
        self.deadlines: dict[Dot, int | None] = _NONE  # EXPIRE; None for PERSIST
        self.last_ids: dict[Dot, int] = _NONE  # XSETID
        self.deleted_ids: dict[Dot, int] = _NONE  # XSETID MAXDELETEDID
        self.surpluses: dict[Dot, int] = _NONE  # XSETID ENTRIESADDED: how much it added
        self.limits: dict[Dot, Limits] = _NONE
        self.tags: dict[bytes, dict[bytes, dict[Dot, Tag]]] = _NONE  # producer -> ID -> entries
        self.accepted: dict[bytes, dict[Dot, Accepted]] = _NONE  # bulk producer -> records
        self.writes: dict[Dot, Write] = _NONE  # SET, see register.py
        self.counts = b""  # INCR, packed
        self.elements: dict[str, Elements] = _NONE  # of a set and of a list, see elements.py
        self.removals: Removals | None = None  # of the tombstones, if it was computed

    @property
    def is_blank(self) -> bool:
        """Whether nothing is stored."""
        tables = (*BY_DOT, "tags", "accepted", "counts", "elements")
        return not any(getattr(self, name) for name in tables)

    def deadline_of(self, known: int | None) -> int | None:
        """The deadline of the key, for which this one was known; the settings here determine it."""
        return self.deadline_ms

    @property
    def deadline_ms(self) -> int | None:
        """The latest of concurrent settings; None (never) is later than all."""
        return register.latest(self.deadlines.values()) if self.deadlines else None

    def bury(self, dot: Dot, tombstone: Tombstone, note: Callable[[Dot], None]) -> None:
        """Store a tombstone for a removed key or group, until it is stable; ``note`` it."""
        self.tombstones = with_row(self.tombstones, dot, tombstone)
        if self.removals is not None:
            _note_removal(self.removals, dot, tombstone)
        note(dot)

    def set_tombstones(self, tombstones: dict[Dot, Tombstone]) -> None:
        """Replace the tombstones."""
        self.tombstones = tombstones
        self.removals = None

    def beats(self, group: bytes, knows: Covered) -> bool:
        """Whether a tombstone removes a group that is created with this context."""
        if not self.tombstones:
            return False
        removals = self.removals
        if removals is None:
            removals = self.removals = newest_removals(self.tombstones)
        return not all(map(knows, removals_of(removals, group)))

    def clear(self, covered: Covered) -> None:
        """A region that had applied these effects deleted the key. Tombstones stay."""
        for name in BY_DOT:
            if name != "tombstones":
                drop_covered(getattr(self, name), covered)
        for elements in list(self.elements.values()):
            elements.clear(covered)
            self.settle(elements)
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
    # Each replaces the settings in its context. The class below has what a region alone does.

    def set_ids(
        self,
        stream: Bearer,
        dot: Dot,
        last_id: int,
        entries_added: int | None,
        max_deleted_id: int | None,
        covered: Covered,
    ) -> None:
        """XSETID: counters only rise, and ``entries_added`` is the difference."""
        self.last_ids = _with_greater(self.last_ids, dot, last_id, covered)
        if entries_added:
            self.surpluses = with_row(self.surpluses, dot, entries_added)
        if max_deleted_id is not None:
            self.deleted_ids = _with_greater(self.deleted_ids, dot, max_deleted_id, covered)
        stream.recount()

    def set_deadline(self, dot: Dot, at_ms: int | None, covered: Covered) -> int | None:
        """EXPIRE; returns the resulting deadline."""
        drop_covered(self.deadlines, covered)
        self.deadlines = with_row(self.deadlines, dot, at_ms)
        if self.writes:
            self.writes = register.set_deadline(self.writes, dot, at_ms, covered)
        return self.deadline_ms

    def set_limits(self, stream: Bearer, dot: Dot, limits: Limits, covered: Covered) -> bool:
        """XCFGSET; idempotent IDs in its context are forgotten.

        Returns whether limits and look-up tables must be computed again.
        """
        drop_covered(self.limits, covered)
        self.limits = with_row(self.limits, dot, limits)
        self.drop_tags(covered)
        return True

    def remember(
        self,
        stream: Bearer,
        dot: Dot,
        pid: bytes,
        iid: bytes,
        tag: Tag,
        covered: Covered,
    ) -> Collection[Dot]:
        """A producer's idempotent ID stands for an entry; returns the tags that it displaced."""
        dots = self.tags_of(pid).setdefault(iid, {})
        if dots:
            drop_covered(dots, covered)
        dots[dot] = tag
        return stream.remember(pid, iid)

    def accept(self, pid: bytes, dot: Dot, record: Accepted, covered: Covered) -> Accepted:
        """A batch of a bulk producer; returns the resulting record."""
        records = self.accepted_of(pid)
        drop_covered(records, covered)
        records[dot] = record
        return max(records.values())

    def drop_accepted(self, pid: bytes, covered: Covered) -> Accepted | None:
        """Forget a bulk producer; returns the remaining record, if there is one."""
        records = self.accepted.get(pid, {})
        drop_covered(records, covered)
        if records:
            return max(records.values())
        self.accepted.pop(pid, None)
        return None

    # -- a set and a list of the key, see elements.py -----------------------------------------

    def elements_of(self, kind: str) -> Elements:
        """The elements of a set or a list; call :meth:`settle` after a change."""
        found = self.elements.get(kind)
        return Elements(kind) if found is None else found

    def settle(self, elements: Elements) -> None:
        """Keep elements while there are any."""
        if elements.puts:
            self.elements = with_row(self.elements, elements.kind, elements)
        else:
            self.elements.pop(elements.kind, None)

    @property
    def small_kinds(self) -> list[str]:
        """What the key has beside a stream: the first is shown if there is no stream."""
        found = [STRING] if self.is_register and self.has_string else []
        return found + [kind for kind in (SET, LIST) if kind in self.elements]

    # -- the string of the key, see register.py -----------------------------------------------

    @property
    def has_string(self) -> bool:
        """Whether the key has a string, which a stream hides."""
        return bool(self.writes) or (bool(self.counts) and self.string is not None)

    @property
    def string(self) -> bytes | None:
        """The string of the key, or None."""
        return register.string_of(self.writes, register.read_counts(self.counts))

    def small_deadline_of(self, known: int | None) -> int | None:
        """The deadline of a string, a set or a list, for which this one was known."""
        return register.deadline_of(self.writes, register.read_counts(self.counts), self.deadlines)

    def write(self, dot: Dot, write: Write, covered: Covered) -> None:
        """SET: replaces the writes and deadlines in its context."""
        drop_covered(self.writes, covered)
        drop_covered(self.deadlines, covered)
        self.writes = with_row(self.writes, dot, write)

    def increase(self, dot: Dot, since: int, total: int, at_ms: int | None) -> None:
        """INCR: its replica ID has another total."""
        counts = register.read_counts(self.counts)
        register.increase(counts, dot, since, total, at_ms)
        self.counts = register.pack_counts(counts)

    def cut(self, cuts: list[Cut]) -> None:
        """A write or a deletion has seen these totals; it leaves a tombstone."""
        if cuts:
            counts = register.read_counts(self.counts)
            register.cut(counts, cuts)
            self.counts = register.pack_counts(counts)

    def prune(self, watermark: Mapping[int, int]) -> bool:
        """Drop tombstones that every member has; returns whether one is left."""
        drop_covered(self.tombstones, lambda dot: dot[1] <= watermark.get(dot[0], 0))
        self.set_tombstones(self.tombstones)
        if self.tombstones:
            return True
        if self.counts:  # no increment that a cut does not know can arrive any more
            counts = register.read_counts(self.counts)
            self.counts = register.pack_counts(
                {replica_id: row for replica_id, row in counts.items() if row.is_alive}
            )
        return False

    def tags_of(self, pid: bytes) -> dict[bytes, dict[Dot, Tag]]:
        """The table of a producer's idempotent IDs; it is made if there is none."""
        found = self.tags.get(pid)
        if found is None:
            found = {}
            self.tags = with_row(self.tags, pid, found)
        return found

    def dots(self, pid: bytes) -> set[Dot]:
        """The tags of a producer that are remembered."""
        return {dot for dots in self.tags.get(pid, {}).values() for dot in dots}

    def accepted_of(self, pid: bytes) -> dict[Dot, Accepted]:
        """The table of a bulk producer's records; it is made if there is none."""
        found = self.accepted.get(pid)
        if found is None:
            found = {}
            self.accepted = with_row(self.accepted, pid, found)
        return found

    # -- to be kept ---------------------------------------------------------------------------

    @property
    def kept(self) -> Shared | None:
        """What snapshots keep of it: itself, None in a region alone."""
        return self

    @property
    def is_register(self) -> bool:
        """Whether something of a string is stored."""
        return bool(self.writes or self.counts)

    @property
    def has_small(self) -> bool:
        """Whether something of a string, a set or a list is stored."""
        return self.is_register or bool(self.elements)

    @property
    def level(self) -> int:
        """The feature level that members must have to know all of it."""
        if self.elements:
            return ELEMENTS_LEVEL
        return STRINGS_LEVEL if self.is_register else 0

    def check(self, stream: Bearer) -> None:
        """Assert that the counters of the stream follow from this state."""
        counters = stream.last_id, stream.max_deleted_id, stream.added_surplus
        stream.recount()
        assert counters == (stream.last_id, stream.max_deleted_id, stream.added_surplus)
        assert self.removals in (None, newest_removals(self.tombstones))
        for elements in self.elements.values():
            elements.check()


@mypyc_attr(acyclic=True)
class _Nothing(Shared):
    """The state of a stream that no other region writes: empty tables, which cannot be changed."""

    keeps_key = True

    @property
    def kept(self) -> Shared | None:
        return None

    def bury(self, dot: Dot, tombstone: Tombstone, note: Callable[[Dot], None]) -> None:
        """Do nothing: there are no concurrent creations."""

    def deadline_of(self, known: int | None) -> int | None:
        return known

    def small_deadline_of(self, known: int | None) -> int | None:
        return known

    def check(self, stream: Bearer) -> None:
        """XSETID may have lowered them. Assert that nothing is shared."""
        assert self.is_blank

    def set_ids(
        self,
        stream: Bearer,
        dot: Dot,
        last_id: int,
        entries_added: int | None,
        max_deleted_id: int | None,
        covered: Covered,
    ) -> None:
        stream.set_ids(last_id, entries_added, max_deleted_id)

    def set_deadline(self, dot: Dot, at_ms: int | None, covered: Covered) -> int | None:
        return at_ms

    def set_limits(self, stream: Bearer, dot: Dot, limits: Limits, covered: Covered) -> bool:
        stream.producers.configure(limits.duration_s, limits.maxsize)
        return False

    def accept(self, pid: bytes, dot: Dot, record: Accepted, covered: Covered) -> Accepted:
        return record

    def drop_accepted(self, pid: bytes, covered: Covered) -> Accepted | None:
        return None


NOTHING_SHARED: Final[Shared] = _Nothing()
"""The shared state of every stream of a region alone."""


def with_row(table: dict[_K, _T], key: _K, value: _T) -> dict[_K, _T]:
    """A table of :class:`Shared` with another row; a new one, if it was the common empty table."""
    if table is _NONE:
        return {key: value}
    table[key] = value
    return table


def newest_removals(tombstones: Mapping[Dot, Tombstone]) -> Removals:
    """What is needed of tombstones to tell whether they remove the group of a creation."""
    newest: Removals = {}
    for dot, tombstone in tombstones.items():
        _note_removal(newest, dot, tombstone)
    return newest


def removals_of(removals: Removals, group: bytes) -> tuple[Dot, ...]:
    """The newest removals of a group."""
    return removals.get(ALL_GROUPS, ()) + removals.get(group, ())


def _note_removal(removals: Removals, dot: Dot, tombstone: Tombstone) -> None:
    ascending = sorted((*removals.get(tombstone, ()), dot))
    removals[tombstone] = tuple({each[0]: each for each in ascending}.values())


def _with_greater(table: dict[Dot, int], dot: Dot, value: int, covered: Covered) -> dict[Dot, int]:
    """A table with another row, which replaces those in its context that are not greater."""
    drop_covered(table, lambda each: table[each] <= value and covered(each))
    return with_row(table, dot, value)


def drop_covered(table: dict[Dot, _T], covered: Covered) -> None:
    """Drop the dots that a removal or a new setting covers."""
    for dot in [dot for dot in table if covered(dot)]:
        del table[dot]


def winner(dots: dict[Dot, Tag]) -> Dot:
    """The tag that counts, of several for one idempotent ID: that with the smallest entry ID."""
    return min(dots, key=lambda dot: (dots[dot].answered, dot[0] & 0xFF, dot))


def age_rank(dots: dict[Dot, Tag]) -> tuple[int, int, int, int]:
    """A rank by age: of a producer's idempotent IDs those with the greatest ranks are remembered.

    Epochs of one region number their effects anew, so the replica ID is part of the rank.
    """
    if len(dots) == 1:
        (((replica_id, number), tag),) = dots.items()
        return tag.at_ms, replica_id & 0xFF, replica_id, number
    return max((tag.at_ms, dot[0] & 0xFF, *dot) for dot, tag in dots.items())
