"""Compares the replicas of all regions, and reports proved differences only.

Entries that are still on their way are no difference. Only entries that every region must have are
compared: those up to the *cut*, which is the least progress of the replicas, or the end at the
start if the regions catch up in time; and only those above the latest trimming of any region.
Digests of spans of time are compared (`anabranch.spark.digests`), then only spans that differ,
entry by entry.

A deletion may be on its way as well. So an entry that one replica has and another lacks is reported
only if the first still has it after it has applied everything that the other had applied when it
lacked the entry; see `anabranch.spark.replicas`. Differences that cannot be proved, because regions
are disconnected, are counted as undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.errors import AnabranchError
from anabranch.spark.digests import Bucket, Id, Piece, Place, digests, entries_between, tasks_of
from anabranch.spark.options import ReadOptions
from anabranch.spark.replicas import Replica, Replicas
from anabranch.spark.standings import (
    ITSELF,
    NOWHERE,
    Log,
    Standing,
    group_state,
    has_lasted,
    lacking_of,
    standings,
    things_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ALONE_MAX", "Audited", "Finding", "TooLarge", "audit"]

ALONE_MAX: Final = 5_000_000
"""Entries of all regions together that are compared without Spark in a few seconds."""


_BUCKET_ENTRIES: Final = 1_000
_BUCKETS_MAX: Final = 100_000  # of all streams together: so many rows the driver can hold
_COMPARED_AT_ONCE: Final = 200_000  # entries of all replicas that the driver holds
_TASKS_PER_SHUFFLE_PARTITION: Final = 2
_TASK_POSITIONS_MIN: Final = 20_000


class TooLarge(AnabranchError):
    """There are more entries to compare than is allowed without a session."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference between regions."""

    kind: str
    """missing
        regions have not what the region that wrote it has
    extra
        regions have an entry that the region which wrote it has not
    content
        regions have other fields under the same ID than the region that wrote it, or than the
        first that has it
    group missing, stream missing
        regions have not the group, or the stream, that another has
    group differs
        regions know other creations or acknowledgements than the first, though they have applied
        the same
    """
    stream: str
    origin: str
    """Who wrote the entry: the region's number, with the epoch if that is not the first."""
    what: str
    """ID of the entry, or name of the group."""
    regions: tuple[str, ...]


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
    """Entries of all regions that are under way or below the latest trimming."""
    buckets: int
    buckets_differing: int
    undecided: int
    """Differences that may be under way: the regions did not catch up with each other in time."""
    findings: tuple[Finding, ...]
    more: bool
    """There are more findings than the limit."""


Progress = Callable[[str], None]
_Differing = list[tuple[Place, int]]


