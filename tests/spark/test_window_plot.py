"""The picture of windows, without Spark."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.spark.plots import pictures, plotting
from anabranch.spark.plots.pictures import draw_windows


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


def test_windows_without_entries_leave_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    minutes = [0, 1, 2, 18, 30, 31]
    rows = [
        {
            "window_start": begin + timedelta(minutes=minute),
            "window_end": begin + timedelta(minutes=minute + 1),
            "count": minute + 1,
        }
        for minute in minutes
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "0.parquet")
    drawn: list[plotting.Panel] = []
    real = pictures.draw
    monkeypatch.setattr(
        pictures,
        "draw",
        lambda path, title, panels: drawn.extend(panels) or real(path, title, panels),
    )
    draw_windows(tmp_path, tmp_path / "a.svg", "1 minute")
    ((line,),) = (panel.lines for panel in drawn)
    assert line.values == [1, 2, 3, None, 19, None, 31, 32]
    assert line.times[3] == begin + timedelta(minutes=3)


def test_a_point_without_neighbours_is_seen_among_many() -> None:
    values = [*range(100), None, 7, None, *range(100)]
    assert plotting._marked(values) == [101]
    assert plotting._marked(values[:60]) == list(range(60))


def test_a_line_below_another_one_is_wider() -> None:
    times = [datetime(2026, 3, 1, 0, minute, tzinfo=UTC) for minute in range(4)]

    def widths(*lines: list[int]) -> list[float]:
        return plotting._widths([plotting.Curve("", times, line, "") for line in lines])

    one = plotting._WIDTH
    assert widths([1, 2, 3, 4], [4, 3, 2, 1]) == [one, one]
    low, middle, top = widths([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 9, 9])
    assert low > middle + 1 > top + 2 == one + 2
    later = [each + timedelta(milliseconds=300) for each in times]  # by another server's clock
    lines = [plotting.Curve("", some, [5, 5, 6, 7], "") for some in (times, later)]
    assert plotting._widths(lines) == [one + plotting._BESIDE, one]
    many = widths(*[[0, 0, 0, 0]] * 21)
    assert many == sorted(set(many), reverse=True)
    assert many[0] < 15


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
