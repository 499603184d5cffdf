"""The steps of the demonstration, from the first region to the last comparison."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import Final

from anabranch.cli.cluster_files import HOST, Member
from anabranch.cli.cluster_view import view_of
from anabranch.cli.demo.apart import FailOver, LateEntry
from anabranch.cli.demo.cluster import STREAM, DemoCluster, names
from anabranch.cli.demo.story import DemoClaim, Late, Scene, Skipped, StoryStep
from anabranch.cli.demo.traffic import Order, Traffic, order_of, some
from anabranch.cli.demo.workers import dying_worker
from anabranch.cli.terminal import table

ENTRIES_MIN: Final = 10
"""A step waits until there are so many entries to show."""

ORDERS_MIN: Final = 5
ARCHIVE_S: Final = 240.0


def steps(cluster: DemoCluster, traffic: Traffic, *, with_spark: bool) -> list[StoryStep]:
    """The whole story; the first region is the one that is cut off."""
    alone, other = cluster.members[0], cluster.members[1]
    failed_over = FailOver(cluster, alone, other)
    late = LateEntry(cluster, traffic, alone, other)
    return [
        _begin(cluster, traffic),
        _write_everywhere(cluster, traffic),
        dying_worker(cluster, other),
        _cut_off(cluster, alone),
        _diverge(cluster, traffic, alone),
        failed_over.tell(),
        late.tell(),
        _heal(cluster, traffic, failed_over, late),
        _kill_and_return(cluster, traffic, other),
        _compare(cluster, traffic),
        _archive(cluster, with_spark=with_spark),
    ]


def _begin(cluster: DemoCluster, traffic: Traffic) -> StoryStep:
    """Begin the traffic; the regions run already."""
    members = cluster.members
    yield Scene(
        "Several regions, one stream",
        f"{len(members)} servers ({names(members)}) form one cluster. In each region a shop "
        f"adds orders to the stream '{STREAM}', and a consumer group of its own processes them.",
    )
    traffic.start()
    yield f"redis-cli -p {members[0].port} AB.REGION LIST"
    known = [len(cluster.do(each, "AB.REGION", "LIST")) for each in members]
    yield DemoClaim(
        "every region knows all regions",
        known == [len(known)] * len(known),
        f"{len(known)} regions",
    )


def _write_everywhere(cluster: DemoCluster, traffic: Traffic) -> StoryStep:
    """Each region has entries that every region has accepted."""
    yield Scene(
        "Every region accepts writes",
        "Each region answers its own clients at once; the others get the entries a moment later.",
    )
    cluster.until(
        lambda: all(each.number > ENTRIES_MIN for each in traffic.producers),
        "every shop has orders",
    )
    cluster.spread()
    yield f"redis-cli -p {cluster.members[-1].port} XREVRANGE {STREAM} + - COUNT 5"
    for member in cluster.members:
        shops = Counter(each["shop"] for each in cluster.entries(member).values())
        yield DemoClaim(
            f"{member.name} has orders of every shop",
            len(shops) == len(cluster.members),
            ", ".join(f"{count} of {shop}" for shop, count in sorted(shops.items())),
        )


def _cut_off(cluster: DemoCluster, alone: Member) -> StoryStep:
    """Cut the links of one region, and look at once: the report shows the cut."""
    yield Scene(
        f"Cut {alone.name} off",
        f"All links of {alone.name} are cut, as if its network had failed. No region can relay.",
    )
    cluster.isolate(alone)
    view = view_of(cluster.files)
    yield f"redis-cli -p {alone.port} AB.PEERS"
    yield f"anabranch cluster status --dir {cluster.directory}"
    mine = [each["state"] for each in view["links"] if alone.name in each["between"]]
    yield DemoClaim(
        f"the first status after it shows every link of {alone.name} as cut",
        mine == ["cut"] * (len(cluster.members) - 1),
        ", ".join(mine),
    )


def _lacking(cluster: DemoCluster) -> dict[Member, dict[Member, int]]:
    """How many entries of each region are missing in each other one now."""
    ids = {member: set(cluster.entries(member)) for member in cluster.members}
    return {
        holder: {other: len(ids[other] - ids[holder]) for other in ids if other is not holder}
        for holder in ids
    }


def _differ(lacking: dict[Member, dict[Member, int]], alone: Member) -> bool:
    """Whether both sides lack enough entries of the other one."""
    mine = lacking[alone]
    return all(min(mine[each], lacking[each][alone]) >= ENTRIES_MIN for each in mine)


def _diverge(cluster: DemoCluster, traffic: Traffic, alone: Member) -> StoryStep:
    """Wait until each side lacks entries of the other one; no write was refused."""
    yield Scene(
        "Both sides accept writes, and the streams differ",
        f"No region waits for another one. So {alone.name} and the rest have different entries "
        "for now.",
    )
    before = sum(each.sent_again for each in traffic.producers)
    cluster.until(
        lambda: _differ(_lacking(cluster), alone),
        "both sides have entries that the other one lacks",
    )
    members = cluster.members
    yield from (f"redis-cli -p {each.port} XLEN {STREAM}" for each in members[:2])
    missing = _lacking(cluster)
    head = ["entries missing", *(f"that {each.name} has" for each in members)]
    yield table(
        [
            head,
            *(
                [f"at {holder.name}", *(str(row.get(each, "-")) for each in members)]
                for holder, row in missing.items()
            ),
        ]
    )
    first = next(each for each in members if each is not alone)
    yield DemoClaim(
        f"{alone.name} and the other regions lack entries of each other",
        _differ(missing, alone),
        f"{missing[alone][first]} missing at {alone.name}, {missing[first][alone]} at {first.name}",
    )
    again = sum(each.sent_again for each in traffic.producers) - before
    yield DemoClaim("every region took every order of its shop", again == 0, f"{again} refused")


def _heal(
    cluster: DemoCluster, traffic: Traffic, failed_over: FailOver, late: LateEntry
) -> StoryStep:
    """Heal while all producers write; then pause them, to compare at one moment."""
    yield Scene(
        "Heal the links: the regions converge",
        "Each region sends what the others lack. Nothing has to be decided or repaired: the rules "
        "of Active-Active give every region the same stream.",
    )
    cluster.heal()
    seconds = cluster.spread()
    traffic.rest()
    cluster.settle()
    yield from (f"redis-cli -p {each.port} AB.DIGEST {STREAM}" for each in cluster.members[:2])
    yield DemoClaim(
        "everything reached every region after the links were healed",
        True,
        f"{seconds:.1f} s, while all went on writing",
    )
    yield from _equal(cluster)
    yield from failed_over.tell_the_end()
    yield from late.tell_the_end()
    traffic.go_on()


def _kill_and_return(cluster: DemoCluster, traffic: Traffic, victim: Member) -> StoryStep:
    """Kill a region, let the others write, start it again: it has everything."""
    yield Scene(
        f"Kill {victim.name}: it comes back with everything",
        f"kill -9 ends the server of {victim.name}. Its shop turns to the next region. Then "
        "the server starts again from its log and gets what it missed.",
    )

    def taken_by(is_meant: Callable[[str], bool]) -> set[Order]:
        taken = traffic.acknowledged().items()
        return {order for order, (_, region) in taken if is_meant(region)}

    producer = next(each for each in traffic.producers if each.home == victim)
    known = set(traffic.acknowledged())
    before = taken_by(lambda region: region == victim.name)
    enough = producer.sent_again + ORDERS_MIN
    cluster.kill(victim)
    cluster.until(
        lambda: producer.sent_again >= enough,
        f"{producer.producer} sends its orders to another region",
    )
    missed = taken_by(lambda region: region != victim.name) - known
    seconds = cluster.restart(victim)
    lost = before - _orders_at(cluster, victim)
    cluster.slow_links()
    cluster.spread()
    yield f"redis-cli -p {victim.port} INFO persistence"
    yield f"redis-cli -p {victim.port} AB.PEERS"
    yield DemoClaim(
        f"{victim.name} has every order that it had acknowledged before it was killed",
        not lost,
        f"lost: {some(sorted(lost))}"
        if lost
        else f"{len(before)} orders, answered {seconds:.1f} s after the start",
    )
    behind = missed - _orders_at(cluster, victim)
    yield DemoClaim(
        f"{victim.name} got the orders that other regions took meanwhile",
        bool(missed) and not behind,
        f"missing: {some(sorted(behind))}" if behind else f"{len(missed)} orders",
    )


def _compare(cluster: DemoCluster, traffic: Traffic) -> StoryStep:
    """The result: every order is there once, in all regions, and processed."""
    yield Scene(
        "What was sent, and what is there",
        "The traffic rests. Every order that some region has acknowledged is looked for in every "
        "region, and every entry in what the consumers have processed.",
    )
    traffic.rest()
    cluster.settle()
    port = cluster.members[0].port
    yield f"redis-cli -p {port} AB.LAG {STREAM}"
    yield f"redis-cli -p {port} XLEN {STREAM}"
    acknowledged = traffic.acknowledged()
    for member in cluster.members:
        counts = Counter(map(order_of, cluster.entries(member).values()))
        lost = acknowledged.keys() - counts.keys()
        twice = [order for order, count in counts.items() if count > 1]
        yield DemoClaim(
            f"{member.name} has every acknowledged order, each once",
            not lost and not twice,
            f"missing: {some(sorted(lost))}; twice: {some(twice)}"
            if lost or twice
            else f"{len(acknowledged)} orders",
        )
    for consumer in traffic.consumers:
        left = traffic.unprocessed(consumer)
        repeated = sum(count - 1 for count in consumer.processed.values())
        yield DemoClaim(
            f"group {consumer.group} has processed every order",
            not left,
            f"left: {some(sorted(left))}"
            if left
            else f"{len(consumer.processed)} orders, {repeated} of them twice",
        )
    yield from _equal(cluster)


def _archive(cluster: DemoCluster, *, with_spark: bool) -> StoryStep:
    """The stream as a table of Parquet files, which a job in a process of its own writes."""
    yield Scene(
        "Archive to Parquet with Spark",
        "A Spark job copies the stream into a table; the number of rows must be that of entries.",
    )
    if not with_spark:
        raise Skipped("--no-spark was given")
    missing = [each for each in ("pyspark", "deltalake") if find_spec(each) is None]
    if missing:
        raise Skipped(f"{', '.join(missing)} not installed: pip install 'anabranch[lake]'")
    lake = str(cluster.directory / "lake")
    url = f"redis://{HOST}:{cluster.members[0].port}"
    words = ["spark", "archive", lake, "--streams", STREAM, "-u", url, "--master", "local[2]"]
    complaint = cluster.directory / "archive.log"
    with (
        complaint.open("wb") as output,
        subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "anabranch", *words, "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
        ) as job,
    ):
        try:
            cluster.until(lambda: job.poll() is not None, "the archive is complete", ARCHIVE_S)
        finally:
            job.kill()
    if job.returncode:
        raise Late(
            f"the archive failed: {' '.join(complaint.read_text(errors='replace').split())[-300:]}"
        )
    import deltalake  # noqa: PLC0415 - an extra

    rows = deltalake.DeltaTable(lake).to_pyarrow_table().num_rows
    yield f"anabranch {' '.join(words)}"
    entries = len(cluster.entries(cluster.members[0]))
    yield DemoClaim(
        "the Parquet files have a row for every entry",
        rows == entries,
        f"{rows} rows, {entries} entries",
    )


def _orders_at(cluster: DemoCluster, member: Member) -> set[Order]:
    """The orders that a region has."""
    return set(map(order_of, cluster.entries(member).values()))


def _equal(cluster: DemoCluster) -> StoryStep:
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
