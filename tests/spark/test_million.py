"""A million events from a file through a stream into windows, compared with numpy's.

Fewer by ``SPARK_EVENTS=100000``, where time is short.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.spark.windows import Windowing
from tests.spark.example_jobs import ingest, windows
from tests.spark.expected_windows import HOUR_MS, differences, told_in, windows_of
from tests.spark.reading import url
from tests.spark.samples import LATENESS_MS, Shape, events
from tests.support.servers import AnabranchServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = int(os.environ.get("SPARK_EVENTS", "1000000"))
FAR_MS = 4_000_000_000_000  # behind all windows


@pytest.mark.long
def test_a_million_events_end_to_end(
    spark: SparkSession, ours: AnabranchServer, tmp_path: Path
) -> None:
    table = events(Shape(EVENTS, seed=11))
    pq.write_table(table, tmp_path / "events.parquet")
    into: dict[str, Any] = {"url": url(ours), "stream": "events"}
    assert ingest(spark, [tmp_path / "events.parquet"], **into).rows == EVENTS
    windowing = Windowing(
        size="1 hour", delay=f"{LATENESS_MS} milliseconds", time="at", key="key",
        value="amount", kind="bigint", unique="event",
    )  # fmt: skip
    arguments: dict[str, Any] = {
        "url": url(ours),
        "lake": tmp_path / "lake",
        "options": {"maxEntriesPerTrigger": str(EVENTS * 2 // 5)},
    }
    said = windows(spark, "events", windowing, **arguments)
    assert (said.entries, said.untimed, said.late) == (EVENTS, 0, 0)

    wanted = windows_of(table, HOUR_MS)
    assert sum(row["count"] for row in wanted.values()) == EVENTS - EVENTS // 100
    assert said.watermark_ms is not None
    closed = {p: row for p, row in wanted.items() if p[0] + HOUR_MS <= said.watermark_ms}
    assert 0 < len(closed) < len(wanted)
    assert differences(told_in(tmp_path / "lake"), closed, HOUR_MS) == []

    end = table.slice(0, 1).set_column(0, "event", [[-1]])
    end = end.set_column(1, "at", pa.array([FAR_MS], table.schema.field("at").type))
    pq.write_table(end, tmp_path / "end.parquet")
    ingest(spark, [tmp_path / "end.parquet"], **into)
    assert windows(spark, "events", windowing, **arguments).late == 0
    assert differences(told_in(tmp_path / "lake"), wanted, HOUR_MS) == []
