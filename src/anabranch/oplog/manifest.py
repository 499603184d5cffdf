"""The manifest: which files must exist at the next start, and how far the log had come.

The files of a log cannot show that a newer file is missing. So one small file beside them names the
newest files and records how far the log was written and how far it was on the disk. It is
overwritten in place, without a sync: what a process has written survives the process, and after a
power failure a start requires only what was synced. Two records are written in turn, so that one of
them is always whole.

The manifest is made before the first file of the log. The version in the header of a log file says
that a manifest must exist (:data:`anabranch.oplog.segment.FORMAT_VERSION`).
"""

from __future__ import annotations

import struct
from collections.abc import Container
from contextlib import closing
from typing import Final

import msgspec
from xxhash import xxh3_64_intdigest

from anabranch.oplog.errors import NewerFormatError
from anabranch.oplog.file_kind import HEADER_BYTES, glance
from anabranch.oplog.segment import (
    FORMAT_VERSION,
    SEGMENT_HEADER_BYTES,
    Damage,
    first_position_of,
    segment_name,
)
from anabranch.oplog.snapshot import snapshot_name
from anabranch.oplog.storage import PatchFile, Storage

MANIFEST: Final = "manifest"
"""The name of the file."""

SLOT_BYTES: Final = 4096
"""The distance of the two records: no disk writes both in one operation."""

TAIL_BYTES: Final = 64
"""The most bytes at the end of the log that are compared."""

_VERSION: Final = 1
_MAGIC: Final = b"ABRMANIF"
_HEAD: Final = struct.Struct("<8sHHIQ")  # magic, version, lowest reader, bytes, sequence
_CHECKSUM: Final = struct.Struct("<Q")
_HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size


class Absence(msgspec.Struct, frozen=True):
    """A file that existed and is missing or too short."""

    name: str
    """The file that is missing or too short."""
    what: str
    """What is wrong with it: the rest of a sentence that begins with the name."""


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """One record. With the default values it requires nothing."""

    boot: str = ""
    """The boot ID of the machine when this was written."""
    newest: int | None = None
    """The position of the newest file of the log; None if there was none."""
    written: int = 0
    """The log was written up to this position. Not required after a restart of the machine."""
    synced: int = 0
    """The log, or the newest snapshot without one, was on the disk up to this position."""
    snapshot: int | None = None
    """The position of the newest snapshot; None if there was none."""
    tail_bytes: int = 0
    """So many bytes before ``written`` have ..."""
    tail_hash: int = 0
    """... this XXH3-64."""

    def absence(
        self,
        boot: str,
        *,
        end: int,
        newest: int | None,
        snapshot: int | None,
        names: Container[str],
        cut: Absence | None = None,
    ) -> Absence | None:
        """The missing or short file of a directory that was read up to position ``end``, if any.

        ``newest`` is the position of the newest file that belongs to the log, ``snapshot`` that of
        its newest snapshot; None without such a file. ``names`` are those of all files. ``cut`` is
        the file within which the log ends, and why; None if the log ends with a file.
        """
        is_same_boot = boot == self.boot != ""
        due = self.written if is_same_boot else self.synced
        lacks_newest = self.newest is not None and (newest is None or newest < self.newest)
        # A snapshot of a server without a log stands for the log before it, as a whole.
        is_covered = snapshot is not None and snapshot > self.written
        if end >= due and not (is_same_boot and lacks_newest and not is_covered):
            return None
        if self.newest is not None and lacks_newest and (is_same_boot or due > self.newest):
            name = segment_name(self.newest)
            if name not in names:
                return Absence(name, f"is missing, and {MANIFEST} names it")
        if self.snapshot is not None and (snapshot is None or snapshot < self.snapshot):
            return Absence(snapshot_name(self.snapshot), f"is missing, and {MANIFEST} names it")
        if newest is None and cut is None:
            return Absence(
                MANIFEST, f"says that there was a log up to position {due}, and none is here"
            )
        name = segment_name(newest) if newest is not None else ""
        at = f"ends at position {end}"
        if cut is not None:
            name, at = cut.name, f"{at} ({cut.what})"
        return Absence(name, f"{at}, and {MANIFEST} says that there was a log up to {due}")

    def gap(self, begin: int, end: int, snapshot: int | None) -> str:
        """The text for a gap in the log, which may include a missing snapshot."""
        text = f"the log from position {begin} to {end}, just before this file, is missing"
        if self.snapshot is not None and (snapshot is None or snapshot < self.snapshot):
            text += f", and so is {snapshot_name(self.snapshot)}"
        return text

    def mismatch(self, boot: str, data: bytes, first: int, end: int) -> Damage | None:
        """Whether the file of the log that begins at ``first`` is not the one that was noted.

        ``data`` is the whole file, ``end`` the position up to which it is sound. A power failure
        can remove the end of the log, and also the records of what was written in its place later.
        So after a restart of the machine only bytes that were on the disk when they were recorded
        are compared.
        """
        if first != self.newest or not self.tail_bytes or end < self.written:
            return None
        if not self.boot == boot != "" and self.written > self.synced:
            return None
        behind = SEGMENT_HEADER_BYTES + self.written - first
        begin = behind - self.tail_bytes
        if xxh3_64_intdigest(data[begin:behind]) == self.tail_hash:
            return None
        what = f"its bytes before position {self.written} are not those noted in {MANIFEST}"
        return Damage(begin, what, begin)


