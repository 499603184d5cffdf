"""Manifests: what is published, once; what is missing between files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.spark.lake import Gap, Lake, LakeError, LakeFile


def file(first: int, last: int, region: str = "eu", stream: str = "s") -> LakeFile:
    path = f"stream={stream}/region={region}/{first}-{last}.parquet"
    return LakeFile(path, stream, region, last - first + 1, first, last, 10)


def test_a_batch_is_published_once(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert lake.publish("q", 0, [file(1, 9)])
    assert lake.publish("q", 1, [file(10, 19)])
    assert not lake.publish("q", 0, [file(1, 9)])
    assert not lake.publish("q", 1, [file(10, 19)])
    assert lake.publish("another", 1, [file(20, 29)])
    assert lake.files() == [file(1, 9), file(10, 19), file(20, 29)]
    assert [each.name for each in sorted((tmp_path / "_log").iterdir())] == [
        "0000000000.json",
        "0000000001.json",
        "0000000002.json",
    ]


def test_an_empty_batch_leaves_no_manifest(tmp_path: Path) -> None:
    assert Lake(tmp_path).publish("q", 0, [])
    assert Lake(tmp_path).files() == []


def test_gaps_are_between_files_of_one_region(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.publish("q", 0, [file(1, 9), file(15, 19), file(1, 3, "us"), file(20, 29)])
    assert lake.gaps() == [Gap("s", "eu", 9, 15)]


def test_an_overlap_is_an_error(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.publish("q", 0, [file(1, 9)])
    lake.publish("another", 0, [file(5, 12)])
    with pytest.raises(LakeError, match="hold the same positions"):
        lake.gaps()


def test_a_manifest_of_the_future_is_refused(tmp_path: Path) -> None:
    (tmp_path / "_log").mkdir()
    (tmp_path / "_log" / "0000000000.json").write_text(json.dumps({"format": 3}))
    with pytest.raises(LakeError, match="does not know"):
        Lake(tmp_path).files()
