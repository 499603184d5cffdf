"""The data source ``anabranch``: its name and its parts.

Spark inspects data sources in one process, plans each read and write in another one, and commits in
a third. None of them needs all parts, so each part is imported when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from anabranch.errors import AnabranchError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class AnabranchSource(DataSource):
    """``format("anabranch")``: streams as tables, tables as streams."""

    @classmethod
    def name(cls) -> str:
        """The word for ``format``."""
        return "anabranch"

    def schema(self) -> str:
        """The columns of a read that names none."""
        from anabranch.spark.decoding.columns import default_schema  # noqa: PLC0415 - heavy

        return default_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch read."""
        from anabranch.spark.reading import readers  # noqa: PLC0415 - heavy

        return readers.batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """A streaming read."""
        from anabranch.spark.reading import readers  # noqa: PLC0415 - heavy

        try:
            return readers.stream_reader(self.options, schema)
        except AnabranchError as problem:
            return readers.RefusedStream(problem)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """A batch write."""
        from anabranch.spark.writing import sink  # noqa: PLC0415 - heavy

        return sink.batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        """A streaming write."""
        from anabranch.spark.writing import sink  # noqa: PLC0415 - heavy

        return sink.stream_writer(self.options, schema, overwrite)
