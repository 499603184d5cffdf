"""zstd at its fastest level, for batches and snapshot records of some length.

Entries of a stream resemble one another, wire framing and all: of many together a fraction is left.
Short bodies stay as they are.
"""

from __future__ import annotations

from typing import Final

import zstandard

__all__ = ["CompressionError", "Compressor", "expanded"]

WORTHWHILE_BYTES: Final = 512
"""Below this the frame costs more than it saves."""

_LEVEL: Final = 1

CompressionError = zstandard.ZstdError
"""Bytes that are not what a :class:`Compressor` made."""


class Compressor:
    """Makes bodies shorter; serves one thread at a time."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)

    def shorter(self, body: bytes) -> bytes | None:
        """A shorter form, None if there is none."""
        if len(body) < WORTHWHILE_BYTES:
            return None
        smaller: bytes = self._compressor.compress(body)
        return smaller if len(smaller) < len(body) else None


_decompressor = zstandard.ZstdDecompressor()


def expanded(smaller: bytes) -> bytes:
    """The body again; :class:`CompressionError` if it cannot be had. One thread at a time."""
    body: bytes = _decompressor.decompress(smaller)
    return body
