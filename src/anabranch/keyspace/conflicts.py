"""Conflicts: one message of an idempotent producer that several regions accepted.

Of the entries that regions added concurrently for one idempotent ID, the entry with the smallest
(ID, region) stays. The region of a losing entry resolves the conflict by an effect
(:class:`kinds.ResolveConflict`), which travels to the other regions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from anabranch.keyspace.displaced_tags import DisplacedTags
from anabranch.keyspace.held_tags import Dot, HeldTag, HeldTags, are_concurrent
from anabranch.keyspace.processed import Place, Processed
from anabranch.stream.shared import Tag

__all__ = ["Conflicts", "Due", "Resolved"]

RESOLVED_MAX: Final = 1000
"""Conflicts kept for reports; older ones are dropped."""

Rank = tuple[int, int, int, int]


class Due(NamedTuple):
    """A conflict that this region has to resolve."""

    goes: HeldTag
    stays: HeldTag
    is_new: bool
    """Whether the tag loses for the first time."""


class Resolved(NamedTuple):
    """A conflict that was resolved, to be reported."""

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
        "counts",
        "displaced",
        "dropped",
        "due",
        "heard",
        "held",
        "is_stale",
        "processed",
        "resolved",
    )

    def __init__(self) -> None:
        self.held: dict[int, HeldTags] = {}
        self.beaten: dict[Dot, Rank] = {}  # tags that lost, and the best rank reported for each
        self.counts: dict[int, int] = {}  # by replica ID, how many conflicts it has resolved
        self.due: dict[Dot, Due] = {}
        self.displaced = DisplacedTags()
        self.dropped = 0  # count of tags dropped because there were too many
        self.resolved: deque[Resolved] = deque(maxlen=RESOLVED_MAX)
        self.processed = Processed()
        self.is_stale = (
            False  # whether all tags must be checked again: other regions may resolve now
        )
        self.heard = 0  # grows whenever an effect of another region is applied
        self._context: tuple[int, Mapping[int, int]] = (-1, {})

    @property
    def total(self) -> int:
        """The count of conflicts that all known regions have resolved."""
        return sum(self.counts.values())

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
            held = self.held[tag.replica_id] = HeldTags()
        held.add(tag)

    def prune(self, watermark: Mapping[int, int], vector: Mapping[int, int]) -> None:
        """Drop what is not needed below the watermark; ``vector``: what is applied here."""
        for replica_id, held in list(self.held.items()):
            held.drop_upto(watermark.get(replica_id, 0))
            if not len(held):
                del self.held[replica_id]
        for replica_id, number in list(self.beaten):
            oldest = self.held[replica_id].oldest if replica_id in self.held else number + 1
            if number <= watermark.get(replica_id, 0) and number < oldest:
                del self.beaten[replica_id, number]
        self.processed.prune(watermark, vector)
        self.displaced.prune(watermark, vector)

    def record_processed(self, where: Place, replica_id: int, numbers: Iterable[int]) -> None:
        """Record that entries of a replica ID were acknowledged in a group of this region.

        While a conflict is unresolved, at least one of its two tags is held.
        """
        if not self.held:
            return
        held = self.held.get(replica_id, HeldTags())
        for number in numbers:
            tag = held.of_number(number + 1)
            # The effect behind a tagged entry is mostly its tag: so entries make one interval.
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

    def detect(self, tag: HeldTag, cares: Callable[[int], bool]) -> None:
        """A tag of another replica ID has arrived: queue the conflicts for this region to resolve.

        ``cares`` returns whether this region resolves the conflicts of a replica ID.
        """
        is_ours = cares(tag.replica_id)
        for replica_id, held in self.held.items():
            if replica_id != tag.replica_id and (is_ours or cares(replica_id)):
                for other in held.find(tag, tag.context.get(replica_id, 0)):
                    if are_concurrent(tag, other):
                        goes, stays = (tag, other) if other.rank < tag.rank else (other, tag)
                        if cares(goes.replica_id):
                            self._queue(goes, stays)

    def detect_again(self, cares: Callable[[int], bool]) -> None:
        """Check all tags again: this region may have to resolve other conflicts than before."""
        self.is_stale = False
        for replica_id, held in list(self.held.items()):
            if cares(replica_id):
                for tag in held:
                    self.detect(tag, cares)

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
        due = self.due.get(dot)
        if due is None or stays.rank < due.stays.rank:
            self.due[dot] = Due(goes, stays, known is None)

    def record_beaten(self, dot: Dot, rank: Rank) -> None:
        """Record that a tag has lost to one of this rank."""
        known = self.beaten.get(dot)
        if known is None or rank < known:
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
            [
                [*dot, rank[0] >> 64, rank[0] & (1 << 64) - 1, *rank[2:]]
                for dot, rank in self.beaten.items()
            ],
            list(self.counts.items()),
            self.dropped,
            self.processed.written(),
            self.displaced.written(),
        ]

    def read(self, written: list[Any]) -> None:
        """Take over what :meth:`written` gave."""
        chunks, beaten, counts, self.dropped, processed, *more = written
        for replica_id, data in chunks:
            self.held.setdefault(replica_id, HeldTags()).read(replica_id, data)
        for replica_id, number, ms, seq, winner, place in beaten:
            self.beaten[replica_id, number] = ms << 64 | seq, winner & 0xFF, winner, place
        self.counts = dict(counts)
        self.processed.read(processed)
        for displaced in more[:1]:  # earlier versions did not write them
            self.displaced.read(displaced)

    def join(
        self,
        other: Conflicts,
        ours: Mapping[int, int],
        cares: Callable[[int], bool],
    ) -> list[tuple[HeldTag, HeldTag]]:
        """Take over the tags of a full sync that are beyond what is applied here (``ours``).

        Returns the conflicts that were resolved there and are new here: the losing tag and the
        winning one.
        """
        self.heard += 1
        resolved = []
        for dot, rank in other.beaten.items():
            if self.beaten.get(dot) != rank:
                resolved.append((dot, rank[2:]))
            self.record_beaten(dot, rank)
        for replica_id, count in other.counts.items():
            self.counts[replica_id] = max(self.counts.get(replica_id, 0), count)
        for replica_id, held in sorted(other.held.items()):
            for tag in held.after(ours.get(replica_id, 0)):
                self.hold(tag)
                self.detect(tag, cares)
        pairs = [(self.tag_of(goes), self.tag_of(stays)) for goes, stays in resolved]
        return [(goes, stays) for goes, stays in pairs if goes is not None and stays is not None]

    def tag_of(self, dot: Dot) -> HeldTag | None:
        """The held tag of an effect, or None."""
        held = self.held.get(dot[0])
        return None if held is None else held.of_number(dot[1])
