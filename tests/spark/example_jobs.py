"""The examples of `examples/spark`, called with names only."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from examples.spark.ingest import Ingested, Target
from examples.spark.ingest import ingest as ingest_files
from examples.spark.replay import Replayed, Selection
from examples.spark.replay import Target as ReplayTarget
from examples.spark.replay import replay as replay_lake
from examples.spark.windows import Run, Windowed, Windowing
from examples.spark.windows import windows as make_windows


def ingest(
    spark: Any, paths: Any, schema: str | None = None, *, dry_run: bool = False, **target: Any
) -> Ingested:
    return ingest_files(spark, paths, Target(**target), schema, dry_run=dry_run)


def windows(spark: Any, streams: str, windowing: Windowing, **run: Any) -> Windowed:
    return make_windows(spark, streams, windowing, Run(**run))


def replay(spark: Any, lake: Any, *, dry_run: bool = False, **given: Any) -> Replayed:
    chosen = {each.name: given.pop(each.name) for each in fields(Selection) if each.name in given}
    target = ReplayTarget(**given)
    return replay_lake(spark, lake, Selection(**chosen), target, dry_run=dry_run)
