"""A block file in memory, as large as a test wants it."""

from __future__ import annotations

from anabranch.stream.offloading import BlockLostError, Offloaded


class Shelf:
    """A :class:`anabranch.stream.offloading.BlockFile`."""

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.kept: dict[int, bytes] = {}
        self.held = 0

    def write(self, data: bytes) -> Offloaded | None:
        if self.held + len(data) > self.room:
            return None
        offset = max(self.kept, default=0) + 1
        self.kept[offset] = data
        self.held += len(data)
        return Offloaded(self, offset, len(data))

    def read(self, offset: int, size: int) -> bytes:
        if offset not in self.kept:
            raise BlockLostError("it is gone")
        assert len(self.kept[offset]) == size
        return self.kept[offset]

    def free(self, offset: int, size: int) -> None:
        self.held -= size
        self.kept.pop(offset, None)

    def collect(self) -> None:
        pass
