"""From files to state: the newest snapshot, then the log after it.

Files as a crash leaves them do not prevent a start: an unfinished snapshot is left out; an
unfinished end of the log is ignored and reported, with the files behind it. All other changed bytes
are damage, and a start with damage is refused: the operator decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Protocol

from msgspec import Struct, field

from anabranch.effects.apply import apply
from anabranch.effects.codec import EffectFormatError
from anabranch.effects.join import KeyspaceJoin, take_key
from anabranch.effects.kinds import Effect, JoinFullSync, Synced, TakeKey
from anabranch.effects.recorded import numbers_of
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import ApplyStats, Replica
from anabranch.oplog.batch import Batch, effects_in
from anabranch.oplog.errors import (
    REGION_FILE,
    AbsentFileError,
    CorruptLogError,
    NewerFormatError,
    check_mode,
    check_region,
    too_few_databases,
)
from anabranch.oplog.log import Segment
from anabranch.oplog.manifest import Absence, Manifest, read_manifest
from anabranch.oplog.segment import (
    DISUSED,
    SEGMENT_HEADER_BYTES,
    Damage,
    check_segment_header,
    first_position_of,
    is_disused,
    is_noted,
    is_unfinished,
    segment_name,
    turns_in,
)
from anabranch.oplog.snapshot import Contents, load_snapshot, position_of
from anabranch.oplog.storage import ReadFile, Storage
from anabranch.scheduling import Steps

TEMPORARY_SUFFIX = ".tmp"
"""The end of the name of an unfinished snapshot."""

_LOG_ADVICE = (
    "Nothing was changed. 'anabranch inspect {name}' shows what is sound; with --write it puts "
    "aside everything from there on. A copy of the directory first is a good idea"
)
_SNAPSHOT_ADVICE = (
    "Nothing was changed. 'anabranch inspect {name}' says what can be done without it"
)
_ABSENCE_ADVICE = (
    "Nothing was changed. Put the file back, or a whole backup of the directory. If these files "
    "are a copy or an older state, 'anabranch restore DIR' accepts them; to go on without what is "
    "missing, 'anabranch inspect DIR --write' does"
)


class Cut(Struct):
    """The unfinished end of a log.

    Recovery does not change the files: :class:`anabranch.oplog.log.OpLog` cuts the end off before
    it writes. If a start fails before, the next one finds the same files.
    """

    name: str
    offset: int
    size: int
    """Bytes from there to the end of the file, and all of the files behind it."""
    why: str


class Recovery(Struct):
    """The result of recovery so far."""

    reading: str = ""
    """The name, for messages, of the file that is being read."""
    segments: list[Segment] = field(default_factory=list)
    snapshot: str | None = None
    snapshot_position: int = 0
    snapshot_ms: int = 0
    next_number: int = 1
    batches: int = 0
    effects: int = 0
    bytes_done: int = 0
    bytes_total: int = 0
    cut: Cut | None = None
    left_out: list[str] = field(default_factory=list)
    """Newest files that are not part of the log, to be deleted before the first write."""
    superfluous: list[str] = field(default_factory=list)
    """Files that no start needs, in the order in which :meth:`tidy` deletes them."""

    def cut_file(self) -> Absence | None:
        """The file within which the log ends, and why; None if it ends with a file."""
        if self.cut is None:
            return None
        name = self.segments[-1].name if self.cut.offset else self.left_out[0]
        return Absence(name, self.cut.why)

    @property
    def end(self) -> int:
        """The position at which the log continues."""
        return max(self.segments[-1].end if self.segments else 0, self.snapshot_position)

    def tidy(self, storage: Storage) -> None:
        """Delete what no start needs; OSError. The next recovery comes to the same without it."""
        while self.superfluous:
            storage.remove(self.superfluous.pop(0))


class Observer(Protocol):
    """Takes the sound part of a directory, in its order, from :func:`read_directory`."""

    def snapshot(self, file: ReadFile, name: str) -> Iterator[tuple[int, Contents]]:
        """Take the newest snapshot; yields and raises what :func:`load_snapshot` does."""

    def turn(self, report: Recovery, at: int, batches: list[Batch]) -> Iterator[Recovery]:
        """Take a whole turn of the file ``report.reading``, whose first batch is at byte ``at``.

        Yields within what takes long. Raises :class:`anabranch.oplog.errors.LogError`.
        """


def recover(storage: Storage, keyspace: Keyspace) -> Iterator[Recovery]:
    """Fill an empty keyspace from a directory; yields the same object after each step.

    Raises :class:`anabranch.oplog.errors.LogError` for damaged, missing or newer files, and
    :class:`OSError`. The files stay unchanged: see :meth:`Recovery.tidy`.
    """
    return read_directory(storage, _Filling(storage, keyspace))


def read_directory(storage: Storage, observer: Observer) -> Iterator[Recovery]:
    """Show an observer what a start reads; yields and raises what :func:`recover` does."""
    report = Recovery()
    yield report
    manifest, absence = read_manifest(storage)
    names = sorted(storage.names())
    snapshots = [name for name in names if position_of(name) is not None]
    firsts = [first for name in names if (first := first_position_of(name)) is not None]
    report.bytes_total = sum(storage.size(segment_name(first)) for first in firsts)
    if snapshots:
        report.bytes_total += storage.size(snapshots[-1])
        with _advising(_SNAPSHOT_ADVICE):
            yield from _load_newest(storage, snapshots[-1], observer, report)
    for index, first in enumerate(firsts):
        following = firsts[index + 1] if index + 1 < len(firsts) else None
        if following is not None and following <= report.snapshot_position:
            report.segments.append(Segment(first, following - first))  # only waits to be deleted
            report.bytes_done += storage.size(segment_name(first))
            continue
        file = LogFileRead(storage, segment_name(first), first, firsts[index + 1 :])
        with _advising(_LOG_ADVICE):
            yield from _replay(file, observer, report, manifest)
        if report.cut is not None:
            break
    if absence is None:
        absence = manifest.absence(
            storage.boot,
            end=report.end,
            newest=report.segments[-1].first if report.segments else None,
            snapshot=report.snapshot_position if report.snapshot is not None else None,
            names=names,
            cut=report.cut_file(),
        )
    if absence is not None:
        shown = storage.shown(absence.name)
        raise AbsentFileError(absence.name, shown, absence.what, _ABSENCE_ADVICE)
    if report.segments and report.segments[-1].end < report.snapshot_position:
        # The log was off when the snapshot was taken: it continues there in a new file.
        report.superfluous += [segment.name for segment in report.segments]
        report.segments.clear()
    report.superfluous += snapshots[:-1]
    report.superfluous += [name for name in names if name.endswith(TEMPORARY_SUFFIX)]
    yield report


@contextmanager
def _advising(advice: str) -> Iterator[None]:
    """Add advice to an error about damage, unless it has some."""
    try:
        yield
    except CorruptLogError as problem:
        if problem.advice:
            raise
        text = advice.format(name=problem.name)
        raise CorruptLogError(problem.name, problem.offset, problem.what, text) from None


def _load_newest(
    storage: Storage, name: str, observer: Observer, report: Recovery
) -> Iterator[Recovery]:
    report.reading = shown = storage.shown(name)
    with closing(storage.open(name)) as file:
        for done, contents in observer.snapshot(file, shown):  # noqa: B007
            report.bytes_done = done or report.bytes_done
            yield report
    check_position(shown, contents, position_of(name))
    report.snapshot = name
    report.snapshot_position = contents.position
    report.snapshot_ms = contents.wall_ms
    report.next_number = contents.next_number


def check_position(shown: str, contents: Contents, position: int | None) -> None:
    """:class:`CorruptLogError` if a snapshot that was read whole has not the position it should."""
    if contents.position != position:
        raise CorruptLogError(shown, 0, f"the header says position {contents.position}")


class LogFileRead:
    """A file of the log, read whole, and the files behind it."""

    def __init__(self, storage: Storage, name: str, first: int, later: list[int]) -> None:
        """``later`` are the first positions of the files behind it."""
        self.storage = storage
        self.name = name
        self.first = first
        self.later = [segment_name(each) for each in later]
        self.shown = storage.shown(name)
        self.data = self._contents(name)

    def _contents(self, name: str) -> bytes:
        with closing(self.storage.open(name)) as file:
            return file.read()

    def contents_behind(self) -> Iterator[bytes]:
        """The contents of the files behind it."""
        return map(self._contents, self.later)

    def unfinished_header(self) -> str:
        """Why the header is unsound, if the file was not finished; empty for a sound header.

        Raises :class:`CorruptLogError` and :class:`NewerFormatError` for other headers.
        """
        try:
            check_segment_header(self.data, self.shown, self.first)
        except CorruptLogError as problem:
            damage = Damage(0, problem.what, 0)
            if not is_unfinished(self.data, self.first, damage, self.contents_behind()):
                raise
            return problem.what
        return ""

    def turns(self, manifest: Manifest) -> Iterator[tuple[int, list[Batch]] | Cut]:
        """``(offset, batches)`` of whole turns, and last the unfinished end if there is one.

        Raises :class:`CorruptLogError` and :class:`NewerFormatError` for any other end.
        """
        sound = SEGMENT_HEADER_BYTES
        for item in turns_in(self.data):
            if not isinstance(item, Damage):
                yield item
                sound = item[0] + sum(batch.size for batch in item[1])
                continue
            if item.is_newer:
                raise NewerFormatError(
                    f"{self.shown} goes on at byte {item.offset} with what a newer server wrote "
                    f"({item.what}). Nothing was changed; start the newer version again",
                    item.offset,
                )
            if not is_unfinished(self.data, self.first, item, self.contents_behind()):
                raise CorruptLogError(self.shown, item.offset, item.what)
            yield Cut(self.shown, item.offset, len(self.data) - item.offset, item.what)
        end = self.first + sound - SEGMENT_HEADER_BYTES
        mismatch = manifest.mismatch(self.storage.boot, self.data, self.first, end)
        if mismatch is not None:
            raise CorruptLogError(self.shown, mismatch.offset, mismatch.what)


def _replay(
    file: LogFileRead, observer: Observer, report: Recovery, manifest: Manifest
) -> Iterator[Recovery]:
    """Show the observer one file."""
    report.reading = file.shown
    before = report.bytes_done
    first = file.first
    gap = _gap(report, first, manifest) if first > report.end else ""
    if gap and report.segments and not is_noted(report.end, [file.data, *file.contents_behind()]):
        _leave_out(file, report, gap)
        return
    if gap:
        check_segment_header(file.data, file.shown, first)
        advice = "Put the missing files back, or a whole backup of the directory"
        raise CorruptLogError(file.shown, 0, gap, advice)
    if why := file.unfinished_header():
        _leave_out(file, report, why)  # the crash came while the file was made
        return
    if report.segments and first < report.segments[-1].end:
        if is_disused(file.data, file.later):
            _leave_out(file, report, DISUSED)
            return
        raise CorruptLogError(
            file.shown, 0, f"it begins at position {first}, within {report.segments[-1].name}"
        )
    segment = Segment(first)
    report.segments.append(segment)
    for item in file.turns(manifest):
        if isinstance(item, Cut):
            _cut(file, report, item, file.later)
            continue
        at, batches = item
        yield from observer.turn(report, at, batches)
        size = sum(batch.size for batch in batches)
        segment.size += size
        report.bytes_done = before + at + size
        yield report
    report.bytes_done = before + len(file.data)


def _leave_out(file: LogFileRead, report: Recovery, why: str) -> None:
    """End the log before a file."""
    _cut(file, report, Cut(file.shown, 0, 0, why), [file.name, *file.later])


def _cut(file: LogFileRead, report: Recovery, cut: Cut, left_out: list[str]) -> None:
    """End the log there, and leave files out: no sync covered what they contain."""
    report.cut = cut
    report.left_out = left_out
    cut.size += sum(map(file.storage.size, left_out))


def _gap(report: Recovery, first: int, manifest: Manifest) -> str:
    snapshot = report.snapshot_position if report.snapshot is not None else None
    return manifest.gap(report.end, first, snapshot)


def effects_of(batch: Batch, shown: str, at: int) -> list[Effect]:
    """The effects of the batch at byte ``at``; raises :class:`CorruptLogError`."""
    try:
        return effects_in(batch)
    except EffectFormatError as problem:
        raise CorruptLogError(shown, at, str(problem)) from None


def check_number(batch: Batch, due: int, shown: str, at: int) -> None:
    """:class:`CorruptLogError` if the effects of the batch at byte ``at`` are not the next ones."""
    if batch.first != due:
        raise CorruptLogError(shown, at, f"effect number {batch.first} where {due} was due")


def _check_databases(effect: Effect, keyspace: Keyspace, shown: str) -> None:
    for name in ("db", "other", "target_db"):
        number = getattr(effect, name, None)
        if number is not None and number >= len(keyspace.databases):
            raise too_few_databases(shown, number, len(keyspace.databases))


class _Filling:
    """Fills a keyspace."""

    def __init__(self, storage: Storage, keyspace: Keyspace) -> None:
        self._storage = storage
        self._keyspace = keyspace
        self._region_file = storage.shown(REGION_FILE)

    def snapshot(self, file: ReadFile, name: str) -> Iterator[tuple[int, Contents]]:
        keyspace = self._keyspace
        for done, contents in load_snapshot(file, name, keyspace):
            check_region(name, self._region_file, keyspace.replica, contents.region)
            yield done, contents
        keyspace.renew_unstable_tombstones()

    def turn(self, report: Recovery, at: int, batches: list[Batch]) -> Iterator[Recovery]:
        position = report.segments[-1].end
        for batch in batches:
            if position >= report.snapshot_position:
                yield from self._apply(batch, report, at)
            position += batch.size
            at += batch.size

    def _apply(self, batch: Batch, report: Recovery, at: int) -> Iterator[Recovery]:
        """Apply a batch; yields only within what takes long."""
        keyspace, shown = self._keyspace, report.reading
        replica = keyspace.replica
        check_mode(shown, replica, regional=bool(batch.region))
        if batch.is_local:  # others' local batches are never sent
            check_region(shown, self._region_file, replica, batch.region)
        is_numbered = batch.region and not batch.is_local
        due = replica.vector.get(batch.replica_id, 0) + 1 if is_numbered else report.next_number
        check_number(batch, due, shown, at)
        number = batch.first
        context = batch.dependencies
        try:
            for effect in effects_of(batch, shown, at):
                _check_databases(effect, keyspace, shown)
                if is_numbered:
                    replica.begin_remote(batch.replica_id, number, context)
                    apply(keyspace, effect)
                    replica.finish(effect, count := numbers_of(effect))
                    number += count
                else:
                    apply(keyspace, effect)
                    if isinstance(effect, JoinFullSync | TakeKey):
                        for _ in _join(effect, keyspace, self._storage):
                            yield report
                report.effects += not isinstance(effect, Synced)
        except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as problem:
            raise CorruptLogError(
                shown,
                at,
                f"an effect that cannot be applied ({type(problem).__name__}: {problem})",
                "The file is as it was written: this is a mistake of the server, please report it",
            ) from None
        report.batches += 1
        replica.apply_stats = ApplyStats()
        if batch.replica_id == replica.own:
            report.next_number = batch.last + 1
        if (newest := replica.vector.get(replica.own)) is not None:
            report.next_number = newest + 1


def _join(effect: JoinFullSync | TakeKey, keyspace: Keyspace, storage: Storage) -> Steps[None]:
    """Join a full sync, or take over one key, again from its file."""
    replica = keyspace.replica
    theirs = Keyspace(len(keyspace.databases), Replica(replica.own, replica.default_limits))
    with closing(storage.open(effect.file)) as file:
        for _ in load_snapshot(file, storage.shown(effect.file), theirs):
            yield
    if isinstance(effect, TakeKey):
        take_key(keyspace, theirs, effect.db, effect.key)
    else:
        yield from KeyspaceJoin(keyspace, theirs, partial=effect.partial).steps()
