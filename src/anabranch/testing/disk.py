"""The disk of a server under test: the real one, which can be full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from anabranch.oplog.storage import LogFile
from anabranch.server.disk import Directory


class Disk:
    """What a test can do to the disk of a server that keeps its data."""

    def __init__(self, on_free: Callable[[], None]) -> None:
        """``on_free`` is called when writes succeed again."""
        self._is_full = False
        self._on_free = on_free

    def full(self) -> None:
        """From now on every write to log and snapshots fails: "No space left on device"."""
        self._is_full = True

    def free(self) -> None:
        """Writes succeed again; what waited is written before this method returns."""
        self._is_full = False
        self._on_free()

    def require_space(self) -> None:
        """Raise what the system raises when the disk is full."""
        if self._is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_directory(self, path: Path) -> Directory:
        """The directory of a server, on this disk."""
        return _LimitedDirectory(path, self)


class _LimitedDirectory(Directory):
    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path)
        self._disk = disk

    def create(self, name: str) -> LogFile:
        """A new file, which can be full."""
        return _LimitedFile(super().create(name), self._disk)

    def append(self, name: str) -> LogFile:
        """A file that exists, which can be full."""
        return _LimitedFile(super().append(name), self._disk)


class _LimitedFile:
    def __init__(self, file: LogFile, disk: Disk) -> None:
        self._file = file
        self._disk = disk
        self.sync = file.sync
        self.truncate = file.truncate
        self.is_there = file.is_there
        self.close = file.close

    def write(self, data: bytes) -> None:
        self._disk.require_space()
        self._file.write(data)
