"""Sources that write down what they log: Spark runs them in processes of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource


def noting_source(place: Path) -> type[DataSource]:
    """``format("noting")``: ours, with its log in a file for each process in a directory.

    All of it is within this function, so that Spark ships it by value: workers do not know tests.
    """
    from anabranch.spark.source import AnabranchSource

    directory = str(place)

    def note() -> None:
        import logging
        import os
        import time

        name = f"{directory}/{time.time_ns():020d}-{os.getpid()}"
        handler = logging.FileHandler(name, delay=True)
        handler.setFormatter(logging.Formatter("%(message)s"))
        ours = logging.getLogger("anabranch")
        ours.handlers[:] = [handler]
        ours.setLevel(logging.INFO)

    class NotingSource(AnabranchSource):
        @classmethod
        def name(cls) -> str:
            return "noting"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            note()
            return AnabranchSource.streamReader(self, schema)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            note()
            return AnabranchSource.streamWriter(self, schema, overwrite)

    return NotingSource


def noted(place: Path) -> list[str]:
    """What was logged, process by process."""
    return [
        line for path in sorted(place.iterdir()) for line in path.read_text("utf-8").splitlines()
    ]
