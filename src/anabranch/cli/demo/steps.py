"""The steps of the demonstration up to the cut: begin, write everywhere, cut, diverge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from anabranch.cli.cluster_files import Member
from anabranch.cli.cluster_view import ClusterView, table
from anabranch.cli.demo.story import Claim, Step
from anabranch.cli.demo.traffic import Traffic
from anabranch.cli.demo.world import STREAM, World, names

ENTRIES_MIN: Final = 10
"""A step waits until there are so many entries to show."""


class Begin(Step):
    """All regions run."""

    title = "Several regions, one stream"

    def __init__(self, world: World, traffic: Traffic) -> None:
        self._world, self._traffic = world, traffic
        count = len(world.members)
        self.text = (
            f"{count} servers ({names(world.members)}) form one cluster. In each region a shop "
            f"adds orders to the stream '{STREAM}', and a consumer group of its own processes them."
        )

    def act(self) -> None:
        """Begin the traffic; the regions run already."""
        self._traffic.start()

    def shown_by(self) -> Sequence[str]:
        """Who is a member."""
        return [f"redis-cli -p {self._world.members[0].port} AB.REGION LIST"]

    def claims(self) -> Iterable[Claim]:
        """Each region knows all others."""
        known = [len(self._world.do(each, "AB.REGION", "LIST")) for each in self._world.members]
        yield Claim(
            "every region knows all regions",
            known == [len(known)] * len(known),
            f"{len(known)} regions",
        )


class WriteEverywhere(Step):
    """Entries of all regions are in all."""

    title = "Every region accepts writes"
    text = "Each region answers its own clients at once; the others get the entries a moment later."

    def __init__(self, world: World, traffic: Traffic) -> None:
        self._world, self._traffic = world, traffic
        self._seconds = 0.0

    def act(self) -> None:
        """Wait until there are enough entries."""
        producers = self._traffic.producers
        self._world.until(
            lambda: all(each.number > ENTRIES_MIN for each in producers), "every shop has orders"
        )
        self._seconds = self._world.spread()

    def shown_by(self) -> Sequence[str]:
        """The newest entries."""
        port = self._world.members[-1].port
        return [f"redis-cli -p {port} XREVRANGE {STREAM} + - COUNT 5"]

    def claims(self) -> Iterable[Claim]:
        """Each region has entries that every region has accepted."""
        for member in self._world.members:
            shops = Counter(each["shop"] for each in self._world.entries(member).values())
            yield Claim(
                f"{member.name} has orders of every shop",
                len(shops) == len(self._world.members),
                ", ".join(f"{count} of {shop}" for shop, count in sorted(shops.items())),
            )


class Cut(Step):
    """One region is cut off."""

    def __init__(self, world: World, alone: Member) -> None:
        self._world, self.alone = world, alone
        self.title = f"Cut {alone.name} off"
        self.text = (
            f"All links of {alone.name} are cut, as if its network had failed. No region can relay."
        )
        self._view: ClusterView | None = None

    def act(self) -> None:
        """Cut its links, and look at once."""
        self._world.isolate(self.alone)
        self._view = ClusterView.of(self._world.files)

    def shown_by(self) -> Sequence[str]:
        """The links as this region reports them, and the command that shows all."""
        return [
            f"redis-cli -p {self.alone.port} AB.PEERS",
            f"anabranch cluster status --dir {self._world.directory}",
        ]

    def claims(self) -> Iterable[Claim]:
        """The report shows the cut."""
        assert self._view is not None
        states = {frozenset((each.one, each.other)): each.state for each in self._view.links()}
        mine = [state for pair, state in states.items() if self.alone.name in pair]
        yield Claim(
            f"the first status after it shows every link of {self.alone.name} as cut",
            mine == ["cut"] * (len(self._world.members) - 1),
            ", ".join(mine),
        )


class Diverge(Step):
    """Both sides accept writes, and diverge."""

    title = "Both sides accept writes, and the streams differ"

    def __init__(self, world: World, traffic: Traffic, alone: Member) -> None:
        self._world, self._traffic, self._alone = world, traffic, alone
        self.text = (
            f"No region waits for another one. So {alone.name} and the rest have different entries "
            "for now."
        )
        self._before: dict[str, int] = {}
        self._missing: dict[Member, dict[Member, int]] = {}
        self._refused = 0

    def act(self) -> None:
        """Wait until each side lacks entries of the other one."""
        self._before = {each.producer: each.sent_again for each in self._traffic.producers}
        self._world.until(self._differ, "both sides have entries that the other one lacks")

    def _look(self) -> None:
        members = self._world.members
        ids = {member: set(self._world.entries(member)) for member in members}
        self._missing = {
            holder: {
                other: len(ids[other] - ids[holder]) for other in members if other is not holder
            }
            for holder in members
        }

    def _differ(self) -> bool:
        self._look()
        return self._shows_it()

    def _shows_it(self) -> bool:
        members = self._world.members
        others = [each for each in members if each is not self._alone]
        return all(
            self._missing[self._alone][each] >= ENTRIES_MIN
            and self._missing[each][self._alone] >= ENTRIES_MIN
            for each in others
        )

    def shown_by(self) -> Sequence[str]:
        """The lengths differ."""
        return [f"redis-cli -p {each.port} XLEN {STREAM}" for each in self._world.members[:2]]

    def found(self) -> Sequence[str]:
        """How many entries are missing where; the claims use the same figures."""
        self._look()
        members = self._world.members
        rows = [["entries missing", *(f"that {each.name} has" for each in members)]]
        for holder, row in self._missing.items():
            rows.append([f"at {holder.name}", *(str(row.get(each, "-")) for each in members)])
        return table(rows)

    def claims(self) -> Iterable[Claim]:
        """No write was refused, and both sides lack entries."""
        first = next(each for each in self._world.members if each is not self._alone)
        yield Claim(
            f"{self._alone.name} and the other regions lack entries of each other",
            self._shows_it(),
            f"{self._missing[self._alone][first]} missing at {self._alone.name}, "
            f"{self._missing[first][self._alone]} at {first.name}",
        )
        again = sum(
            each.sent_again - self._before[each.producer] for each in self._traffic.producers
        )
        yield Claim("every region took every order of its shop", again == 0, f"{again} refused")
