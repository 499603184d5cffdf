"""Flipped bits in the files of a lake: `verify` finds them, or every reader has the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from anabranch.spark.jobs.compact import compact
from anabranch.spark.jobs.verify import verify
from anabranch.spark.lake.files import LakeError
from anabranch.spark.lake.table import Lake
from tests.spark.lakes import DAY_MS, SCHEMA

STREAMS = ("s", "a/b: c%é", "")
REGIONS = ("eu", "us")
BATCHES = 6
ROWS = 40
HOUR_MS = DAY_MS // 24


def bounds(batch: int) -> tuple[int, int]:
    """First and last position."""
    return batch * ROWS // BATCHES, (batch + 1) * ROWS // BATCHES - 1


def entries(batch: int) -> pa.Table:
    """Two days of each stream and region; values of many lengths, some of any byte."""
    chance = random.Random(batch)
    return pa.Table.from_pylist(
        [
            {
                "stream": stream, "region": region, "id": f"{at * HOUR_MS}-{at}",
                "ts": at * HOUR_MS * 1000, "seq": at, "position": at,
                "fields": [
                    {"field": b"n", "value": b"%d" % at},
                    {"field": b"v", "value": chance.randbytes(chance.randrange(40))},
                ],
            }
            for stream in STREAMS
            for region in REGIONS
            for at in range(bounds(batch)[0], bounds(batch)[1] + 1)
        ],
        schema=SCHEMA,
    )  # fmt: skip


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake that was merged again and again while it grew; not all of it is merged."""
    root = tmp_path_factory.mktemp("rot") / "lake"
    lake = Lake(root)
    for batch in range(BATCHES):
        parts = [
            (stream, region, ROWS // BATCHES, *bounds(batch))
            for stream in STREAMS
            for region in REGIONS
        ]
        lake.commit("q", batch, lake.write(entries(batch)), parts)
        if batch in (2, 4):
            assert compact(None, root, target_mib=1, retain_hours=0).findings == ()
        if batch == 3:
            lake.table().create_checkpoint()
    sizes = {each.rows for each in lake.files()}
    assert len(sizes) > 1
    assert verify(None, root).findings == ()
    assert verify(None, root).undigested == 0
    return root


def flips(root: Path, count: int, seed: int) -> Iterator[tuple[Path, int, int]]:
    """File, byte and bit, each byte of the lake with the same chance."""
    chance = random.Random(seed)
    files = sorted(each for each in root.rglob("*") if each.is_file() and each.stat().st_size)
    sizes = [each.stat().st_size for each in files]
    for path in chance.choices(files, sizes, k=count):
        yield path, chance.randrange(path.stat().st_size), 1 << chance.randrange(8)


def rows(root: Path) -> list[Any]:
    """All rows, and those that filters give: what statistics leave out is not looked at."""
    dataset = Lake(root).table().to_pyarrow_dataset()
    filters = [None]
    filters += [ds.field("region") == each for each in REGIONS]
    filters += [ds.field("position") == each for each in range(0, ROWS, 3)]
    filters += [ds.field("ts") == pa.scalar(at * HOUR_MS * 1000, SCHEMA.field("ts").type)
                for at in range(0, ROWS, 7)]  # fmt: skip
    filters += [ds.field("stream") == each for each in STREAMS]
    return [sorted(map(repr, dataset.to_table(filter=each).to_pylist())) for each in filters]


def unseen(root: Path, count: int, seed: int) -> list[str]:
    """Flips that `verify` does not find although a reader has other rows, or none."""
    expected = rows(root)
    missed: list[str] = []
    found = 0
    for path, at, bit in flips(root, count, seed):
        sound = path.read_bytes()
        rotten = bytearray(sound)
        rotten[at] ^= bit
        path.write_bytes(rotten)
        try:
            if verify(None, root).findings:
                found += 1
                continue
            try:
                same = rows(root) == expected
            except (LakeError, OSError, ValueError, pa.ArrowException) as problem:
                missed.append(f"{path.relative_to(root)} {at} {bit}: {problem}")
                continue
            if not same:
                missed.append(f"{path.relative_to(root)} {at} {bit}: other rows")
        finally:
            path.write_bytes(sound)
    assert rows(root) == expected
    assert found > count // 4
    return missed


def test_a_flipped_bit_of_a_merged_lake_is_found_or_harmless(merged: Path) -> None:
    assert unseen(merged, 60, seed=1) == []


@pytest.mark.long
def test_a_thousand_flipped_bits_of_a_merged_lake_are_found_or_harmless(merged: Path) -> None:
    assert unseen(merged, 1000, seed=2) == []
