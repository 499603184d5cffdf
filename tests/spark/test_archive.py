"""What `archive`, and the example `replay`, say before they do it, and while they do it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.spark.jobs.archive import Archived, Part, archive
from anabranch.spark.lake.files import LakeError
from anabranch.spark.reading.losses import DataLossError
from tests.spark.example_jobs import replay
from tests.spark.reading import base_of
from tests.spark.test_lake_jobs import command
from tests.spark.test_sink import entries, fill, url

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.servers import AnabranchServer, RedisServer

ROWS = 300


def given(server: AnabranchServer, **more: str) -> dict[str, str]:
    return {"url": url(server), "subscribe": "s,t", "maxEntriesPerTrigger": "100", **more}


def planned(server: AnabranchServer, lake: Path, **more: str) -> Archived:
    return archive(None, lake, dry_run=True, options=given(server, **more))


def said_by(*words: str, place: Path) -> tuple[str, list[str]]:
    """What a command prints, and the lines on stderr."""
    job = command(*words, place=place)
    told, noise = job.communicate(timeout=600)
    assert job.returncode == 0, noise
    return told, noise.splitlines()


def test_a_dry_run_says_what_a_run_then_does(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    fill(ours, "s", ROWS)
    with ours.client() as client:
        client.call("XADD", "t", "5-1", "a", "1")
    at = {key: base_of(ours, key) for key in ("s", "t")}
    parts = (
        Part("s", "", ROWS, at["s"], at["s"] + ROWS - 1),
        Part("t", "", 1, at["t"], at["t"]),
    )
    plan = planned(ours, lake)
    assert plan == Archived(ROWS + 1, 2, 0, 0, (), parts, dry_run=True)
    assert not lake.exists()

    steps: list[str] = []
    done = archive(spark, lake, progress=steps.append, options=given(ours))
    assert (done.entries, done.parts, done.dry_run) == (plan.entries, parts, False)
    assert len(steps) >= 4
    left = ROWS + 1
    for number, step in enumerate(steps):
        entries = int(step.split()[2])
        left -= entries
        assert step == f"batch {number}: {entries} entries, {left} left"
    assert left == 0

    assert planned(ours, lake).entries == 0
    fill(ours, "s", 7)
    again = planned(ours, lake)
    assert again.parts == (Part("s", "", 7, at["s"] + ROWS, at["s"] + ROWS + 6),)
    assert (again.entries, again.files, again.total) == (7, 1, ROWS + 1)
    before = sorted(lake.rglob("*"))
    assert planned(ours, lake) == again
    assert sorted(lake.rglob("*")) == before
    assert archive(spark, lake, options=given(ours)).parts == again.parts


def test_a_dry_run_starts_where_the_options_say_and_fails_as_the_run_would(
    spark: SparkSession, ours: AnabranchServer, plain: RedisServer, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    with ours.client() as client:
        client.pipeline([("XADD", "s", f"{each}-0", "n", "1") for each in range(1, 11)])
    for more in ({"startingTimestamp": "8"}, {"startingOffsets": '{"s": "8"}'}):
        assert planned(ours, lake, **more).entries == 3
    done = archive(spark, lake, options=given(ours, startingTimestamp="8"))
    assert done.entries == 3
    # What the options say is for the start: the checkpoint knows better.
    assert planned(ours, lake, startingOffsets="earliest").entries == 0
    with ours.client() as client:
        client.pipeline([("XADD", "s", f"{each}-0", "n", "1") for each in range(11, 21)])
        client.call("XTRIM", "s", "MAXLEN", "2")
    with pytest.raises(DataLossError, match="8 entries"):
        planned(ours, lake)
    assert planned(ours, lake, failOnDataLoss="false").entries == 2
    with plain.client() as client:
        client.call("XADD", "s", "*", "n", "1")
    with pytest.raises(LakeError, match="has no positions"):
        archive(None, tmp_path / "new", dry_run=True, options={"url": url(plain), "subscribe": "s"})


def test_a_dry_run_of_a_replay_says_what_a_run_then_does(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    with ours.client() as client:
        client.call("XADD", "t", "5-1", "a", "1")
    archive(None, tmp_path, options=given(ours))
    to = {"url": url(ours), "prefix": "new:"}
    plan = replay(spark, tmp_path, dry_run=True, **to)
    assert (plan.entries, plan.streams) == (ROWS + 1, ("new:s", "new:t"))
    assert (plan.first, plan.last) == ("5-1", entries(ours, "s")[-1][0])
    assert entries(ours, "new:s") == []
    for _ in range(2):
        assert replay(spark, tmp_path, **to) == plan
        assert len(entries(ours, "new:s")) == ROWS


@pytest.mark.long
def test_the_command_says_where_it_starts_and_how_far_it_is(
    ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    words = ("archive", "lake", "--streams", "s", "-u", url(ours), "-o", "maxEntriesPerTrigger=200")
    told, noise = said_by(*words, "--dry-run", "--json", place=tmp_path)
    assert (json.loads(told)["entries"], noise) == (ROWS, [])
    told, _ = said_by(*words, "--dry-run", place=tmp_path)
    assert "s: 300 entries, positions " in told
    assert "dry run: yes" in told
    assert not (tmp_path / "lake").exists()
    told, noise = said_by(*words, "--once", place=tmp_path)
    assert noise == [
        "anabranch: no checkpoint yet: starting at s from its first entry "
        "(startingOffsets=earliest)",
        "batch 0: 200 entries, 100 left",
        "batch 1: 100 entries, 0 left",
    ]
    assert "\nentries: 300\nfiles: 2\n" in told
    told, (line,) = said_by(*words, place=tmp_path)
    assert line.startswith("anabranch: resuming from checkpoint at s behind ")
    assert line.endswith("; startingOffsets ignored")
    assert "entries: 0\nfiles: 0\nbytes: 0\ntotal: 300\n" in told


def test_a_new_checkpoint_adds_nothing_that_the_lake_has(
    ours: AnabranchServer, tmp_path: Path
) -> None:
    lake, new = tmp_path / "lake", tmp_path / "new"
    fill(ours, "s", 10)
    only_s = {"url": url(ours), "subscribe": "s"}
    assert archive(None, lake, options=only_s).total == 10
    for dry_run in (True, False):
        with pytest.raises(LakeError, match=r"entries of stream s up to .* has not read them"):
            archive(None, lake, checkpoint=new, dry_run=dry_run, options=only_s)
    # The same for a stream that the checkpoint reads from now on.
    fill(ours, "t", 5)
    only_t = {"url": url(ours), "subscribe": "t"}
    assert archive(None, lake, checkpoint=new, options=only_t).total == 15
    with pytest.raises(LakeError, match="entries of stream t up to"):
        archive(None, lake, options=given(ours))
    both = given(ours, startingOffsets="latest")
    assert archive(None, lake, checkpoint=tmp_path / "third", options=both).total == 15
    fill(ours, "s", 2)
    assert archive(None, lake, checkpoint=tmp_path / "third", options=both).total == 17


@pytest.mark.parametrize("batches", [1, 2])
def test_a_checkpoint_that_was_set_back_loses_nothing(
    ours: AnabranchServer, tmp_path: Path, batches: int
) -> None:
    lake, older = tmp_path / "lake", tmp_path / "older"
    only_s = {"url": url(ours), "subscribe": "s"}
    fill(ours, "s", 10)
    archive(None, lake, options=only_s)
    shutil.copytree(lake / "_checkpoint", older)
    for _ in range(batches):
        fill(ours, "s", 10)
        archive(None, lake, options=only_s)
    fill(ours, "s", 10)
    with pytest.raises(LakeError, match=r"repeats batch 1 with other entries.*was set back"):
        archive(None, lake, checkpoint=older, options=only_s)
    assert archive(None, lake, options=only_s).total == 10 * (batches + 2)
