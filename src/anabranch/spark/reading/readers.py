"""Readers of the data source: one process plans partitions, others read each of them.

Spark makes these objects several times, pickles them, and calls them in different processes: the
constructors only keep values. Spark calls `latestOffset` and similar methods of a stream reader in
one process, which keeps a connection; `read` runs in the workers of the executors.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from anabranch.spark.connection.client import ServerClient, connect
from anabranch.spark.decoding.columns import Projection
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.executor import read_partition
from anabranch.spark.reading.hole_search import holes_at
from anabranch.spark.reading.losses import DataLossError, assess
from anabranch.spark.reading.offsets import Logs, Vector
from anabranch.spark.reading.partitions import Partition, cut, partition_count, partitions_of
from anabranch.spark.reading.planner import Planner, cores
from anabranch.spark.reading.server_logs import ServerLogs
from anabranch.spark.runtime.logs import audible, log_start
from anabranch.spark.runtime.rounds import leave_imports_alone

_log = logging.getLogger(__name__)


def batch_reader(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """A batch read with these options; raises `OptionError` for those of streaming reads."""
    options = ReadOptions.parse(given)
    options.check_kind("batch")
    return BatchReader(options, Projection.of(to_arrow_schema(schema, timezone="UTC"), options))


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """A streaming read with these options; raises `OptionError` for those of batch reads."""
    options = ReadOptions.parse(given)
    options.check_kind("streaming")
    projection = Projection.of(to_arrow_schema(schema, timezone="UTC"), options)
    if options.frontier_interval_ms is not None:
        projection.check_time_only()
    return StreamReader(options, projection)


class _PartitionReader:
    """What both kinds of readers have; the value of a partition is a `Partition`."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        """Nothing is opened yet."""
        self.options = options
        self.projection = projection

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition, in an executor."""
        leave_imports_alone()
        # Spark's own, for a read without partitions, has the value None.
        return read_partition(partition.value or (), self.options, self.projection)


# ------------------------------------------------------------------------------------------- batch


_PLANNED: Final = (
    "Spark planned this table at its first action and keeps that plan; to read what is there now, "
    'load it again: table = spark.read.format("anabranch").options(...).load()'
)


class BatchReader(_PartitionReader, DataSourceReader):
    """A batch read: its beginning and end are fixed when it is planned.

    Spark plans once for each ``load()``, and reads the same partitions at every later action.
    """

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition; entries may have been trimmed since the plan was made."""
        try:
            yield from super().read(partition)
        except DataLossError as error:
            raise type(error)(f"{error.args[0]}. {_PLANNED}") from None

    def partitions(self) -> list[InputPartition]:
        """Query the streams, and cut the requested range into partitions."""
        options = self.options
        leave_imports_alone()
        with connect(options.server) as client:
            server = ServerLogs(options, client)
            logs = server.logs()
            server.check_regions()
            self._check_streams(logs, server)
            start = server.place(
                logs, options.starting_offsets, options.starting_timestamp, "earliest"
            )
            end = server.place(logs, options.ending_offsets, options.ending_timestamp, "latest")
            # Where a query was may be a place of another log, or of lost entries.
            looked = server.logs(known=start) if options.starting_offsets else logs
            seen = assess(start, looked, server)
            seen.refuse(losses=options.fail_on_data_loss)
            if seen.losses:
                audible()
                _log.warning("%s; going on, because failOnDataLoss=false", "; ".join(seen.losses))
            removals = self._removals(server, client, start)
        # An end before the start means nothing, not everything.
        end = replace(end.not_before(start.jumped(seen.begins, end)), begins=seen.begins)
        # With positions, the IDs may be chosen by users; only a repeated plan knows them.
        ranges = [each if each.by_id else replace(each, upto="0-0") for each in end.ranges(start)]
        count = partition_count(options, sum(map(len, ranges)), cores())
        return list(map(InputPartition, filter(None, [*cut(ranges, count), removals])))

    def _removals(self, server: ServerLogs, client: ServerClient, start: Vector) -> Partition:
        """What was removed since the offset where the read begins, if it begins at one."""
        if not self.options.changes:
            return ()
        server.require_positions()
        if not start.holes:
            return ()
        return tuple(replace(start, holes=holes_at(client, start, start)).removals(start))

    def _check_streams(self, logs: Logs, server: ServerLogs) -> None:
        if self.options.pattern is None and self.options.fail_on_data_loss:
            missing = [each for each in server.streams() if each not in logs]
            if missing:
                raise OptionError(
                    f"no such stream: {', '.join(missing)} (failOnDataLoss=false reads a missing "
                    "stream as an empty one)"
                )


# ------------------------------------------------------------------------------------------ stream


class StreamReader(_PartitionReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read: offsets are vectors, see `anabranch.spark.reading.offsets`."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        """Nothing is opened yet."""
        super().__init__(options, projection)
        self._watch: Planner | None = None
        self._is_new = False  # Spark asked where to begin
        self._logged = False

    def __getstate__(self) -> dict[str, Any]:
        """Pickles the options without the connection."""
        return {**self.__dict__, "_watch": None}

    def _watching(self) -> Planner:
        if self._watch is None:
            self._watch = Planner(self.options)
        return self._watch

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a query without a checkpoint; the same at each call."""
        self._is_new = True
        return self._watching().initial().to_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """``maxEntriesPerTrigger``."""
        if self.options.max_entries is None:
            return ReadAllAvailable()
        return ReadMaxRows(self.options.max_entries)

    def latestOffset(  # type: ignore[override]  # noqa: N802
        self, start: Mapping[str, Any], limit: ReadLimit
    ) -> Mapping[str, Any]:
        """The end of the next batch; `start` if there is nothing to read."""
        entries = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = Vector.parse(start)
        self._log_start(begin, resumed=not self._is_new)
        found = self._watching().next(begin, entries)
        return start if found is None else found.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The latest offset, for progress reports."""
        return self._watching().newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the entries that exist now."""
        self._watching().freeze()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The partitions between two offsets; the same at each call for the same offsets."""
        stop = Vector.parse(end)
        begin = stop.initial or Vector.parse(start)
        # A batch that was not planned here was running when the query ended; maybe the first one.
        self._log_start(begin, resumed=True)
        return list(map(InputPartition, partitions_of(begin, stop)))

    def _log_start(self, begin: Vector, *, resumed: bool) -> None:
        """Log where the query starts, before its first batch."""
        if not self._logged:
            self._logged = True
            selects = None if self._watch is None else self._watch.selects
            log_start(self.options, begin, resumed=resumed, selects=selects)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Write the progress to ``commitGroup``, for display only."""
        self._watching().commit(Vector.parse(end))

    def stop(self) -> None:
        """Close the connection."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class RefusedStream(DataSourceStreamReader):
    """Raises an error at the first use.

    If there is no reader to stop, PySpark 4.3 reports an `UnboundLocalError` of its own as well.
    """

    def __init__(self, problem: Exception) -> None:
        """`problem`: why there is no stream to read."""
        self._problem = problem

    def _refuse(self, *_: Any) -> Any:
        raise self._problem

    initialOffset: Any = _refuse  # noqa: N815
    latestOffset: Any = _refuse  # noqa: N815
    partitions: Any = _refuse
    read: Any = _refuse
