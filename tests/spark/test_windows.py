"""Windows of streams: what is told of them, once, and what stays open for the next run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from anabranch.spark.jobs.ingest import ingest
from anabranch.spark.jobs.windows import Windowing, WindowsError, WindowsProgress, windows
from tests.spark.expected_windows import HOUR_MS, differences, told_in, windows_of
from tests.spark.reading import fill_at, talking, url
from tests.spark.samples import LATENESS_MS, Shape, events
from tests.spark.test_sink import entries
from tests.support.inspection import wait_until
from tests.support.servers import REPOSITORY, AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR_MS = 4_000_000_000_000  # behind all windows
MINUTE = Windowing(size="1 minute", value="n", kind="bigint", percentiles=(0.5,))


def add(server: AnabranchServer, key: str, *rows: tuple[int, dict[Any, Any]]) -> None:
    """Entries with IDs of these times."""
    with talking(server) as client:
        for ms, fields in rows:
            client.xadd(key, fields, id=f"{ms}-*")


def told_by(server: AnabranchServer, key: str) -> list[dict[bytes, bytes]]:
    return [dict(zip(e[::2], e[1::2], strict=True)) for _, e in entries(server, key)]


@pytest.mark.parametrize(
    "slide_ms",
    [
        pytest.param(None, marks=pytest.mark.long, id="tumbling"),
        pytest.param(1_200_000, id="sliding"),
    ],
)
def test_windows_are_those_of_numpy(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, slide_ms: int | None
) -> None:
    shape = Shape(rows=4_000, seed=3, keys=20)
    pq.write_table(events(shape), tmp_path / "e.parquet")
    ingest(spark, [tmp_path / "e.parquet"], url=url(ours), stream="s")
    windowing = Windowing(
        size="1 hour",
        slide=None if slide_ms is None else f"{slide_ms} milliseconds",
        delay=f"{LATENESS_MS} milliseconds",
        time="at",
        key="key",
        value="amount",
        kind="bigint",
        unique="event",
    )
    said = windows(
        spark, "s", windowing, url=url(ours), lake=tmp_path / "lake",
        options={"maxEntriesPerTrigger": "1500"},
    )  # fmt: skip
    assert (said.entries, said.untimed, said.late) == (4_000, 0, 0)
    table = pq.read_table(tmp_path / "e.parquet")
    wanted = windows_of(table, HOUR_MS, slide_ms)
    latest = max(each.timestamp() for each in table["at"].to_pylist()) * 1000
    watermark_ms = round(latest) - LATENESS_MS
    assert said.watermark_ms == watermark_ms
    closed = {p: row for p, row in wanted.items() if p[0] + HOUR_MS <= watermark_ms}
    assert len(closed) < len(wanted)
    assert differences(told_in(tmp_path / "lake"), closed, HOUR_MS) == []
    assert said.windows == len(closed)
    dry = windows(spark, "s", windowing, url=url(ours), lake=tmp_path / "no", dry_run=True)
    assert (dry.entries, dry.windows, dry.dry_run) == (4_000, len(wanted), True)
    assert not (tmp_path / "no").exists()


def test_a_window_that_is_open_is_told_by_a_later_run(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"url": url(ours), "into": "t", "checkpoint": tmp_path / "c"}
    add(ours, "s", (60_000, {"n": 1}), (90_000, {"n": 2}), (125_000, {"n": 5}))
    first = windows(spark, "s", MINUTE, **arguments)
    assert (first.windows, first.watermark_ms, told_by(ours, "t")) == (0, 115_000, [])
    assert first.open == 2
    add(ours, "s", (126_000, {"n": "x"}), (127_000, {"n": 7}), (131_000, {"n": 9}))
    second = windows(spark, "s", MINUTE, **arguments)
    assert (second.entries, second.windows, second.watermark_ms) == (3, 1, 121_000)
    assert second.open == 1
    assert told_by(ours, "t") == [
        {
            b"window_start": b"1970-01-01 00:01:00Z",
            b"window_end": b"1970-01-01 00:02:00Z",
            b"count": b"2",
            b"sum": b"3",
            b"without": b"0",
            b"p50": b"1.5",
        }
    ]
    none = windows(spark, "s", MINUTE, **arguments)
    assert (none.entries, none.windows, none.watermark_ms) == (0, 0, 121_000)
    add(ours, "s", (FAR_MS, {"n": 0}))
    assert windows(spark, "s", MINUTE, **arguments).windows == 1
    last = told_by(ours, "t")[1]
    # The entry whose value is no number counts, and has no part in the sum.
    names = (b"count", b"sum", b"without", b"p50")
    assert [last[name] for name in names] == [b"4", b"21", b"1", b"7.0"]


@pytest.mark.parametrize("where", ["stream", pytest.param("lake", marks=pytest.mark.long)])
def test_a_batch_that_is_replayed_tells_nothing_twice(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path, where: str
) -> None:
    for number in range(3):
        fill_at(ours, f"s{number}", list(range(1_000, 600_000, 1_000 + number)))
    with talking(ours) as client:
        for number in range(3):
            client.xadd(f"s{number}", {"n": 0}, id=f"{FAR_MS}-0")
    target = {"into": "t"} if where == "stream" else {"lake": tmp_path / "lake"}
    arguments: dict[str, Any] = {"url": url(ours), "checkpoint": tmp_path / "c", **target}
    windowing = Windowing(key="stream", value="n", percentiles=())

    def told() -> Counter[object]:
        if where == "stream":
            return Counter((e[b"window_start"], e[b"key"]) for e in told_by(ours, "t"))
        return Counter(told_in(tmp_path / "lake").keys())

    first = windows(spark, "s0,s1,s2", windowing, **arguments)
    assert first.windows == 30
    assert set(told().values()) == {1}
    before = told()
    commits = [int(e.name) for e in (tmp_path / "c/commits").iterdir() if e.name.isdigit()]
    (tmp_path / "c" / "commits" / str(max(commits))).unlink()  # done, and forgotten
    again = windows(spark, "s0,s1,s2", windowing, **arguments)
    assert again.windows == 30  # it was told again, to a sink that knew it
    assert told() == before


def test_repetitions_and_late_entries_are_told_apart(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    windowing = Windowing(time="at", unique="event", delay="30 seconds")
    arguments: dict[str, Any] = {"url": url(ours), "into": "t", "checkpoint": tmp_path / "c"}

    def clock(second: int) -> str:
        return f"1970-01-01T00:{second // 60:02d}:{second % 60:02d}Z"

    with talking(ours) as client:
        for event, second in ((1, 60), (2, 61), (1, 60), (3, 100)):
            client.xadd("s", {"event": event, "at": clock(second)})
        client.xadd("s", {"event": 4})
        client.xadd("s", {"event": 5, "at": "noon"})
    first = windows(spark, "s", windowing, **arguments)
    assert (first.entries, first.untimed, first.late) == (6, 2, 0)
    with talking(ours) as client:
        for event, second in ((2, 61), (3, 100), (6, 95), (7, 200)):  # the watermark is at 70
            client.xadd("s", {"event": event, "at": clock(second)})
    then = windows(spark, "s", windowing, **arguments)
    assert (then.late, then.windows) == (1, 1)
    assert [each[b"count"] for each in told_by(ours, "t")] == [b"4"]  # 1, 2, 3 and 6


def test_other_windows_need_another_checkpoint(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill_at(ours, "s", [1_000, FAR_MS])
    arguments: dict[str, Any] = {"url": url(ours), "into": "t", "checkpoint": tmp_path / "c"}
    windows(spark, "s", Windowing(), **arguments)
    with pytest.raises(WindowsError, match=r"\(size '1 minute' -> '2 minutes'\)"):
        windows(spark, "s", Windowing(size="2 minutes"), **arguments)
    with pytest.raises(WindowsError, match=r"is of regions \(none\): take a new checkpoint"):
        windows(spark, "s", Windowing(), regions=["3"], **arguments)
    with pytest.raises(WindowsError, match="nothing was ever written there"):
        windows(spark, "nowhere", Windowing(), url=url(ours), lake=tmp_path / "l")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "1.parquet").touch()
    with pytest.raises(WindowsError, match="has windows of another checkpoint than"):
        windows(spark, "s", MINUTE, url=url(ours), lake=tmp_path / "results")
    with pytest.raises(WindowsError, match="a checkpoint directory is needed"):
        windows(spark, "s", Windowing(), url=url(ours), into="t")
    with pytest.raises(WindowsError, match="give one of"):
        windows(spark, "s", Windowing(), url=url(ours))
    with pytest.raises(WindowsError, match="values cannot be double"):
        Windowing(value="n", kind="double")
    with pytest.raises(WindowsError, match="parts of 1"):
        Windowing(percentiles=(99.0,))


@pytest.mark.long
def test_going_on_tells_windows_as_they_close_and_survives_a_failure(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill_at(ours, "s", [1_000, 61_000])
    steps: list[WindowsProgress] = []
    problems: list[BaseException] = []

    def disturb() -> None:
        try:
            wait_until(lambda: sum(each.entries for each in steps) == 2, "the first entries", 300)
            fill_at(ours, "s", [125_000])
            wait_until(lambda: sum(each.windows for each in steps) == 1, "the first window", 300)
            with ours.client() as client:  # a target that cannot be written to ends the query ...
                client.call("RENAME", "t", "kept")
                client.call("SET", "t", "no stream")
            fill_at(ours, "s", [185_000])
            wait_until(lambda: not spark.streams.active, "the failure", 300)
            with ours.client() as client:  # ... until it can
                client.call("RENAME", "kept", "t")
            wait_until(lambda: len(told_by(ours, "t")) == 2, "the second window", 300)
            wait_until(lambda: sum(each.windows for each in steps) == 2, "its batch's end", 300)
        except BaseException as problem:
            problems.append(problem)
        finally:
            for query in spark.streams.active:
                query.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    done = windows(
        spark, "s", Windowing(), url=url(ours), into="t", checkpoint=tmp_path / "c",
        once=False, interval_s=0, progress=steps.append,
    )  # fmt: skip
    thread.join()
    assert not problems
    assert [each[b"window_end"] for each in told_by(ours, "t")] == [
        b"1970-01-01 00:01:00Z",
        b"1970-01-01 00:02:00Z",
    ]
    assert (done.starts >= 2, done.windows) == (True, 2)


@pytest.mark.long
def test_from_the_command_line(ours: AnabranchServer, tmp_path: Path) -> None:
    add(ours, "s", *((1_000 * each, {"n": each, "city": "ulm"}) for each in range(1, 61)))
    add(ours, "s", (FAR_MS, {"n": 0}))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "anabranch", "spark", "windows", "s", "--lake", "lake"),
            *("--key", "city", "--value", "n", "--percentiles", "50,99.9", "-u", url(ours)),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "batch 0: 61 entries, 0 windows closed" in done.stderr
    assert re.fullmatch(
        r"61 entries read, 2 windows by key closed, \d+ left open; closed are those "
        r"that end up to .*, in \d+\.\d s\n",
        done.stdout,
    )
    (first, second) = sorted(told_in(tmp_path / "lake").items())
    assert first[0] == (0, "ulm")
    assert (first[1]["count"], second[1]["count"]) == (59, 1)
    assert (first[1]["sum"], first[1]["p50"]) == (sum(range(60)), 30)
    assert first[1]["p99_9"] == pytest.approx(58.942)
