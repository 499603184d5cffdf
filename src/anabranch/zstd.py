"""Frames of zstd (RFC 8878). Only this module knows the library that makes and reads them.

Each frame announces the length of its contents, and stands alone: it needs no dictionary, and
nothing follows it. docs/decisions/0019-pyzstd-below-0.19.md has the choice of the library.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_le
from pyzstd import EndlessZstdDecompressor, ZstdCompressor, ZstdError

__all__ = [
    "HEADER_BYTES_MAX", "MAGIC", "FrameCompressor", "ZstdError", "announced_bytes",
    "compressed_in_parts", "expanded", "opened",
]  # fmt: skip

MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""The first bytes of a frame."""

_MAGIC_NUMBER: Final = int.from_bytes(MAGIC, "little", signed=True)

HEADER_BYTES_MAX: Final = 18
"""So many first bytes of a frame contain the length of its contents."""

CONTENTS_BYTES_MAX: Final = (1 << 32) - 1
"""The most bytes that :func:`expanded` returns: a record of a snapshot cannot be longer."""

_EXPANSION_MAX: Final = 1 << 15
"""So many bytes one compressed byte becomes at most: a block of four becomes 128 KB."""

_WHOLE: Final = ZstdCompressor.FLUSH_FRAME

_idle: Final[list[EndlessZstdDecompressor]] = []
"""Decompressors at the end of a frame: a new one costs as much as some frames. Whoever uses one
takes it out, so threads do not share any, and one that stands elsewhere is never used again."""


class FrameCompressor:
    """Makes frames at one level. Several threads may use it."""

    def __init__(self, level: int) -> None:
        self._compress = ZstdCompressor(level).compress

    def compress(self, contents: bytes) -> bytes:
        """The frame of these contents. Raises :class:`MemoryError`."""
        try:
            return self._compress(contents, _WHOLE)
        except ZstdError as problem:  # only a lack of memory can cause it
            raise MemoryError(str(problem)) from None


def compressed_in_parts(parts: list[bytes], level: int) -> bytes:
    """One frame of contents that come in parts and are not joined; raises :class:`MemoryError`."""
    compressor = ZstdCompressor(level)
    # Only so does the frame announce a length. Python's own module has the method as a public one.
    compressor._set_pledged_input_size(sum(map(len, parts)))  # noqa: SLF001
    try:
        frame = [compressor.compress(part) for part in parts]
        frame.append(compressor.flush())
        return b"".join(frame)
    except ZstdError as problem:
        raise MemoryError(str(problem)) from None


def announced_bytes(frame: bytes | memoryview) -> int:
    """The length of the contents, from the first bytes; :class:`ZstdError` if it is not there.

    The function of the library takes as long as decompressing a short frame.
    """
    head = frame if isinstance(frame, bytes) else bytes(frame[:HEADER_BYTES_MAX])
    if len(head) <= len(MAGIC) or read_i32_le(head, 0) != _MAGIC_NUMBER:
        raise ZstdError("no frame begins here")
    flags = head[len(MAGIC)]
    is_single = flags >> 5 & 1
    width = 1 << (flags >> 6) if flags >> 6 else is_single
    at = len(MAGIC) + 2 - is_single  # behind the flags, and behind the size of a window
    if flags & 3 or not width or len(head) < at + width:
        raise ZstdError("a frame does not say how long its contents are, or needs a dictionary")
    if width == 2:
        return 256 + (head[at] | head[at + 1] << 8)
    return int.from_bytes(head[at : at + width], "little")


def expanded(frame: bytes | memoryview, most: int = CONTENTS_BYTES_MAX) -> bytes:
    """The contents of a frame that anybody may have made. Raises :class:`ZstdError`.

    Memory is allocated for the announced length, so a frame that announces more than ``most`` is
    refused, and one that announces more than so few bytes can become.
    """
    size = announced_bytes(frame)
    most = min(most, len(frame) * _EXPANSION_MAX)
    if size > most:
        raise ZstdError(f"{size} bytes are announced where {most} are allowed")
    return _decompressed(frame, size)


def opened(frame: bytes) -> bytes:
    """The contents of a frame that this process has made; quicker than :func:`expanded`."""
    return _decompressed(frame, -1)


def _decompressed(frame: bytes | memoryview, most: int) -> bytes:
    try:
        decompressor = _idle.pop()
    except IndexError:
        decompressor = EndlessZstdDecompressor()
    contents = decompressor.decompress(frame, most)
    if not decompressor.at_frame_edge:
        raise ZstdError("a frame is cut off, or something follows it")
    _idle.append(decompressor)
    return contents
