"""One stream of a query for each region, so that each has its own watermark.

A region that was disconnected delivers entries with old times when it returns. Spark's watermark is
the maximum over all rows of a source, so in one common source these entries would be late and
dropped. With one source for each region Spark uses the minimum of their watermarks, and waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.spark.connection.client import ServerRefused, connect
from anabranch.spark.connection.region_names import rows_of
from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.checkpoint import ends_of_batch, newest_batch
from anabranch.spark.reading.holes import Holes
from anabranch.spark.reading.offsets import LogCursor, OffsetError, Vector
from anabranch.spark.reading.server_logs import ServerLogs
from anabranch.spark.runtime.logs import audible

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_POLL_MS: Final = 200
_FRONTIER: Final = "frontierinterval"
_log = logging.getLogger(__name__)


def read_by_region(
    spark: SparkSession,
    stream: str,
    *,
    watermark: str,
    event_time: str = "ts",
    regions: Iterable[str] | None = None,
    schema: str | StructType | None = None,
    resume_from: str | Path | None = None,
    **options: str,
) -> DataFrame:
    """A streaming read with one source and one watermark (on `event_time`) for each region.

    The regions are fixed here: those named, or those the stream has now, or all members if there is
    no stream yet. A region that joins later, or writes to the stream for the first time, needs a
    new query with a new checkpoint; `resume_from` is the old one's checkpoint directory, and the
    new query starts where the old one had committed. A region that is silent holds all results
    back; leave it out of `regions` if it never returns. With the option
    ``frontierInterval`` ("10s") only a disconnected region does so: of a silent and connected one
    the server knows up to which time it has no more entries. Raises `OptionError`.
    """
    given = {"subscribe": stream, **options}
    names = sorted(set(present_regions(ReadOptions.parse(given)) if regions is None else regions))
    if not names:
        raise OptionError("read_by_region needs at least one region")
    # Spark asks sources one after the other, so they share the waiting time of one.
    given.setdefault("pollTimeoutMs", str(_POLL_MS // len(names)))
    if resume_from is not None:
        given["startingOffsets"] = committed_offsets(resume_from).to_json()
    has_times = _FRONTIER in {each.lower() for each in given}
    if has_times and event_time != "ts":
        raise OptionError("frontierInterval is for the time in IDs: it needs event_time ts")
    own = False
    if schema is not None and has_times:
        schema, own = _with_id(schema)
    frames = []
    for name in names:
        reader = spark.readStream.format("anabranch").options(**given).option("regions", name)
        if schema is not None:
            reader = reader.schema(schema)
        frame = reader.load().withWatermark(event_time, watermark)
        if has_times:
            # It names the event time, or Spark would leave the rows out before the watermark.
            frame = frame.where("id IS NOT NULL OR ts IS NULL")
        frames.append(frame.drop("id") if own else frame)
    return reduce(lambda left, right: left.unionByName(right), frames)


def present_regions(options: ReadOptions) -> set[str]:
    """The regions that have a log of the streams now; of streams that are not there, all members.

    Members that have no log are logged. A server without regions has the one with the empty name.
    """
    with connect(options.server) as client:
        logs = ServerLogs(options, client).logs()
        try:
            rows = rows_of(client, "AB.REGION", "LIST")
        except ServerRefused:  # a user without permission gets by with what the streams have
            rows = []
    members = {str(row["region"]): row for row in rows if row["state"] != b"removed"}
    present = {region for some in logs.values() for region in some}
    if not present:
        return {*members} or {""}
    absent = members.keys() - {each.partition(".")[0] for each in present}
    if absent:
        audible()
        _log.warning(
            "%s: no entry of the regions %s is there yet, and none will be read; regions= names "
            "all that may write",
            ", ".join(logs),
            ", ".join(f"{each} ({members[each]['name'].decode()})" for each in sorted(absent)),
        )
    return present


def _with_id(schema: str | StructType) -> tuple[StructType, bool]:
    """A schema with a column ``id``; True if it had none."""
    from pyspark.sql.types import StringType, StructField, StructType  # noqa: PLC0415 - heavy

    found = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    assert isinstance(found, StructType)
    if "id" in found.names:
        return found, False
    return StructType([*found.fields, StructField("id", StringType())]), True


def committed_offsets(checkpoint: str | Path) -> Vector:
    """How far a query had read all its sources at its last commit.

    `checkpoint` is a directory of this machine. Raises `OffsetError` if nothing was committed.
    """
    directory = Path(checkpoint)
    newest = newest_batch(directory, "commits")
    if newest is None:
        raise OffsetError(f"{directory} is no checkpoint of a query that has committed a batch")
    cursors: dict[str, dict[str, LogCursor]] = {}
    holes: dict[str, dict[str, Holes]] = {}
    for end in ends_of_batch(directory, newest):
        for stream, regions in end.cursors.items():
            cursors.setdefault(stream, {}).update(regions)
        for stream, found in end.holes.items():
            holes.setdefault(stream, {}).update(found)
    return Vector(cursors, holes=holes)
