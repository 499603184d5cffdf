"""From files to state: the newest snapshot, then the log after it.

Files as a crash leaves them do not prevent a start: an unfinished snapshot is left out; an
unfinished end of the log is ignored and reported, with the files behind it. All other changed bytes
are damage, and a start with damage is refused: the operator decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from msgspec import Struct, field

from anabranch.effects.apply import apply
from anabranch.effects.codec import EffectFormatError, numbers_of
from anabranch.effects.join import KeyspaceJoin, take_key
from anabranch.effects.kinds import Effect, JoinFullSync, Synced, TakeKey
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
from anabranch.oplog.snapshot import load_snapshot, position_of
from anabranch.oplog.storage import Storage
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


def recover(storage: Storage, keyspace: Keyspace) -> Iterator[Recovery]:
    """Fill an empty keyspace from a directory; yields the same object after each step.

    Raises :class:`anabranch.oplog.errors.LogError` for damaged, missing or newer files, and
    :class:`OSError`. The files stay unchanged: see :meth:`Recovery.tidy`.
    """
    report = Recovery()
    manifest, absence = read_manifest(storage)
    names = sorted(storage.names())
    snapshots = [name for name in names if position_of(name) is not None]
    firsts = [first for name in names if (first := first_position_of(name)) is not None]
    report.bytes_total = sum(storage.size(segment_name(first)) for first in firsts)
    if snapshots:
        report.bytes_total += storage.size(snapshots[-1])
        with _advising(_SNAPSHOT_ADVICE):
            yield from _load_newest(storage, snapshots[-1], keyspace, report)
    logs = [segment_name(first) for first in firsts]
    for index, first in enumerate(firsts):
        following = firsts[index + 1] if index + 1 < len(firsts) else None
        if following is not None and following <= report.snapshot_position:
            report.segments.append(Segment(first, following - first))  # only waits to be deleted
            report.bytes_done += storage.size(segment_name(first))
            continue
        with _advising(_LOG_ADVICE):
            yield from _replay(storage, first, logs[index + 1 :], keyspace, report, manifest)
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
        raise AbsentFileError(storage.shown(absence.name), absence.what, _ABSENCE_ADVICE)
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
    storage: Storage, name: str, keyspace: Keyspace, report: Recovery
) -> Iterator[Recovery]:
    with closing(storage.open(name)) as file:
        for done, contents in load_snapshot(file, storage.shown(name), keyspace):
            note = storage.shown(REGION_FILE)
            check_region(contents.name, note, keyspace.replica, contents.region)
            report.bytes_done = done or report.bytes_done
            yield report
    keyspace.renew_unstable_tombstones()
    if contents.position != position_of(name):
        raise CorruptLogError(
            storage.shown(name), 0, f"the header says position {contents.position}"
        )
    report.snapshot = name
    report.snapshot_position = contents.position
    report.snapshot_ms = contents.wall_ms
    report.next_number = contents.next_number


def _replay(
    storage: Storage,
    first: int,
    later: list[str],
    keyspace: Keyspace,
    report: Recovery,
    manifest: Manifest,
) -> Iterator[Recovery]:
    """Apply one segment; ``later`` are the files behind it."""
    name = segment_name(first)
    shown = storage.shown(name)
    before = report.bytes_done
    data = _contents(storage, name)

    def leave_out(why: str) -> None:
        _cut(storage, report, Cut(shown, 0, 0, why), [name, *later])

    gap = _gap(report, first, manifest) if first > report.end else ""
    if gap and report.segments and not is_noted(report.end, _all(storage, [name, *later])):
        leave_out(gap)
        return
    try:
        check_segment_header(data, shown, first)
    except CorruptLogError as problem:
        damage = Damage(0, problem.what, 0)
        if gap or not is_unfinished(data, first, damage, _all(storage, later)):
            raise
        leave_out(problem.what)  # the crash came while the file was made
        return
    if gap:
        advice = "Put the missing files back, or a whole backup of the directory"
        raise CorruptLogError(shown, 0, gap, advice)
    if report.segments and first < report.segments[-1].end:
        if is_disused(data, later):
            leave_out(DISUSED)
            return
        raise CorruptLogError(
            shown, 0, f"it begins at position {first}, within {report.segments[-1].name}"
        )
    segment = Segment(first)
    report.segments.append(segment)
    for item in turns_in(data):
        if isinstance(item, Damage):
            if item.is_newer:
                raise NewerFormatError(
                    f"{shown} goes on at byte {item.offset} with what a newer server wrote "
                    f"({item.what}). Nothing was changed; start the newer version again"
                )
            if not is_unfinished(data, first, item, _all(storage, later)):
                raise CorruptLogError(shown, item.offset, item.what)
            cut = Cut(shown, item.offset, len(data) - item.offset, item.what)
            _cut(storage, report, cut, later)
            break
        at, turn = item
        position = first + at - SEGMENT_HEADER_BYTES
        for batch in turn:
            if position >= report.snapshot_position:
                yield from _apply(batch, keyspace, report, storage, shown, at)
            position += batch.size
            at += batch.size
            segment.size += batch.size
        report.bytes_done = before + at
        yield report
    if (mismatch := manifest.mismatch(storage.boot, data, first, segment.end)) is not None:
        raise CorruptLogError(shown, mismatch.offset, mismatch.what)
    report.bytes_done = before + len(data)


def _contents(storage: Storage, name: str) -> bytes:
    with closing(storage.open(name)) as file:
        return file.read()


def _all(storage: Storage, names: list[str]) -> Iterator[bytes]:
    return (_contents(storage, name) for name in names)


def _cut(storage: Storage, report: Recovery, cut: Cut, left_out: list[str]) -> None:
    """End the log there, and leave files out: no sync covered what they contain."""
    report.cut = cut
    report.left_out = left_out
    cut.size += sum(storage.size(name) for name in left_out)


def _gap(report: Recovery, first: int, manifest: Manifest) -> str:
    snapshot = report.snapshot_position if report.snapshot is not None else None
    return manifest.gap(report.end, first, snapshot)


def _check_databases(effect: Effect, keyspace: Keyspace, shown: str) -> None:
    for name in ("db", "other", "target_db"):
        number = getattr(effect, name, None)
        if number is not None and number >= len(keyspace.databases):
            raise too_few_databases(shown, number, len(keyspace.databases))


def _apply(
    batch: Batch, keyspace: Keyspace, report: Recovery, storage: Storage, shown: str, at: int
) -> Iterator[Recovery]:
    """Apply a batch; yields only within what takes long."""
    replica = keyspace.replica
    check_mode(shown, replica, regional=bool(batch.region))
    if batch.is_local:  # others' local batches are never sent
        check_region(shown, storage.shown(REGION_FILE), replica, batch.region)
    is_numbered = batch.region and not batch.is_local
    due = replica.vector.get(batch.replica_id, 0) + 1 if is_numbered else report.next_number
    if batch.first != due:
        raise CorruptLogError(shown, at, f"effect number {batch.first} where {due} was due")
    number = batch.first
    context = batch.dependencies
    try:
        for effect in effects_in(batch):
            _check_databases(effect, keyspace, shown)
            if is_numbered:
                replica.begin_remote(batch.replica_id, number, context)
                apply(keyspace, effect)
                replica.finish(effect, count := numbers_of(effect))
                number += count
            else:
                apply(keyspace, effect)
                if isinstance(effect, JoinFullSync | TakeKey):
                    for _ in _join(effect, keyspace, storage):
                        yield report
            report.effects += not isinstance(effect, Synced)
    except EffectFormatError as problem:
        raise CorruptLogError(shown, at, str(problem)) from None
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
