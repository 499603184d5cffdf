"""The steps after the cut: heal, kill and restart, archive, and the last comparison."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import Final

from anabranch.cli.cluster_files import HOST, Member
from anabranch.cli.demo.apart import FailOver, LateEntry
from anabranch.cli.demo.cluster import STREAM, DemoCluster
from anabranch.cli.demo.story import DemoClaim, Late, Skipped, StoryStep
from anabranch.cli.demo.traffic import Order, Traffic, order_of, some

ARCHIVE_S: Final = 240.0
ORDERS_MIN: Final = 5


class Heal(StoryStep):
    """The links work again, and all regions have the same data."""

    title = "Heal the links: the regions converge"
    text = (
        "Each region sends what the others lack. Nothing has to be decided or repaired: the rules "
        "of Active-Active give every region the same stream."
    )

    def __init__(
        self, cluster: DemoCluster, traffic: Traffic, failed_over: FailOver, late: LateEntry
    ) -> None:
        self._cluster, self._traffic = cluster, traffic
        self._failed_over, self._late = failed_over, late
        self._seconds = 0.0

    def act(self) -> None:
        """Heal while all producers write; then pause them, to compare at one moment."""
        self._cluster.heal()
        self._seconds = self._cluster.spread()
        self._traffic.rest()
        self._cluster.settle()

    def shown_by(self) -> Sequence[str]:
        """All regions have the same digest."""
        return [
            f"redis-cli -p {each.port} AB.DIGEST {STREAM}" for each in self._cluster.members[:2]
        ]

    def claims(self) -> Iterable[DemoClaim]:
        """The data is equal, and the promises of earlier steps are kept."""
        yield DemoClaim(
            "everything reached every region after the links were healed",
            True,
            f"{self._seconds:.1f} s, while all went on writing",
        )
        yield from equal(self._cluster)
        yield from self._failed_over.claims_at_the_end()
        yield from self._late.claims_at_the_end()
        self._traffic.go_on()


class KillAndReturn(StoryStep):
    """A region is killed, and comes back with all of its data."""

    def __init__(self, cluster: DemoCluster, traffic: Traffic, victim: Member) -> None:
        self._cluster, self._traffic, self._victim = cluster, traffic, victim
        self.title = f"Kill {victim.name}: it comes back with everything"
        self.text = (
            f"kill -9 ends the server of {victim.name}. Its shop turns to the next region. Then "
            "the server starts again from its log and gets what it missed."
        )
        self._producer = next(each for each in traffic.producers if each.home == victim)
        self._before: set[Order] = set()
        self._recovered: set[Order] = set()
        self._missed: set[Order] = set()
        self._seconds = 0.0

    def act(self) -> None:
        """Kill it, let the others write, start it again."""
        victim = self._victim
        known = set(self._traffic.acknowledged())
        self._before = self._taken_by(lambda region: region == victim.name)
        sent_again = self._producer.sent_again
        self._cluster.kill(victim)
        self._cluster.until(
            lambda: self._producer.sent_again >= sent_again + ORDERS_MIN,
            f"{self._producer.producer} sends its orders to another region",
        )
        self._missed = self._taken_by(lambda region: region != victim.name) - known
        self._seconds = self._cluster.restart(victim)
        self._recovered = orders_at(self._cluster, victim)
        self._cluster.slow_links()
        self._cluster.spread()

    def _taken_by(self, is_meant: Callable[[str], bool]) -> set[Order]:
        return {
            order for order, (_, region) in self._traffic.acknowledged().items() if is_meant(region)
        }

    def shown_by(self) -> Sequence[str]:
        """What was recovered, and the links."""
        return [
            f"redis-cli -p {self._victim.port} INFO persistence",
            f"redis-cli -p {self._victim.port} AB.PEERS",
        ]

    def claims(self) -> Iterable[DemoClaim]:
        """Everything acknowledged is there, and also what the region missed."""
        lost = self._before - self._recovered
        yield DemoClaim(
            f"{self._victim.name} has every order that it had acknowledged before it was killed",
            not lost,
            f"lost: {some(sorted(lost))}"
            if lost
            else f"{len(self._before)} orders, answered {self._seconds:.1f} s after the start",
        )
        behind = self._missed - orders_at(self._cluster, self._victim)
        yield DemoClaim(
            f"{self._victim.name} got the orders that other regions took meanwhile",
            bool(self._missed) and not behind,
            f"missing: {some(sorted(behind))}" if behind else f"{len(self._missed)} orders",
        )


class NothingLost(StoryStep):
    """The result: what was sent is compared with what is there."""

    title = "What was sent, and what is there"
    text = (
        "The traffic rests. Every order that some region has acknowledged is looked for in every "
        "region, and every entry in what the consumers have processed."
    )

    def __init__(self, cluster: DemoCluster, traffic: Traffic) -> None:
        self._cluster, self._traffic = cluster, traffic

    def act(self) -> None:
        """Rest."""
        self._traffic.rest()
        self._cluster.settle()

    def shown_by(self) -> Sequence[str]:
        """The group has nothing left to process."""
        port = self._cluster.members[0].port
        return [f"redis-cli -p {port} AB.LAG {STREAM}", f"redis-cli -p {port} XLEN {STREAM}"]

    def claims(self) -> Iterable[DemoClaim]:
        """Every order is there once, in all regions, and processed."""
        acknowledged = self._traffic.acknowledged()
        for member in self._cluster.members:
            counts = Counter(map(order_of, self._cluster.entries(member).values()))
            lost = acknowledged.keys() - counts.keys()
            twice = [order for order, count in counts.items() if count > 1]
            yield DemoClaim(
                f"{member.name} has every acknowledged order, each once",
                not lost and not twice,
                f"missing: {some(sorted(lost))}; twice: {some(twice)}"
                if lost or twice
                else f"{len(acknowledged)} orders",
            )
        for consumer in self._traffic.consumers:
            left = self._traffic.unprocessed(consumer)
            repeated = sum(count - 1 for count in consumer.processed.values())
            yield DemoClaim(
                f"group {consumer.group} has processed every order",
                not left,
                f"left: {some(sorted(left))}"
                if left
                else f"{len(consumer.processed)} orders, {repeated} of them twice",
            )
        yield from equal(self._cluster)


class Archive(StoryStep):
    """The stream as a table of Parquet files."""

    title = "Archive to Parquet with Spark"
    text = "A Spark job copies the stream into a table; the number of rows must be that of entries."

    def __init__(self, cluster: DemoCluster, *, with_spark: bool) -> None:
        self._cluster, self._with_spark = cluster, with_spark
        self._lake = cluster.directory / "lake"
        self._rows = 0

    def _words(self) -> list[str]:
        url = f"redis://{HOST}:{self._cluster.members[0].port}"
        return [
            *("spark", "archive", str(self._lake), "--streams", STREAM, "-u", url),
            *("--master", "local[2]"),
        ]

    def act(self) -> None:
        """Run the job in a process of its own."""
        if not self._with_spark:
            raise Skipped("--no-spark was given")
        missing = [each for each in ("pyspark", "deltalake") if find_spec(each) is None]
        if missing:
            raise Skipped(f"{', '.join(missing)} not installed: pip install 'anabranch[lake]'")
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "anabranch", *self._words(), "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            _, errors = process.communicate(timeout=ARCHIVE_S)
        except subprocess.TimeoutExpired:
            raise Late(f"the archive is not complete after {ARCHIVE_S:.0f} s") from None
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            raise Late(f"the archive failed: {' '.join(errors.split())[-300:]}")
        import deltalake  # noqa: PLC0415 - an extra

        self._rows = deltalake.DeltaTable(str(self._lake)).to_pyarrow_table().num_rows

    def shown_by(self) -> Sequence[str]:
        """The same job."""
        return [f"anabranch {' '.join(self._words())}"]

    def claims(self) -> Iterable[DemoClaim]:
        """The table has as many rows as the stream has entries."""
        entries = len(self._cluster.entries(self._cluster.members[0]))
        yield DemoClaim(
            "the Parquet files have a row for every entry",
            self._rows == entries,
            f"{self._rows} rows, {entries} entries",
        )


def orders_at(cluster: DemoCluster, member: Member) -> set[Order]:
    """The orders that a region has."""
    return set(map(order_of, cluster.entries(member).values()))


def equal(cluster: DemoCluster) -> Iterable[DemoClaim]:
    """All regions have the same data, compared entry by entry and by digest."""
    contents = {member: cluster.entries(member) for member in cluster.members}
    first = contents[cluster.members[0]]
    differing = [
        f"{member.name} lacks {len(first.keys() - entries.keys())} and has "
        f"{len(entries.keys() - first.keys())} more than {cluster.members[0].name}"
        for member, entries in contents.items()
        if entries != first
    ]
    yield DemoClaim(
        "all regions have the same entries",
        not differing,
        "; ".join(differing) or f"{len(first)} entries in each",
    )
    digests = [cluster.do(member, "AB.DIGEST", STREAM)[0] for member in cluster.members]
    yield DemoClaim(
        "all regions have the same digest",
        len(set(digests)) == 1,
        digests[0] if len(set(digests)) == 1 else ", ".join(map(str, digests)),
    )
