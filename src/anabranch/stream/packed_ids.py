"""The IDs of a closed block in eight bytes each instead of some fifty.

IDs of one block are close together: relative to the first millisecond, time and sequence number
nearly always fit into a 64-bit word. If they do not (a gap of decades, a sequence number beyond
2**24), the block keeps its list.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from sys import getsizeof
from typing import Final, overload

from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS

__all__ = ["WORD_SEQ_BITS", "PackedIds", "between", "index_of"]

WORD_SEQ_BITS: Final = 24
"""Of a word, the low bits with the sequence number; the others are milliseconds."""

_SEQ_END: Final = 1 << 24
_MS_END: Final = 1 << 40
_SMALL = 1 << 14
_FEW = 10  # with so many entries in each millisecond, packing piece by piece is faster
_NUMBERS = array("Q", range(_SMALL))  # of which copies are made: most runs begin with a millisecond


class PackedIds:
    """Ascending IDs, read-only.

    A sequence, but no subclass of ``Sequence``: a compiled subclass shares the memory of the base
    for who is an instance, so that each list would be one.
    """

    __slots__ = ("base_ms", "words")

    def __init__(self, base_ms: int, words: array[int]) -> None:
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
        sequences = [entry_id & MAX_SEQ for entry_id in ids]
        if max(sequences) >= _SEQ_END:
            return None
        return cls(
            base_ms,
            array(
                "Q",
                [
                    ((entry_id >> SEQ_BITS) - base_ms << WORD_SEQ_BITS) | seq
                    for entry_id, seq in zip(ids, sequences, strict=True)
                ],
            ),
        )

    @classmethod
    def _pack_pieces(cls, base_ms: int, ids: Sequence[int]) -> PackedIds | None:
        """Do the same for IDs of few milliseconds: usually the IDs of each ascend by one."""
        words = array("Q")
        low = 0
        while low < len(ids):
            first_ms = ids[low] >> SEQ_BITS << SEQ_BITS
            high = bisect_left(ids, first_ms + MAX_SEQ + 1, low)
            first, last = ids[low] - first_ms, ids[high - 1] - first_ms
            if last >= _SEQ_END:
                return None
            word = (first_ms >> SEQ_BITS) - base_ms << WORD_SEQ_BITS
            if last - first == high - low - 1:
                words.extend(range(word + first, word + last + 1))
            else:
                words.extend([word + entry_id - first_ms for entry_id in ids[low:high]])
            low = high
        return cls(base_ms, words)

    @classmethod
    def pack_run(cls, ids: Sequence[int]) -> PackedIds | None:
        """Do the same for IDs a fixed step apart, O(1) but for packing; None if not evident.

        IDs ascend evenly if they are a ``range``, or if there are as many as numbers between the
        first and the last.
        """
        ms, first = ids[0] >> SEQ_BITS, ids[0] & MAX_SEQ
        count = len(ids)
        last = first + ids[-1] - ids[0]
        step = ids.step if isinstance(ids, range) else 1
        if last - first != (count - 1) * step or last >= _SEQ_END:
            return None
        if last < _SMALL:
            return cls(ms, _NUMBERS[first : last + 1 : step])
        return cls(ms, array("Q", range(first, last + 1, step)))

    @classmethod
    def run(cls, base_ms: int, first: int, count: int) -> PackedIds:
        """As many IDs that ascend by one, from the one with this word on."""
        if first + count <= _SMALL:
            return cls(base_ms, _NUMBERS[first : first + count])
        return cls(base_ms, array("Q", range(first, first + count)))

    @property
    def packed_bytes(self) -> int:
        """Memory of the packed words."""
        return getsizeof(self.words)

    def __len__(self) -> int:
        return len(self.words)

    def unpack(self, word: int) -> int:
        """The ID of a word."""
        return ((word >> WORD_SEQ_BITS) + self.base_ms << SEQ_BITS) | (word & (_SEQ_END - 1))

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self.unpack(word) for word in self.words[index]]
        return self.unpack(self.words[index])

    def __iter__(self) -> Iterator[int]:
        return iter(between(self, 0, len(self.words)))

    def index_from(self, entry_id: int) -> int:
        """Index of the first ID >= ``entry_id``; O(log n)."""
        return bisect_left(self.words, self.word(entry_id))

    def word(self, entry_id: int) -> int:
        """The word of an ID, or a number between the words of lower and of greater IDs.

        An ID with a sequence number too large for a word gets the first word of the next
        millisecond, which is behind all of its own.
        """
        seq = entry_id & MAX_SEQ
        ms = (entry_id >> SEQ_BITS) - self.base_ms
        return (ms << WORD_SEQ_BITS) + (seq if seq < _SEQ_END else _SEQ_END)


def index_of(ids: list[int] | PackedIds, entry_id: int) -> int:
    """Index of an ID among ascending ones, or -1; O(log n)."""
    if isinstance(ids, PackedIds):
        words = ids.words
        word = ids.word(entry_id)
        index = bisect_left(words, word)
        found = index < len(words) and words[index] == word
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
        return [ids.unpack(ids.words[low])]
    unpacked: list[int] = []
    ms, first = -1, 0
    for word in ids.words[low:high].tolist():
        if word >> WORD_SEQ_BITS != ms:
            ms = word >> WORD_SEQ_BITS
            first = ms + ids.base_ms << SEQ_BITS
        unpacked.append(first + (word & _SEQ_END - 1))
    return unpacked
