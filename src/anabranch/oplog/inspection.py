"""What the files of a directory contain, and what a start would do with them. Nothing is changed.

A :class:`Survey` observes what a start reads (:func:`anabranch.oplog.recovery.read_directory`), and
goes on where a start ends: it reports what is sound after damage, in files that a start ignores,
and in files that do not fit together. It applies no effects, so it needs only the memory of one
segment. Damage that only shows when effects are applied is not found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from enum import Enum
from itertools import pairwise
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from anabranch.effects import kinds
from anabranch.effects.codec import EffectFormatError
from anabranch.effects.write_set import places_of
from anabranch.oplog import snapshot as records
from anabranch.oplog.batch import Batch, effects_in
from anabranch.oplog.errors import AbsentFileError, CorruptLogError, NewerFormatError
from anabranch.oplog.file_kind import HEADER_BYTES, FileHeader, glance
from anabranch.oplog.manifest import MANIFEST, Absence, read_manifest
from anabranch.oplog.recovery import (
    TEMPORARY_SUFFIX,
    Cut,
    LogFileRead,
    Recovery,
    check_number,
    check_position,
    effects_of,
    read_directory,
)
from anabranch.oplog.segment import (
    SEGMENT_HEADER_BYTES,
    batches_behind,
    first_position_of,
    segment_header,
)
from anabranch.oplog.snapshot import Contents, position_of, records_in
from anabranch.oplog.storage import ReadFile, Storage
from anabranch.stream.frozen import KEPT

_LOCK: Final = "lock"


class Survey:
    """The survey of a directory, or of one file; complete when :meth:`walk` has ended."""

    def __init__(self, storage: Storage, only: str | None = None) -> None:
        """``only`` is the one file to read; the names of the others show its place in the log."""
        self.storage = storage
        self.only = only
        self._manifest, _ = read_manifest(storage)
        names = sorted(storage.names())
        self.snapshots = [
            SnapshotFacts(name, storage.shown(name), position)
            for name in names
            if (position := position_of(name)) is not None
        ]
        self.segments = [
            SegmentFacts(name, storage.shown(name), first)
            for name in names
            if (first := first_position_of(name)) is not None
        ]
        self.unfinished = [name for name in names if name.endswith(TEMPORARY_SUFFIX)]
        """Unfinished snapshots; a start removes them."""
        known = {facts.name for facts in self._all()}
        self.strangers = sorted(set(names) - known - {*self.unfinished, MANIFEST, _LOCK})
        """Files that a start ignores."""
        for older in self.snapshots[:-1]:
            older.is_superseded = True
        base = self.snapshots[-1].position if self.snapshots else 0
        for each, following in pairwise(self.segments):
            each.is_superseded = following.first <= base
        if only is not None and only not in known:
            self._adopt(only)
        self.absence: Absence | None = None
        """The file that is missing or too short, because of which a start is refused.

        None if no file is missing, or if a start is refused for another reason.
        """
        self.end = 0
        """The end of the log after a start; with damage, the end of the sound part before it."""
        self.bytes_done = 0
        self.bytes_total = 0
        for facts in self.read:
            facts.size = storage.size(facts.name)
            facts.version = self._header(facts.name).version
            self.bytes_total += facts.size
        self._shown = {facts.shown: facts for facts in self._all()}
        self._seen: list[SeenRecord | SeenBatch] = []  # by the observer, and not yielded yet
        self._due: Due | None = None  # None if unknown

    def _header(self, name: str) -> FileHeader:
        with closing(self.storage.open(name)) as file:
            return glance(file.read(HEADER_BYTES))

    def _adopt(self, name: str) -> None:
        """Read a file by the kind in its header, although a start ignores its name."""
        header = self._header(name)
        shown = self.storage.shown(name)
        if header.magic == glance(segment_header(0)).magic:
            self.segments.append(SegmentFacts(name, shown, header.position, is_superseded=True))
        else:
            self.snapshots.append(SnapshotFacts(name, shown, header.position, is_superseded=True))

    def _all(self) -> list[SnapshotFacts | SegmentFacts]:
        return [*self.snapshots, *self.segments]

    @property
    def read(self) -> Sequence[SnapshotFacts | SegmentFacts]:
        """The files that are read."""
        return [each for each in self._all() if self.only is None or each.name == self.only]

    @property
    def superseded(self) -> list[str]:
        """Files that no start needs any more."""
        return [each.name for each in self._all() if each.is_superseded]

    @property
    def base(self) -> SnapshotFacts | None:
        """The snapshot that a start reads."""
        return next((facts for facts in self.snapshots if not facts.is_superseded), None)

    @property
    def refused(self) -> SnapshotFacts | SegmentFacts | None:
        """The file because of which a start is refused, None if it is not."""
        return next((facts for facts in self.read if facts.fate is Fate.REFUSED), None)

    @property
    def torn(self) -> SegmentFacts | None:
        """The file whose end a start cuts off, None if there is none."""
        return next((facts for facts in self.segments if facts.fate is Fate.CUT), None)

    @property
    def is_sound(self) -> bool:
        """Whether no file has a problem."""
        return self.absence is None and all(facts.fate is Fate.SOUND for facts in self.read)

    # -- reading ------------------------------------------------------------------------------

    def walk(self) -> Iterator[SeenRecord | SeenBatch]:
        """Read all files, and yield every sound record and batch.

        Yields the files that no start reads, what a start reads, then the files behind damage.
        Raises :class:`OSError`.
        """
        for item in self._items():
            self.bytes_done += item.size if isinstance(item, SeenRecord) else item.batch.size
            yield item
        self.bytes_done = self.bytes_total

    def _items(self) -> Iterator[SeenRecord | SeenBatch]:
        read = self.read
        for facts in read:
            if facts.is_superseded:
                yield from self._alone(facts)
        if self.only is None:
            yield from self._start()
        for facts in read:
            if not facts.is_superseded and not facts.is_read:
                yield from self._alone(facts)
        for facts in read:
            if isinstance(facts, SegmentFacts) and facts.problem is not None:
                self._look_behind(facts)

    def _start(self) -> Iterator[SeenRecord | SeenBatch]:
        """Observe what a start reads."""
        self._due = {}
        report = Recovery()
        with self._judging(lambda: self._shown[report.reading]):
            try:
                for report in read_directory(self.storage, self):  # noqa: B007
                    yield from self._seen
                    self._seen.clear()
            except AbsentFileError as problem:
                self.absence = Absence(problem.name, problem.what)
            if report.cut is not None:
                cut_file = self._shown[report.cut.name]
                for facts in self.segments:
                    if facts is cut_file:
                        facts.judge(Fate.CUT, report.cut.offset, report.cut.why)
                    elif facts.name in report.left_out:
                        facts.judge(Fate.CUT, 0, "the log ends before it")
        self._due = None
        self.end = report.end

    def _alone(self, facts: SnapshotFacts | SegmentFacts) -> Iterator[SeenRecord | SeenBatch]:
        """Read a file by itself."""
        with self._judging(lambda: facts):
            if isinstance(facts, SnapshotFacts):
                contents = Contents(0)
                with closing(self.storage.open(facts.name)) as file:
                    yield from _records(file, facts, contents)
                check_position(facts.shown, contents, facts.position)
                return
            behind = [each.first for each in self.segments if each.first > facts.first]
            log_file = LogFileRead(self.storage, facts.name, facts.first, behind)
            if why := log_file.unfinished_header():
                facts.judge(Fate.CUT, 0, why)
                return
            facts.sound = SEGMENT_HEADER_BYTES
            for item in log_file.turns(self._manifest):
                if isinstance(item, Cut):
                    facts.judge(Fate.CUT, item.offset, item.why)
                else:
                    yield from self._take(facts, *item)

    @contextmanager
    def _judging(self, reading: Callable[[], SnapshotFacts | SegmentFacts]) -> Iterator[None]:
        """Note the damage of the file that is being read."""
        try:
            yield
        except CorruptLogError as problem:
            reading().judge(Fate.REFUSED, problem.offset, problem.what)
        except NewerFormatError as problem:
            reading().judge(Fate.REFUSED, problem.offset, str(problem), is_newer=True)

    def snapshot(self, file: ReadFile, name: str) -> Iterator[tuple[int, Contents]]:
        """Count the snapshot that a start reads."""
        facts = self._shown[name]
        assert isinstance(facts, SnapshotFacts)
        facts.is_read = True
        contents = Contents(0)
        for record in _records(file, facts, contents):
            self._seen.append(record)
            yield 0, contents
        self._due = facts.due
        yield 0, contents

    def turn(self, report: Recovery, at: int, batches: list[Batch]) -> Iterator[Recovery]:
        """Count a turn that a start reads."""
        facts = self._shown[report.reading]
        assert isinstance(facts, SegmentFacts)
        facts.is_read = True
        self._seen += self._take(facts, at, batches, report.snapshot_position)
        return iter(())

    def _take(
        self, facts: SegmentFacts, at: int, batches: list[Batch], base: int = 0
    ) -> list[SeenBatch]:
        """Count a turn, checked as recovery does; numbers before position ``base`` are skipped."""
        found: list[SeenBatch] = []
        due = self._due
        for batch in batches:
            position = facts.first + at - SEGMENT_HEADER_BYTES
            known = due if position >= base else None
            # With several regions a local batch has the number of its own region at the moment.
            if known is not None and not (batch.is_local and batch.region):
                check_number(batch, known.get(batch.replica_id, 1), facts.shown, at)
            effects = effects_of(batch, facts.shown, at)
            if known is None:
                pass
            elif any(isinstance(effect, kinds.JoinFullSync) for effect in effects):
                due = None  # it may contain more effects of other regions
            elif batch.numbered:
                due = {**known, batch.replica_id: batch.first + batch.numbered}
            ordinal = facts.batches + len(found) + 1
            found.append(SeenBatch(ordinal, at, position, batch, effects))
            at += batch.size
        self._due = due
        facts.count(found)
        return found

    def _look_behind(self, facts: SegmentFacts) -> None:
        """Count what is sound behind the sound part."""
        with closing(self.storage.open(facts.name)) as file:
            data = file.read()
        for _, batch in batches_behind(data, facts.sound):
            if batch is None:
                return
            facts.turns_behind += not batch.continues
            with suppress(EffectFormatError):
                facts.effects_behind += sum(map(width_of, effects_in(batch)))


def width_of(effect: kinds.Effect) -> int:
    """How many numbers an effect takes: a run takes one for each entry."""
    return len(effect.ids) if isinstance(effect, kinds.AddRun) else 1


def _records(file: ReadFile, facts: SnapshotFacts, contents: Contents) -> Iterator[SeenRecord]:
    """Count the records of a snapshot, and fill in its position."""
    database = at = 0
    key: bytes | None = None
    head: list[Any] = []
    try:
        for at, size, fields in records_in(file, facts.shown):
            if at == 0:
                contents.position = fields[0]
                continue
            kind = fields[0]
            if kind not in (records.PENDING, records.BLOCKS, records.ELEMENTS):
                keyed = kind in _TYPES
                database, key = (fields[1], fields[2]) if keyed else (0, None)
                head = fields[4] if kind == records.STREAM else []
            _count_record(fields, facts)
            yield SeenRecord(at, size, fields, database, key, head)
    except (LookupError, TypeError, ValueError) as problem:
        what = f"a record that makes no sense ({type(problem).__name__}: {problem})"
        raise CorruptLogError(facts.shown, at, what) from None


_TYPES: Final = {
    records.STRING: "string",
    records.LIST: "list",
    records.SET: "set",
    records.STREAM: "stream",
}


_UNCOUNTED: Final = (
    *(records.LAST_EFFECTS, records.LAST_POSITIONS, records.ADDITIONS, records.ELEMENTS),
)


def _count_record(fields: list[Any], facts: SnapshotFacts) -> None:
    facts.records += 1
    kind = fields[0]
    if kind in _TYPES or kind == records.SHARED_VALUE:
        _, database, _, deadline, data = fields
        facts.kinds[_TYPES.get(kind) or KEPT.read(data).small_kinds[0]] += 1
        facts.databases.add(database)
        facts.deadlines += deadline is not None
        if kind == records.STREAM:
            producers, groups = data[1], data[3]
            facts.idempotent_ids += sum(len(rows) for _, rows in producers[4])
            facts.groups += len(groups)
            facts.consumers += sum(len(group[4]) for group in groups)
    elif kind == records.BLOCKS:
        for block in fields[2]:
            ids, dead = block[2], block[6]
            slots = len(ids[1]) // 8 if isinstance(ids[0], int) else len(ids[0])
            facts.entries += slots - len(dead)
    elif kind == records.PENDING:
        facts.pending += len(fields[4])
    elif kind == records.USER:
        facts.users += 1
    elif kind == records.LIBRARY:
        facts.libraries += 1
    elif kind == records.DELETED:
        facts.kinds["stream"] += sum(map(len, fields[2:]))
        facts.databases.add(fields[1])
    elif kind == records.POLICIES:
        facts.policies += len(fields[2])
    elif kind == records.SCHEDULED:
        facts.scheduled += len(fields[2])
    elif kind in _UNCOUNTED:
        pass
    elif kind == records.REPLICA:
        facts.region, facts.epoch, facts.next_number, facts.wall_ms = fields[1:5]
        regions = fields[6] if len(fields) > 6 else None
        if regions is None:
            facts.due = {0: facts.next_number}
        else:
            facts.due = {replica_id: number + 1 for replica_id, number in regions[1]}
    else:
        raise ValueError(f"unknown kind of record: {kind!r}")


# -- results of a survey of the files of a log: plain records, one for each file --------------
#
# :mod:`anabranch.oplog.inspection` fills them.


Due = dict[int, int]
"""By replica ID, the number of the next effect; 1 before the first one."""


class Fate(Enum):
    """What the next start does with a file."""

    SOUND = "sound"
    CUT = "cut"
    """It has a torn end, which the start cuts off, or lies behind one."""
    REFUSED = "refused"
    """It is damaged, or does not continue the log: the server does not start."""
    UNREAD = "unread"
    """It is damaged, but no start reads it."""


class SeenBatch(NamedTuple):
    """A sound batch of a whole turn."""

    ordinal: int
    """Its number within the file, from 1."""
    offset: int
    position: int
    batch: Batch
    effects: list[kinds.Effect]


class SeenRecord(NamedTuple):
    """A sound record of a snapshot."""

    offset: int
    size: int
    fields: list[Any]
    """The record type first."""
    database: int
    key: bytes | None
    """The key to whose value the record belongs; None for other records."""
    head: list[Any]
    """The figures of the stream to which the record belongs; empty for other records."""


class _Judged(Struct, kw_only=True):
    """What is said of any file."""

    size: int = 0
    version: int = 0
    is_read: bool = False
    """A start reads the file, and its sound part was counted."""
    is_newer: bool = False
    """The file is not damaged: a newer server wrote it."""
    is_superseded: bool = False
    """A snapshot has made it superfluous: no start reads it."""
    problem: tuple[int, str] | None = None
    """``(offset, why)`` of the first problem for a start; None without problems."""
    fate: Fate = Fate.SOUND
    """What the next start of a server does with the file."""
    sound: int = 0
    """Bytes from the beginning of a file of the log that are the header and whole sound turns."""

    def judge(self, fate: Fate, offset: int, what: str, *, is_newer: bool = False) -> None:
        """Note a problem, unless there is one already."""
        if self.problem is None:
            self.problem = offset, what
            self.fate = Fate.UNREAD if self.is_superseded else fate
            self.is_newer = is_newer
            self.is_read |= offset > 0
            self.sound = self.sound or min(offset, SEGMENT_HEADER_BYTES)


class SegmentFacts(_Judged):
    """What was found in one file of the log."""

    name: str
    shown: str
    first: int
    turns: int = 0
    batches: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Effects by kind; every entry of an :class:`kinds.AddRun` counts as an Add."""
    local: int = 0
    """Effects without number; all others have one."""
    first_number: int | None = None
    next_number: int | None = None
    region: int = 0
    epoch: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None
    keys: set[tuple[int, bytes]] = field(default_factory=set)
    turns_behind: int = 0
    """Count of sound turns behind the damage."""
    effects_behind: int = 0

    @property
    def end(self) -> int:
        """The position behind the last sound turn."""
        return self.first + max(self.sound - SEGMENT_HEADER_BYTES, 0)

    @property
    def effects(self) -> int:
        """All effects of sound turns."""
        return sum(self.kinds.values())

    def count(self, turn: list[SeenBatch]) -> None:
        """Count a sound turn."""
        self.turns += 1
        self.batches += len(turn)
        for seen in turn:
            batch = seen.batch
            self.sound = seen.offset + batch.size
            for effect in seen.effects:
                width = width_of(effect)
                kind = type(effect)
                name = (kinds.Add if kind is kinds.AddRun else kind).__name__
                self.kinds[name] += width
                self.local += width * kind.local
                self.keys.update(places_of(effect))
            if self.first_number is None:
                self.first_number = batch.first
            self.next_number = batch.first + batch.numbered
            self.region, self.epoch = batch.region, batch.epoch
            wall_ms = batch.wall_ms
            self.earliest_ms = (
                wall_ms if self.earliest_ms is None else min(self.earliest_ms, wall_ms)
            )
            self.latest_ms = wall_ms if self.latest_ms is None else max(self.latest_ms, wall_ms)
        self.size = max(self.size, self.sound)  # it may have grown


class SnapshotFacts(_Judged):
    """What was found in one snapshot."""

    name: str
    shown: str
    position: int
    records: int = 0
    region: int = 0
    epoch: int = 0
    next_number: int = 1
    due: Due = field(default_factory=dict)
    wall_ms: int | None = None
    """When it was taken."""
    kinds: Counter[str] = field(default_factory=Counter)
    """Keys by type."""
    databases: set[int] = field(default_factory=set)
    deadlines: int = 0
    entries: int = 0
    groups: int = 0
    consumers: int = 0
    pending: int = 0
    idempotent_ids: int = 0
    users: int = 0
    libraries: int = 0
    policies: int = 0
    scheduled: int = 0

    @property
    def keys(self) -> int:
        """The count of keys in all databases."""
        return sum(self.kinds.values())
