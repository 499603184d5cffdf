"""A change feed: what was deleted comes as rows, each position once, and a lake follows it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from anabranch.spark import committed_offsets
from anabranch.spark.decoding.columns import ColumnError, Projection
from anabranch.spark.jobs.archive import archive
from anabranch.spark.jobs.compact import compact
from anabranch.spark.jobs.verify import verify
from anabranch.spark.lake.files import merge
from anabranch.spark.lake.table import Lake
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.readers import StreamReader
from tests.spark.lakes import add, positions
from tests.spark.reading import base_of, batch, fill, streaming, talking, url
from tests.support.inspection import wait_until
from tests.support.region_processes import RegionProcesses
from tests.support.servers import AnabranchServer, RedisServer, ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ("eu", "us")
COLUMNS = pa.schema(
    [
        ("stream", pa.string()),
        ("region", pa.string()),
        ("position", pa.int64()),
        ("n", pa.int64()),
        ("_change_type", pa.string()),
    ]
)
FOLLOWING = {"subscribePattern": "s*", "changes": "true", "failOnDataLoss": "false"}


def reader_at(server: Any) -> StreamReader:
    options = {"url": url(server), "startingOffsets": "earliest", "pollTimeoutMs": "0"}
    given = ReadOptions.parse({**options, "discoveryIntervalMs": "0", **FOLLOWING})
    return StreamReader(given, Projection.of(COLUMNS, given))


class Feed:
    """A reader that is made anew for each batch, at any server, and all rows that it has got."""

    def __init__(self) -> None:
        self._at: Mapping[str, Any] | None = None
        self.inserted: dict[tuple[str, str, int], int] = {}
        self.removed: dict[tuple[str, str, int], str] = {}

    def read(self, server: Any, entries: int | None = None, read_at: Any = None) -> bool:
        """Take the next batch, of a plan made here and read here or elsewhere; False if none."""
        reader = reader_at(server)
        try:
            begin = reader.initialOffset() if self._at is None else self._at
            limit = ReadAllAvailable() if entries is None else ReadMaxRows(entries)
            end = reader.latestOffset(begin, limit)
            if end == begin:
                return False
            there = reader if read_at is None else reader_at(read_at)
            batches = [self._rows(there, begin, end) for _ in range(2)]
        finally:
            reader.stop()
        assert batches[0] == batches[1]  # a batch that is repeated has the same rows
        for row in batches[0]:
            place = row["stream"], row["region"], row["position"]
            if row["_change_type"] == "insert":
                assert place not in self.inserted
                self.inserted[place] = row["n"]
            else:
                assert row["n"] is None
                assert place not in self.removed
                self.removed[place] = row["_change_type"]
        self._at = end
        return True

    def _rows(self, reader: StreamReader, begin: Any, end: Any) -> list[dict[str, Any]]:
        pieces = reader.partitions(begin, end)
        return [row for piece in pieces for each in reader.read(piece) for row in each.to_pylist()]

    def left(self, stream: str = "s") -> list[int]:
        """The entries that were added and not removed, by their ``n``."""
        assert self.removed.keys() <= self.inserted.keys()
        kept = self.inserted.keys() - self.removed.keys()
        return sorted(self.inserted[each] for each in kept if each[0] == stream)


def numbers_in(server: ServerProcess, key: str = "s") -> list[int]:
    with talking(server) as client:
        return sorted(int(fields[b"n"]) for _, fields in client.xrange(key))


def change(rng: random.Random, client: Any, added: int) -> int:
    """Add, delete or trim at random; returns how many entries were ever added."""
    ids = [entry_id for entry_id, _ in client.xrange("s")]
    what = rng.choice(["add", "add", "delete", "scatter", "trim", "end"])
    if what == "add" or len(ids) < 3:
        count = rng.choice([1, 40, 900])
        pipe = client.pipeline(transaction=False)
        for number in range(added, added + count):
            pipe.xadd("s", {"n": number})
        pipe.execute()
        return added + count
    if what == "delete":
        first = rng.randrange(len(ids))
        client.xdel("s", *ids[first : first + rng.choice([1, 300])])
    elif what == "scatter":
        client.xdel("s", *rng.sample(ids, min(len(ids), 60)))
    elif what == "trim":
        client.xtrim("s", maxlen=rng.randrange(len(ids) // 2, len(ids)), approximate=False)
    elif rng.random() < 0.3:
        client.delete("s")
    return added


@pytest.mark.parametrize("seed", range(2))
def test_what_was_added_less_what_was_removed_is_what_the_server_has(
    ours: AnabranchServer, seed: int
) -> None:
    rng, feed, added = random.Random(seed), Feed(), 0
    with talking(ours) as client:
        for _ in range(20):
            for _ in range(rng.randint(1, 3)):
                added = change(rng, client, added)
            feed.read(ours, rng.choice([None, 200]))
        added = change(rng, client, added)
    while feed.read(ours):
        pass
    assert feed.left() == numbers_in(ours)
    assert len(feed.removed) > 500


def test_the_kind_of_a_removal_is_told(ours: AnabranchServer) -> None:
    feed = Feed()
    ids = fill(ours, "s", 10)
    base = base_of(ours, "s")
    assert feed.read(ours)
    assert not feed.read(ours)
    with talking(ours) as client:
        client.xdel("s", ids[5])
        client.xtrim("s", maxlen=7, approximate=False)
        assert feed.read(ours)
        kinds = {position - base: kind for (_, _, position), kind in feed.removed.items()}
        assert kinds == {0: "trim", 1: "trim", 5: "delete"}
        client.delete("s")
    assert feed.read(ours)
    assert list(feed.removed.values()).count("delete") == 8
    fill(ours, "s", 2, 10)
    assert feed.read(ours)
    assert not feed.read(ours)
    assert feed.left() == [10, 11]
    with talking(ours) as client:
        client.set("s", "another value, which stays")
    assert feed.read(ours)
    assert not feed.read(ours)
    assert feed.left() == []
    assert list(feed.removed.values()).count("delete") == 10


def test_holes_between_large_entries_are_found(ours: AnabranchServer) -> None:
    feed = Feed()
    with talking(ours) as client:
        ids = [client.xadd("s", {"n": each, "x": bytes(20_000)}) for each in range(120)]
        assert feed.read(ours)
        client.xdel("s", *ids[10:110:3])  # the parts in question are read in several replies
        assert feed.read(ours)
    assert feed.left() == numbers_in(ours)
    assert len(feed.removed) == 34


def test_a_reader_that_moves_between_regions_is_told_each_deletion_once(
    regions: RegionProcesses,
) -> None:
    eu, us = regions.servers
    feed = Feed()
    at_eu, at_us = fill(eu, "s", 30), fill(us, "s", 30, 30)
    wait_until(regions.converged, "both have all entries", 300)
    assert feed.read(eu)
    for here, there in ((eu, us), (us, eu)):
        regions.call(here, "AB.LINK", there.number, "PAUSE")
    for server, ids in ((eu, at_us[3:5]), (us, at_eu[7:9])):
        with talking(server) as client:
            client.xdel("s", *ids)
    assert feed.read(eu)
    assert not feed.read(eu)
    assert len(feed.removed) == 2
    while feed.read(us):  # which has two deletions that eu lacks, and lacks two
        pass
    assert feed.left() == sorted({*numbers_in(us)} & {*numbers_in(eu)})
    regions.heal()
    wait_until(regions.converged, "both have all deletions", 300)
    while feed.read(us):
        pass
    assert not feed.read(eu)
    assert len(feed.removed) == 4
    assert feed.left() == numbers_in(us) == numbers_in(eu)


def test_a_batch_that_is_repeated_elsewhere_has_nothing_that_was_deleted_before(
    regions: RegionProcesses,
) -> None:
    eu, us = regions.servers
    keys = ["s", *(f"s{number}" for number in range(5))]  # one large stream, and some small ones
    for key in keys:
        ids = fill(eu, key, 3000 if key == "s" else 8)
        with talking(eu) as client:
            client.xdel(key, ids[2])
    wait_until(regions.converged, "both have all entries", 300)
    for here, there in ((eu, us), (us, eu)):
        regions.call(here, "AB.LINK", there.number, "PAUSE")
    for key in keys:
        with talking(us) as client:
            client.xdel(key, *(each for each, _ in client.xrange(key, count=5)[1:]))
    feed = Feed()
    assert feed.read(us, read_at=eu)  # the driver died at us after it had planned the batch
    assert [feed.left(key) for key in keys] == [numbers_in(us, key) for key in keys]
    regions.heal()
    wait_until(regions.converged, "both have all deletions", 300)
    assert not feed.read(eu)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[AnabranchServer]:
    """A server whose directory outlives it."""
    with AnabranchServer(tmp_path / "server", ["--appendfsync", "always"]) as server:
        yield server


def test_spark_reads_changes_across_a_restart_of_the_server(
    spark: SparkSession, own: AnabranchServer, tmp_path: Path
) -> None:
    ids = fill(own, "s", 20)
    rows: list[tuple[int, str]] = []

    def run() -> None:
        table = streaming(spark, own, subscribe="s", changes="true")
        writer = table.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).foreachBatch(keep).start()
        query.awaitTermination()

    def keep(frame: Any, _number: int) -> None:
        rows.extend((row.position, row._change_type) for row in frame.collect())

    run()
    first = base_of(own, "s")
    assert sorted(rows) == [(first + at, "insert") for at in range(20)]
    with talking(own) as client:
        client.xdel("s", ids[4], ids[9])
        client.bgsave()
    own.kill()
    own.start()
    rows.clear()
    since = batch(
        spark,
        own,
        subscribe="s",
        changes="true",
        startingOffsets=committed_offsets(tmp_path / "checkpoint").to_json(),
    )
    wanted = [(first + 4, "delete"), (first + 9, "delete")]
    found = since.select("position", "_change_type", "id").collect()
    assert sorted((row.position, row[1]) for row in found) == wanted
    assert all(row.id is None for row in found)
    run()
    assert sorted(rows) == wanted
    rows.clear()
    run()
    assert rows == []


@pytest.mark.parametrize("with_spark", [False, True])
def test_a_lake_follows_deletions_and_keeps_what_was_trimmed(
    request: pytest.FixtureRequest, ours: AnabranchServer, tmp_path: Path, with_spark: bool
) -> None:
    session = request.getfixturevalue("spark") if with_spark else None
    lake = Lake(tmp_path / "lake")

    def run(**more: Any) -> Any:
        following = {"url": url(ours), "follow_deletions": True, **more}
        done = archive(session, lake.root, streams=["s", "t"], **following)
        assert verify(None, lake.root).findings == ()
        return done

    ids = fill(ours, "s", 40)
    fill(ours, "t", 5)
    base = base_of(ours, "s")
    assert (run().entries, len(positions(lake, "s", ""))) == (45, 40)
    with talking(ours) as client:
        client.xtrim("s", maxlen=35, approximate=False)
        client.xdel("s", ids[39], *ids[20:23])
        client.delete("t")
    fill(ours, "s", 2, 40)
    plan = run(dry_run=True)
    assert (plan.entries, plan.erased) == (2, 9)
    done = run()
    assert (done.entries, done.erased, done.gaps) == (2, 9, ())
    kept = [*range(20), *range(23, 39), 40, 41]
    assert positions(lake, "s", "") == [base + each for each in kept]
    assert positions(lake, "t", "") == []
    before = lake.version()
    assert (run().erased, lake.version()) == (0, before)
    assert compact(None, lake.root, retain_hours=0).findings == ()
    left = sum(each.stat().st_size for each in lake.root.rglob("*.parquet"))
    assert left == sum(each.nbytes for each in lake.files())  # nothing erased is on the disk


def test_an_archive_that_did_not_follow_deletions_may_begin_to(
    ours: AnabranchServer, tmp_path: Path
) -> None:
    lake = Lake(tmp_path / "lake")
    ids = fill(ours, "s", 20)
    base = base_of(ours, "s")
    archive(None, lake.root, streams=["s"], url=url(ours))
    with talking(ours) as client:
        client.xdel("s", ids[8])
        client.xtrim("s", maxlen=15, approximate=False)
    done = archive(None, lake.root, streams=["s"], url=url(ours), follow_deletions=True)
    assert done.erased == 1
    assert positions(lake, "s", "") == [base + at for at in range(20) if at != 8]


def test_entries_are_erased_from_a_file_that_compact_is_merging(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    add(lake, 0, (1, 50))
    add(lake, 1, (51, 100))
    files = lake.files()
    draft, _ = merge(lake.root, files)
    assert draft is not None
    assert lake.erase("q", [("s", ("eu", 10, 60)), ("s", ("us", 1, 5))]) == 51
    assert lake.replace([(files, draft)]) == []  # it would bring them back
    assert lake.erase("q", [("s", ("eu", 10, 60))]) == 0
    assert positions(lake) == [*range(1, 10), *range(61, 101)]
    assert lake.gaps() == []
    assert verify(None, lake.root).findings == ()


def test_other_servers_and_schemas_without_the_column_are_refused(
    spark: SparkSession, redis_server: RedisServer, ours: AnabranchServer
) -> None:
    fill(redis_server, "s", 1)
    fill(ours, "s", 1)

    def refused(server: ServerProcess, schema: str | None) -> Callable[[], Any]:
        return batch(spark, server, schema, subscribe="s", changes="true").collect

    with pytest.raises(Exception, match="changes=true needs an Anabranch server"):
        refused(redis_server, None)()
    with pytest.raises(Exception, match="the schema needs the columns position and _change_type"):
        refused(ours, "n int")()
    options = ReadOptions.parse({"subscribe": "s", "changes": "true"})
    with pytest.raises(ColumnError, match="make it string"):
        Projection.of(pa.schema([("position", pa.int64()), ("_change_type", pa.int64())]), options)
    with pytest.raises(OptionError, match="true or false"):
        ReadOptions.parse({"subscribe": "s", "changes": "1"})
