"""The examples of `examples/spark`, called with names only."""

from __future__ import annotations

from typing import Any

from examples.spark.ingest import Ingested, Target
from examples.spark.ingest import ingest as ingest_files
from examples.spark.windows import Run, Windowed, Windowing
from examples.spark.windows import windows as make_windows


def ingest(
    spark: Any, paths: Any, schema: str | None = None, *, dry_run: bool = False, **target: Any
) -> Ingested:
    return ingest_files(spark, paths, Target(**target), schema, dry_run=dry_run)


def windows(spark: Any, streams: str, windowing: Windowing, **run: Any) -> Windowed:
    return make_windows(spark, streams, windowing, Run(**run))
