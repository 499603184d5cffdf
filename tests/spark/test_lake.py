"""Lakes without Spark: what is committed, merged and removed, and what readers see."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import deltalake
import pyarrow.parquet as pq
import pytest

from anabranch.spark.jobs.compact import compact
from anabranch.spark.jobs.verify import verify
from anabranch.spark.lake import table as lake_table
from anabranch.spark.lake.files import LakeError, merge
from anabranch.spark.lake.table import Gap, Lake
from tests.spark import dying_lake, writing_lake
from tests.spark.lakes import DAY_MS, add, copies, positions, seen_by_duckdb, seen_by_polars, table
from tests.support.servers import REPOSITORY


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def kinds(lake: Lake, **more: Any) -> list[str]:
    return [each.kind for each in verify(None, lake.root, **more).findings]


def merged(lake: Lake, **more: Any) -> Any:
    return compact(None, lake.root, **{"target_mib": 1, **more})


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def stay(count: int) -> list[int]:
    return list(range(count))


# --------------------------------------------------------------------------------------- commits


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b"])
def test_a_directory_that_the_library_takes_for_a_url_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="choose a directory without them"):
        Lake(tmp_path / name)


def test_a_batch_that_is_repeated_is_committed_once(lake: Lake) -> None:
    assert add(lake, 0, (0, 9))
    assert not add(lake, 0, (0, 9))
    assert add(lake, 1, (10, 19))
    with pytest.raises(LakeError, match="batch 1 of query q, and the checkpoint repeats batch 0"):
        add(lake, 0, (0, 9))
    assert add(lake, 0, (20, 29), query="another")
    assert positions(lake) == stay(30)
    assert lake.table().transaction_version("q") == 1


@pytest.mark.parametrize("stream", ["é" * 60, "x" * 300, "x" * 248, "😀" * 30, "", "s", "a/../b"])
def test_a_stream_may_have_any_name(lake: Lake, stream: str) -> None:
    for batch in range(3):
        add(lake, batch, (batch, batch), stream=stream)
        add(lake, batch, (batch, batch), stream="other", query="r")
    assert [each.stream for each in lake.files([stream])] == [stream] * 3
    column = lake.table().to_pyarrow_dataset().to_table(["stream"]).column(0)
    assert set(column.to_pylist()) == {stream or None, "other"}  # NULL for the empty key
    assert kinds(lake) == []
    assert merged(lake).merged == 6
    assert [(each.stream, each.rows) for each in lake.files([stream])] == [(stream, 3)]
    assert {each.rows for each in lake.files(["other"])} == {3}
    column = lake.table().to_pyarrow_dataset().to_table(["stream"]).column(0)
    assert sorted(each or "" for each in column.to_pylist()) == sorted([stream, "other"] * 3)
    assert kinds(lake) == []


def test_many_commit_at_once_and_each_batch_is_there_once(lake: Lake) -> None:
    def commit(number: int) -> bool:
        batch = number // 3  # three attempts of each
        return add(lake, 0, (batch * 10, batch * 10 + 9), query=f"q{batch}")

    with ThreadPoolExecutor(6) as threads:
        told = list(threads.map(commit, range(24)))
    assert [sum(told[at : at + 3]) for at in range(0, 24, 3)] == [1] * 8
    assert positions(lake) == stay(80)


def test_several_make_the_table_at_once(tmp_path: Path) -> None:
    together = Barrier(4)
    for number in range(10):
        lake = Lake(tmp_path / str(number))
        drafts = [list(lake.write(table([each]))) for each in range(4)]

        def commit(each: int, lake: Lake = lake, drafts: Any = drafts) -> bool:
            together.wait()
            return lake.commit(f"q{each}", 0, drafts[each])

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(commit, range(4)))
        assert positions(lake) == stay(4)


@pytest.mark.parametrize("left", [None, "00000000000000000000.json#1", "_commit_1.json.tmp"])
def test_a_writer_that_died_before_the_first_commit_leaves_no_lake_behind(
    lake: Lake, left: str | None
) -> None:
    (lake.root / "_delta_log").mkdir(parents=True)
    if left is not None:
        (lake.root / "_delta_log" / left).write_text("{")
    assert (lake.files(), lake.version(), lake.history(-1)) == ([], -1, [])
    assert add(lake, 0, (0, 9))
    assert positions(lake) == stay(10)


def test_a_reader_looks_again_if_old_commits_are_removed_from_the_log(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(3):
        add(lake, batch, (batch * 10, batch * 10 + 9))
    commit = lake.root / "_delta_log" / f"{1:020}.json"
    opened: list[str] = []

    def opens(root: str) -> deltalake.DeltaTable:
        opened.append(root)
        gone = len(opened) == 1  # as for a reader that has seen its name before
        if gone:
            commit.rename(lake.root / "_gone")
        try:
            return table_of(root)
        finally:
            if gone:
                (lake.root / "_gone").rename(commit)

    table_of = deltalake.DeltaTable
    monkeypatch.setattr(deltalake, "DeltaTable", opens)
    assert sum(each.rows for each in lake.files()) == 30
    assert len(opened) == 2
    commit.unlink()
    with pytest.raises(LakeError, match="log of the table is damaged"):
        lake.files()


def test_a_reader_begins_at_the_checkpoint_of_so_many_commits(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_table, "_CHECKPOINT_EACH", 3)
    for batch in range(4):
        add(lake, batch, (batch * 10, batch * 10 + 9))
    for version in range(3):
        (lake.root / "_delta_log" / f"{version:020}.json").unlink()
    assert positions(lake) == list(range(40))
    assert not lake.commit("q", 3, [])
    add(lake, 4, (40, 49))
    assert len(seen_by_polars(lake.root)) == 50


def test_files_are_by_stream_and_day_and_in_the_order_of_regions_and_ids(lake: Lake) -> None:
    hour = DAY_MS // 24
    mixed = table(range(30), "s", "us", hour).to_pylist()
    mixed += table(range(30), "a/b: c%\u00e9*{}", "eu", hour).to_pylist()
    mixed += table(range(30), "s", "eu", hour).to_pylist()
    shuffled = table([]).from_pylist(mixed[::-1], schema=table([]).schema)
    assert lake.commit("q", 0, lake.write(shuffled))
    files = lake.files()
    assert [(each.stream, each.date, each.rows) for each in files] == [
        ("a/b: c%\u00e9*{}", "1970-01-01", 24),
        ("a/b: c%\u00e9*{}", "1970-01-02", 6),
        ("s", "1970-01-01", 48),
        ("s", "1970-01-02", 12),
    ]
    for each in files:
        rows = pq.ParquetFile(lake.root / each.path).read().to_pylist()
        order = [(row["region"], int(row["id"].partition("-")[0])) for row in rows]
        assert order == sorted(order)
    everything = sorted((r["stream"], r["region"], r["position"], r["id"]) for r in mixed)
    assert seen_by_polars(lake.root) == seen_by_duckdb(lake.root) == everything
    merged(lake)
    assert seen_by_polars(lake.root) == seen_by_duckdb(lake.root) == everything
    assert kinds(lake) == []


@pytest.mark.parametrize(
    ("ms", "us"),
    [(2**64 - 1, None), (253_402_300_800_000, 253_402_300_800_000_000), (9 * 10**15, 9 * 10**18)],
)
def test_ids_beyond_any_calendar_have_a_place(lake: Lake, ms: int, us: int | None) -> None:
    rows = table(range(2)).to_pylist()
    rows[1] |= {"ts": us, "id": f"{ms}-{2**64 - 1}"}
    odd = table([]).from_pylist(rows, schema=table([]).schema)
    for batch in range(2):
        lake.commit("q", batch, lake.write(odd))
    assert {each.date for each in lake.files()} == {"1970-01-01", None}
    assert len(seen_by_polars(lake.root)) == len(seen_by_duckdb(lake.root)) == 4
    assert merged(lake).made == 2
    assert len(seen_by_polars(lake.root)) == len(seen_by_duckdb(lake.root)) == 4
    assert kinds(lake) == ["overlap"] * 2  # each batch had the same positions


def test_a_lake_that_is_none_is_refused(lake: Lake) -> None:
    assert kinds(lake) == ["log"]
    with pytest.raises(LakeError, match="is this a lake"):
        merged(lake)


# ---------------------------------------------------------------------------------- verification


def test_what_is_missing_twice_or_altered_is_found(lake: Lake) -> None:
    for batch, first in enumerate((0, 10, 30)):
        add(lake, batch, (first, first + 9))
    assert lake.gaps() == [Gap("s", "eu", 19, 30)]
    assert (kinds(lake), kinds(lake, allow_gaps=True)) == (["gap"], [])
    add(lake, 3, (20, 31))
    assert kinds(lake) == ["overlap"]
    first, second, third, _ = lake.files()
    flip(lake.root / first.path, first.nbytes // 2)
    (lake.root / second.path).unlink()
    (lake.root / third.path).write_bytes(b"x")
    found = {each.where: each.kind for each in verify(None, lake.root, allow_gaps=True).findings}
    assert found.items() >= {
        (first.path, "altered"), (second.path, "missing"), (third.path, "altered")
    }  # fmt: skip
    done = merged(lake)
    assert (done.made, len(done.findings)) == (0, 3)


# ----------------------------------------------------------------------------- merging, removing


def test_what_a_reader_of_an_older_version_needs_is_kept_for_the_retention_time(
    lake: Lake,
) -> None:
    for batch in range(4):
        add(lake, batch, (batch * 10, batch * 10 + 9))
    stray = lake.write(table(range(40, 50)))  # of a batch that is not committed yet
    reader = lake.table().to_pyarrow_dataset()
    before = {each.path for each in lake.files()}
    done = merged(lake, retain_hours=1)
    assert (done.merged, done.made, done.removed) == (4, 1, 0)
    assert reader.to_table().num_rows == 40
    assert merged(lake, retain_hours=0, dry_run=True).removed == 4
    assert merged(lake, retain_hours=0).removed == 4
    assert not any((lake.root / each).exists() for each in before)
    assert merged(lake, retain_hours=0).removed == 0
    assert lake.commit("q", 4, stray)
    assert positions(lake) == stay(50)
    # Long after nobody commits it any more.
    stray, *_ = lake.write(table(range(50, 60)))
    long_ago = time.time() - 8 * 86_400
    os.utime(lake.root / stray.path, (long_ago, long_ago))
    assert merged(lake, retain_hours=1).removed == 1
    assert positions(lake) == stay(50)
    assert kinds(lake) == []


def test_a_lake_of_the_empty_key_alone_is_merged(lake: Lake) -> None:
    for batch in range(3):
        add(lake, batch, (batch, batch), stream="")
    assert (merged(lake).merged, len(lake.files())) == (3, 1)


def test_those_who_merge_at_once_double_nothing(lake: Lake) -> None:
    together = Barrier(3)

    def merge(_: int) -> int:
        together.wait()
        return int(merged(lake, retain_hours=1).made)

    for batch in range(4):
        add(lake, batch, (batch * 10, batch * 10 + 9))
    for first in (40, 50, 60):
        add(lake, first, (first, first + 9))
        with ThreadPoolExecutor(3) as threads:
            assert sum(threads.map(merge, range(3))) == 1
    assert positions(lake) == stay(70)
    assert kinds(lake) == []


def test_a_merge_is_put_only_in_the_place_of_files_that_are_there(lake: Lake) -> None:
    """Commits of others come in between, and other merges have the same files."""
    for batch in range(6):
        add(lake, batch, (batch * 10, batch * 10 + 9))
    files = lake.files()
    drafts = [merge(lake.root, files[at : at + 2])[0] for at in (0, 2, 2, 3)]
    merges = [
        (files[at : at + 2], draft)
        for at, draft in zip((0, 2, 2, 3), drafts, strict=True)
        if draft is not None
    ]
    together = Barrier(5)

    def put(number: int) -> int:
        together.wait()
        if number == len(merges):
            return add(lake, 6, (60, 69))
        return len(lake.replace([merges[number]]))

    with ThreadPoolExecutor(5) as threads:
        told = list(threads.map(put, range(5)))
    assert (told[0], sum(told[1:4]), told[4]) == (1, 1, 1)
    assert lake.replace(merges) == []
    assert positions(lake) == stay(70)
    assert kinds(lake) == []


def test_every_reader_sees_the_same_whole_batches_while_writers_are_killed(lake: Lake) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}"}
    words = [sys.executable, writing_lake.__file__, str(lake.root)]
    batches = 0
    for _ in range(3):
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as writer:
            assert writer.stdout is not None
            try:
                for _ in range(4):
                    batches = int(writer.stdout.readline())
                    seen = seen_by_polars(lake.root)
                    again = seen_by_duckdb(lake.root)
                    merged(lake, retain_hours=1)
                    for rows in (seen, again, seen_by_polars(lake.root)):
                        assert [row[2] for row in rows] == stay(len(rows))
                        assert len(rows) % writing_lake.ROWS == 0
                        assert len(rows) >= batches * writing_lake.ROWS
            finally:
                writer.send_signal(signal.SIGKILL)
    assert seen_by_polars(lake.root) == seen_by_duckdb(lake.root)
    assert kinds(lake) == []


@pytest.mark.parametrize("change", ["publish", "compact", "erase"])
def test_a_kill_at_any_step_loses_nothing_and_doubles_nothing(lake: Lake, change: str) -> None:
    def entries(root: Path) -> int:
        return sum(each.rows for each in Lake(root).files())

    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}"}
    setup = (
        "from tests.spark.lakes import *; import sys; lake = Lake(sys.argv[1]);"
        "[add(lake, b, (b * 25 + 1, b * 25 + 25)) for b in range(4)]"
    )  # in a process of its own: the library does not survive a fork
    subprocess.run([sys.executable, "-c", setup, str(lake.root)], check=True, env=environment)
    whole = {"publish": 200, "compact": 100, "erase": 59}[change]
    allowed = {100, whole}
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}/src:{REPOSITORY}"}
    words = [sys.executable, dying_lake.__file__, str(lake.root), change]
    subprocess.run(words, check=True, env=environment)
    step = 0
    while (root := copies(lake.root, step)).exists():
        if (root / "_delta_log").exists():
            assert entries(root) in allowed
            if change == "compact":
                assert verify(None, root).findings == ()
                assert verify(None, root).undigested == 0
        dying_lake.change(root, change)
        assert entries(root) == whole
        assert verify(None, root).findings == ()
        step += 1
    assert step > 4
