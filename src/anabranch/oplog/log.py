"""The log as a whole: segments in order, written at the end, deleted from the front.

Bookkeeping over a :class:`Storage`. The caller decides when to write and sync, and when clients get
their replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from errno import ENOENT
from typing import Final

from anabranch.effects.kinds import Synced
from anabranch.oplog.errors import SyncFailedError
from anabranch.oplog.manifest import TAIL_BYTES, ManifestFile
from anabranch.oplog.segment import (
    SEGMENT_HEADER_BYTES,
    segment_header,
    segment_name,
    stored_batches,
)
from anabranch.oplog.storage import LogFile, Storage

_PIECE_BYTES: Final = 64 * 1024
"""Batches that are written together are joined up to this size."""

UNSYNCED_MAX: Final = 8
"""While so many full files wait for a sync, the newest one grows: each of them is open."""

LOST: Final = "the data directory, or a file in it, was deleted or replaced below the server"


class Segment:
    """One file: the position of its first batch, and the bytes of its batches."""

    def __init__(self, first: int, size: int = 0) -> None:
        self.first = first
        self.size = size

    @property
    def name(self) -> str:
        """The name of its file."""
        return segment_name(self.first)

    @property
    def end(self) -> int:
        """The position behind its last batch."""
        return self.first + self.size


class Sync:
    """The written data that may not be on the disk yet; any thread may sync it."""

    def __init__(
        self, storage: Storage, position: int, files: list[LogFile], *, names: int | None
    ) -> None:
        self.position = position
        """The log is on the disk up to this position when :meth:`run` has returned."""
        self.files = files
        self.names = names
        """The count of files so far; None if the directory on the disk has all of them."""
        self._storage = storage

    def run(self) -> None:
        """Sync; after an :class:`OSError` the state of the disk is unknown."""
        if self.names is not None:
            self._storage.sync()
        for file in self.files:
            file.sync()


class OpLog:
    """The segments of one directory."""

    def __init__(
        self,
        storage: Storage,
        segments: list[Segment],
        *,
        end: int,
        segment_bytes: int,
        left_out: Sequence[str] = (),
        manifest: ManifestFile | None = None,
    ) -> None:
        """Continue at position ``end``, behind the last of ``segments`` if there are any.

        ``left_out`` are files that are not part of the log: the first write removes them.
        ``manifest`` is that of the directory, if the caller has it already.
        """
        self.storage = storage
        self.manifest = ManifestFile(storage) if manifest is None else manifest
        self.segment_bytes = segment_bytes
        self.segments = segments
        self.end = end
        self.synced = self.end
        """The log is on the disk up to this position at least."""
        self.is_lost = False
        """Whether :meth:`check_files` has found that files were removed: then writes fail."""
        self.needed_from: Callable[[], int] = lambda: self.end
        """The oldest position that is still needed, except by recovery."""
        self._file: LogFile | None = None
        self._torn = False  # the file may end with a part of a batch
        self._left_out = [*left_out]
        self._unsynced: list[tuple[int, LogFile]] = []  # full files, and where each of them ends
        self._running: Sync | None = None  # its files must stay open
        self._tail = b""  # the last bytes that were written to the newest file
        self._begun = 0  # count of files
        self._names_synced = 0  # count of those whose name is on the disk

    @property
    def size(self) -> int:
        """Bytes of all batches that are kept."""
        return sum(segment.size for segment in self.segments)

    @property
    def unsynced(self) -> list[str]:
        """The full files that may not be on the disk."""
        return [segment.name for segment in self.segments[:-1] if segment.end > self.synced]

    def batches_from(self, position: int) -> Iterator[tuple[int, bytes]]:
        """``(position, bytes)`` of batches from a position on; see :func:`stored_batches`."""
        for segment in self.segments:
            if segment.end > position:
                first, end = segment.first, segment.end
                yield from stored_batches(self.storage, first, end, max(position, first))

    # -- writing ------------------------------------------------------------------------------

    def check_files(self) -> bool:
        """Whether the open files are still those that a start would read."""
        file = self._file
        self.is_lost = not (
            self.storage.is_there()
            and self.manifest.is_there()
            and (file is None or file.is_there())
        )
        return not self.is_lost

    def tick(self) -> None:
        """Called several times a second: record the end of the log in the manifest."""
        with suppress(OSError):  # the next record replaces it
            self.record_end()

    def append(self, *data: bytes) -> None:
        """Write whole batches; after an error the log is unchanged."""
        if self.is_lost:
            raise FileNotFoundError(ENOENT, LOST)
        self._remove_left_out()
        file = self._file
        segment = self.segments[-1] if self.segments else None
        is_full = segment is not None and segment.size >= self.segment_bytes
        if segment is None or (is_full and len(self._unsynced) < UNSYNCED_MAX):
            segment, file = self._begin()
        elif file is None:
            file = self._file = self.storage.append(segment.name)
            self._torn = True  # maybe, by a predecessor
        if self._torn:
            file.truncate(SEGMENT_HEADER_BYTES + segment.size)
            self._torn = False
        size, tail = 0, b""
        try:
            for piece in data if len(data) == 1 else _pieces(data):
                file.write(piece)
                size += len(piece)
                if len(piece) < TAIL_BYTES:
                    piece = tail + piece
                tail = piece[-TAIL_BYTES:]
        except BaseException:  # there may be no memory for a piece behind others
            self._torn = True
            raise
        segment.size += size
        self.end += size
        self._tail = tail

    def begin_segment(self) -> None:
        """Write what comes next into a new file, unless the present one is empty."""
        if not self.segments or self.segments[-1].size:
            self._begin()

    def secure(self) -> None:
        """Sync the files of an earlier process: they can be read, but may not be on the disk."""
        if self.segments:
            self.manifest.make()
            for segment in self.segments[:-1]:
                if segment.end > self.manifest.synced:
                    with closing(self.storage.append(segment.name)) as file:
                        file.sync()
            self._file = self.storage.append(self.segments[-1].name)
            self._torn = True  # maybe
            self._file.sync()
            self.storage.sync()
        self.record_end()

    def record_end(self) -> None:
        """Record the end of the log: the next start requires the log up to there."""
        newest = self.segments[-1].first if self.segments else None
        self.manifest.record(newest=newest, written=self.end, synced=self.synced, tail=self._tail)

    def record_stop(self) -> None:
        """Note an orderly stop, and sync the manifest: nothing is written any more."""
        self.record_end()
        self.manifest.sync()

    def _remove_left_out(self) -> None:
        if self._left_out:
            for name in reversed(self._left_out):
                with suppress(FileNotFoundError):
                    self.storage.remove(name)
            self.storage.sync()
            self._left_out.clear()

    def _begin(self) -> tuple[Segment, LogFile]:
        """Open the next file. A thread syncs the previous one, with the next sync.

        A file whose end was cut off is synced here, because recovery would find the remains.
        """
        self.manifest.make()
        if not self.check_files():
            raise FileNotFoundError(ENOENT, LOST)
        self._remove_left_out()
        if self._file is not None and self._torn:
            self._file.truncate(SEGMENT_HEADER_BYTES + self.segments[-1].size)
            sync = self._everything()
            try:
                sync.run()
            except FileNotFoundError:  # no directory: the next file cannot be made either
                raise
            except OSError as problem:
                raise SyncFailedError(problem.errno, problem.strerror) from None
            self._torn = False
            self._sync_done(sync)
        segment = Segment(self.end)
        file = self.storage.create(segment.name)
        try:
            file.write(segment_header(segment.first))
            self.manifest.record(newest=segment.first, written=self.end, synced=self.synced)
        except OSError:
            file.close()
            with suppress(OSError):
                self.storage.remove(segment.name)
            raise
        if self._file is not None:
            self._unsynced.append((segment.first, self._file))
        self._file = file
        self._tail = b""
        self._torn = False
        self._begun += 1
        self.segments.append(segment)
        return segment, file

    # -- syncing ------------------------------------------------------------------------------

    def begin_sync(self) -> Sync:
        """What must be synced now. One sync at a time; report its end by :meth:`finish_sync`."""
        self._running = self._everything()
        return self._running

    def _everything(self) -> Sync:
        files = self._open_files()
        names = self._begun if self._begun > self._names_synced else None
        return Sync(self.storage, self.end, files, names=names)

    def finish_sync(self, sync: Sync) -> None:
        """Note what is on the disk, after a sync has succeeded."""
        self._running = None
        self._sync_done(sync)

    def _sync_done(self, sync: Sync) -> None:
        """Record a finished sync; another sync, which began earlier, may still be running."""
        self.synced = max(self.synced, sync.position)
        if sync.names is not None:
            self._names_synced = max(self._names_synced, sync.names)
        busy = [] if self._running is None else self._running.files
        left = []
        for end, file in self._unsynced:
            if end > self.synced or file in busy:
                left.append((end, file))
            else:
                file.close()
        self._unsynced = left

    def _open_files(self) -> list[LogFile]:
        files = [file for _, file in self._unsynced]
        return files if self._file is None else [*files, self._file]

    # -- the front ----------------------------------------------------------------------------

    def excess_end(self, most: int) -> int:
        """Up to which position to delete files, so that the log is not larger than this."""
        excess, position = self.size - most, 0
        for segment in self.segments:
            if excess <= 0:
                break
            excess -= segment.size
            position = segment.end
        return position

    def retire(self, position: int) -> int:
        """Delete unneeded segments that end at or before a position; returns their count.

        The newest stays in any case. After an :class:`OSError` the next call deletes the rest.
        """
        position = min(position, self.needed_from())
        count = 0
        while len(self.segments) > 1 and self.segments[0].end <= position:
            self.storage.remove(self.segments[0].name)
            del self.segments[0]
            count += 1
        return count

    def close(self) -> None:
        """Close the files, synced or not."""
        for file in self._open_files():
            file.close()
        self._unsynced.clear()
        self._file = None
        self.manifest.close()


def _pieces(data: Sequence[bytes]) -> Iterator[bytes]:
    """The bytes in pieces of moderate size: new memory for megabytes takes milliseconds."""
    low = size = 0
    for at, each in enumerate(data):
        if len(each) >= _PIECE_BYTES and low < at:  # it is not copied
            yield b"".join(data[low:at])
            low, size = at, 0
        size += len(each)
        if size >= _PIECE_BYTES or at + 1 == len(data):
            yield b"".join(data[low : at + 1])
            low, size = at + 1, 0


# -- notes in the log about how far the log was on the disk -----------------------------------
#
# After a power failure the newest writes may be on the disk in any order: a page that was not
# synced is zeros, and a later page has its contents. This looks like damage, but no sync had
# covered it. So from time to time a turn contains a note, :class:`kinds.Synced`, with the
# position up to which the log was synced. Unsound bytes at a position that a later note covers
# were on the disk and have changed since: damage. Unsound bytes that no later note covers are an
# unfinished end, and are cut off.
#
# The first turn after a sync contains a note, at most one a second, and there is one when the log
# rests. So everything except the last second of a log is known to have been on the disk.


EVERY_S: Final = 1.0


class SyncNotes:
    """When the next note is due; each method returns one for the turn, or None."""

    def __init__(self, log: OpLog, now_s: Callable[[], float]) -> None:
        """``now_s`` is a clock that is never set."""
        self._log = log
        self._now_s = now_s
        self._noted = 0  # the position in the last note
        self._noted_s = -EVERY_S
        self._is_newest = False  # whether the last note is the end of the log
        self._end = 0  # the end of the log at the last call
        self._end_s = 0.0  # since when the log has ended there

    def with_turn(self) -> Synced | None:
        """A turn is about to be written."""
        self._is_newest = False
        if self._log.synced <= self._noted or self._now_s() - self._noted_s < EVERY_S:
            return None
        return self._make_note()

    def at_rest(self) -> Synced | None:
        """No turn is about to be written; called several times a second."""
        log = self._log
        if self._is_newest or log.synced < log.end:
            return None
        if log.end != self._end:
            self._end = log.end
            self._end_s = self._now_s()
        if self._now_s() - self._end_s < EVERY_S:
            return None
        return self.at_the_end()

    def at_the_end(self) -> Synced | None:
        """The server stops or switches the log off: everything is synced."""
        if self._is_newest or not self._log.size:
            return None
        self._is_newest = True
        return self._make_note()

    def _make_note(self) -> Synced | None:
        self._noted = self._log.synced
        self._noted_s = self._now_s()
        return Synced(self._noted)
