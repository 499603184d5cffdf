"""What the files of a directory contain, and what a start would do with them. Nothing is changed.

A :class:`Survey` verifies everything and continues where recovery stops: it reports what is sound
after damage, in files that a start ignores, and in files that do not fit together. It applies no
effects, so it needs only the memory of one segment. What it reports of a start must be what
:func:`anabranch.oplog.recovery.recover` does: ``tests/unit/oplog/test_inspection.py`` compares the
two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from enum import Enum
from itertools import pairwise
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from anabranch.effects import kinds
from anabranch.effects.codec import EffectFormatError
from anabranch.effects.write_set import places_of
from anabranch.oplog import snapshot as records
from anabranch.oplog.batch import Batch, effects_in
from anabranch.oplog.errors import CorruptLogError, NewerFormatError
from anabranch.oplog.file_kind import HEADER_BYTES, glance
from anabranch.oplog.manifest import MANIFEST, Absence, read_manifest
from anabranch.oplog.recovery import TEMPORARY_SUFFIX
from anabranch.oplog.segment import (
    DISUSED,
    SEGMENT_HEADER_BYTES,
    Damage,
    batches_behind,
    check_segment_header,
    first_position_of,
    is_disused,
    is_noted,
    is_unfinished,
    segment_header,
    turns_in,
)
from anabranch.oplog.snapshot import position_of, records_in
from anabranch.oplog.storage import ReadFile, Storage
from anabranch.stream.frozen import KEPT

_LOCK: Final = "lock"


class Survey:
    """The survey of a directory, or of one file; complete when :meth:`walk` has ended."""

    def __init__(self, storage: Storage, only: str | None = None) -> None:
        """``only`` is the one file to read; the names of the others show its place in the log."""
        self.storage = storage
        self.only = only
        self._manifest, self._without_manifest = read_manifest(storage)
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
        self.bytes_done = 0
        self.bytes_total = 0
        for facts in self.read:
            facts.size = storage.size(facts.name)
            self.bytes_total += facts.size

    def _adopt(self, name: str) -> None:
        """Read a file by the kind in its header, although a start ignores its name."""
        with closing(self.storage.open(name)) as file:
            header = glance(file.read(HEADER_BYTES))
        shown = self.storage.shown(name)
        if header.magic == glance(segment_header(0)).magic:
            self.segments.append(SegmentFacts(name, shown, header.position, is_superseded=True))
        else:
            self.snapshots.append(SnapshotFacts(name, shown, header.position, is_superseded=True))

    def _all(self) -> list[SnapshotFacts | SegmentFacts]:
        return [*self.snapshots, *self.segments]

    @property
    def read(self) -> Sequence[SnapshotFacts | SegmentFacts]:
        """The files that are read, in this order."""
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

    @property
    def absence(self) -> Absence | None:
        """The file that is missing or too short, because of which a start is refused.

        None if no file is missing, or if a start is refused for another reason.
        """
        if self.only is not None or self.refused is not None:
            return None
        if self._without_manifest is not None:
            return self._without_manifest
        firsts = [each.first for each in self.segments if each.sound and not each.misplaced]
        return self._manifest.absence(
            self.storage.boot,
            end=self.end,
            newest=max(firsts, default=None),
            snapshot=self.base.position if self.base is not None else None,
            names=[each.name for each in self._all()],
            cut=self._cut(),
        )

    def _cut(self) -> Absence | None:
        torn = self.torn
        return None if torn is None or torn.problem is None else Absence(torn.name, torn.problem[1])

    @property
    def end(self) -> int:
        """The end of the log after a start; with damage, the end of the sound part before it."""
        end = self.base.position if self.base is not None else 0
        for facts in self.segments:
            if facts.is_superseded:
                continue
            if facts.problem is None:
                end = max(end, facts.end)
                continue
            return end if facts.misplaced or not facts.sound else max(end, facts.end)
        return end

    # -- reading ------------------------------------------------------------------------------

    def walk(
        self,
    ) -> Iterator[tuple[SnapshotFacts, SeenRecord] | tuple[SegmentFacts, SeenBatch]]:
        """Read all files, and yield every sound record and batch.

        Raises :class:`OSError`. Yields file after file, snapshots first.
        """
        before = 0
        for facts in self.read:
            if isinstance(facts, SnapshotFacts):
                for record in self._walk_snapshot(facts):
                    self.bytes_done = before + record.offset + record.size
                    yield facts, record
            else:
                for batch in self._walk_segment(facts):
                    self.bytes_done = before + batch.offset + batch.batch.size
                    yield facts, batch
            before += facts.size
            self.bytes_done = before

    def _later(self, facts: SegmentFacts) -> list[str]:
        """The names of the segments behind one."""
        at = self.segments.index(facts) + 1
        return [each.name for each in self.segments[at:] if each.first > facts.first]

    def _is_torn(self, facts: SegmentFacts, data: bytes) -> bool:
        """Whether the damage is an unfinished end, which a start cuts off."""
        damage = facts.damage
        if damage is None or damage.is_newer or facts.is_superseded:
            return False
        later = map(self._contents, self._later(facts))
        return is_unfinished(data, facts.first, damage, later)

    def _contents(self, name: str) -> bytes:
        with closing(self.storage.open(name)) as file:
            return file.read()

    def _walk_segment(self, facts: SegmentFacts) -> Iterator[SeenBatch]:
        data = self._contents(facts.name)
        facts.size = len(data)
        facts.version = glance(data).version
        due = None if self.only is not None else self._place(facts, data)
        try:
            check_segment_header(data, facts.shown, facts.first)
        except CorruptLogError as problem:
            facts.damage = Damage(problem.offset, problem.what, 0)
            if not facts.misplaced:
                facts.is_torn = self._is_torn(facts, data)
            self._look_behind(data, facts)
            return
        except NewerFormatError as problem:
            facts.damage = Damage(0, str(problem), 0)
            facts.is_newer = True
            return
        facts.sound = SEGMENT_HEADER_BYTES
        base = self.base
        for item in turns_in(data):
            if isinstance(item, Damage):
                facts.damage = item
                facts.is_newer = item.is_newer
                if not facts.misplaced:
                    facts.is_torn = self._is_torn(facts, data)
                break
            turn = _seen(item[0], item[1], facts, due, base.position if base is not None else 0)
            if isinstance(turn, Damage):
                facts.damage = turn
                break
            _count_turn(turn, facts)
            last = turn[-1]
            if due is not None and (base is None or last.position >= base.position):
                for seen in turn:
                    due = _due_after(due, seen)
            facts.due = due
            yield from turn
        if facts.damage is None or facts.is_torn:
            mismatch = self._manifest.mismatch(self.storage.boot, data, facts.first, facts.end)
            if mismatch is not None:
                facts.damage, facts.is_torn = mismatch, False
        if facts.damage is not None:
            self._look_behind(data, facts)

    def _place(self, facts: SegmentFacts, data: bytes) -> Due | None:
        """Record if the file does not continue the one before; returns the next effect numbers.

        ``data`` is the whole file.
        """
        if facts.is_superseded:
            return None
        base = self.base
        before = self.segments[: self.segments.index(facts)]
        read = [each for each in before if not each.is_superseded]
        if any(each.problem is not None for each in (*read, *([base] if base is not None else ()))):
            if any(each.fate is Fate.CUT for each in read):
                facts.misplaced = "the log ends before it"
                facts.is_torn = True
            return None  # behind damage any number may be missing
        end = base.position if base is not None else 0
        previous = read[-1].end if read else facts.first if before else None
        if previous is not None:
            end = max(end, previous)
        if facts.first > end:
            snapshot = base.position if base is not None else None
            facts.misplaced = self._manifest.gap(end, facts.first, snapshot)
            files = map(self._contents, [facts.name, *self._later(facts)])
            facts.is_torn = bool(read) and not is_noted(end, files)
            return None
        if previous is not None and facts.first < previous:
            facts.misplaced = f"it begins at position {facts.first}, within {before[-1].name}"
            if is_disused(data, self._later(facts)):
                facts.misplaced = DISUSED
                facts.is_torn = True
            return None
        for each in reversed(read):
            if each.batches:
                return each.due
        return base.due if base is not None else {}

    @staticmethod
    def _look_behind(data: bytes, facts: SegmentFacts) -> None:
        """Count what is sound behind the damage."""
        assert facts.damage is not None
        for _, batch in batches_behind(data, facts.damage.broken):
            if batch is None:
                return
            facts.turns_behind += not batch.continues
            with suppress(EffectFormatError):
                facts.effects_behind += sum(map(width_of, effects_in(batch)))

    def _walk_snapshot(self, facts: SnapshotFacts) -> Iterator[SeenRecord]:
        with closing(self.storage.open(facts.name)) as file:
            facts.version = glance(file.read(HEADER_BYTES)).version
        at = 0
        database = 0
        key: bytes | None = None
        head: list[Any] = []
        position = 0
        with closing(self.storage.open(facts.name)) as file:
            try:
                for at, size, fields in records_in(_Bounded(file, facts.size), facts.shown):
                    if at == 0:
                        position = fields[0]
                        continue
                    kind = fields[0]
                    if kind not in (records.PENDING, records.BLOCKS, records.ELEMENTS):
                        keyed = kind in _TYPES
                        database, key = (fields[1], fields[2]) if keyed else (0, None)
                        head = fields[4] if kind == records.STREAM else []
                    _count_record(fields, facts)
                    yield SeenRecord(at, size, fields, database, key, head)
            except CorruptLogError as problem:
                facts.damage = Damage(problem.offset, problem.what, problem.offset)
            except NewerFormatError as problem:
                facts.damage = Damage(0, str(problem), 0)
                facts.is_newer = True
            except (LookupError, TypeError, ValueError) as problem:
                what = f"a record that makes no sense ({type(problem).__name__}: {problem})"
                facts.damage = Damage(at, what, at)
        if facts.damage is None and position != facts.position:
            facts.damage = Damage(0, f"the header says position {position}", 0)


class _Bounded:
    """A file of which no more than its size is read: a damaged length must not cost memory."""

    def __init__(self, file: ReadFile, size: int) -> None:
        self._file = file
        self._left = size

    def read(self, count: int = -1, /) -> bytes:
        if count > self._left:
            return self._file.read(min(count, self._left, SEGMENT_HEADER_BYTES))
        data = self._file.read(count)
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._file.close()


# -- segments ---------------------------------------------------------------------------------


def width_of(effect: kinds.Effect) -> int:
    """How many numbers an effect takes: a run takes one for each entry."""
    return len(effect.ids) if isinstance(effect, kinds.AddRun) else 1


def _seen(
    at: int, turn: list[Batch], facts: SegmentFacts, due: Due | None, base: int
) -> list[SeenBatch] | Damage:
    """The effects of a turn, checked as recovery does; effects before ``base`` are skipped."""
    found: list[SeenBatch] = []
    begin = at
    for batch in turn:
        position = facts.first + at - SEGMENT_HEADER_BYTES
        checked = due is not None and position >= base
        # With several regions a local batch has the number of its own region at the moment.
        if checked and due is not None and not (batch.is_local and batch.region):
            wanted = due.get(batch.replica_id, 1)
            if batch.first != wanted:
                return Damage(at, f"effect number {batch.first} where {wanted} was due", begin)
        try:
            effects = effects_in(batch)
        except EffectFormatError as problem:
            return Damage(at, str(problem), begin)
        ordinal = facts.batches + len(found) + 1
        seen = SeenBatch(ordinal, at, position, batch, effects)
        if checked:
            due = _due_after(due, seen)
        found.append(seen)
        at += batch.size
    return found


def _due_after(due: Due | None, seen: SeenBatch) -> Due | None:
    """The numbers that must follow a batch; None after a full sync, which may contain more."""
    if due is None or any(isinstance(effect, kinds.JoinFullSync) for effect in seen.effects):
        return None
    batch = seen.batch
    if not batch.numbered:
        return due
    return {**due, batch.replica_id: batch.first + batch.numbered}


def _count_turn(turn: list[SeenBatch], facts: SegmentFacts) -> None:
    facts.turns += 1
    facts.batches += len(turn)
    for seen in turn:
        batch = seen.batch
        facts.sound = seen.offset + batch.size
        for effect in seen.effects:
            width = width_of(effect)
            kind = type(effect)
            name = (kinds.Add if kind is kinds.AddRun else kind).__name__
            facts.kinds[name] += width
            facts.local += width * kind.local
            facts.keys.update(places_of(effect))
        if facts.first_number is None:
            facts.first_number = batch.first
        facts.next_number = batch.first + batch.numbered
        facts.region, facts.epoch = batch.region, batch.epoch
        wall_ms = batch.wall_ms
        if facts.earliest_ms is None or wall_ms < facts.earliest_ms:
            facts.earliest_ms = wall_ms
        if facts.latest_ms is None or wall_ms > facts.latest_ms:
            facts.latest_ms = wall_ms


# -- snapshots --------------------------------------------------------------------------------

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


class SegmentFacts(Struct):
    """What was found in one file of the log."""

    name: str
    shown: str
    first: int
    size: int = 0
    version: int = 0
    sound: int = 0
    """Bytes from the beginning that are the header and whole sound turns."""
    turns: int = 0
    batches: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Effects by kind; every entry of an :class:`kinds.AddRun` counts as an Add."""
    local: int = 0
    """Effects without number; all others have one."""
    first_number: int | None = None
    next_number: int | None = None
    due: Due | None = None
    """The numbers that follow the file; None if unknown."""
    region: int = 0
    epoch: int = 0
    earliest_ms: int | None = None
    latest_ms: int | None = None
    keys: set[tuple[int, bytes]] = field(default_factory=set)
    damage: Damage | None = None
    is_newer: bool = False
    """The file is not damaged: a newer server wrote it."""
    is_superseded: bool = False
    """A snapshot has made it superfluous: no start reads it."""
    is_torn: bool = False
    """The file has a torn end, not damage; if it is misplaced, a start leaves it out."""
    misplaced: str = ""
    """Why the file does not continue the files before it; empty if it does."""
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

    @property
    def problem(self) -> tuple[int, str] | None:
        """``(offset, why)`` of the first problem for a start; None without problems."""
        if self.misplaced and (self.is_torn or not (self.damage and self.damage.offset == 0)):
            return 0, self.misplaced
        return None if self.damage is None else (self.damage.offset, self.damage.what)

    @property
    def fate(self) -> Fate:
        """What the next start of a server does with the segment."""
        if self.problem is None:
            return Fate.SOUND
        if self.is_superseded:
            return Fate.UNREAD
        return Fate.CUT if self.is_torn else Fate.REFUSED


class SnapshotFacts(Struct):
    """What was found in one snapshot."""

    name: str
    shown: str
    position: int
    size: int = 0
    version: int = 0
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
    damage: Damage | None = None
    is_newer: bool = False
    is_superseded: bool = False
    """A newer snapshot exists: no start reads this one."""

    @property
    def keys(self) -> int:
        """The count of keys in all databases."""
        return sum(self.kinds.values())

    @property
    def problem(self) -> tuple[int, str] | None:
        """``(offset, why)`` of the damage."""
        return None if self.damage is None else (self.damage.offset, self.damage.what)

    @property
    def fate(self) -> Fate:
        """What the next start of a server does with the snapshot."""
        if self.damage is None:
            return Fate.SOUND
        return Fate.UNREAD if self.is_superseded else Fate.REFUSED
