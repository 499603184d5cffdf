"""Conflicts: one message of an idempotent producer that several regions accepted.

Of the entries that regions added concurrently for one idempotent ID, the entry with the smallest
(ID, region) stays. Every region that knows both tags finds the conflict by this rule alone, when
the second one arrives, and resolves it at once by an effect (:class:`kinds.ResolveConflict`). So
nobody has to wait for the region of the losing entry. Several regions make the same effect; to
apply it again changes nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from anabranch.keyspace.displaced_tags import DisplacedTags
from anabranch.keyspace.held_tags import HeldTag, HeldTags, are_concurrent
from anabranch.keyspace.last_effects import Place
from anabranch.stream import fields
from anabranch.stream.entry_id import make, split
from anabranch.stream.fields import NUMBER, REPLICA_ID, table
from anabranch.stream.ranges import Ranges
from anabranch.stream.shared import Dot, Tag

RESOLVED_MAX: Final = 1000
"""Conflicts kept for reports; older ones are dropped."""

Rank = tuple[int, int, int, int]


class Due(NamedTuple):
    """A conflict that was found and not resolved yet."""

    goes: HeldTag
    stays: HeldTag


class ResolvedConflict(NamedTuple):
    """A conflict that was found, to be reported."""

    db: int
    key: bytes
    pid: bytes
    iid: bytes
    stays: int
    goes: int
    """Entry IDs."""


class Conflicts:
    """The held tags of all replica IDs, and the results of conflicts."""

    __slots__ = (
        "_context",
        "beaten",
        "displaced",
        "dropped",
        "due",
        "heard",
        "held",
        "processed",
        "resolved",
        "stable",
    )

    def __init__(self) -> None:
        self.held: dict[int, HeldTags] = {}
        self.beaten: dict[Dot, Rank] = {}  # tags that lost, and the best rank reported for each
        # By replica ID, of its tags up to a number how many have lost: these are not in `beaten`
        # any more. Such tags are stable, and all tags that are concurrent to them have arrived.
        self.stable: dict[int, tuple[int, int]] = {}
        self.due: dict[Place, dict[Dot, Due]] = {}  # by database and key
        self.displaced = DisplacedTags()
        self.dropped = 0  # count of tags dropped because there were too many
        self.resolved: deque[ResolvedConflict] = deque(maxlen=RESOLVED_MAX)
        self.processed = Processed()
        self.heard = 0  # grows whenever an effect of another region is applied
        self._context: tuple[int, Mapping[int, int]] = (-1, {})

    @property
    def total(self) -> int:
        """How many tags have lost: the same in all regions that know the same tags."""
        return len(self.beaten) + sum(count for _, count in self.stable.values())

    def __len__(self) -> int:
        return sum(map(len, self.held.values()))

    @property
    def size(self) -> int:
        """The approximate memory of the held tags in bytes."""
        return sum(held.size for held in self.held.values())

    # -- holding ------------------------------------------------------------------------------

    def context_of(self, context: Mapping[int, int], *, is_own: bool) -> Mapping[int, int]:
        """The context of an effect as an object to store; effects with equal contexts share it."""
        if not is_own:
            return context
        if self._context[0] != self.heard:
            self._context = self.heard, dict(context)
        return self._context[1]

    def hold(self, tag: HeldTag) -> None:
        """Hold a tag that was applied."""
        held = self.held.get(tag.replica_id)
        if held is None:
            held = self.held[tag.replica_id] = HeldTags(tag.replica_id)
        held.add(tag)

    def prune(self, watermark: Mapping[int, int], vector: Mapping[int, int]) -> None:
        """Drop what is not needed below the watermark; ``vector``: what is applied here."""
        for replica_id, held in list(self.held.items()):
            held.drop_upto(watermark.get(replica_id, 0))
            if not len(held):
                del self.held[replica_id]
        for replica_id, number in sorted(self.beaten):
            oldest = self.held[replica_id].oldest if replica_id in self.held else number + 1
            if number <= watermark.get(replica_id, 0) and number < oldest:
                del self.beaten[replica_id, number]
                self.stable[replica_id] = number, self.stable.get(replica_id, (0, 0))[1] + 1
        self.processed.prune(watermark)
        self.displaced.prune(watermark, vector)

    def record_processed(self, where: GroupPlace, replica_id: int, numbers: Iterable[int]) -> None:
        """Record that entries of a replica ID were acknowledged in a group of this region.

        While a conflict is unresolved, at least one of its two tags is held.
        """
        if not self.held:
            return
        held = self.held.get(replica_id, HeldTags(replica_id))
        for number in numbers:
            tag = held.of_number(number + 1)
            # The effect after a tagged entry is mostly its tag: so entries make one interval.
            is_tagged = tag is not None and tag.entry == (replica_id, number)
            self.processed.add(where, replica_id, number - 1, number + is_tagged)

    def limit(self, most: int) -> int:
        """Drop the oldest tags above a limit (0: no limit); returns their count."""
        gone = 0
        if most:
            self.processed.limit(most)
            while (count := len(self)) > most:
                largest = max(self.held.values(), key=len)
                gone += largest.drop_oldest()
                if len(self) == count:
                    break
        self.dropped += gone
        return gone

    # -- finding ------------------------------------------------------------------------------

    def detect(self, tag: HeldTag) -> None:
        """A tag of another replica ID has arrived: find its conflicts with those that are held."""
        for replica_id, held in self.held.items():
            if replica_id != tag.replica_id:
                for other in held.find(tag, tag.context.get(replica_id, 0)):
                    if are_concurrent(tag, other):
                        goes, stays = (tag, other) if other.rank < tag.rank else (other, tag)
                        self._queue(goes, stays)

    def as_resolved(self, dot: Dot, tag: Tag) -> Tag:
        """The tag of an effect with what a resolution says of it, which may have missed the tag."""
        rank = self.beaten.get(dot)
        return tag if rank is None or rank[0] >= tag.answered else tag._replace(stays=rank[0])

    def displaced_tags(self, db: int, key: bytes, pid: bytes) -> Iterator[HeldTag]:
        """The held tags of a producer that may be displaced: some are remembered nevertheless."""
        for replica_id, (low, high) in dict(self.displaced.of((db, key)).get(pid, {})).items():
            for tag in self.held[replica_id].after(low) if replica_id in self.held else ():
                if tag.number > high:
                    break
                if tag[2:5] == (db, key, pid) and not self._is_replaced(tag):
                    yield tag

    def _is_replaced(self, tag: HeldTag) -> bool:
        """Whether another held tag for the same idempotent ID has this one in its context."""
        return any(
            other.knows(tag.dot)
            for replica_id, held in self.held.items()
            for other in held.find(
                tag,
                tag.number if replica_id == tag.replica_id else tag.context.get(replica_id, 0),
            )
        )

    def _queue(self, goes: HeldTag, stays: HeldTag) -> None:
        dot = goes.dot
        known = self.beaten.get(dot)
        if known is not None and known <= stays.rank:
            return
        self.record_beaten(dot, stays.rank)
        place = goes.db, goes.key
        self.due.setdefault(place, {})[dot] = Due(goes, stays)
        if known is None:
            names = stays.pid, stays.iid
            self.resolved.append(ResolvedConflict(*place, *names, stays.entry_id, goes.entry_id))

    def record_beaten(self, dot: Dot, rank: Rank) -> None:
        """Record that a tag has lost to one of this rank."""
        known = self.beaten.get(dot)
        if (known is None or rank < known) and dot[1] > self.stable.get(dot[0], (0, 0))[0]:
            self.beaten[dot] = rank

    # -- whole states -------------------------------------------------------------------------

    def written(self) -> list[Any]:
        """Everything as plain values; :meth:`read` takes it back."""
        return [
            [
                [replica_id, chunk]
                for replica_id, held in self.held.items()
                for chunk in held.chunks()
            ],
            *CONFLICTS.write(self),
            self.processed.written(),
            self.displaced.written(),
        ]

    def read(self, rows: list[Any]) -> None:
        """Take over what :meth:`written` gave."""
        chunks, *values, processed, displaced = rows
        for replica_id, data in chunks:
            self.held.setdefault(replica_id, HeldTags(replica_id)).read(data)
        beaten, self.stable, self.dropped = CONFLICTS.read(values)
        self.beaten.update(beaten)
        self.processed.read(processed)
        self.displaced.read(displaced)

    def join(
        self, other: Conflicts, ours: Mapping[int, int]
    ) -> tuple[list[tuple[HeldTag, HeldTag]], Counter[Place]]:
        """Take over the tags of a full sync that are beyond what is applied here (``ours``).

        Returns the conflicts that were resolved there and are new here, as the losing tag and the
        winning one; and of each key the count of new tags.
        """
        self.heard += 1
        for replica_id, row in other.stable.items():
            if row > self.stable.get(replica_id, (0, 0)):
                self.stable[replica_id] = row
                for dot in [dot for dot in self.beaten if dot[0] == replica_id]:
                    if dot[1] <= row[0]:
                        del self.beaten[dot]
        resolved = []
        for dot, rank in other.beaten.items():
            if self.beaten.get(dot) != rank:
                resolved.append((dot, rank[2:]))
            self.record_beaten(dot, rank)
        added: Counter[Place] = Counter()
        for replica_id, held in sorted(other.held.items()):
            for tag in held.after(ours.get(replica_id, 0)):
                self.hold(tag)
                self.detect(tag)
                added[tag.db, tag.key] += 1
        pairs = [(self.tag_of(goes), self.tag_of(stays)) for goes, stays in resolved]
        some = [(goes, stays) for goes, stays in pairs if goes is not None and stays is not None]
        return some, added

    def tag_of(self, dot: Dot) -> HeldTag | None:
        """The held tag of an effect, or None."""
        held = self.held.get(dot[0])
        return None if held is None else held.of_number(dot[1])


_RANK: Final = fields.Form(
    lambda rank: [*split(rank[0]), *rank[2:]],
    lambda parts: (make(*parts[:2]), parts[2] & 0xFF, *parts[2:]),
    None,
    (NUMBER.kind, int, REPLICA_ID.kind, NUMBER.kind),
)
CONFLICTS: Final = fields.FieldTable(
    beaten=table(fields.DOT, _RANK),
    stable=table(REPLICA_ID, fields.row(fields.pair, NUMBER, NUMBER)),
    dropped=fields.INTEGER,
)
"""What is written of :class:`Conflicts`, beside its parts."""

GroupPlace = tuple[int, bytes, bytes]
"""Database, key, group."""


class Processed:
    """By group and by replica ID, the numbers of entries that were acknowledged in this region.

    Another region may have accepted the same message. If a conflict removes such an entry, the
    remaining entry need not be delivered again. This is remembered until the entry is below the
    watermark: then every effect without the entry in its context has arrived here, and the
    conflicts that follow are resolved.
    """

    def __init__(self) -> None:
        self._ranges: dict[tuple[GroupPlace, int], Ranges] = {}

    def __len__(self) -> int:
        """The count of intervals, not of numbers."""
        return sum(map(len, self._ranges.values()))

    def add(self, where: GroupPlace, replica_id: int, low: int, high: int) -> None:
        """Record that the numbers above ``low`` up to ``high`` were acknowledged."""
        self._ranges.setdefault((where, replica_id), Ranges()).add(low, high)

    def __contains__(self, entry: tuple[GroupPlace, tuple[int, int]]) -> bool:
        where, (replica_id, number) = entry
        return number in self._ranges.get((where, replica_id), ())

    def prune(self, watermark: Mapping[int, int]) -> None:
        """Drop what is below the watermark."""
        for place, ranges in list(self._ranges.items()):
            rest = ranges.without(Ranges([(0, watermark.get(place[1], 0))]))
            if rest:
                self._ranges[place] = rest
            else:
                del self._ranges[place]

    def limit(self, most: int) -> None:
        """Keep so many intervals, the newest of each group."""
        ranges = self._ranges
        while len(self) > most:
            place = max(ranges, key=lambda each: len(ranges[each]))
            edges = ranges[place].flat()
            ranges[place] = Ranges.of_flat(edges[len(edges) // 4 * 2 or 2 :])
            if not ranges[place]:
                del ranges[place]

    def written(self) -> list[list[Any]]:
        """Everything as plain values; :meth:`read` takes it back."""
        return [
            [*where, replica_id, ranges.flat()]
            for (where, replica_id), ranges in self._ranges.items()
        ]

    def read(self, written: list[list[Any]]) -> None:
        """Read what :meth:`written` returned."""
        for db, key, group, replica_id, edges in written:
            self._ranges[(db, key, group), replica_id] = Ranges.of_flat(edges)
