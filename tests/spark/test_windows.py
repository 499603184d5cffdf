"""The example of windows: what is told of them, once, and what stays open for the next run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from examples.spark.windows import Windowing
from tests.spark.example_jobs import ingest, windows
from tests.spark.expected_windows import HOUR_MS, differences, told_in, windows_of
from tests.spark.reading import fill_at, talking, url
from tests.spark.samples import LATENESS_MS, Shape, events
from tests.spark.test_sink import entries
from tests.support.inspection import wait_until
from tests.support.servers import REPOSITORY, AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAR_MS = 4_000_000_000_000  # behind all windows
SLIDE_MS = 1_200_000
MINUTE = Windowing(size="1 minute", value="n", kind="bigint", percentiles=(0.5,))


def add(server: AnabranchServer, key: str, *rows: tuple[int, dict[Any, Any]]) -> None:
    """Entries with IDs of these times."""
    with talking(server) as client:
        for ms, fields in rows:
            client.xadd(key, fields, id=f"{ms}-*")


def told_by(server: AnabranchServer, key: str) -> list[dict[bytes, bytes]]:
    return [dict(zip(e[::2], e[1::2], strict=True)) for _, e in entries(server, key)]


def test_windows_are_those_of_numpy(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    shape = Shape(rows=4_000, seed=3, keys=20)
    pq.write_table(events(shape), tmp_path / "e.parquet")
    ingest(spark, [tmp_path / "e.parquet"], url=url(ours), stream="s")
    windowing = Windowing(
        size="1 hour",
        slide=f"{SLIDE_MS} milliseconds",
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
    wanted = windows_of(table, HOUR_MS, SLIDE_MS)
    latest = max(each.timestamp() for each in table["at"].to_pylist()) * 1000
    watermark_ms = round(latest) - LATENESS_MS
    assert said.watermark_ms == watermark_ms
    closed = {p: row for p, row in wanted.items() if p[0] + HOUR_MS <= watermark_ms}
    assert len(closed) < len(wanted)
    assert differences(told_in(tmp_path / "lake"), closed, HOUR_MS) == []
    assert said.windows == len(closed)


def test_a_window_that_is_open_is_told_by_a_later_run(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"url": url(ours), "into": "t", "checkpoint": tmp_path / "c"}
    add(ours, "s", (60_000, {"n": 1}), (90_000, {"n": 2}), (125_000, {"n": 5}))
    first = windows(spark, "s", MINUTE, **arguments)
    assert (first.windows, first.watermark_ms, told_by(ours, "t")) == (0, 115_000, [])
    add(ours, "s", (126_000, {"n": "x"}), (127_000, {"n": 7}), (131_000, {"n": 9}))
    second = windows(spark, "s", MINUTE, **arguments)
    assert (second.entries, second.windows, second.watermark_ms) == (3, 1, 121_000)
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
    assert (none.entries, none.windows) == (0, 0)
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
    assert len(told()) == 30
    assert set(told().values()) == {1}
    before = told()
    commits = [int(e.name) for e in (tmp_path / "c/commits").iterdir() if e.name.isdigit()]
    (tmp_path / "c" / "commits" / str(max(commits))).unlink()  # done, and forgotten
    windows(spark, "s0,s1,s2", windowing, **arguments)  # it is told again to a sink that knows it
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


@pytest.mark.long
def test_going_on_tells_windows_as_they_close_and_survives_a_failure(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    fill_at(ours, "s", [1_000, 61_000])
    problems: list[BaseException] = []

    def disturb() -> None:
        try:
            wait_until((tmp_path / "c/commits/0").exists, "the first entries", 300)
            fill_at(ours, "s", [125_000])
            wait_until(lambda: len(told_by(ours, "t")) == 1, "the first window", 300)
            with ours.client() as client:  # a target that cannot be written to ends the query ...
                client.call("RENAME", "t", "kept")
                client.call("SET", "t", "no stream")
            fill_at(ours, "s", [185_000])
            wait_until(lambda: not spark.streams.active, "the failure", 300)
            with ours.client() as client:  # ... until it can
                client.call("RENAME", "kept", "t")
            wait_until(lambda: len(told_by(ours, "t")) == 2, "the second window", 300)
        except BaseException as problem:
            problems.append(problem)
        finally:
            for query in spark.streams.active:
                query.stop()

    thread = threading.Thread(target=disturb)
    thread.start()
    windows(
        spark, "s", Windowing(), url=url(ours), into="t", checkpoint=tmp_path / "c", once=False
    )  # fmt: skip
    thread.join()
    assert not problems
    assert [each[b"window_end"] for each in told_by(ours, "t")] == [
        b"1970-01-01 00:01:00Z",
        b"1970-01-01 00:02:00Z",
    ]


@pytest.mark.long
def test_as_a_program(ours: AnabranchServer, tmp_path: Path) -> None:
    add(ours, "s", *((1_000 * each, {"n": each, "city": "ulm"}) for each in range(1, 61)))
    add(ours, "s", (FAR_MS, {"n": 0}))
    done = subprocess.run(
        [
            *(sys.executable, str(REPOSITORY / "examples/spark/windows.py"), "s"),
            *("--lake", "lake", "--key", "city", "--value", "n", "--percentiles", "50,99.9"),
            *("--url", url(ours)),
        ],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "61 entries read, 2 windows by key closed\n"
    (first, second) = sorted(told_in(tmp_path / "lake").items())
    assert first[0] == (0, "ulm")
    assert (first[1]["count"], second[1]["count"]) == (59, 1)
    assert (first[1]["sum"], first[1]["p50"]) == (sum(range(60)), 30)
    assert first[1]["p99_9"] == pytest.approx(58.942)
