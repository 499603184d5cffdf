"""A disk in memory that loses unsynced data in a crash, and fails on demand.

A read sees all earlier writes; whether they survive :meth:`crash` depends on syncs. Files and the
directory are separate, as on a real disk: syncing a file makes its contents durable, syncing the
directory makes names durable. Operations on names reach the disk in their order, as on file systems
with a journal.
"""

from __future__ import annotations

import errno
import io
import os
import random
from dataclasses import dataclass


@dataclass
class DiskFault:
    """An operation that fails: ``write``, ``sync``, ``truncate`` of a file, or one of the storage.

    ``keep`` is how many bytes of a failing write are written all the same.
    """

    operation: str
    code: int = errno.EIO
    times: int = 1
    after: int = 0
    """How many operations of this kind succeed before."""
    keep: int = 0
    name: str = ""
    """The beginning of the file's name."""


class _FileBytes:
    """A file's bytes: those on the disk, and the changes since."""

    def __init__(self) -> None:
        self.durable = b""
        # Bytes appended, the size it was cut to, or an offset and the bytes written over it:
        self.changes: list[bytes | int | tuple[int, bytes]] = []
        self.now = bytearray()
        self.holes = 0

    def flip(self, at: int, bit: int) -> None:
        """Change one bit of what is on the disk."""
        self.now[at] ^= bit
        durable = bytearray(self.durable)
        durable[at] ^= bit
        self.durable = bytes(durable)

    def append(self, data: bytes) -> None:
        self.now += data
        self.changes.append(data)

    def truncate(self, size: int) -> None:
        del self.now[size:]
        self.changes.append(size)

    def overwrite(self, offset: int, data: bytes) -> None:
        self.now[offset : offset + len(data)] = data
        self.changes.append((offset, data))

    def after_crash(self, rng: random.Random, *, holes: bool) -> bytes:
        data = bytearray(self.durable)
        kept = rng.randint(0, len(self.changes))
        for index, change in enumerate(self.changes[: kept + 1]):
            if isinstance(change, int):
                if index < kept:
                    del data[change:]
            elif isinstance(change, tuple):
                offset, written = change
                if index == kept:
                    written = written[: rng.randint(0, len(written))]
                data[offset : offset + len(written)] = written
            elif index == kept:
                if rng.random() < 0.5:  # else it ends with a whole write
                    data += change[: rng.randint(0, len(change))]
            elif holes and index < kept - 1 and rng.random() < 0.3:
                data += bytes(len(change))  # the file was lengthened, the page not written
                self.holes += 1
            else:
                data += change
        return bytes(data)


class _Handle:
    """A file in memory that is written at its end."""

    def __init__(self, storage: MemoryStorage, name: str, contents: _FileBytes) -> None:
        self._storage = storage
        self._name = name
        self._contents = contents
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        storage = self._storage
        fault = storage.fault("write", self._name)
        if fault is not None:
            self._contents.append(data[: fault.keep])
            raise OSError(fault.code, os.strerror(fault.code))
        if storage.free is not None:
            if len(data) > storage.free:
                self._contents.append(data[: storage.free])
                storage.free = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            storage.free -= len(data)
        self._contents.append(bytes(data))

    def sync(self) -> None:
        assert not self.closed
        changes = len(self._contents.changes)
        durable = bytes(self._contents.now)
        self._storage.begin_sync(self._name)
        self._storage.check("sync", self._name)
        self._contents.durable = durable
        del self._contents.changes[:changes]

    def truncate(self, size: int) -> None:
        assert not self.closed
        self._storage.check("truncate", self._name)
        if self._storage.free is not None:
            self._storage.free += len(self._contents.now) - size
        self._contents.truncate(size)

    def overwrite(self, offset: int, data: bytes) -> None:
        assert not self.closed
        self._storage.check("overwrite", self._name)
        self._contents.overwrite(offset, data)

    def is_there(self) -> bool:
        return self._storage.leads_to(self._name, self._contents)

    def close(self) -> None:
        assert not self.closed, "closed twice"
        self.closed = True


