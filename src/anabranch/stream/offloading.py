"""Compressed blocks that are in a file, so that a stream may be larger than memory.

A block whose compressed form is offloaded has an :class:`Offloaded` in the place of the bytes. Who
opens the block reads them back. The file is an extension of memory: it has nothing that the log and
the snapshots do not have, and it is gone with the process.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["BlockFile", "BlockLostError", "Offloaded"]


class BlockLostError(Exception):
    """A block cannot be read back. Only the log and the snapshots have its entries now."""


class BlockFile(Protocol):
    """Where compressed blocks go."""

    held: int
    """Bytes of the blocks that are in the file now."""

    def write(self, data: bytes) -> Offloaded | None:
        """Put bytes into the file; None if it has no room for them."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes as they were written. Raises :class:`BlockLostError`."""

    def free(self, offset: int, size: int) -> None:
        """Give the room of bytes back; any thread may call it."""

    def collect(self) -> None:
        """Take over what was given back. Call it now and then."""


class Offloaded:
    """Bytes in a block file. Their room is free again when nothing refers to this object."""

    __slots__ = ("file", "offset", "size")

    def __init__(self, file: BlockFile, offset: int, size: int) -> None:
        self.file = file
        self.offset = offset
        self.size = size

    def read(self) -> bytes:
        """The bytes. Raises :class:`BlockLostError`."""
        return self.file.read(self.offset, self.size)

    def __del__(self) -> None:
        self.file.free(self.offset, self.size)
