"""A query in a process of its own, to be killed.

    python reading_job.py URL OUT CHECKPOINT MODE [OPTION=VALUE ...]

It prints a line for each batch, so that whoever kills it can choose the moment.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame

from anabranch.spark import session


def main(url: str, out: str, checkpoint: str, mode: str, *pairs: str) -> None:
    """Copy stream ``s`` into files until killed, or to its end."""
    spark = session("job", "local[2,4]")
    frame = (
        spark.readStream.format("anabranch")
        .schema("id string, n int")
        .options(url=url, subscribePattern="s*", startingOffsets="earliest")
        .options(maxEntriesPerTrigger="300", minPartitions="2", discoveryIntervalMs="0")
        .options(**dict(pair.split("=", 1) for pair in pairs))
        .load()
    )

    def save(batch: DataFrame, number: int) -> None:
        # One directory for each batch, replaced as a whole: what is done twice counts once.
        batch.write.mode("overwrite").parquet(f"{out}/{number}")
        print("batch", number, flush=True)  # noqa: T201 - this is how the test follows

    writer = frame.writeStream.foreachBatch(save).option("checkpointLocation", checkpoint)
    trigger = {"availableNow": True} if mode == "now" else {"processingTime": "0 seconds"}
    writer.trigger(**trigger).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
