"""Lakes without Spark: manifests, plans, merged files, and what a kill at any step leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.spark.jobs.compact import compact, plan, sweep
from anabranch.spark.jobs.verify import contradictions, verify
from anabranch.spark.lake import Gap, Lake, LakeError, LakeFile, neighbours
from anabranch.spark.lake_files import examine, merge
from tests.spark import dying_lake
from tests.spark.lakes import Here, add, copies, positions, table
from tests.support.servers import REPOSITORY


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "lake")


def kinds(lake: Lake, **more: Any) -> list[str]:
    return [each.kind for each in verify(Here(), lake.root, **more).findings]  # type: ignore[arg-type]


def merged(lake: Lake, **more: Any) -> Any:
    return compact(Here(), lake.root, **{"target_bytes": 1 << 20, **more})  # type: ignore[arg-type]


def file(first: int, last: int, nbytes: int = 10, day: int = 1, region: str = "eu") -> LakeFile:
    path = f"stream=s/region={region}/date=1970-01-{day:02}/{first}-{last}.parquet"
    return LakeFile(path, "s", region, last - first + 1, first, last, nbytes)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


# ------------------------------------------------------------------------------------- manifests


def test_manifests_of_format_1_are_read_and_their_files_get_a_digest_when_merged(
    lake: Lake,
) -> None:
    add(lake, 0, (1, 50), (51, 99))
    path = lake.root / "_log" / "0000000000.json"
    told = json.loads(path.read_text())
    told["format"] = 1
    for name in ("supersedes", "at_ms"):
        del told[name]
    for each in told["files"]:
        del each["digest"]
    path.write_text(json.dumps(told))
    assert [each.digest for each in lake.files()] == ["", ""]
    found = verify(Here(), lake.root)  # type: ignore[arg-type]
    assert (found.findings, found.undigested) == ((), 2)
    assert merged(lake).made == 1
    assert positions(lake) == list(range(1, 100))
    assert [len(each.digest) for each in lake.files()] == [64]


def test_a_lost_or_damaged_manifest_is_no_shorter_lake(lake: Lake) -> None:
    for batch in range(3):
        add(lake, batch, (batch * 10, batch * 10 + 9))
    second = lake.root / "_log" / "0000000001.json"
    text = second.read_text()
    for damage in (text[:-9], text.replace('"number": 1', '"number": 2'), "[]", "{}"):
        second.write_text(damage)
        with pytest.raises(LakeError, match=r"0000000001\.json"):
            lake.files()
        assert kinds(lake) == ["manifest"]
    second.unlink()
    with pytest.raises(LakeError, match=r"0000000001\.json is missing, and 0000000002\.json is"):
        lake.publish("q", 9, [])
    assert kinds(lake) == ["manifest"]


def test_what_several_publish_at_a_time_is_all_there(lake: Lake) -> None:
    def publish(query: str) -> None:
        for batch in range(20):
            lake.publish(query, batch, [file(batch, batch, region=query)])

    threads = [threading.Thread(target=publish, args=(f"q{each}",)) for each in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(lake.manifests()) == 80
    assert len(lake.files()) == 80


def test_a_file_that_was_published_is_never_replaced_by_another_one(lake: Lake) -> None:
    (first,) = add(lake, 0, (1, 9))
    same = lake.write(table(range(1, 10)), "s", "eu", "1970-01-01")
    # Its batch comes again, and entry 5 was deleted in between.
    other = lake.write(table([1, 2, 3, 4, 6, 7, 8, 9]), "s", "eu", "1970-01-01")
    assert not lake.publish("q", 0, [other])
    assert same == first
    assert other.path != first.path
    assert lake.write(table([1, 2, 3, 4, 6, 7, 8, 9]), "s", "eu", "1970-01-01") == other
    assert positions(lake) == list(range(1, 10))
    assert (kinds(lake), [lake.root / other.path]) == ([], lake.unlisted())


def test_entries_without_positions_are_refused(lake: Lake) -> None:
    lonely = table([1]).set_column(5, "position", [[None]]).cast(table([]).schema)
    with pytest.raises(LakeError, match="no positions"):
        lake.write(lonely, "s", "eu", "1970-01-01")


def test_names_are_on_disk_before_anybody_relies_on_them(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []

    def named(path: str) -> str:
        inside = os.path.relpath(path, lake.root.parent)
        return "draft" if ".tmp" in inside else inside

    sync, link = os.fsync, os.link

    def fsync(handle: int) -> None:
        sync(handle)
        events.append(("sync", named(os.readlink(f"/proc/self/fd/{handle}"))))

    def linked(source: str, target: str) -> None:
        link(source, target)
        events.append(("name", named(target)))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", linked)
    add(lake, 0, (1, 9))
    place = "lake/stream=s/region=eu/date=1970-01-01"
    assert events == [
        ("sync", "draft"),
        ("name", f"{place}/{1:020d}-{9:020d}.parquet"),
        ("sync", place),
        ("sync", "lake/stream=s/region=eu"),
        ("sync", "lake/stream=s"),
        ("sync", "lake"),
        ("sync", "."),
        ("sync", "draft"),
        ("name", "lake/_log/0000000000.json"),
        ("sync", "lake/_log"),
        ("sync", "lake"),
    ]


# ---------------------------------------------------------------------------------- gaps, plans


def test_a_file_within_another_hides_no_gap_and_makes_none() -> None:
    ordered = [file(1, 100), file(5, 10), file(50, 60), file(101, 110), file(120, 130)]
    assert [(before.last, each.first) for before, each in neighbours(ordered)] == [
        (100, 5), (100, 50), (100, 101), (110, 120),
    ]  # fmt: skip


def test_only_neighbours_are_merged() -> None:
    files = [
        file(1, 9), file(10, 19),  # these
        file(21, 29),  # behind a gap
        file(30, 39, day=2), file(40, 49, day=2),  # these, of another day
        file(50, 59, nbytes=50),  # large enough
        file(60, 69),  # alone
        file(1, 9, region="us"), file(10, 12, region="us"), file(12, 14, region="us"),  # overlap
    ]  # fmt: skip
    groups = [[(each.first, each.last) for each in group] for group in plan(files, 100)]
    assert groups == [[(1, 9), (10, 19)], [(30, 39), (40, 49)], [(1, 9), (10, 12)]]


_seldom = st.integers(0, 7).map(lambda each: each == 7)


@given(st.lists(st.tuples(st.integers(20, 60), _seldom, _seldom), min_size=5, max_size=40))
def test_plans_keep_to_the_target_and_to_the_order(
    shapes: list[tuple[int, bool, bool]],
) -> None:
    files, at, day = [], 0, 1
    for nbytes, gap, midnight in shapes:
        at, day = at + 2 * gap, day + midnight
        files.append(file(at, at + 4, nbytes, day))
        at += 5
    groups = plan(files, 100)
    flat = [each for group in groups for each in group]
    assert flat == [each for each in files if each in flat]
    for group in groups:
        assert len(group) > 1
        assert sum(each.nbytes for each in group) <= 100
        assert max(each.nbytes for each in group) < 50
        assert len({Path(each.path).parent for each in group}) == 1
        for before, each in pairwise(group):
            assert each.first == before.last + 1


def test_contradictions_between_manifests_are_found(lake: Lake) -> None:
    lake.publish("q", 0, [file(1, 9), file(10, 19), file(15, 30)])
    lake.replace([([file(1, 9)], replace(file(1, 9), rows=8, path="x"))])
    found = list(contradictions(lake.manifests(), lake.files()))
    assert [(each.kind, each.where) for each in found] == [
        ("overlap", file(15, 30).path),
        ("replacement", "_log/0000000001.json"),
    ]
    assert found[1].what == "replaces 9 entries by 8"
    second = lake.root / "_log" / "0000000001.json"
    second.write_text(second.read_text().replace(file(1, 9).path, "unheard/of"))
    assert "never published" in list(contradictions(lake.manifests(), lake.files()))[-1].what


# ---------------------------------------------------------------------------- merging and removal


def test_merged_files_hold_the_same_entries_and_are_digested(lake: Lake) -> None:
    add(lake, 0, (1, 10), (11, 30), (31, 33))
    add(lake, 1, (1, 10), region="")
    before = [pq.read_table(lake.root / each.path) for each in lake.files()]
    done = merged(lake)
    assert (done.merged, done.made, done.removed, done.problems) == (3, 1, 0, ())
    after = lake.files()
    assert [(each.first, each.last, each.rows) for each in after] == [(1, 10, 10), (1, 33, 33)]
    whole = pq.ParquetFile(lake.root / after[1].path)
    assert whole.read().to_pylist() == [row for each in before[1:] for row in each.to_pylist()]
    assert whole.num_row_groups == 1
    assert kinds(lake) == []
    assert merged(lake).made == 0


def test_a_gap_outlives_merging(lake: Lake) -> None:
    add(lake, 0, (1, 10), (11, 20), (25, 30), (31, 40))
    assert merged(lake).made == 2
    assert lake.gaps() == [Gap("s", "eu", 20, 25)]
    assert kinds(lake) == ["gap"]
    found = verify(Here(), lake.root, allow_gaps=True)  # type: ignore[arg-type]
    assert (found.findings, found.gaps) == ((), (Gap("s", "eu", 20, 25),))


def test_a_dry_run_changes_nothing(lake: Lake) -> None:
    add(lake, 0, (1, 10), (11, 20))
    before = sorted(lake.root.rglob("*"))
    done = merged(lake, dry_run=True, grace_s=0)
    assert (done.merged, done.made, done.dry_run) == (2, 1, True)
    assert sorted(lake.root.rglob("*")) == before


def test_replaced_files_stay_for_the_grace_time(lake: Lake) -> None:
    old = add(lake, 0, (1, 10), (11, 20))
    reader = lake.files()
    assert merged(lake, grace_s=3600).removed == 0
    assert [pq.read_table(lake.root / each.path).num_rows for each in reader] == [10, 10]
    assert merged(lake, grace_s=3600).removed == 0
    assert sweep(lake, 0) == 2
    assert not any((lake.root / each.path).exists() for each in old)
    assert positions(lake) == list(range(1, 21))
    assert (sweep(lake, 0), kinds(lake)) == (0, [])


def test_files_whose_replacement_is_gone_are_not_removed(lake: Lake) -> None:
    add(lake, 0, (1, 10), (11, 20))
    merged(lake)
    (whole,) = lake.files()
    (lake.root / whole.path).unlink()
    assert sweep(lake, 0) == 0
    assert len(list(lake.root.rglob("*.parquet"))) == 2


def test_beginnings_of_files_are_removed_when_they_are_old(lake: Lake) -> None:
    (some,) = add(lake, 0, (1, 10))
    drafts = [(lake.root / some.path).with_name(".a.tmp"), lake.root / "_log" / ".b.tmp"]
    for each in drafts:
        each.write_text("")
    assert sweep(lake, 60) == 0
    os.utime(drafts[0], (time.time() - 100, time.time() - 100))
    assert sweep(lake, 60) == 1
    assert [each.exists() for each in drafts] == [False, True]


def test_two_compactions_at_a_time_replace_once(lake: Lake) -> None:
    add(lake, 0, (1, 10), (11, 20), (21, 30))
    first, second = Here(), Here()

    def meanwhile() -> None:
        # Another one is faster, and archive goes on.
        assert compact(second, lake.root, target_bytes=1 << 20).made == 1  # type: ignore[arg-type]
        add(lake, 1, (31, 40))

    first.between = meanwhile
    done = compact(first, lake.root, target_bytes=1 << 20)  # type: ignore[arg-type]
    assert (done.merged, done.made) == (0, 0)
    assert positions(lake) == list(range(1, 41))
    assert kinds(lake) == []


def test_a_batch_that_comes_again_after_its_files_were_merged_is_not_there_twice(
    lake: Lake,
) -> None:
    old = add(lake, 0, (1, 10), (11, 20))
    merged(lake)
    assert sweep(lake, 0) == 2
    add(lake, 0, (1, 10), (11, 20))
    assert positions(lake) == list(range(1, 21))
    assert sweep(lake, 0) == 2  # read by nobody
    assert not (lake.root / old[0].path).exists()


def test_a_file_that_is_published_again_is_not_removed(lake: Lake) -> None:
    add(lake, 0, (1, 10), (11, 20))
    merged(lake)
    add(lake, 0, (1, 10), query="of a new checkpoint")
    assert sweep(lake, 0) == 1
    assert kinds(lake) == ["overlap"]


# ------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "altered"),
        (lambda path: flip(path, 4), "altered"),
        (lambda path: flip(path, -1), "altered"),
        (lambda path: path.with_name("x").mkdir() or path.unlink() or path.mkdir(), "unreadable"),
    ],
)
def test_damage_is_found_and_not_merged(
    lake: Lake, damage: Callable[[Path], Any], kind: str
) -> None:
    _, bad, _, _ = add(lake, 0, (1, 10), (11, 20), (21, 30), (31, 40))
    add(lake, 1, (1, 10), (11, 20), region="us")
    damage(lake.root / bad.path)
    (found,) = verify(Here(), lake.root).findings  # type: ignore[arg-type]
    assert (found.kind, found.where) == (kind, bad.path)
    done = merged(lake, grace_s=0)
    assert (done.made, len(done.problems)) == (1, 1)
    assert bad.path in done.problems[0]
    assert kinds(lake) == [kind]
    assert positions(lake, region="us") == list(range(1, 21))


@pytest.mark.parametrize(
    ("positions", "place", "kind"),
    [
        ([1, 2, 3], ("s", "eu"), "count"),
        ([1, 3, 2, 4], ("s", "eu"), "order"),
        ([1, 2, 2, 4], ("s", "eu"), "order"),
        ([1, 2, 3, 5], ("s", "eu"), "order"),
        ([1, 2, 3, 4], ("t", "eu"), "place"),
        ([1, 2, 3, 4], ("s", "us"), "place"),
    ],
)
def test_entries_that_are_not_those_promised_are_found(
    lake: Lake, positions: list[int], place: tuple[str, str], kind: str
) -> None:
    path = lake.root / "x.parquet"
    path.parent.mkdir()
    pq.write_table(table(positions, *place), path, row_group_size=2)
    promised = LakeFile("x.parquet", "s", "eu", 4, 1, 4, path.stat().st_size)
    assert kind in [each for each, _ in examine(lake.root, promised)]
    with pytest.raises(LakeError, match=r"x\.parquet"):
        merge(lake.root, [promised])


def test_order_is_looked_at_across_the_pieces_that_a_file_is_read_in(lake: Lake) -> None:
    lake.root.mkdir()
    path = lake.root / "x.parquet"
    numbers = [*range(1, 65_537), 65_536, *range(65_538, 65_600)]
    columns = {"stream": ["s"] * len(numbers), "region": ["eu"] * len(numbers)}
    pq.write_table(pa.table({**columns, "position": numbers}), path)
    promised = LakeFile("x.parquet", "s", "eu", 65_599, 1, 65_599, path.stat().st_size)
    assert [kind for kind, _ in examine(lake.root, promised)] == ["order"]


def test_without_a_digest_damage_to_values_is_found_where_it_shows(lake: Lake) -> None:
    (some,) = add(lake, 0, (1, 5000))
    path = lake.root / some.path
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(6)  # of the fields
    flip(path, chunk.dictionary_page_offset + 40)
    undigested = replace(some, digest="")
    assert [kind for kind, _ in examine(lake.root, undigested)] == ["unreadable"]
    path.write_bytes(path.read_bytes()[:-1])
    assert [kind for kind, _ in examine(lake.root, undigested)] == ["altered"]


# -------------------------------------------------------------------------------------- kill -9


@pytest.mark.parametrize("change", ["compact", "archive"])
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    lake: Lake, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _handle: None)  # a kill is no power failure
    add(lake, 0, (1, 40), (41, 70))
    add(lake, 1, (71, 100))
    done = subprocess.run(
        [sys.executable, dying_lake.__file__, str(lake.root), change],
        env={**os.environ, "PYTHONPATH": f"{REPOSITORY / 'src'}:{REPOSITORY}"},
        check=False,
        timeout=100,
    )
    assert done.returncode == 0
    before, after = list(range(1, 101)), list(range(1, 101 if change == "compact" else 201))
    steps = seen = 0
    while (root := copies(lake.root, steps)).exists():
        left = Lake(root)
        assert positions(left) in (before, after), f"step {steps}"
        seen += len(left.files()) != 3
        assert kinds(left) == []
        dying_lake.change(root, change)
        assert positions(left) == after, f"step {steps}, once more"
        assert kinds(left) == []
        assert len(left.manifests()) == 3
        sweep(left, 0)
        assert not list(root.rglob("*.tmp"))
        if change == "compact":
            (whole,) = root.rglob("*.parquet")
            assert left.files()[0].path == str(whole.relative_to(root))
        steps += 1
    assert steps > 12
    assert 1 < seen < steps
