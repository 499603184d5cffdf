"""Streams into a lake, merged, verified, and back: the same streams, whoever dies on the way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark import dying_step
from tests.spark.lakes import seen_by_duckdb, seen_by_polars, table
from tests.spark.processes import kill_session
from tests.spark.test_sink import entries, fill, url, values
from tests.support.servers import REPOSITORY, AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 2000


@pytest.fixture
def other() -> Iterator[AnabranchServer]:
    """An empty server to replay into."""
    with AnabranchServer() as server:
        yield server


def seen_by(table: Any) -> list[tuple[str, str, int, str]]:
    """What Spark reads, as `seen_by_polars` has it."""
    return sorted(map(tuple, table.select("stream", "region", "position", "id").collect()))


def digests(server: AnabranchServer, *keys: str) -> list[bytes]:
    with server.client() as client:
        _, found = client.call("AB.DIGEST", *keys)
    return [each for _, each in found]


def archived(
    spark: SparkSession | None, server: AnabranchServer, lake: Path, **options: str
) -> Any:
    from anabranch.spark.jobs.archive import archive

    given = {"url": url(server), "subscribe": "s,t", "maxEntriesPerTrigger": "500", **options}
    return archive(spark, lake, options=given)


def fill_both(server: AnabranchServer) -> None:
    """Stream s as it comes, stream t over three days, with all that bytes can be."""
    fill(server, "s", ROWS)
    with server.client() as client:
        client.pipeline(
            [
                ("XADD", "t", f"{each * 500_000}-{each}", "a", b"\x00\xff\r\n", "", f"{each}")
                for each in range(1, 501)
            ]
        )


def test_what_was_archived_merged_and_verified_is_the_same_elsewhere(
    spark: SparkSession, ours: AnabranchServer, other: AnabranchServer, tmp_path: Path
) -> None:
    from anabranch.spark.jobs.compact import compact
    from anabranch.spark.jobs.verify import verify
    from anabranch.spark.lake.table import Lake
    from examples.spark.replay import table_of
    from tests.spark.example_jobs import replay

    fill_both(ours)
    assert archived(spark, ours, tmp_path).entries == ROWS + 500
    before = Lake(tmp_path).files()
    seen: list[str] = []
    reader = table_of(spark, tmp_path)
    rows = seen_by(reader)
    assert seen_by_duckdb(tmp_path) == seen_by_polars(tmp_path) == rows
    done = compact(spark, tmp_path, progress=seen.append)
    after = Lake(tmp_path).files()
    assert seen_by(reader) == rows  # it reads the version that it was made from
    assert seen_by_duckdb(tmp_path) == seen_by_polars(tmp_path) == rows
    assert seen_by(table_of(spark, tmp_path)) == rows
    days = {Path(each.path).parent for each in before}
    assert len(before) > len(after) == len(days)
    assert (done.findings, done.removed, seen[-1]) == (
        (),
        0,
        f"{done.made} of {done.made} days merged",
    )
    assert compact(None, tmp_path, retain_hours=0).removed == done.merged
    assert not any((tmp_path / each.path).exists() for each in set(before) - set(after))
    found = verify(spark, tmp_path)
    assert (found.findings, found.entries) == ((), ROWS + 500)
    for _ in range(2):
        replay(spark, tmp_path, url=url(other))
        assert digests(other, "s", "t") == digests(ours, "s", "t")
    assert None not in digests(other, "s", "t")


@pytest.mark.long
def test_merging_beside_a_running_archive_and_readers(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from anabranch.spark import session
    from anabranch.spark.jobs.archive import archive
    from anabranch.spark.jobs.compact import compact
    from anabranch.spark.jobs.verify import verify
    from anabranch.spark.lake.table import Lake
    from examples.spark.replay import table_of

    fill(ours, "s", 500)
    given = {"url": url(ours), "subscribe": "s", "maxEntriesPerTrigger": "100"}
    stop = threading.Event()

    def follow() -> None:
        session()
        archive(spark, tmp_path, once=False, interval_s=0.1, stop=stop, options=given)

    with ThreadPoolExecutor(1) as threads:
        archiving = threads.submit(follow)
        try:
            merged = rows = 0
            while merged < 3:
                rows += 500
                deadline = time.monotonic() + 300
                while sum(each.rows for each in Lake(tmp_path).files()) < rows:
                    assert not archiving.done(), archiving.exception()
                    assert time.monotonic() < deadline
                    time.sleep(0.05)
                reader = table_of(spark, tmp_path)  # from before, and read after
                fill(ours, "s", 500)
                merged += compact(spark, tmp_path).made > 0
                assert reader.count() >= rows
                assert reader.dropDuplicates(["id"]).count() == reader.count()
        finally:
            stop.set()
    archived(spark, ours, tmp_path)
    assert verify(spark, tmp_path).findings == ()
    ids = [row.id for row in table_of(spark, tmp_path).orderBy("position").collect()]
    assert ids == [entry_id for entry_id, _ in entries(ours, "s")]


def test_gaps_of_what_was_deleted_are_told(ours: AnabranchServer, tmp_path: Path) -> None:
    from anabranch.spark.jobs.compact import compact
    from anabranch.spark.jobs.verify import verify
    from anabranch.spark.lake.table import Gap

    fill(ours, "s", 600)
    archived(None, ours, tmp_path)
    fill(ours, "s", 10)
    with ours.client() as client:
        for entry_id, _ in entries(ours, "s")[600:604]:
            client.call("XDEL", "s", entry_id)
    done = archived(None, ours, tmp_path)
    assert done.entries == 6
    (gap,) = done.gaps
    assert gap == Gap("s", "", gap.after, gap.after + 5)
    compact(None, tmp_path)
    found = verify(None, tmp_path)
    assert (found.gaps, [each.kind for each in found.findings]) == ((gap,), ["gap"])


def test_speed_is_kept_and_a_second_run_waits_for_nothing(
    spark: SparkSession,
    ours: AnabranchServer,
    other: AnabranchServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from examples.spark.replay import ReplayError
    from tests.spark.example_jobs import replay

    with ours.client() as client:
        for number in range(30):
            key = "st"[number % 2]
            client.call("XADD", key, f"{1_000_000 + 400 * number}-1", "n", str(number))
    archived(None, ours, tmp_path, maxEntriesPerTrigger="10")
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, monotonic=lambda: sum(waited))
    monkeypatch.setattr("examples.spark.replay.time", clock)
    # The second run would take hours if it waited for what is there.
    for speed in (4, 0.001):
        replay(spark, tmp_path, url=url(other), speed=speed)
    assert entries(other, "s") == entries(ours, "s")
    assert entries(other, "t") == entries(ours, "t")
    # Over both streams, 400 ms were between two entries.
    assert waited == pytest.approx([0, *[0.1] * 29])
    for wrong in ({"speed": -1}, {"speed": 2, "keep_ids": False}):
        with pytest.raises(ReplayError, match="a speed is above 0"):
            replay(spark, tmp_path, url=url(other), **wrong)


@pytest.mark.parametrize("way", ["ledger", pytest.param("position", marks=pytest.mark.long)])
def test_new_ids_are_given_to_what_the_lake_has_got_since_and_to_nothing_else(
    spark: SparkSession, other: AnabranchServer, tmp_path: Path, way: str
) -> None:
    from anabranch.spark.jobs.compact import compact
    from anabranch.spark.lake.table import Lake
    from tests.spark.example_jobs import replay

    lake = Lake(tmp_path / "lake")
    options = {"maxRowsInFlight": "7"} | ({} if way == "ledger" else {"idempotence": way})

    def grow(batch: int, *places: tuple[str, str, range]) -> None:
        files = [
            draft
            for stream, region, positions in places
            for draft in lake.write(table(positions, stream, region))
        ]
        lake.commit("q", batch, files)

    def again(**more: Any) -> None:
        replay(spark, lake.root, url=url(other), keep_ids=False, options=options, **more)

    # Times are positions: eu's entries stand between those of us, and in s both are merged.
    grow(0, ("s", "eu", range(0, 100, 2)), ("s", "us", range(1, 61, 2)), ("t", "eu", range(30)))
    again(until_ms=90)
    again()
    first = [*range(60), *range(60, 100, 2)]
    assert (values(other, "s"), values(other, "t")) == (first, list(range(30)))
    # us was cut off: what it brings now has times before those of eu, and comes behind them.
    grow(1, ("s", "us", range(61, 101, 2)), ("s", "ap", range(5, 10)))
    grow(2, ("s", "eu", range(100, 110)), ("t", "eu", range(30, 50)), ("u", "eu", range(3)))
    again(dry_run=True)
    for _ in range(2):
        again()
        late = sorted([*range(61, 101, 2), *range(5, 10), *range(100, 110)])
        assert values(other, "s") == first + late
        assert (values(other, "t"), values(other, "u")) == (list(range(50)), [0, 1, 2])
    # The same entries in other files, and somewhere else.
    assert compact(spark, lake.root, retain_hours=0).merged > 0
    shutil.move(lake.root, tmp_path / "moved")
    lake = Lake(tmp_path / "moved")
    again()
    grow(3, ("s", "us", range(101, 103)))
    again()
    assert values(other, "s") == [*first, *late, 101, 102]
    # Another selection is another replay, and so is another prefix.
    again(since_ms=100, streams=["s"])
    assert values(other, "s")[-12:] == sorted([*range(100, 110), 101, 102])
    again(prefix="x:", streams=["u"])
    assert values(other, "x:u") == [0, 1, 2]
    if way == "ledger":
        count = len(values(other, "s"))
        with pytest.raises(Exception, match="was replayed with different rows"):
            again(until_ms=50)
        assert len(values(other, "s")) == count


def test_a_stream_that_was_made_anew_with_older_ids_is_replayed_behind_the_old_one(
    spark: SparkSession, ours: AnabranchServer, other: AnabranchServer, tmp_path: Path
) -> None:
    from tests.spark.example_jobs import replay

    with ours.client() as client:
        client.pipeline([("XADD", "s", f"{1000 + each}-0", "n", str(each)) for each in range(20)])
    archived(None, ours, tmp_path)
    replay(spark, tmp_path, url=url(other), keep_ids=False)
    with ours.client() as client:
        client.call("DEL", "s")
        client.pipeline([("XADD", "s", f"{each}-1", "n", str(each)) for each in range(20, 40)])
    archived(None, ours, tmp_path, failOnDataLoss="false")
    for _ in range(2):
        replay(spark, tmp_path, url=url(other), keep_ids=False)
    assert values(other, "s") == list(range(40))


# ----------------------------------------------------------------------------------- the commands


def command(*words: str, dying: str | None = None, place: Path) -> subprocess.Popen[str]:
    """``anabranch spark ...``, in a session of its own; `dying`: see `dying_step`."""
    paths = [str(REPOSITORY / "src")]
    more = {}
    if dying is not None:
        hook = place / "hook"
        hook.mkdir(exist_ok=True)
        shutil.copy(dying_step.__file__, hook / "sitecustomize.py")
        (place / "tally").unlink(missing_ok=True)
        paths.insert(0, str(hook))
        more = {"DYING_STEP": f"{dying}|{place / 'tally'}"}
    return subprocess.Popen(
        [sys.executable, "-m", "anabranch", "spark", *words],
        env={**os.environ, "PYTHONPATH": ":".join(paths), **more},
        cwd=place,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def program(name: str, *words: str, place: Path) -> subprocess.Popen[str]:
    """A program of `examples/spark`, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, str(REPOSITORY / "examples" / "spark" / f"{name}.py"), *words],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        cwd=place,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.long