def audit(
    spark: SparkSession | None,
    *,
    alone_max: int | None = None,
    region_urls: Mapping[str, str] | None = None,
    streams: Sequence[str] = (),
    pattern: str | None = None,
    bucket_ms: int | None = None,
    settle_s: float = 5.0,
    limit: int = 1_000,
    progress: Progress | None = None,
    options: Mapping[str, str] | None = None,
) -> Audited:
    """Compare all regions' replicas of streams.

    Replicas are read by `spark`, or without it by threads of this process; if that would be more
    than `alone_max` entries, `TooLarge` is raised.
    `region_urls`: name to address, as executors reach it; without it the regions are found by
    asking the server of the option ``url``. `streams`: keys; all that match `pattern`, or all, if
    none is named. `bucket_ms`: span of a digest; by default such that it has about a thousand
    entries. `settle_s`: how long the regions may take to catch up with each other. `limit`: no more
    findings than so many. `options` are connection options of a read, such as password. Raises
    `ReplicaError`, `ServerUnreachable`, `ServerRefused`, `OptionError` and what Spark raises.
    """
    server = ReadOptions.parse({**(options or {}), "subscribePattern": "*"}).server
    say = progress or (lambda _: None)
    with Replicas.connected(server, region_urls) as replicas:
        names = replicas.streams(streams, pattern)
        before = [standings(each, names) for each in replicas.all]
        say(f"{len(names)} streams in {', '.join(replicas.names)}")
        heard = replicas.wait_until_applied(replicas.tokens(), settle_s)
        now = [standings(each, names) for each in replicas.all]
        pieces = _plan(names, before, now, heard, bucket_ms)
        positions = sum(each.stop - each.first for each in pieces)
        servers = [each.options for each in replicas.all]
        if spark is None and alone_max is not None and positions > alone_max:
            raise TooLarge(f"{positions} entries are to be compared")
        partitions = spark.conf.get("spark.sql.shuffle.partitions", None) if spark else None
        most = int(partitions or "4") * _TASKS_PER_SHUFFLE_PARTITION
        tasks = tasks_of(pieces, min(most, positions // _TASK_POSITIONS_MIN + 1))
        found, left_out = digests(spark, servers, tasks)
        places = set().union(*found)
        differing = sorted(each for each in places if len(_kinds(found, each)) > 1)
        compared = tuple(sum(each.entries for each in some.values()) for some in found)
        say(f"{sum(compared)} entries in {len(places)} spans, {len(differing)} of them differ")
        comparison = _Comparison(replicas, names, pieces, settle_s, limit)
        comparison.entries(found, differing, say)
        comparison.groups(before, heard)
    findings = comparison.findings
    return Audited(
        converged=not findings,
        regions=replicas.names,
        streams=len(names),
        entries=compared,
        not_compared=left_out,
        buckets=len(places),
        buckets_differing=len(differing),
        undecided=comparison.undecided,
        findings=tuple(findings[:limit]),
        more=comparison.more or len(findings) > limit,
    )


def _kinds(
    found: Sequence[Mapping[tuple[Place, int], Bucket]], place: tuple[Place, int]
) -> set[tuple[int, int, int]]:
    return {some[place].digest if place in some else (0, 0, 0) for some in found}


# ------------------------------------------------------------------------------------ what counts


def _plan(
    names: Sequence[str],
    before: Sequence[Sequence[Standing | None]],
    now: Sequence[Sequence[Standing | None]],
    heard: Sequence[Sequence[bool]],
    bucket_ms: int | None,
) -> list[Piece]:
    """The logs to read, with the IDs that count and the width of their buckets."""
    # What everybody had heard of when the first standings were taken is complete by now.
    complete = [all(row[each] for row in heard) for each in range(len(before))]
    logs: dict[Place, list[Log | None]] = {}
    for stream in range(len(names)):
        standing = [some[stream] for some in now]
        for origin in sorted({each for some in standing if some is not None for each in some.logs}):
            logs[stream, origin] = [
                None if some is None else some.logs.get(origin) for some in standing
            ]
    width_of = _widths(names, logs, bucket_ms)
    pieces = []
    for (stream, origin), replicas in logs.items():
        starts = [some[stream] or Standing() for some in before]
        newest = [each.newest(origin) for each in starts]
        high = max(
            min(newest),
            *(each for each, whole in zip(newest, complete, strict=True) if whole),
            NOWHERE,
        )
        low = _horizon([each for each in replicas if each is not None])
        pieces += [
            Piece(
                *(number, stream, names[stream], origin, log.first, log.next),
                *(low, high, width_of[stream]),
            )
            for number, log in enumerate(replicas)
            if log is not None and log.first < log.next
        ]
    return pieces


def _horizon(logs: Sequence[Log]) -> Id:
    """From where on all replicas have kept entries. Where all trimmed alike everything counts."""
    if len({each.trimmed for each in logs}) < 2:
        return NOWHERE
    return max(each.horizon for each in logs if each.trimmed)


def _widths(
    names: Sequence[str], logs: Mapping[Place, Sequence[Log | None]], bucket_ms: int | None
) -> dict[int, int]:
    """For each stream how many milliseconds a bucket has."""
    if bucket_ms is not None:
        return dict.fromkeys(range(len(names)), bucket_ms)
    spans: dict[int, tuple[int, int, int]] = {}
    for (stream, _), some in logs.items():
        for log in some:
            if log is not None and log.first_id is not None:
                least, most, count = spans.get(stream, (log.first_id[0], 0, 0))
                spans[stream] = (
                    min(least, log.first_id[0]),
                    max(most, log.newest[0]),
                    count + log.next - log.first,
                )
    total = sum(count for *_, count in spans.values())
    entries = max(_BUCKET_ENTRIES, total // _BUCKETS_MAX)
    return {
        stream: max((most - least) * entries // count, 1)
        for stream, (least, most, count) in spans.items()
    }


# ------------------------------------------------------------------------------------- comparing


class _Comparison:
    """Entry by entry, and group by group; keeps what it finds."""

    def __init__(
        self,
        replicas: Replicas,
        names: Sequence[str],
        pieces: Sequence[Piece],
        settle_s: float,
        limit: int,
    ) -> None:
        self._replicas = replicas
        self._names = names
        self._bounds = {(each.stream, each.origin): (each.low, each.high) for each in pieces}
        self._settle_s = settle_s
        self._limit = limit
        self.findings: list[Finding] = []
        self.undecided = 0
        self.more = False
        """Something that differs was not looked at: there was enough."""

    # -------------------------------------------------------------------------------- the entries

    def entries(
        self,
        found: Sequence[Mapping[tuple[Place, int], Bucket]],
        differing: _Differing,
        say: Progress,
    ) -> None:
        """Look into the buckets that differ."""
        done = 0
        for part in _parts(found, differing):
            if len(self.findings) >= self._limit:
                self.more = True
                return
            self._entries(found, part)
            done += len(part)
            say(f"{done} of {len(differing)} spans compared, {len(self.findings)} findings")

    def _entries(
        self, found: Sequence[Mapping[tuple[Place, int], Bucket]], part: _Differing
    ) -> None:
        first = self._read(found, part)
        suspects = [
            each for each in part if any(first[each][0] != other for other in first[each][1:])
        ]
        if not suspects:
            return
        heard = self._replicas.wait_until_applied(self._replicas.tokens(), self._settle_s)
        second = self._read(found, suspects)
        streams = sorted({stream for (stream, _), _ in suspects})
        names = [self._names[each] for each in streams]
        at = [standings(each, names) for each in self._replicas.all]
        for place, bucket in suspects:
            logs = [
                log
                for some in at
                if (standing := some[streams.index(place[0])]) is not None
                and (log := standing.logs.get(place[1])) is not None
            ]
            horizon = _horizon(logs) if logs else NOWHERE
            self._judge(place, first[place, bucket], second[place, bucket], horizon, heard)

    def _read(
        self, found: Sequence[Mapping[tuple[Place, int], Bucket]], part: _Differing
    ) -> dict[tuple[Place, int], list[dict[Id, bytes]]]:
        """For each bucket what each replica has in it."""
        return {
            each: [
                self._bucket(replica, each[0], some.get(each))
                for replica, some in zip(self._replicas.all, found, strict=True)
            ]
            for each in part
        }

    def _bucket(self, replica: Replica, place: Place, bucket: Bucket | None) -> dict[Id, bytes]:
        if bucket is None:
            return {}
        stream, origin = place
        return entries_between(
            *(replica.client, self._names[stream], origin, bucket.first, bucket.last),
            *self._bounds[place],
        )

    def _judge(
        self,
        place: Place,
        first: Sequence[Mapping[Id, bytes]],
        second: Sequence[Mapping[Id, bytes]],
        horizon: Id,
        heard: Sequence[Sequence[bool]],
    ) -> None:
        """`heard[a][b]`: a has applied, before the second reading, what b had after the first."""
        everyone = range(len(second))
        for entry in sorted(set().union(*second)):
            if entry < horizon:
                continue
            having = [each for each in everyone if entry in second[each]]
            writer = self._writer(place[1])
            norm = writer if writer in having else having[0]
            other = [each for each in having if second[each][entry] != second[norm][entry]]
            # A key that was deleted may have the same ID again, and not everybody has heard of it.
            certain = [each for each in other if heard[each][norm] and heard[norm][each]]
            self.undecided += len(certain) < len(other)
            if certain:
                self._add_finding("content", place, entry, certain)
            lacking = [
                each for each in everyone if entry not in second[each] and entry not in first[each]
            ]
            proved = [each for each in lacking if any(heard[knower][each] for knower in having)]
            self.undecided += len(proved) < len(lacking)
            if not proved:
                continue
            if writer in proved:
                self._add_finding("extra", place, entry, having)
            else:
                self._add_finding("missing", place, entry, proved)

    def _writer(self, origin: str) -> int:
        """The replica of the region that wrote a log; the first, where there are no regions."""
        number = int(origin.partition(".")[0] or 0)
        numbers = [each.number for each in self._replicas.all]
        return numbers.index(number) if number in numbers else -1

    def _add_finding(self, kind: str, place: Place, entry: Id, regions: Sequence[int]) -> None:
        stream, origin = place
        self._find(kind, self._names[stream], origin, f"{entry[0]}-{entry[1]}", regions)

    def _find(self, kind: str, stream: str, origin: str, what: str, regions: Sequence[int]) -> None:
        names = self._replicas.names
        self.findings.append(
            Finding(kind, stream, origin, what, tuple(names[each] for each in regions))
        )

    # --------------------------------------------------------------------------------- the groups

    def groups(
        self, before: Sequence[Sequence[Standing | None]], heard: Sequence[Sequence[bool]]
    ) -> None:
        """Compare which streams and groups there are, and what is known of them."""
        replicas = self._replicas
        first = [standings(each, self._names) for each in replicas.all]
        heard_later = replicas.wait_until_applied(replicas.tokens(), self._settle_s)
        second = [standings(each, self._names) for each in replicas.all]
        told = {each.stream for each in self.findings}
        for stream, name in enumerate(self._names):
            things = [
                [things_of(some[stream]) for some in when] for when in (before, first, second)
            ]
            for thing in sorted(set().union(*things[2])):
                if thing == ITSELF and name in told:
                    continue  # its entries are missing: that says it
                shows = [[thing in each for each in when] for when in things]
                shows[0] = [
                    has_lasted(thing, was[stream], now[stream])
                    for was, now in zip(before, second, strict=True)
                ]
                lacking = lacking_of(shows, heard, heard_later)
                if lacking is None:
                    self.undecided += 1
                elif lacking:
                    kind = "stream missing" if thing == ITSELF else "group missing"
                    self._find(kind, name, "", thing[1], lacking)
            if any(some[stream] is not None and some[stream].groups for some in second):  # type: ignore[union-attr]
                self._group_states(name)

    def _group_states(self, stream: str) -> None:
        """Who has applied the same must know the same."""
        told = [group_state(each, stream) for each in self._replicas.all]
        everyone = range(1, len(told))
        for group, state in sorted(told[0][1].items()):
            other = [
                each
                for each in everyone
                if told[each][0] == told[0][0] and told[each][1].get(group, state) != state
            ]
            if other:
                self._find("group differs", stream, "", group, other)


def _parts(
    found: Sequence[Mapping[tuple[Place, int], Bucket]], differing: _Differing
) -> Iterator[_Differing]:
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
