"""What a worker has imported is not looked at again by Python's collector; see `garbage`."""

from __future__ import annotations

import gc
import os

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from anabranch.spark import garbage
from tests.spark.reading import batch, fill


class _Reader(DataSourceReader):
    """Its one row: what the collector of a worker leaves alone."""

    def partitions(self):
        return [InputPartition(0)]

    def read(self, partition):
        yield os.getpid(), gc.get_freeze_count(), len(gc.get_objects())


class _Collector(DataSource):
    @classmethod
    def name(cls):
        return "collector"

    def schema(self):
        return "pid long, frozen long, looked_at long"

    def reader(self, schema):
        return _Reader()


def test_workers_look_only_at_what_came_after_their_first_task(spark, ours):
    fill(ours, "s", 10)
    spark.dataSource.register(_Collector)
    seen = []
    # Which worker runs a task is Spark's choice: until one that has read the stream was asked.
    while not seen or (seen[-1].frozen == 0 and len(seen) < 20):
        assert batch(spark, ours, subscribe="s").count() == 10
        seen += spark.read.format("collector").load().collect()
    assert seen[-1].pid != os.getpid()
    assert seen[-1].frozen > 10 * seen[-1].looked_at


def test_the_program_of_the_user_is_left_as_it_is(spark):
    before = gc.get_freeze_count()
    garbage.spare_what_stays()
    gc.collect()
    assert gc.get_freeze_count() == before
    assert garbage._freeze not in gc.callbacks
