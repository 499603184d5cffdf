"""Packed blocks, and a bounded cache of those that were opened to be read.

Each block is packed alone, as a frame of zstd without a dictionary. While there is memory it is
packed *lightly*: entries as they are, at a level that writes no entropy codes for literals, so that
opening costs little; only if that makes the block much smaller. Above that it is *compressed*: at a
level that saves more, entries with the same field names as columns
(:mod:`anabranch.stream.columnar`). The reasons are in
docs/decisions/0020-each-block-is-compressed-alone.md.

IDs that ascend by one are not written at all; others are written byte by byte, all first bytes of
the words, then all second ones, without bytes that are zero in all of them. Entries that are not
columns are written with their sizes, which compress better than offsets.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from operator import sub
from struct import Struct
from sys import byteorder
from typing import TYPE_CHECKING, Final, Protocol

from librt.strings import BytesWriter, read_i64_le, write_i64_le

from anabranch import zstd
from anabranch.stream.columnar import Columns, to_columns, write_short
from anabranch.stream.offloading import BlockFile, Offloaded
from anabranch.stream.packed_ids import WORD_BYTES, PackedIds, little

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

_HEAD: Final = Struct("=QQI1sB")
"""First millisecond, first word, how many entries, form, which bytes of the words are written.

The form is :data:`_COLUMNS`, or the type of the sizes of fragments. Bytes that are zero in all
words are not written, and none if the IDs ascend by one. The lowest bit is for the lowest byte."""

_COLUMNS: Final = b"C"

_GAIN_MIN = 1.2
"""A block stays as it is if it does not get smaller by this factor. Tests change it."""

_LIGHT_GAIN_MIN = 3.5
"""The same for a block that is packed lightly: entries of 150 bytes of JSON stay as they are."""

_LIGHT_LEVEL: Final = -1

_FIELD_BYTES_MAX = 128
"""Entries of longer fields are not written as columns: these would leave out little, which each
read had to write again.
"""

_WIDTHS: Final = {b"B": 1, b"H": 2, b"Q": 8}
"""How many bytes a size has, by its type."""

_NO_ENDS: Final = array("H")

_Contents = tuple[PackedIds, "array[int]", bytes]


def compressed(
    ids: PackedIds,
    ends: array[int],
    data: bytes,
    compressor: zstd.FrameCompressor,
    *,
    gain_min: float = 0,
    lightly: bool = False,
) -> bytes | None:
    """IDs, end offsets and fragments of a block in one piece.

    Fragments are written as columns if that is possible, and not ``lightly``. None if all this does
    not become smaller by this factor.
    """
    columns = None if lightly else to_columns(ids, ends, data, _FIELD_BYTES_MAX)
    if columns is None:
        sizes = list(map(sub, ends, [0, *ends]))
        widest = max(sizes)
        type_of_sizes = "B" if widest < 1 << 8 else "H" if widest < 1 << 16 else "Q"
        form, contents = type_of_sizes.encode(), [little(array(type_of_sizes, sizes)), data]
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
    smaller = compressor.compress(b"".join((head, *planes, *contents)))
    if len(smaller) * gain_min >= len(data) + count * (WORD_BYTES + ends.itemsize):
        return None
    return smaller


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
    whole = zstd.opened(packed)
    base_ms, first, count, form, written = _HEAD.unpack_from(whole)
    at = _HEAD.size
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
    width = _WIDTHS[form]
    data_at = at + count * width
    data = whole[data_at:]
    return ids, None, _ends(whole, at, data_at, width, len(data)), data


def _ends(whole: bytes, at: i64, sizes_end: i64, width: i64, size: i64) -> array[int]:
    """The end offsets of fragments whose sizes stand there, of so many bytes in all."""
    is_short = size < 1 << 16
    writer = BytesWriter()
    end: i64 = 0
    while at < sizes_end:
        if width == WORD_BYTES:
            end += read_i64_le(whole, at)
        else:
            low: i64 = whole[at]
            high: i64 = whole[at + 1] if width > 1 else 0
            end += low | high << 8
        at += width
        if is_short:
            write_short(writer, end)
        else:
            write_i64_le(writer, end)
    ends = array("H" if is_short else "Q", writer.getvalue())
    if byteorder != "little":
        ends.byteswap()
    return ends


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
        self._compressor = zstd.FrameCompressor(level)
        self._light = zstd.FrameCompressor(_LIGHT_LEVEL)
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
            self._compressor = zstd.FrameCompressor(level)
        self._shrink()

    def compress(
        self,
        ids: PackedIds,
        ends: array[int],
        data: bytes,
        *,
        if_smaller: bool = True,
        lightly: bool = False,
    ) -> bytes | None:
        """The contents of a block in one piece, as :func:`compressed` makes it.

        None if they would hardly be smaller, unless ``if_smaller`` is false.
        """
        gain_min = _LIGHT_GAIN_MIN if lightly else _GAIN_MIN if if_smaller else 0
        compressor = self._light if lightly else self._compressor
        return compressed(ids, ends, data, compressor, gain_min=gain_min, lightly=lightly)

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