def read_manifest(storage: Storage) -> tuple[Manifest, Absence | None]:
    """What the directory's manifest says, and what is wrong with the manifest itself.

    Raises :class:`NewerFormatError` for a newer format, and :class:`OSError`.
    """
    names = storage.names()
    if MANIFEST not in names:
        if any(_needs_manifest(storage, name) for name in names):
            return Manifest(), Absence(MANIFEST, "is missing: it names the files that must be here")
        return Manifest(), None
    with closing(storage.open(MANIFEST)) as file:
        data = file.read()
    found = _newest_record(data, storage.shown(MANIFEST))
    if found is None:
        return Manifest(), Absence(MANIFEST, "is damaged: it names the files that must be here")
    return found[1], None


def _needs_manifest(storage: Storage, name: str) -> bool:
    """Whether a file was made beside a manifest."""
    if first_position_of(name) is None:
        return False
    with closing(storage.open(name)) as file:
        return glance(file.read(HEADER_BYTES)).version >= FORMAT_VERSION


def _newest_record(data: bytes, shown: str) -> tuple[int, Manifest] | None:
    """``(sequence, manifest)`` of the newest sound record; None if none is sound."""
    found: list[tuple[int, Manifest]] = []
    for at in (0, SLOT_BYTES):
        slot = data[at : at + SLOT_BYTES]
        if len(slot) < _HEAD_BYTES:
            continue
        magic, version, lowest, size, sequence = _HEAD.unpack_from(slot)
        (expected,) = _CHECKSUM.unpack_from(slot, _HEAD.size)
        body = slot[_HEAD_BYTES : _HEAD_BYTES + size]
        if magic != _MAGIC or expected != xxh3_64_intdigest(slot[: _HEAD.size] + body):
            continue
        if lowest > _VERSION:
            raise NewerFormatError(
                f"{shown} was written by a newer server (format {version}). Nothing was changed; "
                "start the newer version again, or export the data with it"
            )
        found.append((sequence, msgspec.msgpack.decode(body, type=Manifest)))
    return max(found, key=lambda each: each[0], default=None)


def _record(sequence: int, manifest: Manifest) -> bytes:
    body = msgspec.msgpack.encode(manifest)
    head = _HEAD.pack(_MAGIC, _VERSION, _VERSION, len(body), sequence)
    return head + _CHECKSUM.pack(xxh3_64_intdigest(head + body)) + body


class ManifestFile:
    """The manifest of a directory that is in use."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._file: PatchFile | None = None
        self._sequence = 0
        self._noted = Manifest()
        self.snapshot: int | None = None
        """The position of the newest snapshot; None if there is none."""

    @property
    def synced(self) -> int:
        """How far the log was on the disk at the latest record, after :meth:`make`."""
        return self._noted.synced

    def make(self) -> None:
        """Make the manifest if it does not exist. Raises :class:`OSError`."""
        if self._file is not None:
            return
        storage = self.storage
        found = None
        if MANIFEST in storage.names():
            with closing(storage.open(MANIFEST)) as file:
                found = _newest_record(file.read(), storage.shown(MANIFEST))
        if found is None:
            self.clear()
            found = (0, Manifest())
        self._sequence, self._noted = found
        if self.snapshot is None:
            self.snapshot = self._noted.snapshot
        self._file = storage.patch(MANIFEST)

    def clear(self) -> None:
        """Require nothing from now on: accept the files as they are. Raises :class:`OSError`."""
        storage = self.storage
        with closing(storage.create(MANIFEST + ".new")) as file:
            file.write(_record(0, Manifest()).ljust(2 * SLOT_BYTES, b"\0"))
            file.sync()
        storage.rename(MANIFEST + ".new", MANIFEST)
        storage.sync()

    def record(self, *, newest: int | None, written: int, synced: int, tail: bytes = b"") -> None:
        """Record what must exist from now on; see :class:`Manifest`. Raises :class:`OSError`."""
        self.make()
        tail_hash = xxh3_64_intdigest(tail) if tail else 0
        manifest = Manifest(
            self.storage.boot, newest, written, synced, self.snapshot, len(tail), tail_hash
        )
        if manifest == self._noted or self._file is None:
            return
        sequence = self._sequence + 1
        self._file.overwrite(SLOT_BYTES * (sequence % 2), _record(sequence, manifest))
        self._sequence, self._noted = sequence, manifest

    def sync(self) -> None:
        """Return when the latest record is on the disk. Raises :class:`OSError`."""
        if self._file is not None:
            self._file.sync()

    def is_there(self) -> bool:
        """Whether the file still has its name; True before it is used."""
        return self._file is None or self._file.is_there()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
