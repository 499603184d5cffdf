"""Readers of the data source: which pieces there are, in one process, and each of them in others.

Spark makes these objects several times, pickles them, and calls them in different processes: the
constructors only keep values. A stream reader's questions (`latestOffset` and its like) all come
to one process, which keeps a connection; `read` runs in the executors' workers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from anabranch.sharing import share
from anabranch.spark.audible import audible
from anabranch.spark.client import Client, connect
from anabranch.spark.columns import Projection
from anabranch.spark.filters import Stretch
from anabranch.spark.heads import Survey
from anabranch.spark.losses import (
    ADVICE,
    ADVICE_BEHIND,
    ADVICE_SHORT,
    DataLossError,
    Found,
    ServerBehindError,
    assess,
    ends_missing,
    losses,
    unsubscribed,
)
from anabranch.spark.offsets import Cursor, Heads, Range, Vector, next_id
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.ranges import read_range
from anabranch.spark.starting import tell_start

__all__ = ["BatchReader", "FilteringBatchReader", "StreamReader", "batch_reader", "stream_reader"]

_log = logging.getLogger(__name__)
_TELL_S: Final = 5.0  # between two lines while a server is waited for


def batch_reader(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """A batch read with these options."""
    options = ReadOptions.parse(given)
    kind = FilteringBatchReader if options.push_down_filters else BatchReader
    return kind(options, _projection(options, schema))


def stream_reader(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """A streaming read with these options; raises `OptionError` for those of batch reads."""
    options = ReadOptions.parse(given)
    for value, name in (
        (options.ending_offsets, "endingOffsets"),
        (options.ending_timestamp, "endingTimestamp"),
    ):
        if value is not None:
            raise OptionError(f"{name} is for batch reads: a streaming read has no end")
    return StreamReader(options, _projection(options, schema))


def _projection(options: ReadOptions, schema: StructType) -> Projection:
    return Projection(
        to_arrow_schema(schema, timezone="UTC"),
        options.mode,
        options.corrupt_column,
        options.field_mapping,
    )


@dataclass
class Piece(InputPartition):
    """What one task reads."""

    range: Range

    def __post_init__(self) -> None:
        """Spark's base class wants its own value."""
        super().__init__(None)


