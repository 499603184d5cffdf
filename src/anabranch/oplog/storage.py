"""The file operations that a log needs; tests and the simulator have their own disks.

Names are plain file names in one directory. Every operation may raise :class:`OSError`, and callers
must handle any state that a failed operation leaves.
"""

from __future__ import annotations

from typing import Protocol


class _OpenFile(Protocol):
    """A file that is open for writing."""

    def sync(self) -> None:
        """Return when everything written before is on the disk. May be called from a thread."""

    def is_there(self) -> bool:
        """Whether the name still leads to this file: it was neither deleted nor replaced."""

    def close(self) -> None:
        """Let go of the file, synced or not."""


class LogFile(_OpenFile, Protocol):
    """A file that is written at its end."""

    def write(self, data: bytes) -> None:
        """Append all of it. After an error any part of it may be written."""

    def truncate(self, size: int) -> None:
        """Cut to ``size`` bytes; later writes continue there."""


class PatchFile(_OpenFile, Protocol):
    """A file that is overwritten in place and never changes its size."""

    def overwrite(self, offset: int, data: bytes) -> None:
        """Replace bytes; after an error any part of them may be written."""


class ReadFile(Protocol):
    """A file that is read from its beginning."""

    def read(self, count: int = -1, /) -> bytes:
        """At most ``count`` bytes, fewer only at the end; -1 reads the rest."""

    def close(self) -> None:
        """Let go of the file."""


class StoredFile(ReadFile, Protocol):
    """A file of a storage."""

    def seek(self, offset: int, /) -> int:
        """Read on at this byte, which may be behind the end; returns it."""


class Storage(Protocol):
    """One directory."""

    @property
    def boot(self) -> str:
        """The boot ID of the machine; empty if unknown.

        With the same boot ID everything written still exists, with another one what was synced.
        """

    def is_there(self) -> bool:
        """Whether the directory is still the one that was opened, neither deleted nor replaced."""

    def names(self) -> list[str]:
        """All files in it."""

    def size(self, name: str) -> int:
        """Bytes in a file."""

    def open(self, name: str) -> StoredFile:
        """Read a file."""

    def create(self, name: str) -> LogFile:
        """A new, empty file; one of that name is replaced."""

    def append(self, name: str) -> LogFile:
        """Open an existing file for writing at its end."""

    def patch(self, name: str) -> PatchFile:
        """Open an existing file for overwriting parts of it."""

    def rename(self, name: str, target: str) -> None:
        """Rename a file; replaces a file of the new name."""

    def remove(self, name: str) -> None:
        """Delete a file."""

    def sync(self) -> None:
        """Return when all changes of names are on the disk; does not sync contents of files."""

    def shown(self, name: str) -> str:
        """The name for messages: the whole path."""
