"""The IDs of a closed block in eight bytes each instead of some fifty.

IDs of one block are close together: relative to the first millisecond, time and sequence number
nearly always fit into a 64-bit word. If they do not (a gap of decades, a sequence number beyond
2**24), the block keeps its list.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from sys import byteorder, getsizeof
from typing import TYPE_CHECKING, Final, final, overload

from librt.strings import BytesWriter, read_i64_le, write_i64_le

from anabranch.compiling import mypyc_attr
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

WORD_BYTES: Final = 8

WORD_SEQ_BITS: Final = 24
"""Of a word, the low bits with the sequence number; the others are milliseconds."""

_SEQ_END: Final = 1 << 24
_WORD_SEQ_MASK: Final = (1 << 24) - 1
_MS_END: Final = 1 << 39  # words are below the sign of a register
_SMALL = 1 << 14
_FEW = 10  # with so many entries in each millisecond, packing piece by piece is faster
_SIGNED_END: Final = 1 << 63
_REGISTER_END: Final = 1 << 62  # sums with numbers below this one fit into a register
_SWAP: Final = byteorder != "little"


def little(numbers: array[int]) -> bytes:
    """The bytes of numbers, the lowest of each first; they may be swapped in the array, too."""
    if _SWAP:
        numbers.byteswap()
    return numbers.tobytes()


# Pieces of it are copied: most runs begin with a millisecond.
_NUMBERS: Final = little(array("Q", range(_SMALL)))


@final
@mypyc_attr(acyclic=True)
class PackedIds:
    """Ascending IDs, read-only.

    ``words`` are unsigned numbers of eight bytes, the lowest byte first: machine code reads them
    without making objects, and files and replies contain them as they are.

    A sequence, but no subclass of ``Sequence``: a compiled subclass shares the memory of the base
    for who is an instance, so that each list would be one.
    """

    __slots__ = ("base_ms", "words")

    def __init__(self, base_ms: int, words: bytes) -> None:
        """ValueError if the bytes are not whole words."""
        if len(words) & WORD_BYTES - 1:
            raise ValueError("packed IDs that end within one")
        self.base_ms = base_ms
        self.words = words

    @classmethod
    def pack(cls, ids: Sequence[int]) -> PackedIds | None:
        """Pack a non-empty ascending list, None if it does not fit; O(n)."""
        run = cls.pack_run(ids)
        if run is not None:
            return run
        base_ms = ids[0] >> SEQ_BITS
        span_ms = (ids[-1] >> SEQ_BITS) - base_ms
        if span_ms >= _MS_END:
            return None
        if span_ms * _FEW <= len(ids):
            return cls._pack_pieces(base_ms, ids)
        words = BytesWriter()  # an ID is split where it is in memory
        base: i64 = read_i64_le(base_ms.to_bytes(WORD_BYTES, "little"), 0)
        for entry_id in ids:
            halves = entry_id.to_bytes(2 * WORD_BYTES, "little")
            seq: i64 = read_i64_le(halves, 0)
            if not 0 <= seq < _SEQ_END:
                return None
            ms: i64 = read_i64_le(halves, WORD_BYTES)
            write_i64_le(words, ((ms - base) << WORD_SEQ_BITS) | seq)
        return cls(base_ms, words.getvalue())

    @classmethod
    def _pack_pieces(cls, base_ms: int, ids: Sequence[int]) -> PackedIds | None:
        """Do the same for IDs of few milliseconds: usually the IDs of each ascend by one."""
        words = BytesWriter()
        low = 0
        while low < len(ids):
            first_ms = ids[low] >> SEQ_BITS << SEQ_BITS
            high = bisect_left(ids, first_ms + MAX_SEQ + 1, low)
            first_id = ids[low]
            if ids[high - 1] - first_ms >= _SEQ_END:
                return None
            word = ((first_ms >> SEQ_BITS) - base_ms << WORD_SEQ_BITS) + first_id - first_ms
            for entry_id in ids[low:high]:
                write_i64_le(words, word + (entry_id - first_id))
            low = high
        return cls(base_ms, words.getvalue())

    @classmethod
    def pack_run(cls, ids: Sequence[int]) -> PackedIds | None:
        """Pack IDs a fixed step apart, O(1) but for packing; None if not evident.

        IDs ascend evenly if they are a ``range``, or if there are as many as numbers between the
        first and the last.
        """
        ms, first = ids[0] >> SEQ_BITS, ids[0] & MAX_SEQ
        count = len(ids)
        last = first + ids[-1] - ids[0]
        step = ids.step if isinstance(ids, range) else 1
        if last - first != (count - 1) * step or last >= _SEQ_END:
            return None
        if step == 1:
            return cls.run(ms, first, count)
        return cls(ms, little(array("Q", range(first, last + 1, step))))

    @classmethod
    def run(cls, base_ms: int, first: int, count: int) -> PackedIds:
        """As many IDs that ascend by one, from the one with this word on."""
        if first + count <= _SMALL:
            return cls(base_ms, _NUMBERS[first * WORD_BYTES : (first + count) * WORD_BYTES])
        return cls(base_ms, little(array("Q", range(first, first + count))))

    @property
    def packed_bytes(self) -> int:
        """Memory of the packed words."""
        return getsizeof(self.words)

    def __len__(self) -> int:
        return len(self.words) // WORD_BYTES

    def word_at(self, index: int) -> int:
        """The word of an ID by its index, from 0 on."""
        word: int = read_i64_le(self.words, index * WORD_BYTES)
        return word if word >= 0 else word + 2 * _SIGNED_END

    def words_between(self, low: int, high: int) -> Iterable[int]:
        """The words ``[low, high)``."""
        return [self.word_at(index) for index in range(low, high)]

    def unpack(self, word: int) -> int:
        """The ID that a word stands for."""
        return ((word >> WORD_SEQ_BITS) + self.base_ms << SEQ_BITS) | (word & (_SEQ_END - 1))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        count = len(self)
        if isinstance(index, slice):
            return [self.unpack(self.word_at(at)) for at in range(*index.indices(count))]
        if index < 0:
            index += count
        if not 0 <= index < count:
            raise IndexError(index)
        return self.unpack(self.word_at(index))

    def __iter__(self) -> Iterator[int]:
        return iter(between(self, 0, len(self)))

    def index_from(self, entry_id: int) -> int:
        """Index of the first ID >= ``entry_id``; O(log n)."""
        return self.index_of_word(self.word(entry_id))

    def index_of_word(self, word: int) -> int:
        """Index of the first word >= ``word``; O(log n)."""
        words = self.words
        if word <= 0:
            return 0
        if word >= _SIGNED_END:  # decades after the first ID
            return bisect_left(range(len(self)), word, key=self.word_at)
        wanted: i64 = word
        low: i64 = 0
        high: i64 = len(words) >> 3
        while low < high:
            middle = (low + high) >> 1
            if 0 <= read_i64_le(words, middle << 3) < wanted:  # below 0: from _SIGNED_END on
                low = middle + 1
            else:
                high = middle
        return low

    def word(self, entry_id: int) -> int:
        """The word of an ID, or a number between the words of lower and of greater IDs.

        An ID with a sequence number too large for a word gets the first word of the next
        millisecond, which is after all of its own.
        """
        seq = entry_id & MAX_SEQ
        ms = (entry_id >> SEQ_BITS) - self.base_ms
        return (ms << WORD_SEQ_BITS) + (seq if seq < _SEQ_END else _SEQ_END)


def index_of(ids: list[int] | PackedIds, entry_id: int) -> int:
    """Index of an ID among ascending ones, or -1; O(log n)."""
    if isinstance(ids, PackedIds):
        word = ids.word(entry_id)
        index = ids.index_of_word(word)
        found = index < len(ids) and ids.word_at(index) == word
        if found and not word & _SEQ_END - 1:  # it may be the word of another ID
            found = not entry_id & MAX_SEQ
    else:
        index = bisect_left(ids, entry_id)
        found = index < len(ids) and ids[index] == entry_id
    return index if found else -1


def between(ids: list[int] | PackedIds, low: int, high: int) -> list[int]:
    """The IDs ``[low, high)``; a millisecond is unpacked once for all of its IDs."""
    if not isinstance(ids, PackedIds):
        return ids[low:high]
    if high - low == 1:
        return [ids.unpack(ids.word_at(low))]
    if ids.base_ms < _REGISTER_END:
        return _unpacked(ids, low, high)
    unpacked: list[int] = []
    ms, first = -1, 0
    for word in ids.words_between(low, high):
        if word >> WORD_SEQ_BITS != ms:
            ms = word >> WORD_SEQ_BITS
            first = ms + ids.base_ms << SEQ_BITS
        unpacked.append(first + (word & _SEQ_END - 1))
    return unpacked


def _unpacked(ids: PackedIds, low: i64, high: i64) -> list[int]:
    """The IDs ``[low, high)``, as machine code reads them: few objects, little long arithmetic."""
    unpacked: list[int] = []
    words = ids.words
    base_ms: i64 = ids.base_ms
    ms: i64 = -1
    first = 0
    at = low * WORD_BYTES
    while at < high * WORD_BYTES:
        word = read_i64_le(words, at)
        at += WORD_BYTES
        if word < 0:  # decades after the first ID, which a register cannot hold
            unpacked.append(ids.unpack(ids.word_at(at // WORD_BYTES - 1)))
            continue
        if word >> WORD_SEQ_BITS != ms:
            ms = word >> WORD_SEQ_BITS
            since_1970: int = ms + base_ms
            first = since_1970 << SEQ_BITS
        seq: int = word & _WORD_SEQ_MASK
        if seq:
            unpacked.append(first + seq)
        else:
            unpacked.append(first)
    return unpacked
