"""A region that is cut off and comes back: no window and no read lacks what it brings."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f

from anabranch.spark.runtime.supervise import GaveUp
from examples.spark.windows import Windowing
from tests.spark.example_jobs import windows
from tests.spark.expected_windows import told_in
from tests.spark.reading import finish, numbers, streaming, talking, to_parquet, url
from tests.spark.test_read_restarts import kill_after, start
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("eu", "us", "ap")
FAR_MS = 4_000_000_000_000  # behind all windows
SECOND_MS = 1_000
MINUTE_MS = 60_000
REST = "maxEntriesPerTrigger=100000"  # the slower the machine, the more was written meanwhile


def part(cluster: RegionProcesses, *lonely: str) -> None:
    """Cut these off from all others, and those from each other no longer."""
    for one, other in combinations(cluster.servers, 2):
        word = "PAUSE" if one.region in lonely or other.region in lonely else "RESUME"
        for here, there in ((one, other), (other, one)):
            assert cluster.call(here, "AB.LINK", there.number, word) == ("+", b"OK")


def meet(cluster: RegionProcesses) -> None:
    cluster.heal()
    wait_until(cluster.converged, "all have applied the same", 300)


def await_two(cluster: RegionProcesses) -> None:
    """Until eu and ap have applied the same."""

    def same() -> bool:
        eu, _, ap = cluster.vectors()
        return eu == ap

    wait_until(same, "eu and ap have applied the same", 300)


def at_seconds(server: Any, first: int, stop: int, key: str = "late") -> None:
    """An entry each second, with that time."""
    with talking(server) as client:
        pipe = client.pipeline(transaction=False)
        for second in range(first, stop):
            event = f"{server.region}-{second}"
            pipe.execute_command("XADD", key, second * SECOND_MS, "n", second, "event", event)
        pipe.execute()


# ------------------------------------------------------------------------------------- watermarks


def single_watermark(spark: SparkSession, server: Any, place: Path) -> tuple[int, int]:
    """Counts in one common source with one watermark; returns entries in windows, and late ones."""
    table = streaming(spark, server, "ts timestamp, n int", subscribe="late")
    table = table.withWatermark("ts", "10 seconds").groupBy(f.window("ts", "1 minute")).count()
    query = to_parquet(table, place / "out", place / "check", availableNow=True)
    query.awaitTermination()
    late = sum(
        each.numRowsDroppedByWatermark
        for step in query.recentProgress
        for each in step.stateOperators
    )
    total = spark.read.schema("count long").parquet(str(place / "out")).agg(f.sum("count"))
    return total.collect()[0][0] or 0, late


@pytest.mark.long
def test_one_watermark_for_all_regions_loses_entries_and_one_for_each_does_not(
    spark: SparkSession, regions: RegionProcesses, tmp_path: Path
) -> None:
    eu, _, ap = regions.servers
    windowing = Windowing(
        key="region", value="n", kind="bigint", percentiles=(0.5,), unique="event"
    )
    arguments: dict[str, Any] = {"url": url(eu), "lake": tmp_path / "lake"}

    def look() -> tuple[int, int, int]:
        said = windows(spark, "late", windowing, **arguments)
        held, dropped = single_watermark(spark, eu, tmp_path / "single")
        assert said.late == 0
        return sum(row["count"] for row in told_in(tmp_path / "lake").values()), held, dropped

    part(regions, *NAMES)
    for server in regions.servers:
        at_seconds(server, 1, 100)
    meet(regions)
    assert look() == (3 * 59, 3 * 59, 0)  # the first minute of each region
    part(regions, *NAMES)
    for server in regions.servers:
        at_seconds(server, 100, 470)
    part(regions, "us")
    await_two(regions)
    mine, held, dropped = look()
    assert mine == 3 * 59  # us may still have something to say
    # Here it may not: 40 seconds of the second minute came from us, of later ones nothing.
    assert (held, dropped) == (3 * 59 + 3 * 40 + 2 * 20 + 2 * 60 * 5, 0)
    meet(regions)
    at_seconds(eu, 470, 471)  # in each run, regions wait for each other's first news
    at_seconds(ap, 471, 472)
    meet(regions)
    mine, held, dropped = look()
    assert mine == 3 * 419  # seven minutes of three regions, and 10 s of delay in the eighth
    assert held < mine
    assert dropped > 0
    part(regions, *NAMES)
    for server in regions.servers:
        at_seconds(server, FAR_MS // SECOND_MS, FAR_MS // SECOND_MS + 1)
    meet(regions)
    mine, held, dropped = look()
    assert mine == 3 * 469 + 2
    assert mine - held == 320  # what us wrote meanwhile for windows that were closed
    last = {"1": [470], "2": [], "3": [471]}
    for (begin, region), row in told_in(tmp_path / "lake").items():
        seconds = [
            each
            for each in (*range(1, 470), *last[str(region)])
            if each * SECOND_MS // MINUTE_MS * MINUTE_MS == begin
        ]
        assert (row["count"], row["sum"]) == (len(seconds), sum(seconds))


@pytest.mark.long
def test_a_region_that_joins_takes_a_new_checkpoint_and_no_window_is_told_twice(
    spark: SparkSession, regions: RegionProcesses, tmp_path: Path
) -> None:
    eu, us, ap = regions.servers
    lake = tmp_path / "lake"
    part(regions, *NAMES)
    at_seconds(eu, 1, 200, "joined")
    at_seconds(us, 1, 200, "joined")
    meet(regions)
    arguments: dict[str, Any] = {"url": url(eu), "lake": lake}
    first = windows(spark, "joined", Windowing(), **arguments)
    assert (first.windows, first.watermark_ms) == (3, 189_000)
    at_seconds(ap, 200, 400, "joined")
    meet(regions)
    with pytest.raises(
        GaveUp, match=r"\[2\] sources in the checkpoint offsets and now there are \[3\]"
    ):
        windows(spark, "joined", Windowing(), **arguments)
    part(regions, *NAMES)
    for server in regions.servers:
        at_seconds(server, FAR_MS // SECOND_MS, FAR_MS // SECOND_MS + 1, "joined")
    meet(regions)
    arguments |= {"checkpoint": tmp_path / "second", "lake": tmp_path / "more"}
    windows(spark, "joined", Windowing(), after_ms=first.watermark_ms, **arguments)
    found = {**told_in(lake), **told_in(tmp_path / "more")}
    counts = {begin // MINUTE_MS: row["count"] for (begin, _), row in found.items()}
    assert counts == {0: 2 * 59, 1: 2 * 60, 2: 2 * 60, 3: 2 * 20 + 40, 4: 60, 5: 60, 6: 40}


# ---------------------------------------------------------------------------------------- reading


class Writers:
    """Something writes in every region all the time, each number once."""

    def __init__(self, cluster: RegionProcesses) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._problems: list[BaseException] = []
        self.written: list[int] = []
        self._threads = [
            threading.Thread(target=self._write, args=(server,)) for server in cluster.servers
        ]

    def _write(self, server: Any) -> None:
        try:
            with talking(server) as client:
                number = server.number
                while not self._stop.wait(0.1):
                    pipe = client.pipeline(transaction=False)
                    mine = [number + len(self._cluster.servers) * each for each in range(2)]
                    for each in mine:
                        pipe.execute_command("XADD", "s", "*", "n", each)
                    pipe.execute()
                    self.written += mine
                    number = mine[-1] + len(self._cluster.servers)
        except BaseException as problem:
            self._problems.append(problem)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._problems


@contextmanager
def writing(cluster: RegionProcesses) -> Iterator[Writers]:
    """All regions write at once meanwhile."""
    writers = Writers(cluster)
    writers.start()
    try:
        yield writers
    finally:
        writers.stop()


def entries_of(server: Any) -> list[tuple[str, int]]:
    with talking(server) as client:
        return sorted((e.decode(), int(fields[b"n"])) for e, fields in client.xrange("s"))


def read_by(spark: SparkSession, out: Path) -> list[tuple[str, int]]:
    """What the killed jobs and their successors have written."""
    table = spark.read.parquet(*map(str, out.iterdir()))
    return sorted((row.id, row.n) for row in table.collect())


@pytest.mark.long
def test_kill_9_while_three_regions_write_and_one_is_cut_off_loses_and_doubles_nothing(
    spark: SparkSession, regions: RegionProcesses, tmp_path: Path
) -> None:
    rng = random.Random(77)
    eu, us, _ = regions.servers
    with writing(regions) as writers:
        wait_until(lambda: len(entries_of(eu)) > 300, "the first entries", 300)
        part(regions, "us")
        kill_after(start(eu, tmp_path, "stream"), rng.randint(1, 4), rng.random())
        kill_after(start(eu, tmp_path, "now"), 1, rng.random())
        assert len(entries_of(us)) > 300  # and eu knows nothing of most of them
        regions.heal()
        kill_after(start(eu, tmp_path, "stream"), rng.randint(1, 4), rng.random())
    wait_until(regions.converged, "all have applied the same", 300)
    job = start(eu, tmp_path, "now", REST)
    _, noise = job.communicate(timeout=600)
    assert job.returncode == 0, noise
    (line,) = noise.splitlines()
    assert line.startswith("anabranch: resuming from checkpoint at s/")
    wanted = entries_of(eu)
    assert sorted(n for _, n in wanted) == sorted(writers.written)
    assert read_by(spark, tmp_path / "out") == wanted
    for server in regions.servers:
        reader = spark.read.format("anabranch").options(url=url(server), subscribe="s")
        found = reader.schema("id string, n int").load().collect()
        assert sorted((row.id, row.n) for row in found) == wanted


def run(spark: SparkSession, server: Any, place: Path, **options: str) -> list[int]:
    """A query over what is there, going on where it was."""
    table = streaming(spark, server, "n int", subscribe="s", maxEntriesPerTrigger="70", **options)
    finish(to_parquet(table, place / "out", place / "check", availableNow=True))
    return numbers(spark.read.parquet(str(place / "out")))


def add(server: Any, first: int, stop: int) -> None:
    with talking(server) as client:
        pipe = client.pipeline(transaction=False)
        for number in range(first, stop):
            pipe.execute_command("XADD", "s", "*", "n", number)
        pipe.execute()


def test_what_was_trimmed_is_a_loss_of_the_region_that_wrote_it(
    spark: SparkSession, regions: RegionProcesses, tmp_path: Path
) -> None:
    eu, us, ap = regions.servers
    for server, first in ((eu, 0), (us, 1000), (ap, 2000)):
        add(server, first, first + 50)
    meet(regions)
    before = [*range(50), *range(1000, 1050), *range(2000, 2050)]
    assert run(spark, eu, tmp_path) == before
    part(regions, "us")
    add(us, 1050, 1100)
    add(ap, 2050, 2100)
    await_two(regions)
    with talking(eu) as client:
        limit = next(e for e, fields in client.xrange("s") if int(fields[b"n"]) == 2069)
        client.execute_command("XTRIM", "s", "MINID", limit)
    meet(regions)
    # Trimming takes what eu had seen: older entries of us, which came later, stay.
    left = sorted(n for _, n in entries_of(eu))
    assert left == [*range(1050, 1100), *range(2069, 2100)]
    with pytest.raises(StreamingQueryException, match="stream s, region 3: 19 entries") as caught:
        run(spark, eu, tmp_path)
    assert "region 2" not in str(caught.value)
    assert numbers(spark.read.parquet(str(tmp_path / "out"))) == before
    found = run(spark, eu, tmp_path, failOnDataLoss="false")
    assert found == sorted({*before, *left})


@pytest.mark.long
def test_kill_9_while_entries_are_trimmed_doubles_nothing_and_reads_all_that_stays(
    spark: SparkSession, regions: RegionProcesses, tmp_path: Path
) -> None:
    rng = random.Random(78)
    eu, us, _ = regions.servers
    forgiving = ("failOnDataLoss=false",)
    with writing(regions) as writers:
        wait_until(lambda: len(entries_of(eu)) > 600, "the first entries", 300)
        part(regions, "us")
        kill_after(start(eu, tmp_path, "stream", *forgiving), 1, rng.random())
        for server in (eu, us):
            regions.call(server, "XTRIM", "s", "MAXLEN", 100)
        regions.heal()
        kill_after(start(eu, tmp_path, "stream", *forgiving), rng.randint(1, 3), rng.random())
    wait_until(regions.converged, "all have applied the same", 300)
    regions.call(eu, "XTRIM", "s", "MAXLEN", 400)
    job = start(eu, tmp_path, "now", REST, *forgiving)
    job.communicate(timeout=600)
    assert job.returncode == 0
    found = read_by(spark, tmp_path / "out")
    assert len(found) == len(set(found))
    left = entries_of(eu)
    assert len(left) == 400
    assert set(left) <= set(found)
    assert {n for _, n in found} < set(writers.written)  # some were trimmed before they were read
