"""The file to which compressed blocks are offloaded: temporary, without a name.

The kernel removes the file when the process ends, however it ends. Each block is written behind a
checksum, which is compared when the block is read back.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import IO, Final

from xxhash import xxh3_64_digest

from anabranch.server.logs import emit_sparingly
from anabranch.stream.offloading import BlockLostError, Offloaded

_CHECKSUM_BYTES: Final = 8

_CUT_BYTES: Final = 16 << 20
"""The file gets shorter by so much at a time, which takes a few milliseconds at most."""


class DiskBlockFile:
    """A :class:`anabranch.stream.offloading.BlockFile` in a directory."""

    def __init__(self, directory: str, on_lost: Callable[[str], None]) -> None:
        """``on_lost`` is called with the reason before a read fails."""
        self._directory = directory
        self._on_lost = on_lost
        self._file: IO[bytes] | None = None
        self._extents = Extents()
        self._freed: deque[tuple[int, int]] = deque()  # appended to by any thread
        self._is_closed = False
        self.held = 0
        self.size = 0
        """Bytes that the file has on the disk, free parts included."""

    def write(self, data: bytes) -> Offloaded | None:
        """Put bytes into the file; None if the disk does not take them, which is logged."""
        self._take_over()
        whole = xxh3_64_digest(data) + data
        offset = self._extents.allocate(len(whole))
        try:
            file = self._opened()
            self.size = max(self.size, offset + len(whole))
            done = 0
            while done < len(whole):
                done += os.pwrite(file.fileno(), whole[done:], offset + done)
        except OSError as problem:
            self._extents.free(offset, len(whole))
            emit_sparingly("error", "tiering.write_failed", reason=str(problem))
            return None
        self.held += len(data)
        return Offloaded(self, offset, len(data))

    def read(self, offset: int, size: int) -> bytes:
        """Return bytes as they were written. Raises :class:`BlockLostError`."""
        assert self._file is not None
        try:
            whole = os.pread(self._file.fileno(), _CHECKSUM_BYTES + size, offset)
        except (OSError, ValueError) as problem:
            return self._lost(f"a block cannot be read back from disk: {problem}")
        data = whole[_CHECKSUM_BYTES:]
        if len(data) != size or xxh3_64_digest(data) != whole[:_CHECKSUM_BYTES]:
            return self._lost("a block that was read back from disk is not as it was written")
        return data

    def _lost(self, reason: str) -> bytes:
        self._on_lost(reason)
        raise BlockLostError(reason)

    def free(self, offset: int, size: int) -> None:
        """Give the room of bytes back; any thread may call it."""
        self._freed.append((offset, size))

    def close(self) -> None:
        """Close the file, which frees it: its blocks cannot be read any more."""
        self._is_closed = True
        if self._file is not None:
            self._file.close()

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            if self._is_closed:
                raise OSError("the server is ending")
            import tempfile  # noqa: PLC0415 - few servers write blocks to a file

            self._file = tempfile.TemporaryFile(  # noqa: SIM115 - open as long as the server runs
                dir=self._directory, prefix="blocks-", buffering=0
            )
        return self._file

    def collect(self) -> None:
        """Take over what was given back; a free end of the file goes back to the disk."""
        self._take_over()
        if self._extents.end < self.size and not self._is_closed:
            assert self._file is not None
            self.size = max(self._extents.end, self.size - _CUT_BYTES)
            os.ftruncate(self._file.fileno(), self.size)

    def _take_over(self) -> None:
        while self._freed:
            offset, size = self._freed.popleft()
            self.held -= size
            self._extents.free(offset, size + _CHECKSUM_BYTES)


# -- parts of the file ----------------------------------------------------------------------------
#
# Allocates parts of a file, and reuses freed parts.
#
# Sizes are rounded up to units. Freed parts are joined with free neighbours, and kept by size; a
# free part at the end is cut off. A request gets a freed part of its size, or a piece of the
# smallest larger one, or a new part at the end of the file.

UNIT: Final = 256
"""Bytes."""


class Extents:
    """The used and the free parts of one file."""

    __slots__ = ("_by_end", "_by_size", "_by_start", "_end", "taken")

    def __init__(self) -> None:
        # Free parts, all in units: no two of them touch, and none is at the end.
        self._by_start: dict[int, int] = {}  # sizes
        self._by_end: dict[int, int] = {}  # starts
        self._by_size: dict[int, dict[int, None]] = {}  # starts
        self._end = 0
        self.taken = 0
        """Bytes in use, in whole units."""

    @property
    def end(self) -> int:
        """Where the last part in use ends, in bytes."""
        return self._end * UNIT

    def allocate(self, size: int) -> int:
        """Return the offset of a part of at least so many bytes."""
        units = -(-size // UNIT)
        self.taken += units * UNIT
        found = units if units in self._by_size else self._smallest_above(units)
        if not found:
            start = self._end
            self._end += units
            return start * UNIT
        start, _ = self._by_size[found].popitem()
        self._remove(start, found)
        if found > units:
            self._add(start + units, found - units)
        return start * UNIT

    def free(self, offset: int, size: int) -> None:
        """Free the part at an offset that :meth:`allocate` returned for this size."""
        units = -(-size // UNIT)
        self.taken -= units * UNIT
        start = offset // UNIT
        after = self._by_start.get(start + units)
        if after is not None:
            self._remove(start + units, after)
            units += after
        before = self._by_end.get(start)
        if before is not None:
            self._remove(before, start - before)
            units += start - before
            start = before
        if start + units == self._end:
            self._end = start
        else:
            self._add(start, units)

    def _smallest_above(self, units: int) -> int:
        return min((each for each in self._by_size if each > units), default=0)

    def _add(self, start: int, units: int) -> None:
        self._by_start[start] = units
        self._by_end[start + units] = start
        self._by_size.setdefault(units, {})[start] = None

    def _remove(self, start: int, units: int) -> None:
        del self._by_start[start], self._by_end[start + units]
        starts = self._by_size[units]
        starts.pop(start, None)
        if not starts:
            del self._by_size[units]
