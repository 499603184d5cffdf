"""A storage that is only read: everything written to it stays in memory.

Recovery repairs what a crash has left. With an overlay over the disk the same code can recover a
directory without changing a byte of it.
"""

from __future__ import annotations

from io import BytesIO

from anabranch.oplog.storage import Storage, StoredFile


class _OverlayFile:
    """A file that is changed in memory only; a write goes to its end."""

    def __init__(self, data: bytearray) -> None:
        self._data = data

    def write(self, data: bytes) -> None:
        self._data += data

    def sync(self) -> None:
        pass

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def overwrite(self, offset: int, data: bytes) -> None:
        self._data[offset : offset + len(data)] = data

    def is_there(self) -> bool:
        return True

    def close(self) -> None:
        pass


class Overlay:
    """A :class:`Storage` on top of another one; changes stay in memory."""

    def __init__(self, below: Storage) -> None:
        self._below = below
        self._changed: dict[str, bytearray] = {}
        self._gone: set[str] = set()

    @property
    def boot(self) -> str:
        """The boot ID of the machine; empty if unknown.

        With the same boot ID everything written still exists, with another one what was synced.
        """
        return self._below.boot

    def is_there(self) -> bool:
        """Whether the directory is still the one that was opened, neither deleted nor replaced."""
        return True

    def names(self) -> list[str]:
        """All files in it."""
        return sorted({*self._below.names(), *self._changed} - self._gone)

    def size(self, name: str) -> int:
        """Bytes in a file."""
        self._refuse_gone(name)
        changed = self._changed.get(name)
        return self._below.size(name) if changed is None else len(changed)

    def open(self, name: str) -> StoredFile:
        """Read a file."""
        self._refuse_gone(name)
        changed = self._changed.get(name)
        return self._below.open(name) if changed is None else BytesIO(bytes(changed))

    def create(self, name: str) -> _OverlayFile:
        """A new, empty file; one of that name is replaced."""
        self._gone.discard(name)
        self._changed[name] = bytearray()
        return _OverlayFile(self._changed[name])

    def append(self, name: str) -> _OverlayFile:
        """Open an existing file for writing at its end."""
        return _OverlayFile(self._own(name))

    def patch(self, name: str) -> _OverlayFile:
        """Open an existing file for overwriting parts of it."""
        return _OverlayFile(self._own(name))

    def rename(self, name: str, target: str) -> None:
        """Rename a file; replaces a file of the new name."""
        self._changed[target] = self._own(name)
        self._gone.discard(target)
        self.remove(name)

    def remove(self, name: str) -> None:
        """Delete a file."""
        self.size(name)  # raises if the file does not exist
        self._changed.pop(name, None)
        self._gone.add(name)

    def sync(self) -> None:
        """Return when all changes of names are on the disk; does not sync contents of files."""

    def shown(self, name: str) -> str:
        """The name for messages: the whole path."""
        return self._below.shown(name)

    def _own(self, name: str) -> bytearray:
        if name not in self._changed:
            file = self.open(name)
            self._changed[name] = bytearray(file.read())
            file.close()
        return self._changed[name]

    def _refuse_gone(self, name: str) -> None:
        if name in self._gone:
            raise FileNotFoundError(2, "No such file or directory", self.shown(name))
