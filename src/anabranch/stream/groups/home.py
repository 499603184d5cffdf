"""Where a consumer group of several regions is delivered: in its *home*, one region at a time.

The home is the region of the greatest *home epoch*, ``(number, region)``. Epochs are shared by the
regions, under the creations of the group as acknowledgements are; without one the policy
``home-region`` says where the home is (its number is 0). What else is here belongs to this region.

A region that stops being home *hands over*: it tells of everything it acknowledged, and what is
pending in it. A moved group begins in its new home when that has come. A taken group (*forced*)
begins at once: each other region hands over when it hears of that, and until all have, the new home
*watches* which of its deliveries were deliveries of others, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from anabranch.stream import by_number
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog
from anabranch.stream.shared import Dot


class HomeEpoch(NamedTuple):
    """A home epoch; the greatest counts."""

    number: int
    region: int
    forced: bool = False
    """Whether it was taken although its former home did not hand over."""


NOWHERE: Final = HomeEpoch(0, 0)


class TakeWatch:
    """What this region has delivered since it took a group."""

    def __init__(self, home: HomeEpoch) -> None:
        self.home = home
        self.closed: set[int] = set()
        """The regions that have handed over since."""
        self.taken: dict[int, Ranges] = {}
        """By replica ID, exactly the numbers of the entries, without those that are repeated."""
        self.passed: dict[int, Ranges] = {}
        """The same of those that were handed over to another home: others may acknowledge them."""
        self.told: dict[Dot, Dot] = {}
        """By entry, the effect by which this region told that it has acknowledged the entry."""

    def note(self, replica_id: int, number: int, *, is_handed_out: bool) -> None:
        """An entry waits for others of its key, and counts as not delivered, or not any more."""
        taken = self.taken.setdefault(replica_id, Ranges())
        if is_handed_out:
            taken.add(number - 1, number)
        else:
            self.taken[replica_id] = taken.without(Ranges.of_numbers([number]))

    def pass_on(self, numbers: Mapping[int, list[int]]) -> None:
        """Entries that this region has taken are pending in another one now."""
        for replica_id, some in numbers.items():
            taken = self.taken.get(replica_id)
            if taken:
                passed = Ranges.of_numbers([number for number in some if number in taken])
                self.passed.setdefault(replica_id, Ranges()).update(passed)
                self.taken[replica_id] = taken.without(passed)

    def passed_among(self, numbers: Mapping[int, list[int]]) -> list[Dot]:
        """Those of some entries that were handed over."""
        return [
            (replica_id, number)
            for replica_id, some in numbers.items()
            for number in some
            if number in self.passed.get(replica_id, ())
        ]

    def among(
        self, replica_id: int, log: RegionLog, ranges: Iterable[tuple[int, int]]
    ) -> list[tuple[int, int]]:
        """Number and ID of the live entries in some ranges that this region has delivered."""
        taken = self.taken.get(replica_id)
        if not taken:
            return []
        return [
            (number, block.ids[at])
            for low, high in ranges
            for block, first, stop in by_number.spans(log, low, high)
            for at, number in enumerate(block.numbers_of(first, stop), first)
            if number in taken
        ]

    def repeated(
        self,
        replica_id: int,
        log: RegionLog,
        ranges: Iterable[tuple[int, int]],
        knows: Callable[[Dot], bool] | None = None,
    ) -> dict[int, None]:
        """The IDs of entries that another region has delivered, too; they are not taken then.

        If it has acknowledged them, ``knows`` says which effects it knew then: a range that it
        tells contains entries, too, of which it knew that they are acknowledged.
        """
        gone: list[int] = []
        found: dict[int, None] = {}
        for number, entry_id in self.among(replica_id, log, ranges):
            told = self.told.get((replica_id, number))
            if told is None or knows is None or not knows(told):
                gone.append(number)
                found[entry_id] = None
                self.told.pop((replica_id, number), None)
        if gone:
            self.taken[replica_id] = self.taken[replica_id].without(Ranges.of_numbers(gone))
        return found


class GroupHome:
    """The homes of one group, as this region knows them, and its own part in them."""

    def __init__(self) -> None:
        self.epochs: dict[Dot, HomeEpoch] = {}
        """By creation, the greatest."""
        self.begun = NOWHERE
        """The epoch of this region in which it may deliver: what was pending has come."""
        self.leaving: HomeEpoch | None = None
        """The next epoch, while this region has stopped and has not handed over."""
        self.closed = NOWHERE
        """The greatest epoch for which this region has handed over."""
        self.moved = NOWHERE
        """The greatest epoch that this region has begun by handing over as the home."""
        self.has_handed_over = False
        """Whether it has delivered nothing since."""
        self.watch: TakeWatch | None = None
        self.adopted: dict[int, Ranges] = {}
        """By replica ID, the numbers of what was pending in a region that has handed over."""
        self.twice: list[Dot] = []
        """What another region has acknowledged while it was pending here, since this one last
        handed over: both have delivered it."""
        self.repeated: dict[int, None] = {}
        """IDs of entries that this region and another one have delivered, as far as is known."""
        # Of this process alone:
        self.pieces: dict[int, int] = {}
        """By region that hands over, how many pieces of that have come, without a gap."""
        self.asked: dict[int, HomeEpoch] = {}
        """By region that asks for a hand-over: the epoch of which it asks."""
        self.is_incomplete = False
        """Whether hand-overs may be missing, because a full sync came instead of effects."""

    def is_next(self, sender: int, piece: int, *, more: bool) -> bool:
        """Note a piece of a hand-over; whether all pieces before it have come.

        If not (a full sync came in their place, or this region began again from a snapshot), the
        hand-over must be asked for once more.
        """
        known = self.pieces.pop(sender, -1)
        expected = known if piece else 0
        if piece == expected and more:
            self.pieces[sender] = piece + 1
        return piece == expected

    def current(self, first: int) -> HomeEpoch:
        """The epoch that counts; ``first`` is the region of the policy."""
        return max(self.epochs.values(), default=HomeEpoch(0, first))

    def raise_to(self, creations: Iterable[Dot], home: HomeEpoch) -> None:
        """An epoch has become known under some creations."""
        if home.number:
            for dot in creations:
                self.epochs[dot] = max(home, self.epochs.get(dot, NOWHERE))

    def join(self, other: GroupHome | None, alive: Iterable[Dot]) -> None:
        """Take over what another region knows; creations that are removed have no epochs."""
        known = set(alive)
        if other is not None:
            for dot, home in other.epochs.items():
                self.raise_to([dot], home)
        for dot in [dot for dot in self.epochs if dot not in known]:
            del self.epochs[dot]
        self.is_incomplete = True

    def take(self, home: HomeEpoch) -> None:
        """This region takes the group without a hand-over."""
        self.begun = home
        self.leaving = None
        self.has_handed_over = False
        watch = TakeWatch(home)
        if self.watch is not None:
            watch.taken, watch.told = self.watch.taken, self.watch.told
            watch.passed = self.watch.passed
        self.watch = watch

    def must_wait(self, asked: HomeEpoch, region: int) -> bool:
        """Whether a region that is asked for an epoch of its own has not begun in it yet."""
        waits = asked.region == region and asked.number > 0 and self.begun < asked
        return waits and self.current(region) == asked and self.leaving is None

    def moves(self, home: HomeEpoch) -> bool:
        """Whether the region of an epoch begins with what this region hands over."""
        return home in (self.leaving, self.moved)

    def pass_on(self, numbers: Mapping[int, list[int]]) -> None:
        """This region hands over these pending entries, by replica ID."""
        if self.watch is not None:
            self.watch.pass_on(numbers)

    def hand_over(self, home: HomeEpoch, *, moves: bool) -> None:
        """This region has handed over."""
        self.twice = []
        if moves:
            self.moved = max(self.moved, home)
        self.closed = max(self.closed, home)
        self.has_handed_over = True
        if self.leaving is not None and self.leaving <= home:
            self.leaving = None

    def delivers(self, replica_id: int, numbers: list[int]) -> None:
        """This region delivers entries."""
        self.has_handed_over = False
        if self.watch is not None:
            self.watch.taken.setdefault(replica_id, Ranges()).add_numbers(numbers)
