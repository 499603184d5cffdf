"""How long a batch has waited, by what is in its checkpoint."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from anabranch.spark.reading.checkpoint import newest_batch, seconds_since_planned

HOUR_S = 3600


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """With batches 9, planned two hours ago, and 10, planned an hour ago; in an odd place."""
    place = tmp_path / "a place"
    (place / "offsets").mkdir(parents=True)
    for batch, hours in ((9, 2), (10, 1)):
        facts = {"batchTimestampMs": round((time.time() - hours * HOUR_S) * 1000)}
        (place / "offsets" / str(batch)).write_text(f"v1\n{json.dumps(facts)}\n-\n")
        (place / "offsets" / f".{batch}.crc").touch()
    (place / "offsets" / "11.tmp").touch()  # a batch whose planning died
    return place


def test_a_batch_has_waited_since_it_was_planned(checkpoint: Path) -> None:
    assert newest_batch(checkpoint, "offsets") == 10
    assert newest_batch(checkpoint, "commits") is None
    for location in (str(checkpoint), checkpoint.as_uri(), f"file:{checkpoint}"):
        assert seconds_since_planned(location) == pytest.approx(HOUR_S, abs=60)


def test_what_is_new_or_cannot_be_known_has_not_waited(checkpoint: Path) -> None:
    for location in (None, f"hdfs:{checkpoint}", f"s3a://b{checkpoint}", str(checkpoint / "none")):
        assert seconds_since_planned(location) == 0
    newest = checkpoint / "offsets" / "10"
    for text in (
        "",
        "v1\n",
        "v1\n{}\n-\n",
        "v1\nnothing\n-\n",
        "v1\n[]\n-\n",
        f'v1\n{{"batchTimestampMs": {round(time.time() * 1000)}}}\n-\n',
    ):
        newest.write_text(text)
        assert seconds_since_planned(str(checkpoint)) == 0
