"""Compares the replicas of all regions, and reports proved differences only.

Entries that are still on their way are no difference. Only entries that every region must have are
compared: those up to the *cut*, which is the least progress of the replicas, or the end at the
start if the regions catch up in time; and only those above the latest trimming of any region. Both
are positions, which are the same in all regions.
Digests of spans of time are compared (`anabranch.spark.reading.digests`), then only spans that
differ, entry by entry.

A deletion may be on its way as well. So an entry that one replica has and another lacks is reported
only if the first still has it after it has applied everything that the other had applied when it
lacked the entry; see `anabranch.spark.connection.region_connections`. Differences that cannot be
proved, because regions are disconnected, are counted as undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.spark.connection.region_connections import RegionConnection, RegionConnections
from anabranch.spark.jobs.signatures import AuditJob, JobStep, Progress, taking
from anabranch.spark.reading.digests import (
    Bucket,
    Id,
    Piece,
    Place,
    digests,
    entries_between,
    tasks_of,
)
from anabranch.spark.reading.offsets import LogBounds, parse_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALONE_MAX: Final = 5_000_000
"""Entries of all regions together that are compared without Spark in a few seconds."""


_BUCKET_ENTRIES: Final = 1_000
_WIDTH_MAX: Final = (1 << 64) - 1  # of a bucket, in milliseconds: what IDs can tell
_BUCKETS_MAX: Final = 100_000  # of all streams together: so many rows the driver can hold
_COMPARED_AT_ONCE: Final = 200_000  # entries of all replicas that the driver holds
_TASKS_PER_SHUFFLE_PARTITION: Final = 2
_TASK_POSITIONS_MIN: Final = 20_000


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between regions."""

    kind: str
    """missing
        regions have not what the region that wrote it has
    extra
        regions have an entry that the region which wrote it has not
    content
        regions have other fields under the same ID than the region that wrote it, or than the
        first that has it
    """
    stream: str
    replica_id: str
    """Who wrote the entry: the region's number, with the epoch if that is not the first."""
    what: str
    """ID of the entry."""
    regions: tuple[str, ...]

    def __str__(self) -> str:
        """For people."""
        by = f", written by region {self.replica_id}" if self.replica_id else ""
        return f"{self.kind}: {self.stream} {self.what}{by}: {', '.join(self.regions)}"


@dataclass(frozen=True, slots=True)
class Audited:
    """What was compared, and what was found."""

    converged: bool
    """No difference was found."""
    regions: tuple[str, ...]
    streams: int
    entries: tuple[int, ...]
    """Entries compared, of each region."""
    not_compared: int
    """Positions of all regions that are under way or below the latest trimming."""
    buckets: int
    buckets_differing: int
    undecided: int
    """Differences that may be under way: the regions did not catch up with each other in time."""
    findings: tuple[Difference, ...]
    more: bool
    """There are more findings than the limit."""


_Differing = list[tuple[Place, int]]
_Buckets = Mapping[tuple[Place, int], Bucket]
_Logs = Sequence[Mapping[str, LogBounds]]
"""The logs of one region: by stream, then by replica ID."""


@taking(AuditJob)
def audit(spark: SparkSession | None, job: AuditJob) -> Audited:
    """Compare all regions' replicas of streams.

    Replicas are read by `spark`, or without it by threads of this process. Raises `ReplicaError`,
    `ServerUnreachable`, `ServerRefused`, `OptionError` and what Spark raises.
    """
    with RegionConnections.connected(job.servers) as replicas:
        names = replicas.streams(job.streams, job.pattern)
        before = [each.logs(names) for each in replicas.all]
        job.progress(JobStep(f"{len(names)} streams in {', '.join(replicas.names)}"))
        heard = replicas.wait_until_applied(replicas.tokens(), job.settle_s)
        now = [each.logs(names) for each in replicas.all]
        pieces = _plan(names, before, now, heard, job.bucket_ms)
        positions = sum(each.stop - each.first for each in pieces)
        present = sum(
            log.next - log.first for some in now for logs in some for log in logs.values()
        )
        job.require_session(needed=spark is None and positions > ALONE_MAX)
        found = digests(
            spark, [each.options for each in replicas.all], _tasks(spark, pieces, positions)
        )
        places = set().union(*found)
        differing = sorted(
            each
            for each in places
            if len({some[each].digest if each in some else None for some in found}) > 1
        )
        compared = tuple(sum(each.entries for each in some.values()) for some in found)
        text = f"{sum(compared)} entries in {len(places)} spans, {len(differing)} of them differ"
        job.progress(JobStep(text))
        comparison = _EntryComparison(replicas, names, job.settle_s, job.limit)
        comparison.entries(found, differing, job.progress)
    findings = comparison.findings
    return Audited(
        converged=not findings,
        regions=replicas.names,
        streams=len(names),
        entries=compared,
        not_compared=present - positions,
        buckets=len(places),
        buckets_differing=len(differing),
        undecided=comparison.undecided,
        findings=tuple(findings[: job.limit]),
        more=comparison.more or len(findings) > job.limit,
    )


