"""A full sync that is being sent, and can continue over a later link.

The bytes that were sent last may be lost with a link, so they are kept: as many as a peer usually
accepts in advance. A transfer whose link has ended waits for its peer for a while, and keeps the
frozen values of the snapshot meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Final

from anabranch.replication.frames import FullSyncBegin

WAIT_MS: Final = 15_000.0
"""How long a transfer waits for the next link."""

KEPT_BYTES: Final = 16 << 20


class Transfer:
    """The sending side of a full sync."""

    def __init__(self, begin: FullSyncBegin, chunks: Iterator[bytes], *, is_whole: bool) -> None:
        """``is_whole``: it covers all keys, so that continuing it is worthwhile."""
        self.begin = begin
        self.is_whole = is_whole
        self.is_sent = False
        """Whether all bytes were sent; some may not have arrived."""
        self.sent = 0
        """Count of sent bytes from the beginning of the snapshot."""
        self.until_ms = 0.0
        """Until when it waits for its peer."""
        self._chunks = chunks
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._again: deque[bytes] = deque()  # sent, and to be sent again after a link has ended

    def next_chunk(self) -> bytes | None:
        """The next bytes to send; empty if the slice of time is over, None at the end.

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
        """Continue at an offset; fails if the bytes from there on were not kept.

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
        """End the transfer and release the frozen values."""
        if isinstance(self._chunks, Generator):
            self._chunks.close()
