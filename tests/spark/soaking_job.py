"""A run of a query that may die at any moment.

    python soaking_job.py URL PLACE HOW [OPTION=VALUE ...]

It copies stream ``s``, a file of JSON for each batch, and ends when it has all there is. HOW is
``spark`` or ``alone``; the checkpoint is the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

COLUMNS = {"region": pa.string(), "position": pa.int64(), "n": pa.int64()}
SCHEMA = "region string, position bigint, n bigint"


def save(place: Path, number: int, rows: Iterable[Any]) -> None:
    """Replace the file of a batch: what is done twice counts once."""
    (place / "out").mkdir(exist_ok=True)
    draft = place / "out" / f".{number}"
    draft.write_text(json.dumps([list(row) for row in rows]))
    draft.replace(place / "out" / f"{number}.json")


def by_spark(place: Path, options: dict[str, str]) -> None:
    """A query of Spark."""
    from anabranch.spark import session

    table = session("soak").readStream.format("anabranch").schema(SCHEMA).options(**options).load()
    query = table.writeStream.foreachBatch(
        lambda batch, number: save(place, number, batch.select(*COLUMNS).collect())
    )
    query = query.option("checkpointLocation", str(place / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()


def alone(place: Path, options: dict[str, str]) -> None:
    """The same without Spark."""
    from anabranch.spark.decoding.columns import Projection
    from anabranch.spark.options import ReadOptions
    from anabranch.spark.reading.executor import read_partition
    from anabranch.spark.reading.micro_batches import MicroBatches

    given = ReadOptions.parse(options)
    schema = pa.schema(list(COLUMNS.items()))
    projection = Projection.of(schema, given)
    with closing(MicroBatches(given, place / "checkpoint", once=True)) as batches:
        while (batch := batches.next()) is not None:
            whole = tuple(chain(*batch.partitions))
            table = pa.Table.from_batches(read_partition(whole, given, projection), schema)
            save(place, batch.number, zip(*table.to_pydict().values(), strict=True))
            batches.commit()


def main(url: str, place: str, how: str, *pairs: str) -> None:
    """One run."""
    options = {"url": url, "subscribe": "s", "startingOffsets": "earliest"}
    options |= dict(pair.split("=", 1) for pair in pairs)
    (by_spark if how == "spark" else alone)(Path(place), options)


if __name__ == "__main__":
    main(*sys.argv[1:])
