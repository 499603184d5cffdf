"""A batch that is repeated when its idempotent IDs are forgotten: whoever writes it is told."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.noting import noted, noting_source
from tests.spark.test_sink import fill, forget_last, start, url, values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.servers import AnabranchServer

DAY_S = 86_400
ROWS = 50


@pytest.mark.parametrize(
    ("away_s", "options", "said"),
    [
        (DAY_S + 600, {"idempotence": "position"}, [f"remembered for {DAY_S} s"]),
        (DAY_S - 600, {"idempotence": "position"}, []),
        (DAY_S + 600, {"idempotence": "ledger"}, []),
    ],
)
def test_a_batch_that_comes_back_too_late_is_told_once(
    spark: SparkSession,
    ours: AnabranchServer,
    tmp_path: Path,
    away_s: int,
    options: dict[str, str],
    said: list[str],
) -> None:
    notes, place = tmp_path / "notes", tmp_path / "check"
    notes.mkdir()
    spark.dataSource.register(noting_source(notes))
    fill(ours, "s", ROWS)

    def run() -> None:
        reader = spark.readStream.format("anabranch").option("url", url(ours))
        reader = reader.options(subscribe="s", startingOffsets="earliest", minPartitions="2")
        table = reader.schema("n bigint").load()
        start(table, ours, place, "noting", stream="t", **options).awaitTermination()

    run()
    assert noted(notes) == []
    batch = forget_last(place, "commits")
    planned = place / "offsets" / str(batch)
    version, facts, *rest = planned.read_text().splitlines()
    told = json.loads(facts) | {"batchTimestampMs": round((time.time() - away_s) * 1000)}
    planned.write_text("\n".join([version, json.dumps(told), *rest]))
    run()
    lines = noted(notes)
    assert len(lines) == len(said)
    for line, words in zip(lines, said, strict=True):
        seconds = re.match(rf"batch {batch} was planned (\d+) s ago, was not committed", line)
        assert seconds is not None
        assert away_s <= int(seconds[1]) < away_s + 300
        assert words in line
    assert sorted(values(ours, "t")) == list(range(ROWS))  # here they were not forgotten yet
    if said:
        fill(ours, "s", 1)
        run()
        assert noted(notes) == lines
