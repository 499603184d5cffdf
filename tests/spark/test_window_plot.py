"""The picture of windows, without Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.spark.pictures import draw_windows


def test_counts_and_sums_have_a_line_for_each_of_the_largest_keys(tmp_path: Path) -> None:
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [
        {
            "window_start": begin + timedelta(hours=hour),
            "window_end": begin + timedelta(hours=hour + 1),
            "key": f"key-{key}",
            "count": 10 * key + hour + 1,
            "sum": Decimal(hour - 3),
        }
        for hour in range(6)
        for key in range(9)
    ]
    for number in range(2):
        pq.write_table(pa.Table.from_pylist(rows[number::2]), tmp_path / f"{number}.parquet")
    draw_windows(tmp_path, tmp_path / "a.svg", "1 hour")
    draw_windows(tmp_path, tmp_path / "b.svg", "1 hour")
    picture = (tmp_path / "a.svg").read_text()
    assert picture == (tmp_path / "b.svg").read_text()
    for said in (
        "2026-03-01 00:00:00 to 06:00:00 UTC (7 of 9 keys)",
        "Sum of the values",
        "key-8",
        "key-2",
    ):
        assert said in picture
    assert "key-1" not in picture
    empty = tmp_path / "empty"
    empty.mkdir()
    draw_windows(empty, empty / "a.png", "1 hour")
    assert (empty / "a.png").read_bytes()[1:4] == b"PNG"
    draw_windows(empty, empty / "a.svg", "1 hour")
    picture = (empty / "a.svg").read_text()
    assert "none is closed yet" in picture
    assert "1970" not in picture  # no clock without a time


def test_a_picture_of_what_is_not_written_is_refused_before_spark_starts(tmp_path: Path) -> None:
    words = ["windows", "s", "--into", "t", "--checkpoint", "c", "--plot", "a.svg"]
    done = subprocess.run(
        [sys.executable, "-m", "anabranch", "spark", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "--plot draws the files of --lake" in done.stderr) == (2, True)
