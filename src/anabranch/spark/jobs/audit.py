"""Compares the replicas of all regions, and reports proved differences only.

Entries that are still on their way are no difference. Only entries that every region must have are
compared: those up to the *cut*, which is the least progress of the replicas, or the end at the
start if the regions catch up in time; and only those above the latest trimming of any region. Both
are positions, which are the same in all regions.
All replicas are read side by side (`anabranch.spark.reading.comparison`), then the positions at
which they differ once more, entry by entry.

A deletion may be on its way as well. So an entry that one replica has and another lacks is reported
only if the first still has it after it has applied everything that the other had applied when it
lacked the entry; see `anabranch.spark.connection.region_connections`. Differences that cannot be
proved, because regions are disconnected, are counted as undecided.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.spark.connection.region_connections import RegionConnections
from anabranch.spark.jobs.signatures import AuditJob, JobStep, Progress, taking
from anabranch.spark.reading.comparison import (
    Entries,
    Piece,
    Span,
    compare,
    differences,
    id_of,
    tasks_of,
)
from anabranch.spark.reading.offsets import LogBounds
from anabranch.spark.runtime.rounds import in_rounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMPARED_AT_ONCE: Final = 20_000  # positions whose entries the driver holds, of each replica
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
    undecided: int
    """Differences that may be under way: the regions did not catch up with each other in time."""
    findings: tuple[Difference, ...]
    more: bool
    """There are more findings than the limit."""


_Place = tuple[str, str, Span]
"""Key, replica ID and positions without the base of a replica."""

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
        heard = replicas.wait_for_each_other(job.settle_s)
        now = [each.logs(names) for each in replicas.all]
        pieces, positions = _plan(names, before, now, heard)
        present = sum(
            log.next - log.first for some in now for logs in some for log in logs.values()
        )
        compared, places = _compared(spark, replicas, pieces, positions)
        differing = sum(last - first + 1 for _, _, (first, last) in places)
        text = f"{sum(compared)} entries compared, {differing} positions may differ"
        job.progress(JobStep(text))
        comparison = _EntryComparison(replicas, job.settle_s, job.limit)
        comparison.entries(places, job.progress)
    findings = comparison.findings
    return Audited(
        converged=not findings,
        regions=replicas.names,
        streams=len(names),
        entries=compared,
        not_compared=present - positions,
        undecided=comparison.undecided,
        findings=tuple(findings[: job.limit]),
        more=comparison.more or len(findings) > job.limit,
    )


def _compared(
    spark: SparkSession | None,
    replicas: RegionConnections,
    pieces: Sequence[Piece],
    positions: int,
) -> tuple[tuple[int, ...], list[_Place]]:
    """How many entries each replica has, and the places at which they may differ."""
    partitions = spark.conf.get("spark.sql.shuffle.partitions", None) if spark else None
    most = int(partitions or "4") * _TASKS_PER_SHUFFLE_PARTITION
    tasks = tasks_of(pieces, min(most, positions // _TASK_POSITIONS_MIN + 1))
    servers = [each.options for each in replicas.all]

    def work(task: Sequence[Piece]) -> list[tuple[list[int], list[Span]]]:
        return [compare(piece, servers) for piece in task]

    counts = [0] * len(servers)
    places: list[_Place] = []
    results = in_rounds(spark, tasks, work, max(len(tasks), 1))
    for task, found in zip(tasks, results, strict=True):
        for piece, (some, spans) in zip(task, found, strict=True):
            counts = [count + more for count, more in zip(counts, some, strict=True)]
            places += [(piece.key, piece.replica_id, (first, last)) for first, last in spans]
    return tuple(counts), sorted(places)


# ------------------------------------------------------------------------------------ what counts


def _plan(
    names: Sequence[str],
    before: Sequence[_Logs],
    now: Sequence[_Logs],
    heard: Sequence[Sequence[bool]],
) -> tuple[list[Piece], int]:
    """The parts of logs that count, and how many positions of all replicas these are."""
    # What everybody had heard of when the first bounds were taken is complete by now.
    complete = [all(row[each] for row in heard) for each in range(len(before))]
    pieces, positions = [], 0
    for stream, name in enumerate(names):
        for replica_id in sorted({each for some in now for each in some[stream]}):
            started = [some[stream].get(replica_id) for some in before]
            ends = [0 if log is None else log.next - _base(replica_id, log) for log in started]
            cut = max(
                min(ends), *(end for end, whole in zip(ends, complete, strict=True) if whole), 0
            )
            logs = [some[stream] for some in now]
            bases = _bases(logs, replica_id)
            low = _horizon(logs, replica_id)
            bounds = [
                (max(some[replica_id].first - base, low), min(some[replica_id].next - base, cut))
                for some, base in zip(logs, bases, strict=True)
                if replica_id in some
            ]
            parts = [(first, stop) for first, stop in bounds if first < stop]
            if parts:
                first, stop = min(first for first, _ in parts), max(stop for _, stop in parts)
                pieces.append(Piece(name, replica_id, first, stop, bases))
                positions += sum(stop - first for first, stop in parts)
    return pieces, positions


def _base(replica_id: str, log: LogBounds) -> int:
    """Servers without regions each have positions of their own, from the incarnation on."""
    return 0 if replica_id else log.incarnation


def _bases(logs: Sequence[Mapping[str, LogBounds]], replica_id: str) -> tuple[int, ...]:
    """Of each replica."""
    return tuple(_base(replica_id, some[replica_id]) if replica_id in some else 0 for some in logs)


def _horizon(logs: Sequence[Mapping[str, LogBounds]], replica_id: str) -> int:
    """From where on all replicas have kept entries. Where all trimmed alike everything counts."""
    found = [some[replica_id] for some in logs if replica_id in some]
    trimmed = {max(each.trimmed - _base(replica_id, each), 0) for each in found}
    return max(trimmed) if len(trimmed) > 1 else 0


# ------------------------------------------------------------------------------------- comparing


class _EntryComparison:
    """Entry by entry; keeps what it finds."""

    def __init__(self, replicas: RegionConnections, settle_s: float, limit: int) -> None:
        self._replicas = replicas
        self._settle_s = settle_s
        self._limit = limit
        self.findings: list[Difference] = []
        self.undecided = 0
        self.more = False
        """Something that differs was not looked at: there was enough."""

    def entries(self, places: Sequence[_Place], say: Progress) -> None:
        """Look at the places at which replicas may differ."""
        done = 0
        for part in _parts(places):
            if len(self.findings) >= self._limit:
                self.more = True
                return
            first = self._read(part)
            if any(first):
                heard = self._replicas.wait_for_each_other(self._settle_s)
                for place, before, now in zip(part, first, self._read(part), strict=True):
                    for position in sorted(before.keys() & now.keys()):
                        self._judge(place, before[position], now[position], heard)
            done += len(part)
            say(JobStep(f"{done} places looked at, {len(self.findings)} findings", done))

    def _read(self, part: Sequence[_Place]) -> list[dict[int, Entries]]:
        """For each place what differs, by position, without what was trimmed somewhere."""
        names = sorted({key for key, _, _ in part})
        logs = [dict(zip(names, each.logs(names), strict=True)) for each in self._replicas.all]
        clients = [each.client for each in self._replicas.all]
        found: list[dict[int, Entries]] = []
        for key, replica_id, (first, last) in part:
            own = [some[key] for some in logs]
            low = max(first, _horizon(own, replica_id))
            piece = Piece(key, replica_id, low, last + 1, _bases(own, replica_id))
            found.append({})
            for _, differing in differences(piece, clients):
                found[-1].update(differing)
        return found

    def _judge(
        self, place: _Place, first: Entries, second: Entries, heard: Sequence[Sequence[bool]]
    ) -> None:
        """The entries of all replicas at one position, at two readings.

        `heard[a][b]`: a has applied, before the second reading, what b had after the first.
        """
        everyone = range(len(second))
        writer = self._writer(place[1])
        for entry in sorted({id_of(each) for each in second if each is not None}):
            having = [number for number in everyone if _is(entry, second[number])]
            norm = writer if writer in having else having[0]
            other = [each for each in having if second[each] != second[norm]]
            # A key that was deleted may have the same ID again, and not everybody has heard of it.
            certain = [each for each in other if heard[each][norm] and heard[norm][each]]
            self.undecided += len(certain) < len(other)
            if certain:
                self._find("content", place, entry, certain)
            lacking = [each for each in everyone if not _is(entry, second[each], first[each])]
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

    def _find(self, kind: str, place: _Place, entry: str, regions: Sequence[int]) -> None:
        names = tuple(self._replicas.names[each] for each in regions)
        self.findings.append(Difference(kind, place[0], place[1], entry, names))


def _is(entry: str, *several: bytes | None) -> bool:
    """Whether one of several entries has this ID."""
    return any(each is not None and id_of(each) == entry for each in several)


def _parts(places: Sequence[_Place]) -> Iterator[list[_Place]]:
    """So many places at a time that all their entries fit in memory."""
    part: list[_Place] = []
    held = 0
    for key, replica_id, (low, high) in places:
        for first in range(low, high + 1, _COMPARED_AT_ONCE):
            last = min(first + _COMPARED_AT_ONCE - 1, high)
            part.append((key, replica_id, (first, last)))
            held += last - first + 1
            if held >= _COMPARED_AT_ONCE:
                yield part
                part, held = [], 0
    if part:
        yield part
