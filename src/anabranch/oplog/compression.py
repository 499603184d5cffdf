"""zstd at fast levels, for batches and snapshot records above some length.

Entries of a stream resemble one another, also in their framing, so many entries together compress
well. Short bodies are not compressed.
"""

from __future__ import annotations

from typing import Final

import zstandard

WORTHWHILE_BYTES: Final = 512
"""Below this the frame costs more than it saves."""

FRAME_HEADER_BYTES_MAX: Final = 18
"""Bytes at the beginning that contain the length of the body."""

_LEVEL: Final = 1

_SHORT_BYTES: Final = 4096
"""Shorter bodies are compressed without Huffman codes: half the time, a tenth to a fifth longer."""

_SHORT_LEVEL: Final = -1

_LONG_BYTES: Final = 1 << 20
"""Of a longer body some samples are compressed first, because nothing else runs meanwhile."""

_SAMPLES: Final = 16
_SAMPLE_BYTES: Final = 8 * 1024

CompressionError = zstandard.ZstdError
"""The bytes were not made by a :class:`Compressor`."""


class Compressor:
    """Compresses bodies; serves one thread at a time."""

    def __init__(self) -> None:
        # Made when they are used first:
        self._compressor: zstandard.ZstdCompressor | None = None
        self._of_short: zstandard.ZstdCompressor | None = None

    def shorter(self, body: bytes) -> bytes | None:
        """The compressed body; None if it is not shorter. Raises :class:`MemoryError`."""
        if len(body) < WORTHWHILE_BYTES:
            return None
        if len(body) < _SHORT_BYTES:
            if self._of_short is None:
                self._of_short = zstandard.ZstdCompressor(level=_SHORT_LEVEL)
            compressor = self._of_short
        else:
            if self._compressor is None:
                self._compressor = zstandard.ZstdCompressor(level=_LEVEL)
            compressor = self._compressor
        if len(body) > _LONG_BYTES and not self._may_shrink(body):
            return None
        try:
            smaller: bytes = compressor.compress(body)
        except zstandard.ZstdError as problem:  # only a lack of memory can cause it
            raise MemoryError(str(problem)) from None
        return smaller if len(smaller) < len(body) else None

    def shorter_in_parts(self, body: list[bytes]) -> bytes | None:
        """The compressed body, given in parts that are not joined; None if it is not shorter."""
        if len(body) == 1:
            return self.shorter(body[0])
        size = sum(map(len, body))
        if not any(self._may_shrink(part) for part in body if len(part) > _LONG_BYTES):
            return None
        try:
            stream = zstandard.ZstdCompressor(level=_LEVEL).compressobj(size=size)
            parts = [stream.compress(part) for part in body]
            parts.append(stream.flush())
        except zstandard.ZstdError as problem:
            raise MemoryError(str(problem)) from None
        smaller = b"".join(parts)
        return smaller if len(smaller) < size else None

    def _may_shrink(self, body: bytes) -> bool:
        """Whether any of some samples, evenly spread over the body, becomes shorter."""
        step = (len(body) - _SAMPLE_BYTES) // (_SAMPLES - 1)
        lows = range(0, step * _SAMPLES, step)
        return any(self.shorter(body[low : low + _SAMPLE_BYTES]) is not None for low in lows)


def expanded_bytes(smaller: bytes | memoryview) -> int:
    """The length of :func:`expanded`, from the first bytes; raises :class:`CompressionError`.

    -1 if the bytes do not contain the length; those of a :class:`Compressor` always do.
    """
    return zstandard.frame_content_size(smaller)


_decompressor = zstandard.ZstdDecompressor()


def expanded(smaller: bytes | memoryview, most: int) -> bytes:
    """The decompressed body; raises :class:`CompressionError`. One thread at a time.

    Memory is allocated for the announced length, so a body above ``most`` is refused.
    """
    size = expanded_bytes(smaller)
    if not 0 <= size <= most:
        raise CompressionError(f"{size} bytes are announced where {most} are allowed")
    body: bytes = _decompressor.decompress(smaller, allow_extra_data=False)
    return body
