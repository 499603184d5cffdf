"""A snapshot on its way to another region, which can go on over a later link.

What was sent last may be lost with a link, so it is kept: as much as a peer usually lets us send
ahead. A transfer whose link has ended waits for its peer a while; it holds on to what the snapshot
has frozen meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Final

from anabranch.replication.frames import FullSyncBegin

__all__ = ["WAIT_MS", "Transfer"]

WAIT_MS: Final = 15_000.0
"""How long both sides wait for each other after their link has ended."""

KEPT_BYTES: Final = 16 << 20


class Transfer:
    """The sending side of one."""

    def __init__(self, begin: FullSyncBegin, chunks: Iterator[bytes], *, is_whole: bool) -> None:
        """``is_whole``: it is of everything, and worth to go on with."""
        self.begin = begin
        self.is_whole = is_whole
        self.is_sent = False
        """Whether all of it was sent; it may not have arrived."""
        self.sent = 0
        """Bytes, from the beginning of the snapshot."""
        self.until_ms = 0.0
        """It waits for its peer until then."""
        self._chunks = chunks
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._again: deque[bytes] = deque()  # sent, and to be sent once more

    def take(self) -> bytes | None:
        """The next bytes to send, empty if others have their turn before; None at the end.

        Raises :class:`OSError`.
        """
        chunk = self._again.popleft() if self._again else next(self._chunks, None)
        if chunk:
            self.sent += len(chunk)
            self._kept.append(chunk)
            self._kept_bytes += len(chunk)
            while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
                self._kept_bytes -= len(self._kept.popleft())
        self.is_sent = chunk is None
        return chunk

    def go_back(self, offset: int) -> bool:
        """Go on at an offset, or not if what stood there is not at hand any more.

        An offset lies between two chunks: they arrive whole or not at all.
        """
        while self.sent > offset and self._kept:
            chunk = self._kept.pop()
            self._kept_bytes -= len(chunk)
            self.sent -= len(chunk)
            self._again.appendleft(chunk)
        self.is_sent = False
        return self.sent == offset

    def close(self) -> None:
        """Nobody will go on with it: let go of what the snapshot holds."""
        if isinstance(self._chunks, Generator):
            self._chunks.close()
