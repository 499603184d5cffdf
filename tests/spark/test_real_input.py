"""Real data: film ratings, a machine's own package log, a repository's own history."""

from __future__ import annotations

import json
import subprocess
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest

from examples.spark.windows import Windowing
from tests.spark.example_jobs import ingest, windows
from tests.spark.expected_windows import told_in
from tests.spark.reading import url
from tests.support.servers import REPOSITORY, AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
RATINGS = Path(pyspark.__file__).parent / "data" / "mllib" / "als" / "sample_movielens_ratings.txt"
DPKG = Path("/var/log/dpkg.log")
DAY_S = 86_400
FAR_S = 4_000_000_000  # behind all windows


def iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def told_a_day(
    spark: SparkSession,
    ours: AnabranchServer,
    place: Path,
    rows: list[Row],
    value: str | None = None,
) -> dict[tuple[int, object], Row]:
    """Each day's windows, by `at` (seconds) and `key`; a last row closes them all."""
    times = [int(row["at"]) for row in rows]
    late = max(high - at for high, at in zip(accumulate(times, max), times, strict=True))
    all_rows = [*rows, {**rows[-1], "at": FAR_S}]
    path = place / "rows.jsonl"
    lines = (json.dumps({**row, "at": iso(row["at"])}) + "\n" for row in all_rows)
    path.write_text("".join(lines), "utf-8")
    assert ingest(spark, [path], url=url(ours), stream="s").rows == len(rows) + 1
    windowing = Windowing(
        size="1 day", delay=f"{late + 1} seconds", time="at", key="key", value=value, kind="bigint"
    )
    said = windows(
        spark, "s", windowing, url=url(ours), lake=place / "lake",
        options={"maxEntriesPerTrigger": str(len(rows) // 3)},
    )  # fmt: skip
    assert (said.entries, said.untimed, said.late) == (len(rows) + 1, 0, 0)
    return {(start // 1000, key): row for (start, key), row in told_in(place / "lake").items()}


@pytest.mark.long
def test_film_ratings(spark: SparkSession, ours: AnabranchServer, tmp_path: Path) -> None:
    if not RATINGS.exists():
        pytest.skip(f"this PySpark has no {RATINGS.name}: FILM RATINGS ARE NOT TRIED")
    # All have one time stamp, so each gets the time of its row: a minute after the one before.
    ratings = [tuple(map(int, line.split("::")[:3])) for line in RATINGS.read_text().splitlines()]
    assert len(ratings) == 1_501
    rows: list[Row] = [
        {"at": 60 * number, "key": f"film {film}", "user": user, "stars": stars}
        for number, (user, film, stars) in enumerate(ratings)
    ]
    told = told_a_day(spark, ours, tmp_path, rows, "stars")
    wanted: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for number, (_, film, stars) in enumerate(ratings):
        wanted[60 * number // DAY_S * DAY_S, f"film {film}"].append(stars)
    assert {place: (row["count"], row["sum"]) for place, row in told.items()} == {
        place: (len(each), sum(each)) for place, each in wanted.items()
    }


@pytest.mark.long
def test_the_package_log(spark: SparkSession, ours: AnabranchServer, tmp_path: Path) -> None:
    if not DPKG.exists():
        pytest.skip(f"no {DPKG}: THE PACKAGE LOG IS NOT TRIED")
    rows: list[Row] = []
    wanted: Counter[tuple[int, str]] = Counter()
    for line in DPKG.read_text("utf-8", "replace").splitlines():
        day, clock, action, *rest = line.split()
        seconds = round(datetime.fromisoformat(f"{day}T{clock}+00:00").timestamp())
        rows.append({"at": seconds, "key": action, "rest": " ".join(rest)})
        wanted[seconds // DAY_S * DAY_S, action] += 1
    told = told_a_day(spark, ours, tmp_path, rows)
    assert {place: row["count"] for place, row in told.items()} == wanted


@pytest.mark.long
def test_the_history_of_this_repository(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    log = subprocess.run(
        ["git", "-C", str(REPOSITORY), "log", "--reverse", "--numstat", "--format=@%at %ae"],
        capture_output=True,
        text=True,
        check=False,
    )
    if log.returncode or log.stdout.count("@") < 20:
        pytest.skip("this is no clone with a history: THE HISTORY IS NOT TRIED")
    rows: list[Row] = []
    wanted: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    seconds = 0
    for line in log.stdout.splitlines():
        if line.startswith("@"):
            seconds = int(line[1:].split()[0])  # authors' dates need not be in order
        elif line and not line.startswith("-"):  # a dash stands for a binary file
            added, _, path = line.split("\t", 2)
            kind = Path(path).suffix or "none"
            rows.append({"at": seconds, "key": kind, "added": int(added)})
            wanted[seconds // DAY_S * DAY_S, kind].append(int(added))
    told = told_a_day(spark, ours, tmp_path, rows, "added")
    assert {place: (row["count"], row["sum"]) for place, row in told.items()} == {
        place: (len(each), sum(each)) for place, each in wanted.items()
    }
