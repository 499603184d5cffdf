"""The steps of the demonstration up to the cut: begin, write everywhere, cut, diverge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from anabranch.cli.cluster_files import Member
from anabranch.cli.cluster_view import ClusterView, table
from anabranch.cli.demo.cluster import STREAM, DemoCluster, names
from anabranch.cli.demo.story import DemoClaim, StoryStep
from anabranch.cli.demo.traffic import Traffic

ENTRIES_MIN: Final = 10
"""A step waits until there are so many entries to show."""


class Begin(StoryStep):
    """All regions run."""

    title = "Several regions, one stream"

    def __init__(self, cluster: DemoCluster, traffic: Traffic) -> None:
        self._cluster, self._traffic = cluster, traffic
        count = len(cluster.members)
        self.text = (
            f"{count} servers ({names(cluster.members)}) form one cluster. In each region a shop "
            f"adds orders to the stream '{STREAM}', and a consumer group of its own processes them."
        )

    def act(self) -> None:
        """Begin the traffic; the regions run already."""
        self._traffic.start()

    def shown_by(self) -> Sequence[str]:
        """Who is a member."""
        return [f"redis-cli -p {self._cluster.members[0].port} AB.REGION LIST"]

    def claims(self) -> Iterable[DemoClaim]:
        """Each region knows all others."""
        known = [len(self._cluster.do(each, "AB.REGION", "LIST")) for each in self._cluster.members]
        yield DemoClaim(
            "every region knows all regions",
            known == [len(known)] * len(known),
            f"{len(known)} regions",
        )


class WriteEverywhere(StoryStep):
    """Entries of all regions are in all."""

    title = "Every region accepts writes"
    text = "Each region answers its own clients at once; the others get the entries a moment later."

    def __init__(self, cluster: DemoCluster, traffic: Traffic) -> None:
        self._cluster, self._traffic = cluster, traffic
        self._seconds = 0.0

    def act(self) -> None:
        """Wait until there are enough entries."""
        producers = self._traffic.producers
        self._cluster.until(
            lambda: all(each.number > ENTRIES_MIN for each in producers), "every shop has orders"
        )
        self._seconds = self._cluster.spread()

    def shown_by(self) -> Sequence[str]:
        """The newest entries."""
        port = self._cluster.members[-1].port
        return [f"redis-cli -p {port} XREVRANGE {STREAM} + - COUNT 5"]

    def claims(self) -> Iterable[DemoClaim]:
        """Each region has entries that every region has accepted."""
        for member in self._cluster.members:
            shops = Counter(each["shop"] for each in self._cluster.entries(member).values())
            yield DemoClaim(
                f"{member.name} has orders of every shop",
                len(shops) == len(self._cluster.members),
                ", ".join(f"{count} of {shop}" for shop, count in sorted(shops.items())),
            )


class CutOff(StoryStep):
    """One region is cut off."""

    def __init__(self, cluster: DemoCluster, alone: Member) -> None:
        self._cluster, self.alone = cluster, alone
        self.title = f"Cut {alone.name} off"
        self.text = (
            f"All links of {alone.name} are cut, as if its network had failed. No region can relay."
        )
        self._view: ClusterView | None = None

    def act(self) -> None:
        """Cut its links, and look at once."""
        self._cluster.isolate(self.alone)
        self._view = ClusterView.of(self._cluster.files)

    def shown_by(self) -> Sequence[str]:
        """The links as this region reports them, and the command that shows all."""
        return [
            f"redis-cli -p {self.alone.port} AB.PEERS",
            f"anabranch cluster status --dir {self._cluster.directory}",
        ]

    def claims(self) -> Iterable[DemoClaim]:
        """The report shows the cut."""
        assert self._view is not None
        states = {frozenset((each.one, each.other)): each.state for each in self._view.links()}
        mine = [state for pair, state in states.items() if self.alone.name in pair]
        yield DemoClaim(
            f"the first status after it shows every link of {self.alone.name} as cut",
            mine == ["cut"] * (len(self._cluster.members) - 1),
            ", ".join(mine),
        )


class Diverge(StoryStep):
    """Both sides accept writes, and diverge."""

    title = "Both sides accept writes, and the streams differ"

    def __init__(self, cluster: DemoCluster, traffic: Traffic, alone: Member) -> None:
        self._cluster, self._traffic, self._alone = cluster, traffic, alone
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
        self._cluster.until(self._differ, "both sides have entries that the other one lacks")

    def _look(self) -> None:
        members = self._cluster.members
        ids = {member: set(self._cluster.entries(member)) for member in members}
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
        members = self._cluster.members
        others = [each for each in members if each is not self._alone]
        return all(
            self._missing[self._alone][each] >= ENTRIES_MIN
            and self._missing[each][self._alone] >= ENTRIES_MIN
            for each in others
        )

    def shown_by(self) -> Sequence[str]:
        """The lengths differ."""
        return [f"redis-cli -p {each.port} XLEN {STREAM}" for each in self._cluster.members[:2]]

    def found(self) -> Sequence[str]:
        """How many entries are missing where; the claims use the same figures."""
        self._look()
        members = self._cluster.members
        rows = [["entries missing", *(f"that {each.name} has" for each in members)]]
        for holder, row in self._missing.items():
            rows.append([f"at {holder.name}", *(str(row.get(each, "-")) for each in members)])
        return table(rows)

    def claims(self) -> Iterable[DemoClaim]:
        """No write was refused, and both sides lack entries."""
        first = next(each for each in self._cluster.members if each is not self._alone)
        yield DemoClaim(
            f"{self._alone.name} and the other regions lack entries of each other",
            self._shows_it(),
            f"{self._missing[self._alone][first]} missing at {self._alone.name}, "
            f"{self._missing[first][self._alone]} at {first.name}",
        )
        again = sum(
            each.sent_again - self._before[each.producer] for each in self._traffic.producers
        )
        yield DemoClaim("every region took every order of its shop", again == 0, f"{again} refused")
