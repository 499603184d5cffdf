"""Archives without Spark: one lake and one checkpoint, whoever goes on and whoever dies."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.spark.jobs.archive import Archived, archive
from anabranch.spark.jobs.verify import verify
from anabranch.spark.lake.files import LakeError
from anabranch.spark.lake.table import Lake
from anabranch.spark.options import ReadOptions
from anabranch.spark.reading import micro_batches
from anabranch.spark.reading.losses import DataLossError
from anabranch.spark.reading.micro_batches import CheckpointInUse, MicroBatches
from anabranch.spark.reading.offsets import OffsetError
from tests.spark import dying_archive
from tests.spark.lakes import seen_by_polars
from tests.spark.reading import talking
from tests.spark.test_lake_jobs import seen_by
from tests.spark.test_sink import fill, forget_last, url
from tests.support.servers import REPOSITORY, AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 200


def options_of(server: AnabranchServer) -> dict[str, str]:
    return {"url": url(server), "subscribe": "s", "maxEntriesPerTrigger": "60"}


def alone(server: AnabranchServer, lake: Path, **more: str) -> Archived:
    return archive(None, lake, options={**options_of(server), **more})


def numbers(lake: Path) -> list[int]:
    """Positions, as another reader sees them."""
    found = [row[2] for row in seen_by_polars(lake)]
    assert len(found) == len(set(found))
    assert verify(None, lake).findings == ()
    return sorted(each - min(found) for each in found)


def test_runs_of_spark_and_runs_without_go_on_for_each_other(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    from examples.spark.replay import table_of

    steps: list[str] = []
    for number, session in enumerate((None, spark, None, None)):
        fill(ours, "s", ROWS)
        plan = archive(None, tmp_path, dry_run=True, options=options_of(ours))
        assert plan.entries == ROWS
        if number:  # whoever wrote the last batch died before it was noted, or before it was done
            forget_last(tmp_path / "_checkpoint", "commits")
        done = archive(
            session,
            tmp_path,
            options=options_of(ours),
            progress=steps.append,
        )
        assert (done.entries, done.total) == (ROWS, (number + 1) * ROWS)
        assert numbers(tmp_path) == list(range(done.total))
    assert steps[:4] == [
        "batch 0: 60 entries, 140 left",
        "batch 1: 60 entries, 80 left",
        "batch 2: 60 entries, 20 left",
        "batch 3: 20 entries, 0 left",
    ]
    assert seen_by(table_of(spark, tmp_path)) == seen_by_polars(tmp_path)
    assert alone(ours, tmp_path).entries == 0


def test_a_run_that_goes_on_begins_again_after_a_failure_and_ends_when_it_is_told_to(
    ours: AnabranchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ours, "s", ROWS)
    stop = threading.Event()
    steps: list[str] = []
    commit = Lake.commit
    failures = iter([LakeError("the disk is full"), None])

    def failing(lake: Lake, *given: object) -> bool:
        if (failure := next(failures, None)) is not None:
            raise failure
        return commit(lake, *given)  # type: ignore[arg-type]

    def say(step: str) -> None:
        steps.append(step)
        if step == "batch 3: 20 entries, 0 left":
            fill(ours, "s", 5)
        elif step.startswith("batch 4: 5 entries"):
            stop.set()

    monkeypatch.setattr(Lake, "commit", failing)
    given = options_of(ours)
    done = archive(
        None, tmp_path, once=False, interval_s=0.01, stop=stop, progress=say, options=given
    )
    assert (done.entries, steps[-1]) == (ROWS + 5, "batch 4: 5 entries, 0 left")
    assert numbers(tmp_path) == list(range(ROWS + 5))


@pytest.mark.long
def test_a_run_that_dies_at_any_step_is_completed(ours: AnabranchServer, tmp_path: Path) -> None:
    fill(ours, "s", ROWS)
    lake = tmp_path / "lake"
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    words = [sys.executable, dying_archive.__file__, str(lake), url(ours)]
    subprocess.run(words, check=True, env=environment)
    died = sorted(tmp_path.glob("lake-*"))
    assert len(died) > 15
    for root in died:
        if (root / "_delta_log").exists() and Lake(root).files():
            assert numbers(root) in [list(range(150)), list(range(ROWS))]
        alone(ours, root)
        assert numbers(root) == list(range(ROWS))


@pytest.mark.long
def test_a_run_that_dies_while_it_erases_is_completed(
    ours: AnabranchServer, tmp_path: Path
) -> None:
    fill(ours, "s", ROWS)
    lake = tmp_path / "lake"
    alone(ours, lake)
    with talking(ours) as client:
        ids = [entry_id for entry_id, _ in client.xrange("s")]
        client.xdel("s", *ids[10:40], ids[-1])
    fill(ours, "s", 20)
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'src'}"}
    words = [sys.executable, dying_archive.__file__, str(lake), url(ours)]
    subprocess.run(words, check=True, env=environment)
    before = list(range(ROWS))
    erased = [each for each in before[:-1] if not 10 <= each < 40]
    whole = [*erased, *range(ROWS, ROWS + 20)]
    died = sorted(tmp_path.glob("lake-*"))
    assert len(died) > 10
    seen = [numbers(root) for root in died]
    assert all(each in (before, erased, whole) for each in seen)
    assert erased in seen
    for root in died:
        alone(ours, root, changes="true")
        assert numbers(root) == whole
        assert verify(None, root).findings == ()


@pytest.mark.parametrize("entries", [60, ROWS])
def test_two_runs_at_a_time_are_noticed(
    ours: AnabranchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    fill(ours, "s", ROWS)
    in_batches = {"maxEntriesPerTrigger": str(entries)}
    commit = Lake.commit

    def slow(lake: Lake, *given: object) -> bool:
        monkeypatch.undo()
        alone(ours, tmp_path, **in_batches)
        return commit(lake, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "commit", slow)
    with pytest.raises((CheckpointInUse, LakeError), match="another run is at work"):
        alone(ours, tmp_path, **in_batches)
    assert numbers(tmp_path) == list(range(ROWS))


def test_old_batches_are_removed_from_a_checkpoint(
    ours: AnabranchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(micro_batches, "_KEPT", 2)
    fill(ours, "s", ROWS)
    alone(ours, tmp_path)
    for log in ("offsets", "commits"):
        assert sorted(os.listdir(tmp_path / "_checkpoint" / log)) == ["2", "3"]
    fill(ours, "s", 10)
    assert alone(ours, tmp_path).entries == 10
    assert numbers(tmp_path) == list(range(ROWS + 10))


@pytest.mark.parametrize("pending", [False, True])
def test_a_flipped_bit_of_a_checkpoint_is_refused_or_harmless(
    ours: AnabranchServer, tmp_path: Path, pending: bool
) -> None:
    fill(ours, "s", ROWS)
    sound, copy = tmp_path / "lake" / "_checkpoint", tmp_path / "copy"
    alone(ours, sound.parent)
    if pending:
        forget_last(sound, "commits")
    fill(ours, "s", ROWS)

    def planned() -> object:
        batches = MicroBatches(ReadOptions.parse(options_of(ours)), copy, once=True)
        with closing(batches):
            batch = batches.next()
        return batches.query, batch and (batch.number, batch.partitions)

    shutil.copytree(sound, copy)
    expected = planned()
    files = [each for each in sorted(sound.rglob("[23m]*")) if each.is_file()]
    assert [each.name for each in files] == [*"23"[: 2 - pending], "metadata", "2", "3"]
    chance = random.Random(1)
    refused = 0
    for path in chance.choices(files, [each.stat().st_size for each in files], k=200):
        shutil.rmtree(copy)
        shutil.copytree(sound, copy)
        rotten = bytearray(path.read_bytes())
        rotten[chance.randrange(len(rotten))] ^= 1 << chance.randrange(8)
        (copy / path.relative_to(sound)).write_bytes(rotten)
        try:
            assert planned() == expected
        except OffsetError as error:
            assert "Put back a copy" in str(error)  # noqa: PT017
            refused += 1
    assert refused > 50
    done = sound / "offsets" / str(3 - pending)
    done.write_text(done.read_text().replace("v1", "v3"))
    with pytest.raises(OffsetError, match="damaged, or of another Spark"):
        archive(None, sound.parent, dry_run=True, options=options_of(ours))


def test_losses_are_those_of_a_query(ours: AnabranchServer, tmp_path: Path) -> None:
    fill(ours, "s", ROWS)
    alone(ours, tmp_path)
    fill(ours, "s", ROWS)
    with talking(ours) as client:
        client.execute_command("XTRIM", "s", "MAXLEN", "=", 10)
    with pytest.raises(DataLossError, match="190 entries after"):
        alone(ours, tmp_path)
    done = alone(ours, tmp_path, failOnDataLoss="false")
    assert (done.entries, [each.before - each.after for each in done.gaps]) == (10, [191])