def _splits(options: ReadOptions, backlog: int) -> int:
    wanted = options.min_partitions or 1
    if options.max_records_per_partition is not None:
        wanted = max(wanted, -(-backlog // options.max_records_per_partition))
    return wanted


# ------------------------------------------------------------------------------------------- batch


class BatchReader(DataSourceReader):
    """A read from one place to another, both fixed when it is planned."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        """Nothing is opened yet."""
        self.options = options
        self.projection = projection

    def partitions(self) -> list[InputPartition]:
        """Look at the streams and cut what is asked for into pieces."""
        options = self.options
        with connect(options.server) as client:
            survey = Survey(options, client)
            heads = survey.heads()
            survey.check_regions()
            self._check_streams(heads, survey)
            start = survey.place(
                heads, options.starting_offsets, options.starting_timestamp, "earliest"
            )
            end = survey.place(heads, options.ending_offsets, options.ending_timestamp, "latest")
            if options.fail_on_data_loss:
                if lost := losses(start, heads, survey):
                    raise DataLossError(f"{'; '.join(lost)}. {ADVICE}")
                if lost := ends_missing(end, heads, survey):
                    raise DataLossError(f"{'; '.join(lost)}. {ADVICE_SHORT}")
            start, end = self.narrowed(start, end, heads, survey)
        end = end.not_before(start)  # an end before the start means nothing, not everything
        end = replace(end, splits=_splits(options, end.backlog(start)))
        return [Piece(each) for each in end.pieces(start)]

    def _check_streams(self, heads: Heads, survey: Survey) -> None:
        if self.options.pattern is None and self.options.fail_on_data_loss:
            missing = [each for each in survey.streams() if each not in heads]
            if missing:
                raise OptionError(
                    f"no such stream: {', '.join(missing)} (failOnDataLoss=false reads a missing "
                    "stream as an empty one)"
                )

    def narrowed(
        self, start: Vector, end: Vector, heads: Heads, survey: Survey
    ) -> tuple[Vector, Vector]:
        """The same, unless filters allow for less."""
        return start, end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece, in an executor."""
        if not isinstance(partition, Piece):  # Spark's stand-in for a read without pieces
            return iter(())
        return read_range(partition.range, self.options, self.projection)


class FilteringBatchReader(BatchReader):
    """A batch read that leaves out what Spark would throw away.

    The filters only narrow the ranges; Spark still applies them, so none needs to be exact. A
    class of its own, because Spark refuses readers with `pushFilters` unless
    ``spark.sql.python.filterPushdown.enabled`` is set.
    """

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        """Nothing is opened yet."""
        super().__init__(options, projection)
        self._stretch = Stretch()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Note what helps, and leave every filter to Spark as well."""
        reserved = {each.name for each in self.projection.payload}.symmetric_difference(
            self.projection.schema.names
        )
        for each in filters:
            column = getattr(each, "attribute", ("",))
            if len(column) == 1 and column[0] in reserved:
                self._stretch.note(column[0], each)
        return filters

    def narrowed(
        self, start: Vector, end: Vector, heads: Heads, survey: Survey
    ) -> tuple[Vector, Vector]:
        """The ranges without what the filters exclude."""
        begins: dict[str, dict[str, Cursor]] = {}
        ends: dict[str, dict[str, Cursor]] = {}
        asked = self._stretch
        if asked.is_empty:
            return Vector(begins), Vector(ends)
        least, greatest = asked.least_id, asked.greatest_id
        for stream, regions in end.cursors.items():
            for region, stop in regions.items():
                if not asked.has("stream", stream) or not asked.has("region", region):
                    continue
                begin = start.get(stream, region) or replace(stop, position=stop.incarnation)
                head = heads.get(stream, {}).get(region)
                if head is None:
                    continue
                if least is not None:
                    found = survey.locate(stream, region, head, "{}-{}".format(*least))
                    begin = found if begin.behind(found) else begin
                if greatest is not None:
                    above = next_id("{}-{}".format(*greatest))
                    found = survey.locate(stream, region, head, above)
                    stop = found if found.behind(stop) else stop
                if not stop.by_id:
                    low, high = asked.positions(begin.position, stop.position)
                    begin, stop = replace(begin, position=low), replace(stop, position=high)
                if begin.behind(stop):
                    begins.setdefault(stream, {})[region] = begin
                    ends.setdefault(stream, {})[region] = stop
        return Vector(begins), Vector(ends)


# ------------------------------------------------------------------------------------------ stream


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A read that goes on: offsets are vectors, see `anabranch.spark.offsets`."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        """Nothing is opened yet."""
        self.options = options
        self.projection = projection
        self._watch: _Watch | None = None
        self._is_new = False  # Spark asked where to begin
        self._told = False

    def __getstate__(self) -> dict[str, Any]:
        """Options travel, connections do not."""
        return {**self.__dict__, "_watch": None}

    def _watching(self) -> _Watch:
        if self._watch is None:
            self._watch = _Watch(self.options)
        return self._watch

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a query without a checkpoint begins; the same however often Spark asks."""
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
        """How far the next batch goes; `start` itself if there is nothing to read."""
        entries = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = Vector.parse(start)
        self._tell(begin, resumed=not self._is_new)
        found = self._watching().next(begin, entries)
        return start if found is None else found.to_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The heads, for progress reports."""
        return self._watching().newest()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and end."""
        self._watching().freeze()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """The pieces between two offsets; the same for the same offsets, whatever happened."""
        stop = Vector.parse(end)
        begin = stop.origin or Vector.parse(start)
        # A batch that was not planned here was under way when the query ended, its first one too.
        self._tell(begin, resumed=True)
        return [Piece(each) for each in stop.pieces(begin)]

    def _tell(self, begin: Vector, *, resumed: bool) -> None:
        """Say where the query starts, before its first batch."""
        if not self._told:
            self._told = True
            selects = None if self._watch is None else self._watch.selects
            tell_start(self.options, begin, resumed=resumed, selects=selects)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one piece, in an executor."""
        assert isinstance(partition, Piece)
        return read_range(partition.range, self.options, self.projection)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Show the progress in ``commitGroup``. Nothing depends on it."""
        self._watching().commit(Vector.parse(end))

    def stop(self) -> None:
        """Close the connection."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class _Watch:
    """What the driver's side of a streaming read remembers between two calls."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._client: Client = connect(options.server)
        self._survey: Survey | None = None
        self._initial: Vector | None = None
        self._heads: Heads = {}
        self._target: Heads | None = None  # frozen for AvailableNow
        self._lost: list[str] = []  # what was gone at the last look
        self._quiet = False  # the last question found nothing to read
        self._advanced_at = time.monotonic()

    def close(self) -> None:
        self._client.close()

    def _looking(self, start: Vector | None = None) -> Survey:
        if self._survey is None:
            known = [
                each.by_id
                for regions in (start.cursors if start is not None else {}).values()
                for each in regions.values()
            ]
            # A query that began by ID goes on by ID, even when the server learned positions.
            by_id = any(known) if known else None
            self._survey = Survey(self._options, self._client, by_id=by_id)
        return self._survey

    def freeze(self) -> None:
        # No offset is known yet, so the kind of server decides.
        self._target = Survey(self._options, self._client).heads()

    def initial(self) -> Vector:
        # Spark asks twice before the first batch, and what comes in between must be read.
        if self._initial is None:
            survey, options = self._looking(), self._options
            self._heads = survey.heads()
            survey.check_regions()
            found = survey.place(
                self._heads, options.starting_offsets, options.starting_timestamp, "latest"
            )
            begin = Vector(found.cursors)
            self._initial = replace(found, origin=begin)
        return self._initial

    def selects(self, stream: str, region: str) -> bool:
        return self._survey is None or self._survey.selects(stream, region)

    def newest(self) -> dict[str, Any] | None:
        if not self._heads:
            return None
        return Vector(
            {
                stream: {region: head.end for region, head in regions.items()}
                for stream, regions in self._heads.items()
            }
        ).to_dict()

    def next(self, start: Vector, limit: int | None) -> Vector | None:
        """The end of the next batch, None if there is nothing to read yet."""
        survey = self._looking(start)
        wait_ms = self._options.poll_timeout_ms if self._quiet and self._target is None else 0
        self._check_subscription(start, survey)
        self._heads = survey.heads(wait_ms, start)
        seen = assess(start, self._heads, survey)
        if seen.behind:
            seen = self._caught_up(seen, start, survey)
        lost = seen.lost
        if lost and self._options.fail_on_data_loss:
            raise DataLossError(f"{'; '.join(lost)}. {ADVICE}")
        # What is gone stays gone while the query waits, and every look finds it again.
        if news := [each for each in lost if each not in self._lost]:
            _log.warning("%s; going on, because failOnDataLoss=false", "; ".join(news))
        self._lost = lost
        end = replace(self._reachable(start), begins=seen.begins)
        ranges = end.ranges(start)
        backlog = sum(len(each) or 1 for each in ranges)
        # A hole is passed once, and told once, even if nothing is behind it.
        self._quiet = not seen.begins and (not ranges or self._too_few(backlog))
        if self._quiet:
            return None
        self._advanced_at = time.monotonic()
        if limit is not None and backlog > limit:
            cursors = self._limited(end, ranges, limit, survey)
            end = replace(end, cursors=cursors)
        begun = start.origin is None or start.origin.cursors != start.cursors
        return replace(
            end,
            splits=_splits(self._options, end.backlog(start)),
            origin=None if begun else start.origin,
        )

    def _reachable(self, start: Vector) -> Vector:
        """The heads, or the frozen ones, and what `start` has of streams that are not asked for."""
        survey = self._looking()
        cursors: dict[str, dict[str, Cursor]] = {}
        for stream, regions in start.cursors.items():
            for region, cursor in regions.items():
                kept = region in self._heads.get(stream, {}) or bool(region)
                if kept or not (survey.subscribes(stream) and survey.selects(stream, region)):
                    cursors.setdefault(stream, {})[region] = cursor
        for stream, found in self._heads.items():
            for region, head in found.items():
                end = head.end
                if self._target is not None:
                    frozen = self._target.get(stream, {}).get(region)
                    if frozen is None:
                        continue
                    if frozen.incarnation == end.incarnation and frozen.end.behind(end):
                        end = frozen.end
                begin = start.get(stream, region)
                if begin is None or begin.behind(end):
                    cursors.setdefault(stream, {})[region] = end
        return Vector(cursors)

    def _too_few(self, backlog: int) -> bool:
        least = self._options.min_entries
        if least is None or backlog >= least or self._target is not None:
            return False
        waited_ms = (time.monotonic() - self._advanced_at) * 1000
        return waited_ms < self._options.max_trigger_delay_ms

    def _check_subscription(self, start: Vector, survey: Survey) -> None:
        if self._options.allow_subscription_change:
            return
        if gone := unsubscribed(start, survey):
            raise OptionError(
                f"the subscription changed: the checkpoint has read {', '.join(gone)}, which the "
                "options do not name any more. Name it again (subscribe, subscribePattern or "
                "assign), or give allowSubscriptionChange=true: it is left where it was then, and "
                "other streams are read from their first entry"
            )

    def _caught_up(self, seen: Found, start: Vector, survey: Survey) -> Found:
        """Wait until the server has what was read; raises `ServerBehindError` if it never has.

        A server of its own is not waited for: nobody brings what it lacks.
        """
        seconds = self._options.catch_up_timeout_ms / 1000
        if all(region == "" for regions in start.cursors.values() for region in regions):
            seconds = 0.0
        deadline = time.monotonic() + seconds
        told = 0.0
        audible()
        while seen.behind:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ServerBehindError(
                    f"{'; '.join(seen.behind)}. Waited for {seconds:g} s. {ADVICE_BEHIND}"
                )
            if time.monotonic() - told >= _TELL_S:
                told = time.monotonic()
                _log.warning("%s; waiting up to %.0f s more", "; ".join(seen.behind), left)
            self._heads = survey.heads(max(1, int(min(left, 1.0) * 1000)), start)
            seen = assess(start, self._heads, survey)
        return seen

    def _limited(
        self, end: Vector, ranges: list[Range], limit: int, survey: Survey
    ) -> dict[str, dict[str, Cursor]]:
        if not survey.by_id:
            return self._reached(end, ranges, limit, survey)
        shares = share({(each.stream, each.region): len(each) or 1 for each in ranges}, limit)
        cursors = {stream: dict(regions) for stream, regions in end.cursors.items()}
        for each in ranges:
            stop = end.cursors[each.stream][each.region]
            cursors[each.stream][each.region] = survey.advance(
                each.stream,
                Cursor(stop.incarnation, each.first, each.after),
                stop,
                shares[each.stream, each.region],
            )
        return cursors

    def _reached(
        self, end: Vector, ranges: list[Range], limit: int, survey: Survey
    ) -> dict[str, dict[str, Cursor]]:
        """As far as so many live entries go, but not beyond `end`."""
        begins: dict[str, dict[str, Cursor]] = {}
        for each in ranges:
            begin = Cursor(each.incarnation, each.first, each.after)
            begins.setdefault(each.stream, {})[each.region] = begin
        cursors = {stream: dict(regions) for stream, regions in end.cursors.items()}
        for stream, reached in survey.reaches(begins, limit).items():
            for region, reach in reached.items():
                stop = reach.end
                if stop.last_id == "0-0":
                    stop = replace(stop, last_id=begins[stream][region].last_id)
                if stop.behind(cursors[stream][region]):
                    cursors[stream][region] = stop
        return cursors

    def commit(self, end: Vector) -> None:
        if self._options.commit_group is not None:
            self._looking(end).commit(self._options.commit_group, end)
