"""A driver to be killed: copies stream ``s`` to stream ``t``, until then.

Arguments: URL, checkpoint, rows in a chunk.
"""

from __future__ import annotations

import sys

from anabranch.spark import session


def main(url: str, checkpoint: str, chunk: str) -> None:
    spark = session("copying", "local[2,4]")
    reader = spark.readStream.format("anabranch").option("url", url)
    table = reader.options(subscribe="s", startingOffsets="earliest").load().select("fields")
    writer = table.writeStream.format("anabranch").option("url", url)
    writer = writer.options(stream="t", maxRowsInFlight=chunk, checkpointLocation=checkpoint)
    writer.start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