class MemoryStorage:
    """A directory in memory, which loses what a crash would lose."""

    def __init__(self, files: dict[str, bytes] | None = None, boot: str = "") -> None:
        """``files`` exist and are synced."""
        self.boot = boot
        self._names: dict[str, _FileBytes] = {}
        for name, data in (files or {}).items():
            contents = self._names[name] = _FileBytes()
            contents.durable = data
            contents.now += data
        self._durable_names = dict(self._names)
        self._name_changes: list[dict[str, _FileBytes]] = []  # what the directory was after each
        self.faults: list[DiskFault] = []
        self.free: int | None = None
        """Bytes until the disk is full; None is no limit."""
        self.holes = 0
        """The number of writes that an earlier crash has left as zeros."""
        self.synced: list[str] = []
        """The names of files as they were synced; "." is the directory."""

    # -- faults -------------------------------------------------------------------------------

    def fault(self, operation: str, name: str) -> DiskFault | None:
        """The fault that is due for an operation."""
        for fault in self.faults:
            if fault.operation == operation and name.startswith(fault.name) and fault.times:
                if fault.after:
                    fault.after -= 1
                    return None
                fault.times -= 1
                return fault
        return None

    def check(self, operation: str, name: str) -> None:
        """Fail if a fault is due."""
        fault = self.fault(operation, name)
        if fault is not None:
            raise OSError(fault.code, os.strerror(fault.code), name)

    def rot(self, prefix: str, rng: random.Random) -> str:
        """Flip a synced bit of a file whose name begins so; returns where, or an empty text."""
        names = sorted(name for name in self._names if name.startswith(prefix))
        name = rng.choice([*names, *names[-1:] * len(names)]) if names else ""  # mostly the newest
        contents = self._names.get(name)
        if contents is None or not contents.durable or len(contents.now) < len(contents.durable):
            return ""
        size = len(contents.durable)
        at = rng.randrange(max(size - 300, 0) if rng.random() < 0.5 else 0, size)
        contents.flip(at, 1 << rng.randrange(8))
        return f"{name} at byte {at}"

    def rot_end(self, prefix: str, rng: random.Random) -> str:
        """Flip one of the last bits of the newest file whose name begins so; returns where.

        No process has the file open, and the system has written all of it to the disk.
        """
        name = max((name for name in self._names if name.startswith(prefix)), default="")
        contents = self._names.get(name)
        if contents is None or not contents.now:
            return ""
        contents.durable = bytes(contents.now)
        contents.changes.clear()
        size = len(contents.now)
        at = rng.randrange(max(size - 60, 0), size)
        contents.flip(at, 1 << rng.randrange(8))
        return f"{name} at byte {at}"

    def begin_sync(self, name: str) -> None:
        """A sync of a file begins; it does not cover later writes."""
        self.synced.append(name)

    # -- storage ------------------------------------------------------------------------------

    def is_there(self) -> bool:
        """Whether the directory is still the one that was opened, neither deleted nor replaced."""
        return True

    def names(self) -> list[str]:
        """All files in it."""
        return list(self._names)

    def size(self, name: str) -> int:
        """Bytes in a file."""
        return len(self._file(name).now)

    def open(self, name: str) -> io.BytesIO:
        """Read a file."""
        self.check("open", name)
        return io.BytesIO(bytes(self._file(name).now))

    def create(self, name: str) -> _Handle:
        """A new, empty file; one of that name is replaced."""
        self.check("create", name)
        contents = self._names.get(name)
        if contents is None:
            contents = self._names[name] = _FileBytes()
            self._renamed()
        else:
            contents.truncate(0)
        return _Handle(self, name, contents)

    def append(self, name: str) -> _Handle:
        """Open an existing file for writing at its end."""
        self.check("append", name)
        return _Handle(self, name, self._file(name))

    def patch(self, name: str) -> _Handle:
        """Open an existing file for overwriting parts of it."""
        self.check("patch", name)
        return _Handle(self, name, self._file(name))

    def leads_to(self, name: str, contents: _FileBytes) -> bool:
        """Whether a file still has its name."""
        return self._names.get(name) is contents

    def rename(self, name: str, target: str) -> None:
        """Rename a file; replaces a file of the new name."""
        self.check("rename", name)
        self._names[target] = self._file(name)
        del self._names[name]
        self._renamed()

    def remove(self, name: str) -> None:
        """Delete a file."""
        self.check("remove", name)
        contents = self._file(name)
        if self.free is not None:
            self.free += len(contents.now)
        del self._names[name]
        self._renamed()

    def sync(self) -> None:
        """Return when all changes of names are on the disk; does not sync contents of files."""
        names, changes = dict(self._names), len(self._name_changes)
        self.check("sync directory", ".")
        self._durable_names = names
        del self._name_changes[:changes]
        self.synced.append(".")

    def shown(self, name: str) -> str:
        """The name for messages: the whole path."""
        return f"disk/{name}"

    def _file(self, name: str) -> _FileBytes:
        contents = self._names.get(name)
        if contents is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return contents

    def _renamed(self) -> None:
        self._name_changes.append(dict(self._names))

    # -- what remains -------------------------------------------------------------------------

    def files(self) -> dict[str, bytes]:
        """The present contents of all files: what a killed process leaves."""
        return {name: bytes(contents.now) for name, contents in self._names.items()}

    def unsynced(self, prefix: str) -> tuple[int, int]:
        """What a power failure could take: changes of the directory, and the most of one file.

        Of files, only those count whose names begin with ``prefix``.
        """
        writes = [
            len(each.changes) for name, each in self._names.items() if name.startswith(prefix)
        ]
        return len(self._name_changes), max(writes, default=0)

    def pending(self) -> list[object]:
        """What was not synced: names, and the changes of files."""
        return [
            [sorted(names) for names in self._name_changes],
            sorted((name, each.changes) for name, each in self._names.items() if each.changes),
        ]

    def crash(self, rng: random.Random, *, holes: bool = False) -> MemoryStorage:
        """The disk after a power failure: what was synced, and a random part of the rest.

        Of what was written to a file since its last sync a prefix is left, torn at any byte; with
        ``holes`` writes within that prefix may be zeros.
        """
        states = [self._durable_names, *self._name_changes]
        names = rng.choice(states)
        left = MemoryStorage(
            {name: each.after_crash(rng, holes=holes) for name, each in names.items()}
        )
        left.holes = sum(each.holes for each in names.values())
        return left


class MemoryPlace:
    """The data directory of a simulated process, on a disk in memory."""

    shown = "disk"

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    def is_there(self) -> bool:
        """Whether the directory was used before."""
        return True

    def open(self) -> MemoryStorage:
        """Create the directory if necessary, and lock it for this process.

        Raises :class:`ConfigError` if that is impossible.
        """
        return self._storage

    def close(self) -> None:
        """Unlock the directory; another process may use it now."""
