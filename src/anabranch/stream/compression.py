"""Packed blocks, and a bounded cache of those that were opened to be read.

Each block is packed alone, as a frame of zstd: at a fast level and without a dictionary, or, while
there is memory, as a *plain* frame, whose contents stand in it as they are. A plain frame pays for
columns only, which take less than entries do. Opening it costs no decompression; any decoder of
zstd reads both. The reasons are in docs/decisions/0020-each-block-is-compressed-alone.md.

IDs that ascend by one are not written at all; others are written byte by byte, all first bytes of
the words, then all second ones, without bytes that are zero in all of them. Entries with the same
field names are written as columns (:mod:`anabranch.stream.columnar`), others as they are, with
their sizes, which compress better than offsets.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from itertools import accumulate
from operator import sub
from struct import Struct
from typing import Final, Protocol

import zstandard

from anabranch.stream.columnar import Columns, to_columns
from anabranch.stream.offloading import BlockFile, Offloaded
from anabranch.stream.packed_ids import WORD_BYTES, PackedIds

_HEAD: Final = Struct("=QQI1sB")
"""First millisecond, first word, how many entries, form, which bytes of the words are written.

The form is :data:`_COLUMNS`, or the type of the sizes of fragments. Bytes that are zero in all
words are not written, and none if the IDs ascend by one. The lowest bit is for the lowest byte."""

_COLUMNS: Final = b"C"

_GAIN_MIN = 1.2
"""A block stays as it is if it does not get smaller by this factor. Tests change it."""

_PLAIN_GAIN_MIN = 1.6
"""The same for a plain frame: each read of columns has to write again what they leave out."""

_NO_ENDS: Final = array("H")

_Contents = tuple[PackedIds, "array[int]", bytes]

_decompress: Final = zstandard.ZstdDecompressor().decompress

_PLAIN: Final = Struct("<IBI")
"""The head of a plain frame: magic number, descriptor, size of the contents. RFC 8878, 3.1.1."""

_MAGIC: Final = 0xFD2FB528
_DESCRIPTOR: Final = 0xA0
"""A single segment, whose size has four bytes."""

_PLAIN_AT: Final = _PLAIN.size + 3
"""Where the contents of a plain frame begin: after the head of its only block."""

_RAW_LAST: Final = 1
"""The lowest three bits of the head of a block that is the last one and not compressed."""

_PLAIN_MAX: Final = 1 << 17
"""The largest block of a frame of zstd."""


def plain_frame(contents: bytes) -> bytes:
    """A frame of zstd whose only block is not compressed; at most :data:`_PLAIN_MAX` bytes."""
    size = len(contents)
    head = _PLAIN.pack(_MAGIC, _DESCRIPTOR, size)
    return head + (size << 3 | _RAW_LAST).to_bytes(3, "little") + contents


def is_plain(packed: bytes | Offloaded | None) -> bool:
    """Whether this is a frame whose contents stand in it as they are, from one place on."""
    return (
        isinstance(packed, bytes)
        and len(packed) > _PLAIN_AT
        and packed[4] == _DESCRIPTOR
        and packed[9] & 7 == _RAW_LAST
    )


def compressed(
    ids: PackedIds,
    ends: array[int],
    data: bytes,
    compressor: zstandard.ZstdCompressor | None,
    *,
    if_smaller: bool = True,
) -> bytes | None:
    """IDs, end offsets and fragments of a block in one piece.

    Fragments are written as columns if that is possible. None if all this saves little, unless
    ``if_smaller`` is false. Without a compressor it becomes a plain frame; None if it would have no
    columns.
    """
    columns = to_columns(ids, ends, data)
    if columns is None:
        if compressor is None:
            return None
        sizes = list(map(sub, ends, [0, *ends]))
        widest = max(sizes)
        type_of_sizes = "B" if widest < 1 << 8 else "H" if widest < 1 << 16 else "Q"
        form, contents = type_of_sizes.encode(), [array(type_of_sizes, sizes).tobytes(), data]
    else:
        form, contents = _COLUMNS, [columns]
    count = len(ids)
    first = ids.word_at(0)
    written = 0
    planes = []
    if ids.word_at(count - 1) - first != count - 1:
        for byte in range(WORD_BYTES):
            plane = ids.words[byte::WORD_BYTES]
            if plane.count(0) < count:
                planes.append(plane)
                written |= 1 << byte
    head = _HEAD.pack(ids.base_ms, first, count, form, written)
    whole = b"".join((head, *planes, *contents))
    held = len(data) + count * (WORD_BYTES + ends.itemsize)
    if compressor is None:
        is_smaller = len(whole) * _PLAIN_GAIN_MIN < held and len(whole) <= _PLAIN_MAX
        return plain_frame(whole) if is_smaller else None
    smaller: bytes = compressor.compress(whole)
    if if_smaller and len(smaller) * _GAIN_MIN >= held:
        return None
    return bytes(memoryview(smaller))  # a copy, because the buffer has the size of the worst case


def expanded(packed: bytes) -> _Contents:
    """The arguments that :func:`compressed` was called with."""
    ids, columns, ends, data = opened(packed)
    if columns is not None:
        ends, data = columns.whole()
    return ids, ends, data


def opened(packed: bytes) -> tuple[PackedIds, Columns | None, array[int], bytes]:
    """IDs and columns, if the entries were written as columns; else IDs, offsets and fragments.

    With columns, offsets and fragments are empty.
    """
    at = _PLAIN_AT if is_plain(packed) else 0
    whole: bytes = packed if at else _decompress(packed)
    base_ms, first, count, form, written = _HEAD.unpack_from(whole, at)
    at += _HEAD.size
    if not written:
        ids = PackedIds.run(base_ms, first, count)
    else:
        plain = bytearray(count * WORD_BYTES)
        for byte in range(WORD_BYTES):
            if written >> byte & 1:
                plain[byte::WORD_BYTES] = whole[at : at + count]
                at += count
        ids = PackedIds(base_ms, bytes(plain))
    if form == _COLUMNS:
        return ids, Columns(ids, whole, at), _NO_ENDS, b""
    sizes = array(form.decode())
    data_at = at + count * sizes.itemsize
    sizes.frombytes(whole[at:data_at])
    data = whole[data_at:]
    return ids, None, array("H" if len(data) < 1 << 16 else "Q", list(accumulate(sizes))), data


class Shuttable(Protocol):
    """A compressed block that a reader has opened."""

    def shut(self) -> None:
        """Drop what was made of the compressed bytes."""


class BlockCache:
    """Compressed blocks that were opened, in the order in which they were opened or resized.

    A block stays open until the blocks opened after it fill the cache, or for some time. So blocks
    of streams that are deleted or not read any more are closed, too.
    """

    def __init__(self, bytes_max: int = 0, level: int = 1) -> None:
        self.bytes_max = bytes_max
        """The limit of bytes in opened blocks; the block that was opened last always stays open."""
        self._level = level
        self._compressor = zstandard.ZstdCompressor(level=level)
        self._opened: OrderedDict[Shuttable, tuple[int, int]]  # size, count of opens
        self._opened = OrderedDict()
        self.held = 0
        """Bytes that opened blocks hold beside their compressed form."""
        self.filled = 0
        """Bytes of the blocks that became full since the last round of compression began."""
        self.compressions = 0
        """Blocks packed so far."""
        self.saved = 0
        """Bytes that packing has freed so far."""
        self.opens = 0
        """Compressed blocks opened so far."""
        self.file: BlockFile | None = None
        """Where compressed blocks are offloaded to."""
        self.offloads = 0
        """Blocks offloaded so far."""

    def configure(self, bytes_max: int, level: int) -> None:
        """Change the limit and the level of compression."""
        self.bytes_max = bytes_max
        if level != self._level:
            self._level = level
            self._compressor = zstandard.ZstdCompressor(level=level)
        self._shrink()

    def compress(
        self,
        ids: PackedIds,
        ends: array[int],
        data: bytes,
        *,
        if_smaller: bool = True,
        plainly: bool = False,
    ) -> bytes | None:
        """The contents of a block in one piece, as :func:`compressed` makes it.

        ``plainly``: as a plain frame.
        """
        compressor = None if plainly else self._compressor
        return compressed(ids, ends, data, compressor, if_smaller=if_smaller)

    def offload(self, packed: bytes) -> Offloaded | None:
        """Put the compressed form of a block into the file; None if that has no room."""
        offloaded = None if self.file is None else self.file.write(packed)
        if offloaded is not None:
            self.offloads += 1
        return offloaded

    def __contains__(self, block: Shuttable) -> bool:
        return block in self._opened

    def add(self, block: Shuttable, size: int) -> None:
        """Record that a block was opened, and how many more bytes it uses."""
        self.opens += 1
        self._opened[block] = size, self.opens
        self.held += size
        self._shrink()

    def resize(self, block: Shuttable, size: int) -> None:
        """Record that a block uses so many bytes now, as if it had been opened now."""
        before, _ = self._opened.pop(block)
        self._opened[block] = size, self.opens
        self.held += size - before
        self._shrink()

    def discard(self, block: Shuttable) -> None:
        """Forget a block that is not compressed any more."""
        size, _ = self._opened.pop(block, (0, 0))
        self.held -= size

    def shut_oldest(self, upto: int) -> bool:
        """Close the block that was opened first, if ``opens`` was at most this at that time."""
        for _, number in self._opened.values():
            if number <= upto:
                self._shut_first()
                return True
            break
        return False

    def close(self) -> None:
        """Close all blocks: an open one and its cache refer to each other, and would stay."""
        while self._opened:
            self._shut_first()

    def _shrink(self) -> None:
        while self.held > self.bytes_max and len(self._opened) > 1:
            self._shut_first()

    def _shut_first(self) -> None:
        block, (size, _) = self._opened.popitem(last=False)
        self.held -= size
        block.shut()
