"""A driver of its own, for tests on clusters: prints what it saw as one line of JSON.

python -m tests.spark.cluster_job tour MASTER URL PLACE
python -m tests.spark.cluster_job copy MASTER URL PLACE
python -m tests.spark.cluster_job speculate MASTER URL IDEMPOTENCE
"""

from __future__ import annotations

import faulthandler
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.spark import LagListener, read_by_region, session
from anabranch.spark.jobs.archive import archive
from anabranch.spark.runtime.supervise import supervise
from tests.spark.accidents import straggling_source
from tests.spark.class_archive import QUICK
from tests.spark.example_jobs import ingest, replay
from tests.support.inspection import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

CLUSTER = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.driver.memory": "512m",
    # No task before both workers are there, or one would do everything.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.driver.host": "127.0.0.1",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "50ms",
}


def here_source() -> type[DataSource]:
    """``format("here")``: for each of four tasks, where it runs and what it can import, as JSON.

    All of it is within this function, so that Spark ships it by value.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    class HereReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(each) for each in range(4)]

        def read(self, partition: InputPartition) -> Iterator[tuple[str]]:
            import importlib.util
            import json
            import os

            import anabranch

            has_tests = importlib.util.find_spec("tests") is not None
            yield (json.dumps([anabranch.__file__, os.getcwd(), has_tests]),)

    class HereSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "here"

        def schema(self) -> str:
            return "told string"

        def reader(self, schema: Any) -> DataSourceReader:
            return HereReader()

    return HereSource


def tour(spark: SparkSession, url: str, place: Path) -> dict[str, Any]:
    """The source, the sink and a job: what each said."""
    spark.dataSource.register(here_source())
    tasks = [json.loads(row.told) for row in spark.read.format("here").load().collect()]

    reader = spark.read.format("anabranch").option("url", url).option("subscribe", "s")
    table = reader.schema("n int, ts timestamp").option("minPartitions", "4").load()

    stream = spark.readStream.format("anabranch").option("url", url).option("subscribe", "s")
    stream = stream.options(startingOffsets="earliest", minPartitions="2")
    copy = stream.load().select("fields").writeStream.format("anabranch").option("url", url)
    copy = copy.options(stream="t", checkpointLocation=str(place / "copy"))
    copy.trigger(availableNow=True).start().awaitTermination()

    kept = archive(spark, place / "lake", options={"url": url, "subscribe": "s"})
    return {
        "tasks": tasks,
        "numbers": sorted(row.n for row in table.select("n").collect()),
        "archived": [kept.entries, len(kept.gaps)],
    }


class _ToTheEnd(LagListener):
    """Knows when nothing more will come of the one query it listens to."""

    ended = False

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self.ended = True


def more(spark: SparkSession, url: str, place: Path) -> dict[str, Any]:
    """What asks more of a session: filters, a listener, one source per region, observations."""
    reader = spark.read.format("anabranch").option("url", url).option("subscribe", "s")
    late = reader.schema("n int, ts timestamp").load()

    told: list[Any] = []
    listener = _ToTheEnd(told.append)
    spark.streams.addListener(listener)
    by_region = read_by_region(
        spark, "s", watermark="1 second", schema="ts timestamp, n int", url=url,
        startingOffsets="earliest",
    )  # fmt: skip
    counts = by_region.writeStream.format("parquet").option("path", str(place / "counts"))
    counts = counts.option("checkpointLocation", str(place / "counted"))
    supervised = supervise(lambda: counts.trigger(availableNow=True).start())
    # A client that removes its listener while an event is on its way waits for itself for ever.
    wait_until(lambda: listener.ended, "the listener has heard of the end", 300)
    spark.streams.removeListener(listener)

    (place / "rows.csv").write_text("city,people\nBonn,336000\nUlm,many\n")
    taken = [
        ingest(spark, [place / "rows.csv"], url=url, stream="c", schema="city string, people int")
        for _ in range(2)
    ]
    replayed = replay(spark, place / "lake", url=url, prefix="again:")
    return {
        "late": late.where("ts >= timestamp_seconds(1)").count(),
        "lag": [[each.stream, each.entries] for each in told],
        "by region": [spark.read.parquet(str(place / "counts")).count(), supervised.starts],
        "taken in": [[each.rows, each.bad] for each in taken],
        "replayed": replayed.entries,
    }


def copy(spark: SparkSession, url: str, place: Path) -> dict[str, Any]:
    """Stream ``s`` to stream ``t`` by two tasks, row by row."""
    reader = spark.readStream.format("anabranch").option("url", url).option("subscribe", "s")
    table = reader.options(startingOffsets="earliest", minPartitions="2").load().select("fields")
    writer = table.writeStream.format("anabranch").option("url", url)
    writer = writer.options(stream="t", maxRowsInFlight="1", checkpointLocation=str(place / "c"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return {"batches": [each.numInputRows for each in query.recentProgress]}


def speculate(spark: SparkSession, url: str, idempotence: str) -> dict[str, Any]:
    """Write 4,000 rows by two tasks, one of which is so slow that Spark begins it again."""
    spark.dataSource.register(straggling_source(int(url.rpartition(":")[2])))
    table = spark.range(0, 4_000, 1, 2).selectExpr("id as n")
    writer = table.write.format("straggling").option("url", url).mode("append")
    writer = writer.option("idempotence", idempotence)
    writer.options(stream="t", maxRowsInFlight="1").save()
    return {}


def main(what: str, master: str, url: str, last: str) -> None:
    """Run one of them; where it stands after three minutes goes to stderr."""
    faulthandler.dump_traceback_later(180)
    if master.startswith("sc://"):
        conf = {}
    else:
        conf = {**CLUSTER, **(SPECULATION if what == "speculate" else {})}
    spark = session(what, master, conf)
    if what == "tour":
        told = tour(spark, url, Path(last))
        if master.startswith("sc://"):
            told |= more(spark, url, Path(last))
    elif what == "copy":
        told = copy(spark, url, Path(last))
    else:
        told = speculate(spark, url, last)
    spark.stop()
    print(json.dumps(told))  # noqa: T201 - this is how the test hears of it


if __name__ == "__main__":
    main(*sys.argv[1:])