# ------------------------------------------------------------------------------------ what counts


def _tasks(
    spark: SparkSession | None, pieces: Sequence[Piece], positions: int
) -> list[list[Piece]]:
    partitions = spark.conf.get("spark.sql.shuffle.partitions", None) if spark else None
    most = int(partitions or "4") * _TASKS_PER_SHUFFLE_PARTITION
    return tasks_of(pieces, min(most, positions // _TASK_POSITIONS_MIN + 1))


def _plan(
    names: Sequence[str],
    before: Sequence[_Logs],
    now: Sequence[_Logs],
    heard: Sequence[Sequence[bool]],
    bucket_ms: int | None,
) -> list[Piece]:
    """The parts of logs that count, with the width of their buckets."""
    # What everybody had heard of when the first bounds were taken is complete by now.
    complete = [all(row[each] for row in heard) for each in range(len(before))]
    width_of = _widths(now, bucket_ms)
    pieces = []
    for stream, name in enumerate(names):
        for replica_id in sorted({each for some in now for each in some[stream]}):
            started = [some[stream].get(replica_id) for some in before]
            ends = [0 if log is None else log.next - _base(replica_id, log) for log in started]
            cut = max(
                min(ends), *(end for end, whole in zip(ends, complete, strict=True) if whole), 0
            )
            low = _horizon([some[stream] for some in now], replica_id)
            for number, some in enumerate(now):
                if log := some[stream].get(replica_id):
                    base = _base(replica_id, log)
                    first, stop = max(log.first, base + low), min(log.next, base + cut)
                    if first < stop:
                        place = (number, stream, name, replica_id)
                        pieces.append(Piece(*place, first, stop, width_of[stream]))
    return pieces


def _base(replica_id: str, log: LogBounds) -> int:
    """Servers without regions each have positions of their own, from the incarnation on."""
    return 0 if replica_id else log.incarnation


def _horizon(logs: Sequence[Mapping[str, LogBounds]], replica_id: str) -> int:
    """From where on all replicas have kept entries. Where all trimmed alike everything counts."""
    found = [some[replica_id] for some in logs if replica_id in some]
    trimmed = {max(each.trimmed - _base(replica_id, each), 0) for each in found}
    return max(trimmed) if len(trimmed) > 1 else 0


def _widths(logs: Sequence[_Logs], bucket_ms: int | None) -> list[int]:
    """For each stream how many milliseconds a bucket has."""
    spans = []
    for of_stream in zip(*logs, strict=True):
        some = [log for each in of_stream for log in each.values() if log.first < log.next]
        least = min((parse_id(each.until.last_id)[0] for each in some), default=0)
        most = max((parse_id(each.last_id)[0] for each in some), default=0)
        spans.append((most - least, sum(each.next - each.first for each in some)))
    entries = max(_BUCKET_ENTRIES, sum(count for _, count in spans) // _BUCKETS_MAX)
    widths = [bucket_ms or max(span * entries // max(count, 1), 1) for span, count in spans]
    return [min(each, _WIDTH_MAX) for each in widths]


# ------------------------------------------------------------------------------------- comparing


class _EntryComparison:
    """Entry by entry; keeps what it finds."""

    def __init__(
        self, replicas: RegionConnections, names: Sequence[str], settle_s: float, limit: int
    ) -> None:
        self._replicas = replicas
        self._names = names
        self._settle_s = settle_s
        self._limit = limit
        self.findings: list[Difference] = []
        self.undecided = 0
        self.more = False
        """Something that differs was not looked at: there was enough."""

    def entries(self, found: Sequence[_Buckets], differing: _Differing, say: Progress) -> None:
        """Look into the buckets that differ."""
        done = 0
        for part in _parts(found, differing):
            if len(self.findings) >= self._limit:
                self.more = True
                return
            self._entries(found, part)
            done += len(part)
            text = f"{done} of {len(differing)} spans compared, {len(self.findings)} findings"
            say(JobStep(text, done))

    def _entries(self, found: Sequence[_Buckets], part: _Differing) -> None:
        first = self._read(found, part)
        suspects = [
            each for each in part if any(first[each][0] != other for other in first[each][1:])
        ]
        if not suspects:
            return
        heard = self._replicas.wait_until_applied(self._replicas.tokens(), self._settle_s)
        second = self._read(found, suspects)
        for each in suspects:
            self._judge(each[0], first[each], second[each], heard)

    def _read(
        self, found: Sequence[_Buckets], part: _Differing
    ) -> dict[tuple[Place, int], list[dict[Id, bytes]]]:
        """For each bucket what each replica has in it, without what was trimmed somewhere."""
        streams = sorted({stream for (stream, _), _ in part})
        names = [self._names[each] for each in streams]
        logs = [dict(zip(streams, each.logs(names), strict=True)) for each in self._replicas.all]
        read = {}
        for each in part:
            (stream, replica_id), _ = each
            low = _horizon([some[stream] for some in logs], replica_id)
            read[each] = [
                self._bucket(replica, each[0], some.get(each), of_replica[stream], low)
                for replica, some, of_replica in zip(self._replicas.all, found, logs, strict=True)
            ]
        return read

    def _bucket(
        self,
        replica: RegionConnection,
        place: Place,
        bucket: Bucket | None,
        logs: Mapping[str, LogBounds],
        low: int,
    ) -> dict[Id, bytes]:
        stream, replica_id = place
        if bucket is None or replica_id not in logs:
            return {}
        first = max(bucket.first, _base(replica_id, logs[replica_id]) + low)
        name = self._names[stream]
        return entries_between(replica.client, name, replica_id, first, bucket.last)

    def _judge(
        self,
        place: Place,
        first: Sequence[Mapping[Id, bytes]],
        second: Sequence[Mapping[Id, bytes]],
        heard: Sequence[Sequence[bool]],
    ) -> None:
        """`heard[a][b]`: a has applied, before the second reading, what b had after the first."""
        everyone = range(len(second))
        writer = self._writer(place[1])
        for entry in sorted(set().union(*second)):
            having = [each for each in everyone if entry in second[each]]
            norm = writer if writer in having else having[0]
            other = [each for each in having if second[each][entry] != second[norm][entry]]
            # A key that was deleted may have the same ID again, and not everybody has heard of it.
            certain = [each for each in other if heard[each][norm] and heard[norm][each]]
            self.undecided += len(certain) < len(other)
            if certain:
                self._find("content", place, entry, certain)
            lacking = [
                each for each in everyone if entry not in second[each] and entry not in first[each]
            ]
            proved = [each for each in lacking if any(heard[knower][each] for knower in having)]
            self.undecided += len(proved) < len(lacking)
            if writer in proved:
                self._find("extra", place, entry, having)
            elif proved:
                self._find("missing", place, entry, proved)

    def _writer(self, replica_id: str) -> int:
        """The replica of the region that wrote a log; the first, where there are no regions."""
        number = int(replica_id.partition(".")[0] or 0)
        numbers = [each.number for each in self._replicas.all]
        return numbers.index(number) if number in numbers else -1

    def _find(self, kind: str, place: Place, entry: Id, regions: Sequence[int]) -> None:
        names = tuple(self._replicas.names[each] for each in regions)
        stream, replica_id = place
        self.findings.append(
            Difference(kind, self._names[stream], replica_id, f"{entry[0]}-{entry[1]}", names)
        )


def _parts(found: Sequence[_Buckets], differing: _Differing) -> Iterator[_Differing]:
    """So many buckets at a time that all their entries fit in memory."""
    part: _Differing = []
    held = 0
    for each in differing:
        part.append(each)
        held += sum(some[each].entries for some in found if each in some)
        if held >= _COMPARED_AT_ONCE:
            yield part
            part, held = [], 0
    if part:
        yield part
