"""Spark without this package: a session as PySpark makes it, in a process of its own.

A reader that yields tuples runs there. In workers that have seen our source it would be a fifth
quicker, as Python does not look for garbage among what they have imported.
"""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

from .local import drained, spark


class PlainSpark:
    """The process: ``with PlainSpark() as plain: plain.tuples(port, key, 2)``."""

    def __enter__(self) -> Self:
        """Start it, on the Java of the other session."""
        spark()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark.plain"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # Spark's warnings of what it does not find
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it."""
        self._process.communicate()

    def tuples(self, port: int, key: str, parts: int) -> float:
        """Read all rows by a reader that yields tuples and drop them; return the seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(port, key, parts, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(
                "the Spark without this package ended: python -m benchmarks.spark.plain"
            )
        return float(answer)


def _answer() -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy

    from .naive import Tuples  # noqa: PLC0415 - heavy

    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.dataSource.register(Tuples)
    for line in sys.stdin:
        port, key, parts = line.split()
        reader = spark.read.format("tuples").option("port", port).option("key", key)
        print(drained(reader.option("parts", parts).load()), flush=True)
    spark.stop()


if __name__ == "__main__":
    _answer()