def test_jobs_that_are_killed_are_completed_by_the_next_run(
    spark: SparkSession, ours: AnabranchServer, other: AnabranchServer, tmp_path: Path
) -> None:
    from anabranch.spark.jobs.compact import compact
    from anabranch.spark.jobs.verify import verify
    from anabranch.spark.lake.table import Lake
    from examples.spark.replay import table_of
    from tests.spark.example_jobs import replay

    fill_both(ours)
    lake = tmp_path / "lake"

    def dies(step: str, *words: str) -> None:
        job = command(*words, dying=step, place=tmp_path)
        said = job.communicate(timeout=600)
        assert job.returncode == -signal.SIGKILL, said

    def rows() -> int:
        ids = [(row.stream, row.id) for row in table_of(spark, lake).collect()]
        assert len(ids) == len(set(ids))
        assert verify(spark, lake).findings == ()
        return len(ids)

    archive = ("archive", str(lake), "--streams", "s,t", "-u", url(ours), "--master", "local[2,4]")
    # Here processes die at some step; tests/spark/test_lake.py lets every step be the last one.
    # A task has written a file, and nothing is committed.
    dies("open|stream=|3", *archive, "-o", "maxEntriesPerTrigger=500")
    assert Lake(lake).files() == []
    # The driver has committed the second batch, and Spark has not heard of it.
    dies("open|_delta_log|1", *archive, "-o", "maxEntriesPerTrigger=500")
    assert 0 < rows() < ROWS + 500
    assert archived(spark, ours, lake).total == rows() == ROWS + 500
    files = len(Lake(lake).files())
    done = compact(spark, lake, retain_hours=0)
    assert (len(Lake(lake).files()) < files, done.removed > 0, rows()) == (True, True, ROWS + 500)

    # A replay in the middle of its rows.
    words = (str(lake), "--url", url(other), "--new-ids", "--prefix", "new:")
    words += ("-o", "maxRowsInFlight=5")
    job = program("replay", *words, place=tmp_path)
    with other.client() as client:
        try:
            deadline = time.monotonic() + 300
            while int(client.call("XLEN", "new:s")[1]) < 100:
                assert job.poll() is None, job.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.002)
        finally:
            kill_session(job.pid)
            job.communicate()
        assert int(client.call("XLEN", "new:s")[1]) < ROWS
    replay(spark, lake, url=url(other))
    assert digests(other, "s", "t") == digests(ours, "s", "t")
    replay(spark, lake, url=url(other), keep_ids=False, prefix="new:")
    assert values(other, "new:s") == list(range(ROWS))
    assert [words for _, words in entries(other, "new:t")] == [
        words for _, words in entries(ours, "t")
    ]


@pytest.mark.long
def test_verify_exits_with_1_if_there_is_a_finding(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from anabranch.spark.jobs.verify import verify
    from anabranch.spark.lake.table import Lake

    fill_both(ours)
    lake = tmp_path / "lake"
    archived(spark, ours, lake)
    assert verify(spark, lake).findings == ()
    first, second, *_ = Lake(lake).files()
    (lake / first.path).unlink()
    data = bytearray((lake / second.path).read_bytes())
    data[len(data) // 2] ^= 1
    (lake / second.path).write_bytes(data)
    job = command("verify", str(lake), "--json", place=tmp_path)
    said, _ = job.communicate(timeout=600)
    assert job.returncode == 1
    found = {each["where"]: each["kind"] for each in json.loads(said)["findings"]}
    # Their positions are a gap, unless both files are at an end of the stream: names are random.
    assert found.pop("s", "gap") == "gap"
    assert found == {first.path: "missing", second.path: "altered"}
