"""Compares the replicas of all regions, and reports proved differences only.

Entries that are still on their way are no difference. Only entries that every region must have are
compared: those up to the *cut*, which is the least progress of the replicas, or the end at the
start if the regions catch up in time; and only those above the latest trimming of any region. Both
are positions, which are the same in all regions.
All replicas are read side by side (`anabranch.spark.reading.comparison`), and the positions at
which they differ once more, entry by entry.

A deletion may be on its way as well. So an entry that one replica has and another lacks is reported
only if the first still has it after it has applied everything that the other had applied when it
lacked the entry. Tokens tell that: a token is the version vector of a region, and a region that has
waited for it (AB.WAITFOR) has applied the same effects. Differences that cannot be proved, because
regions are disconnected, are counted as undecided.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError
from anabranch.spark.connection.client import ServerClient, connect, facts_of
from anabranch.spark.jobs.signatures import AuditJob, taking
from anabranch.spark.options import OptionError, ServerOptions
from anabranch.spark.reading.comparison import Entries, Piece, differences, id_of
from anabranch.spark.reading.offsets import LogBounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STREAMS_AT_ONCE: Final = 500  # asked for in one command
_LOOKED_AT_ONCE: Final = 20_000  # positions that differ, whose entries are held meanwhile


class ReplicaError(AnabranchError):
    """The regions cannot be compared; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class RegionConnection:
    """The connection to one region's server."""

    name: str
    number: int
    """The region's number; 0 on a server without regions."""
    client: ServerClient

    def logs(self, streams: Sequence[str]) -> list[Mapping[str, LogBounds]]:
        """For each stream its logs by replica ID, none where it does not exist.

        Raises `ServerRefused`.
        """
        found: list[Mapping[str, LogBounds]] = []
        for at in range(0, len(streams), _STREAMS_AT_ONCE):
            for logs in self.client.logs(streams[at : at + _STREAMS_AT_ONCE]):
                is_there = logs and not any(log.is_former for log in logs.values())
                found.append(logs if logs and is_there else {})
        return found


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


_Logs = Sequence[Mapping[str, LogBounds]]
"""The logs of one region: by stream, then by replica ID."""


@taking(AuditJob)
def audit(_spark: SparkSession | None, job: AuditJob) -> Audited:
    """Compare all regions' replicas of streams; this process reads them.

    Raises `ReplicaError`, `ServerUnreachable`, `ServerRefused` and `OptionError`.
    """
    with _connected(job.servers) as regions:
        found = (each.client.streams(job.pattern or "*") for each in regions)
        names = list(dict.fromkeys(job.streams)) or sorted(set().union(*found))
        region_names = tuple(each.name for each in regions)
        before = [each.logs(names) for each in regions]
        job.progress(f"{len(names)} streams in {', '.join(region_names)}")
        heard = _wait_for_each_other(regions, job.settle_s)
        now = [each.logs(names) for each in regions]
        pieces, positions = _plan(names, before, now, heard)
        present = sum(
            log.next - log.first for some in now for logs in some for log in logs.values()
        )
        comparison = _EntryComparison(regions, job)
        for piece in pieces:
            comparison.read(piece)
        comparison.look_again()
    findings = comparison.findings
    return Audited(
        converged=not findings,
        regions=region_names,
        streams=len(names),
        entries=tuple(comparison.counts),
        not_compared=present - positions,
        undecided=comparison.undecided,
        findings=tuple(findings[: job.limit]),
        more=comparison.more or len(findings) > job.limit,
    )


# ---------------------------------------------------------------------------------------- regions


@contextmanager
def _connected(servers: Mapping[str, ServerOptions]) -> Iterator[list[RegionConnection]]:
    """Connections to servers, which have names.

    Raises `OptionError`, `ReplicaError`, `ServerRefused` and `ServerUnreachable`.
    """
    with ExitStack() as stack:
        found: list[RegionConnection] = []
        for name, options in servers.items():
            client = stack.enter_context(connect(options))
            if not client.has_bulk:
                raise ReplicaError(f"the server at {client.address} is no Anabranch server")
            number = facts_of(client.command("AB.INFO", repeatable=True))["region"]
            same = [each.name for each in found if number and each.number == number]
            if same:
                raise OptionError(
                    f"{same[0]}, {name} are the same region: give the address of each region once"
                )
            found.append(RegionConnection(name, number, client))
        yield found


