r"""Entries in bulk as Arrow arrays, without a step of Python per entry.

The server exports an entry's wire bytes (``*2``, ``$`` and ID, ``*2n``, then
``$6\r\nsensor\r\n$2\r\ns1\r\n`` ...) with the end of each.
Where entries begin is thus known, so one field of *all* entries is found by a few operations on
vectors: read the digits of the length, compare the names, step on, eight bytes at a time. Only
lengths drive this, never what the bytes look like. All entries go in step: the first field of each,
then the second one. Their names may differ: they are numbered by Arrow (dictionary encoding). A few
entries with very many fields are left to hiredis.

Values are gathered by Arrow: an array whose elements are the values *and the gaps between them*
costs nothing to lay over the bytes, and taking every other element copies at the speed of memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import hiredis
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch.spark.decoding.exports import Export, Ids, Ints, MalformedReply, upwards

_STEPS: Final = 16
"""Entries with more fields are parsed where that is expected to take less time than more steps."""
_STEP_US: Final = 60.0  # of processor time, if all have the same name
_MIXED_STEP_US: Final = 300.0  # if not
_PARSED_US: Final = 40.0  # an entry
_PARSED_FIELD_US: Final = 0.15

_NUMBER: Final = re.compile(rb"[0-9]{1,10}(?=\r\n)")
_SIZE: Final = re.compile(rb"\r\n\$([0-9]{1,10})\r\n")
_BEFORE_VALUE: Final = b"\r\n$"
_TEXT_MAX: Final = 80  # of a name with what is around it
_BYTES_MAX: Final = 2**31 - 64  # Arrow's binary arrays have 32-bit offsets
_CRLF: Final = b"\r\n"
_WORD: Final = 8
_BYTE: Final = np.uint64(8)
_ZERO: Final = np.uint64(ord("0"))
_NINE: Final = np.uint64(9)
_TEN: Final = np.uint64(10)
_POWERS: Final = 10 ** np.arange(1, 11)
"""A size that is not below so many of these has one digit more than that."""
_LOW: Final = [np.uint64((1 << 8 * count) - 1) for count in range(_WORD + 1)]
"""Of a word the first so many bytes."""


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


# ------------------------------------------------------------------------------------- wire bytes


@dataclass(frozen=True, slots=True)
class _Fields:
    """Some fields of some entries, as a rule one of each; where their values begin and end."""

    rows: Ints
    ranks: Ints | int
    """How many fields of the entry are before each."""
    names: list[bytes]
    codes: npt.NDArray[np.int32] | int
    """The name of each, as its place in `names`."""
    begins: Ints
    ends: Ints


class WireEntries:
    """Entries as wire bytes, decoded by vectors when asked."""

    def __init__(self, export: Export) -> None:
        """The entries of replies of AB.EXPORT; those that are broken are found when decoded.

        Raises `MalformedReply` for more than Arrow can hold.
        """
        data = export.data
        if len(data) > _BYTES_MAX:
            raise MalformedReply("entries of more than 2 GiB in one piece: set maxBatchBytes lower")
        self._export = export
        self._data = data
        self._tables = export.tables
        self._words = self._at_each("<u8")

    def _at_each(self, kind: str) -> npt.NDArray[Any]:
        """The bytes at each place, read as numbers of one type."""
        count = len(self._data) - np.dtype(kind).itemsize + 1
        return np.ndarray((count,), kind, self._data, strides=(1,))

    def __len__(self) -> int:
        return len(self._export)

    @property
    def ids(self) -> Ids:
        """Of each entry."""
        return self._export.ids

    @property
    def positions(self) -> Ints | None:
        """Of each entry in its log."""
        return self._export.positions

    @property
    def nbytes(self) -> int:
        """About how many bytes the entries have."""
        return len(self._data)

    def values(self, names: Sequence[bytes]) -> list[pa.Array]:
        """For each name a binary array: the first value of that field, null without one."""
        wanted = {name: number for number, name in enumerate(dict.fromkeys(names))}
        found = _FirstValues(wanted, len(self))
        for fields in chain(self._of_tables(), self._walk(found)):
            found.add(fields)
        columns = [
            self._gather(begins, ends, begins < 0)
            for begins, ends in zip(found.begins, found.ends, strict=True)
        ]
        return [columns[wanted[name]] for name in names]

    def fields(self) -> tuple[Ints, pa.Array, pa.Array]:
        """All fields in their order: where each entry's begin (and the end), names, values."""
        every = [*self._of_tables(), *self._walk()]
        counts = np.zeros(len(self), np.int64)
        for each in every:
            counts += np.bincount(each.rows, minlength=len(self))
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        known: list[bytes] = []
        name_of = np.empty(int(offsets[-1]), np.int32)
        begins, ends = (np.empty(len(name_of), np.int64) for _ in range(2))
        for each in every:
            at = offsets[each.rows] + each.ranks
            name_of[at] = each.codes + np.int64(len(known))
            known += each.names
            begins[at], ends[at] = each.begins, each.ends
        if self._tables:  # where the values of a field are together, they do not ascend
            order = np.argsort(begins, kind="stable")
            values = self._gather(begins[order], ends[order]).take(pa.array(np.argsort(order)))
        else:
            values = self._gather(begins, ends)
        return offsets, pa.array(known, pa.binary()).take(pa.array(name_of)), values

    def _of_tables(self) -> Iterator[_Fields]:
        for rows, names, spans in self._tables:
            for rank, (name, span) in enumerate(zip(names, spans, strict=True)):
                yield _Fields(rows, rank, [name], 0, *span)

    def _walk(self, found: _FirstValues | None = None) -> Iterator[_Fields]:
        """The fields of all fragments; without the rest of those that `found` has all of."""
        is_fragment = np.ones(len(self), np.bool_)
        for some, *_ in self._tables:
            is_fragment[some] = False
        rows = np.flatnonzero(is_fragment)
        if not len(rows):
            return
        starts = np.concatenate(([0], self._export.ends[:-1]))
        starts[self._export.first_rows] = self._export.begins
        length, at = self._number(starts[rows], b"*2\r\n$")  # of the ID
        words, at = self._number(at + length, b"\r\n*")
        if (words & 1).any():
            raise MalformedReply("an entry has a field without a value")
        at -= len(_CRLF)
        left, last = words >> 1, self._export.ends[rows] - len(_CRLF)
        step, step_us = 0, _STEP_US
        while len(rows):
            if (at > last).any():
                raise MalformedReply("an entry is longer than it should be")
            ended = left == step
            if (ended & (at != last)).any():
                raise MalformedReply("an entry does not end where it should")
            over = ended if found is None else ended | found.has_all(rows)
            if over.all():
                self._expect_line_end(at)
                return
            if over.any():
                self._expect_line_end(at[over])
                rows, at, left, last = (each[~over] for each in (rows, at, left, last))
            if step >= _STEPS:
                parsed_us = len(rows) * _PARSED_US + int((left - step).sum()) * _PARSED_FIELD_US
                if parsed_us < (int(left.max()) - step) * step_us:
                    yield self._parse(rows, step, at, last, left - step)
                    return
            names, codes, begins, at = self._next_fields(at)
            step_us = _STEP_US if isinstance(codes, int) else _MIXED_STEP_US
            yield _Fields(rows, step, names, codes, begins, at)
            step += 1

    def _next_fields(self, at: Ints) -> tuple[list[bytes], npt.NDArray[np.int32] | int, Ints, Ints]:
        """The fields at these places: different names, which one is where, and of values the ends.

        Where a value ends the next field is.
        """
        # Usually all have the same name, and values have lengths of equally many digits.
        first = _SIZE.match(self._data, int(at[0]))
        name_end = first.end() + int(first[1]) if first else 0
        text = self._data[int(at[0]) : name_end] + _BEFORE_VALUE
        if first and len(text) <= _TEXT_MAX and (found := self._number_after(at, text)):
            length, begins = found
            return [self._data[first.end() : name_end]], 0, begins, begins + length
        length, begins = self._number(at, _BEFORE_VALUE)
        name_ends = begins + length
        self._within(name_ends, _WORD)
        coded = self._gather(begins, name_ends).dictionary_encode()
        # Arrow's own way to numpy imports pandas.
        codes = np.frombuffer(coded.indices.buffers()[1], np.int32, len(at))
        length, begins = self._number(name_ends, _BEFORE_VALUE)
        return coded.dictionary.to_pylist(), codes, begins, begins + length

    def _parse(self, rows: Ints, rank: int, at: Ints, last: Ints, counts: Ints) -> _Fields:
        """The rest of the fields of some entries, by hiredis.

        Of each entry: the place of its next field, the place behind it, and how many fields it has.
        """
        reader = hiredis.Reader()
        words: list[bytes] = []
        for begin, end, count in zip(at.tolist(), last.tolist(), counts.tolist(), strict=True):
            reader.feed(b"*%d%b" % (2 * count, self._data[begin : end + len(_CRLF)]))
            found = reader.gets()
            if not found or reader.has_data():
                raise MalformedReply("an entry does not end where it should")
            words += found
        names = pa.array(words[::2], pa.binary()).dictionary_encode()
        codes = np.frombuffer(names.indices.buffers()[1], np.int32, len(names))
        sizes = np.fromiter(map(len, words), np.int64)
        spans = sizes + len(b"\r\n$\r\n") + np.searchsorted(_POWERS, sizes, "right") + 1
        ends = np.cumsum(spans)
        before = (ends - spans)[2 * (np.cumsum(counts) - counts)]
        ends += np.repeat(at - before, 2 * counts)
        ranks = upwards(np.full(len(rows), rank), counts)
        begins, known = (ends - sizes)[1::2], names.dictionary.to_pylist()
        return _Fields(np.repeat(rows, counts), ranks, known, codes, begins, ends[1::2])

    def _expect_line_end(self, at: Ints) -> None:
        """Check that CR LF is at every place."""
        self._within(at, _WORD)
        if ((self._words[at] & _LOW[len(_CRLF)]) != _word(_CRLF)).any():
            raise MalformedReply("an entry is not in the form it should be")

    def _number_after(self, at: Ints, text: bytes) -> tuple[Ints, Ints] | None:
        """Numbers that stand behind a text with CR LF behind them, and the places behind that.

        None unless all places have that text, and numbers of equally many digits.
        """
        digits = _NUMBER.match(self._data, int(at[0]) + len(text))
        if not digits:
            return None
        size = len(digits[0])
        whole = text + b"0" * size + _CRLF
        width = -(-len(whole) // _WORD)
        if int(at.max()) + width * _WORD > len(self._data):
            return None
        compared = b"\xff" * len(text) + bytes(size) + b"\xff" * len(_CRLF)
        expected, kept = (
            np.frombuffer(some.ljust(width * _WORD, b"\0"), "<u8") for some in (whole, compared)
        )
        # All bytes of a place are fetched at once: the access costs most, not the length. What is
        # computed is one word of all places, as numpy is slow at short rows.
        found = self._at_each(f"V{width * _WORD}")[at].view("<u8").reshape(len(at), width)
        words = [found[:, column] ^ expected[column] for column in range(width)]
        if any((word & some).any() for word, some in zip(words, kept, strict=True)):
            return None
        number = np.zeros(len(at), np.uint64)
        for place in range(len(text), len(text) + size):
            digit = words[place // _WORD] >> np.uint64(8 * (place % _WORD)) & _LOW[1]
            if digit.max() > _NINE:
                return None
            number = number * _TEN + digit
        return number.view(np.int64), at + len(whole)

    def _number(self, at: Ints, before: bytes) -> tuple[Ints, Ints]:
        """Decimal digits between a short text and CR LF, and the places behind."""
        if alike := self._number_after(at, before):
            return alike
        self._within(at, _WORD)
        words = self._words[at]
        if ((words & _LOW[len(before)]) != _word(before)).any():
            raise MalformedReply("an entry is not in the form it should be")
        words >>= np.uint64(8 * len(before))
        number = np.zeros(len(at), np.uint64)
        size = np.zeros(len(at), np.int64)
        for place in range(_WORD - len(before)):
            digit = (words & _LOW[1]) - _ZERO  # wraps: a byte that is no digit becomes large
            digits = (digit <= _NINE) & (size == place)  # nothing else up to here
            if not digits.any():
                break
            number = np.where(digits, number * _TEN + digit, number)
            size += digits
            words >>= _BYTE
        if not size.all():
            raise MalformedReply("an entry has a length without digits")
        numbers, ends = number.view(np.int64), at + len(before) + size
        if (long := size == _WORD - len(before)).any():  # or more digits
            found = [
                _NUMBER.match(self._data, place) for place in (at[long] + len(before)).tolist()
            ]
            if None in found:
                raise MalformedReply("an entry has a length with too many digits")
            spans = [(int(each[0]), each.end()) for each in found if each]
            numbers[long], ends[long] = np.array(spans, np.int64).T
        self._expect_line_end(ends)
        return numbers, ends + len(_CRLF)

    def _within(self, at: Ints, size: int) -> None:
        """Check that so many bytes follow each place."""
        if len(at) and int(at.max()) + size > len(self._data):
            raise MalformedReply("an entry is longer than it should be")

    def _gather(
        self, starts: Ints, ends: Ints, missing: npt.NDArray[np.bool_] | None = None
    ) -> pa.Array:
        """The bytes between ascending starts and ends, as a binary array."""
        count = len(starts)
        if missing is not None and missing.any():
            present = np.flatnonzero(~missing)
            gathered = self._gather(starts[present], ends[present])
            indices = np.zeros(count, np.int64)
            indices[present] = np.arange(len(present))
            if not len(present):
                return pa.nulls(count, pa.binary())
            return gathered.take(pa.array(indices, mask=missing))
        bounds = np.empty(2 * count + 1, np.int32)
        bounds[0] = 0
        bounds[1::2] = starts
        bounds[2::2] = ends
        laid = pa.Array.from_buffers(
            pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        )
        return laid.take(pa.array(np.arange(1, 2 * count, 2)))


class _FirstValues:
    """Where the first value of each wanted field begins (-1: nowhere) and ends, by entry."""

    def __init__(self, wanted: Mapping[bytes, int], count: int) -> None:
        self.wanted = wanted
        self.begins = np.full((len(wanted), count), -1, np.int64)
        self.ends = np.zeros((len(wanted), count), np.int64)
        self._is_new = [True] * len(wanted)
        self._lacking = np.full(count, len(wanted), np.int32)

    def has_all(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """Of which entries all wanted fields are known."""
        return np.equal(self._lacking[self._at(rows)], 0)

    def _at(self, rows: Ints) -> Ints | slice:
        """The same rows; quicker if they are all."""
        return slice(None) if len(rows) == len(self._lacking) else rows

    def add(self, some: _Fields) -> None:
        """Take note of those fields that are wanted, and are the first ones of their name."""
        if not some.names:
            return
        numbers = [self.wanted.get(name, -1) for name in some.names]
        if isinstance(some.codes, int) and self._is_new[numbers[0]] and numbers[0] >= 0:
            self._is_new[numbers[0]] = False
            rows = self._at(some.rows)
            self.begins[numbers[0], rows] = some.begins
            self.ends[numbers[0], rows] = some.ends
            self._lacking[rows] -= 1
            return
        if max(numbers) < 0:
            return
        number = np.broadcast_to(np.array(numbers)[some.codes], some.rows.shape)
        cells = number * len(self._lacking) + some.rows
        fresh = np.flatnonzero(number >= 0)
        fresh = fresh[self.begins.ravel()[cells[fresh]] < 0]
        # Of a field that is there twice the first one stays, as the last one in this order.
        fresh = fresh[::-1]
        self.begins.ravel()[cells[fresh]] = some.begins[fresh]
        self.ends.ravel()[cells[fresh]] = some.ends[fresh]
        self._lacking[some.rows[fresh]] -= 1
        for each in numbers:
            self._is_new[each] = False
