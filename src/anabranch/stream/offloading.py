"""Compressed blocks in a file, so that a stream may be larger than memory.

A block whose compressed form is offloaded has an :class:`Offloaded` in the place of the bytes.
Opening the block reads the bytes. The file is an extension of memory: it contains nothing that the
log and the snapshots do not contain, and it ends with the process.
"""

from __future__ import annotations

from typing import Protocol

from anabranch.compiling import mypyc_attr


class BlockLostError(Exception):
    """A block cannot be read back; only the log and the snapshots contain its entries."""


class BlockFile(Protocol):
    """The file of offloaded blocks."""

    held: int
    """The bytes of the blocks that are in the file."""

    def write(self, data: bytes) -> Offloaded | None:
        """Write bytes to the file; None if it has no room for them."""

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes as they were written. Raises :class:`BlockLostError`."""

    def free(self, offset: int, size: int) -> None:
        """Free the room of bytes; any thread may call this."""

    def collect(self) -> None:
        """Reuse room that :meth:`free` has freed. Call this now and then."""


@mypyc_attr(acyclic=True)
class Offloaded:
    """Bytes in a block file. Their room is freed when no reference to this object is left."""

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


def frame_of(packed: bytes | Offloaded) -> bytes:
    """The compressed form of a block, wherever it is. Raises :class:`BlockLostError`."""
    return packed.read() if isinstance(packed, Offloaded) else packed
