"""The real disk: one directory that belongs to one server at a time."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from anabranch.errors import ConfigError
from anabranch.oplog.storage import LogFile

__all__ = ["Directory", "lock_directory"]

_LOCK: Final = "lock"


class _File:
    """A file written at its end, without a buffer of ours."""

    def __init__(self, path: Path, flags: int) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_APPEND | flags, 0o644)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._handle, rest) :]

    def sync(self) -> None:
        os.fdatasync(self._handle)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._handle, size)

    def close(self) -> None:
        os.close(self._handle)


class Directory:
    """A :class:`anabranch.oplog.storage.Storage` on the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        """See :class:`Storage`."""
        return [each.name for each in os.scandir(self.path) if each.is_file()]

    def size(self, name: str) -> int:
        """See :class:`Storage`."""
        return (self.path / name).stat().st_size

    def open(self, name: str) -> IO[bytes]:
        """See :class:`Storage`."""
        return (self.path / name).open("rb", buffering=1 << 20)

    def create(self, name: str) -> LogFile:
        """See :class:`Storage`."""
        return _File(self.path / name, os.O_CREAT | os.O_TRUNC)

    def append(self, name: str) -> LogFile:
        """See :class:`Storage`."""
        return _File(self.path / name, 0)

    def rename(self, name: str, target: str) -> None:
        """See :class:`Storage`."""
        os.replace(self.path / name, self.path / target)

    def remove(self, name: str) -> None:
        """See :class:`Storage`."""
        os.unlink(self.path / name)

    def sync(self) -> None:
        """See :class:`Storage`."""
        _sync_names(self.path)

    def shown(self, name: str) -> str:
        """See :class:`Storage`."""
        return str(self.path / name)


def _sync_names(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_directory(path: Path) -> IO[bytes]:
    """Make the directory, and have it for ourselves until the file returned is closed.

    Raises :class:`ConfigError` if another server has it, or if it cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _sync_names(path.parent)  # or a power failure could take the directory with all in it
        file = (path / _LOCK).open("a+b")
    except OSError as problem:
        raise ConfigError(
            f"cannot keep data in {path}: {problem.strerror}. Give another --dir, let this user "
            "write there, or start with --appendonly no to keep data in memory only"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read(32).decode("ascii", "replace").strip()
        file.close()
        raise ConfigError(
            f"another server{f' (pid {owner})' if owner else ''} is using {path}. "
            "Stop it, or give this one a --dir of its own"
        ) from None
    with suppress(OSError):
        file.truncate(0)
        file.write(b"%d\n" % os.getpid())
        file.flush()
    return file