def _wait_for_each_other(regions: Sequence[RegionConnection], seconds: float) -> list[list[bool]]:
    """Wait until all regions have applied what each of them has now, at most `seconds`.

    ``result[a][b]``: whether a has applied everything that b has.
    """
    tokens = [each.client.command("AB.TOKEN", repeatable=True) for each in regions]
    deadline = time.monotonic() + seconds

    def has(region: RegionConnection, token: bytes) -> bool:
        left_ms = max(round((deadline - time.monotonic()) * 1000), 1)  # 0 would mean no limit
        words = ("AB.WAITFOR", token, left_ms)
        return region.client.command(*words, repeatable=True, wait_ms=left_ms) is not None

    return [[has(each, token) for token in tokens] for each in regions]


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
            bases = tuple(
                _base(replica_id, some[replica_id]) if replica_id in some else 0 for some in logs
            )
            low = _horizon(logs, replica_id, bases)
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


def _horizon(logs: _Logs, replica_id: str, bases: Sequence[int]) -> int:
    """From where on all replicas have kept entries. Where all trimmed alike everything counts."""
    trimmed = {
        max(some[replica_id].trimmed - base, 0)
        for some, base in zip(logs, bases, strict=True)
        if replica_id in some
    }
    return max(trimmed) if len(trimmed) > 1 else 0


# ------------------------------------------------------------------------------------- comparing


class _EntryComparison:
    """Reads replicas side by side, looks at what differs once more, and keeps what it finds."""

    def __init__(self, regions: Sequence[RegionConnection], job: AuditJob) -> None:
        self._regions = regions
        self._job = job
        self._clients = [each.client for each in regions]
        self._differing: list[tuple[Piece, dict[int, Entries]]] = []
        self.counts = [0] * len(regions)
        """Entries of each region."""
        self.findings: list[Difference] = []
        self.undecided = 0
        self.more = False
        """Something that differs was not looked at again: there was enough."""

    def read(self, piece: Piece) -> None:
        """Compare a part of a log, and look again whenever enough entries differ."""
        for counts, differing in differences(piece, self._clients):
            self.counts = [sum(each) for each in zip(self.counts, counts, strict=True)]
            if differing:
                self._differing.append((piece, differing))
                if sum(len(each) for _, each in self._differing) >= _LOOKED_AT_ONCE:
                    self.look_again()

    def look_again(self) -> None:
        """Read what differs once more, when all have heard of it, without what was trimmed."""
        places, self._differing = self._differing, []
        if places and len(self.findings) >= self._job.limit:
            self.more = True
        elif places:
            heard = _wait_for_each_other(self._regions, self._job.settle_s)
            names = sorted({piece.key for piece, _ in places})
            logs = [dict(zip(names, each.logs(names), strict=True)) for each in self._regions]
            for piece, before in places:
                own = [some[piece.key] for some in logs]
                low = max(min(before), _horizon(own, piece.replica_id, piece.bases))
                again = replace(piece, first=low, stop=max(before) + 1)
                for _, now in differences(again, self._clients):
                    for position in sorted(before.keys() & now.keys()):
                        self._judge(piece, before[position], now[position], heard)
        self._job.progress(f"{sum(self.counts)} entries compared, {len(self.findings)} findings")

    def _judge(
        self, piece: Piece, first: Entries, second: Entries, heard: Sequence[Sequence[bool]]
    ) -> None:
        """The entries of all replicas at one position, at two readings.

        `heard[a][b]`: a has applied, before the second reading, what b had after the first.
        """
        everyone = range(len(second))
        writer = self._writer(piece.replica_id)
        for entry in sorted({id_of(each) for each in second if each is not None}):
            having = [number for number in everyone if _is(entry, second[number])]
            norm = writer if writer in having else having[0]
            other = [each for each in having if second[each] != second[norm]]
            # A key that was deleted may have the same ID again, and not everybody has heard of it.
            certain = [each for each in other if heard[each][norm] and heard[norm][each]]
            self.undecided += len(certain) < len(other)
            if certain:
                self._find("content", piece, entry, certain)
            lacking = [each for each in everyone if not _is(entry, second[each], first[each])]
            proved = [each for each in lacking if any(heard[knower][each] for knower in having)]
            self.undecided += len(proved) < len(lacking)
            if writer in proved:
                self._find("extra", piece, entry, having)
            elif proved:
                self._find("missing", piece, entry, proved)

    def _writer(self, replica_id: str) -> int:
        """The replica of the region that wrote a log; the first, where there are no regions."""
        number = int(replica_id.partition(".")[0] or 0)
        numbers = [each.number for each in self._regions]
        return numbers.index(number) if number in numbers else -1

    def _find(self, kind: str, piece: Piece, entry: str, regions: Sequence[int]) -> None:
        names = tuple(self._regions[each].name for each in regions)
        self.findings.append(Difference(kind, piece.key, piece.replica_id, entry, names))


def _is(entry: str, *several: bytes | None) -> bool:
    """Whether one of several entries has this ID."""
    return any(each is not None and id_of(each) == entry for each in several)
