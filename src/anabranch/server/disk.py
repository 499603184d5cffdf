"""The real disk: one directory that belongs to one server at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import IO, Final

from anabranch.compiling import mypyc_attr
from anabranch.config.settings import Settings
from anabranch.errors import ConfigError
from anabranch.oplog.storage import LogFile, PatchFile

_LOCK: Final = "lock"
_PID_BYTES: Final = 32
"""The greatest length of a process ID with end of line."""
_OF_LOCKS: Final = b"0123456789\n\0"
"""What a lock consists of; a power failure can leave zeros, because the file is not synced."""
_PIECE_BYTES: Final = 1 << 16
_write: Final = os.write  # a name of an interpreted module is looked up each time
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class _DiskFile:
    """A file that is written without a buffer in Python, at its end or in place."""

    def __init__(self, path: Path, flags: int) -> None:
        self._path = str(path)
        self._handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o644)
        self._status = os.fstat(self._handle)

    def write(self, data: bytes) -> None:
        written = _write(self._handle, data)
        while written < len(data):
            written += _write(self._handle, memoryview(data)[written:])

    def overwrite(self, offset: int, data: bytes) -> None:
        os.pwrite(self._handle, data, offset)

    def sync(self) -> None:
        os.fdatasync(self._handle)

    def is_there(self) -> bool:
        return has_name(self._status, self._path)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._handle, size)

    def close(self) -> None:
        os.close(self._handle)


@mypyc_attr(allow_interpreted_subclasses=True)
class Directory:
    """A :class:`anabranch.oplog.storage.Storage` on the file system."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_path = str(path / _LOCK)
        self.lock: IO[bytes] | None = None
        """What :func:`lock_directory` has returned, if it was called."""
        self._boot: str | None = None
        self._handle: int | None = None

    @property
    def boot(self) -> str:
        """The ID of the present run of the system, by which a restart is noticed."""
        if self._boot is None:
            self._boot = ""
            with suppress(OSError):
                self._boot = _BOOT_ID.read_text().strip()
        return self._boot

    def is_there(self) -> bool:
        """Whether the directory was used before."""
        return self.lock is None or has_name(os.fstat(self.lock.fileno()), self._lock_path)

    def names(self) -> list[str]:
        """The names of all files in the directory."""
        return [each.name for each in os.scandir(self.path) if each.is_file()]

    def size(self, name: str) -> int:
        """The size of a file in bytes."""
        return (self.path / name).stat().st_size

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading; of a directory: create and lock it."""
        return (self.path / name).open("rb", buffering=1 << 20)

    def create(self, name: str) -> LogFile:
        """Make an empty file, or empty one, for writing."""
        return _DiskFile(self.path / name, os.O_APPEND | os.O_CREAT | os.O_TRUNC)

    def append(self, name: str) -> LogFile:
        """Open a file for writing at its end."""
        return _DiskFile(self.path / name, os.O_APPEND)

    def patch(self, name: str) -> PatchFile:
        """Open a file for writing at any place."""
        return _DiskFile(self.path / name, 0)

    def rename(self, name: str, target: str) -> None:
        """Give a file another name, in place of a file that has it."""
        os.replace(self.path / name, self.path / target)

    def remove(self, name: str) -> None:
        """Delete a file without waiting until its contents are freed.

        The system frees the contents of a file when its name is gone and nobody has it open. That
        takes tens of milliseconds for some hundred megabytes, so a thread does it.
        """
        path = self.path / name
        try:
            last = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # too many open files, for example
            os.unlink(path)
            return
        try:
            os.unlink(path)
        finally:
            _close_elsewhere(last)

    def sync(self) -> None:
        """Sync the directory: files that were made, renamed or removed.

        The directory stays open: later syncs must not fail because too many files are open.
        """
        if self._handle is None:
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.fsync(self._handle)

    def close(self) -> None:
        """Unlock the directory for other processes."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)

    def shown(self, name: str) -> str:
        """The path for messages to operators."""
        return str(self.path / name)


class DataDirectory:
    """The directory of the settings, a :class:`anabranch.node.driver.ProcessDirectory`."""

    def __init__(
        self, settings: Settings, open_directory: Callable[[Path], Directory] = Directory
    ) -> None:
        self._settings = settings
        self._open_directory = open_directory
        self._lock: IO[bytes] | None = None
        self._directory: Directory | None = None

    @property
    def _path(self) -> Path:
        return Path(self._settings.dir) / self._settings.appenddirname

    @property
    def shown(self) -> str:
        """The path for messages to operators."""
        return str(self._path)

    def is_there(self) -> bool:
        """Whether the directory was used before."""
        return self._path.is_dir()

    def open(self) -> Directory:
        """Open a file for reading; of a directory: create and lock it."""
        self._lock = lock_directory(self._path)
        directory = self._directory = self._open_directory(self._path)
        directory.lock = self._lock
        return directory

    def close(self) -> None:
        """Unlock the directory for other processes."""
        if self._directory is not None:
            self._directory.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def has_name(status: os.stat_result, path: str) -> bool:
    """Whether a path still leads to the file: it was neither deleted nor replaced."""
    try:
        return os.path.samestat(status, os.stat(path))
    except OSError:
        return False


def _close_elsewhere(handle: int) -> None:
    """Close a file in a thread of its own, or here if the system cannot start one."""
    try:
        Thread(target=os.close, args=(handle,), name="remove").start()
    except RuntimeError:
        os.close(handle)


def _sync_names(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_directory(path: Path) -> IO[bytes]:
    """Make the directory, and lock it until the returned file is closed.

    Raises :class:`ConfigError` if another server has it, or if it cannot be written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        _sync_names(path.parent)  # or a power failure could take the directory with all in it
        # Without a buffer, which could not be closed on a full disk.
        file = (path / _LOCK).open("a+b", buffering=0)
    except OSError as problem:
        raise ConfigError(
            f"cannot keep data in {path}: {problem.strerror}. Give another --dir, let this user "
            "write there, or start with --appendonly no to keep data in memory only"
        ) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = file.read(_PID_BYTES).decode("ascii", "replace").strip("\0 \n")
        file.close()
        raise ConfigError(
            f"another server{f' (pid {owner})' if owner else ''} is using {path}. "
            "Stop it, or give this one a --dir of its own"
        ) from None
    file.seek(0)
    if any(piece.strip(_OF_LOCKS) for piece in iter(lambda: file.read(_PIECE_BYTES), b"")):
        file.close()
        raise ConfigError(
            f"{path / _LOCK} is not the lock of a server: it holds other data, and was not "
            "changed. Move it to where it belongs; a start makes another one"
        )
    with suppress(OSError):
        file.truncate(0)
        file.write(b"%d\n" % os.getpid())
    return file
