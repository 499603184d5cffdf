r"""Entries in bulk as Arrow arrays, without a step of Python per entry.

The server exports an entry's wire bytes (``*2``, ``$`` and ID, ``*2n``, then
``$6\r\nsensor\r\n$2\r\ns1\r\n`` ...) with the end of each.
Where entries begin is thus known, so one field of *all* entries is found by a few operations on
vectors: read the digits of the length, compare the names, step on, eight bytes at a time. Only
lengths drive this, never what the bytes look like. Entries that differ in their names are walked in
groups; if there are too many groups, hiredis parses. A reply of XRANGE has the same bytes, and does
not say where entries begin. Each begins with the same few bytes, but values may contain these, too:
so a page is only taken if its lengths, followed from the first entry to the last, end each entry
where the next one seems to begin.

Values are gathered by Arrow: an array whose elements are the values *and the gaps between them*
costs nothing to lay over the bytes, and taking every other element copies at the speed of memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.spark.entries import Parsed, parse_fragments
from anabranch.spark.exports import Alike, Export, Ints, PayloadError

__all__ = ["Block"]

SHAPES_MAX: Final = 64
"""Above so many different sequences of field names in one block, hiredis is quicker."""

_DIGITS: Final = rb"([0-9]+)"
_DIGITS_MAX: Final = 10
_SIZE: Final = re.compile(rb"\r\n\$([0-9]{1,10})\r\n")
_HEAD: Final = re.compile(rb"\*2\r\n\$([0-9]{1,10})\r\n")
_BEGIN: Final = b"*2\r\n$"
_NAME_MAX: Final = 64
_BYTES_MAX: Final = 2**31 - 64  # Arrow's binary arrays have 32-bit offsets
_PADDING: Final = bytes(24)  # so that reading ahead stays within the buffer
_CRLF: Final = b"\r\n"
_WORD: Final = 8
_ZERO: Final = np.uint64(ord("0"))
_LOW: Final = [np.uint64((1 << 8 * count) - 1) for count in range(_WORD + 1)]
"""Of a word the first so many bytes."""

Bytes = npt.NDArray[np.uint8]


class _TooManyShapesError(Exception):
    """Raised where parsing the entries one by one is quicker."""


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


# ------------------------------------------------------------------------------------- wire bytes


@dataclass
class _Group:
    """Entries whose field names were equal so far."""

    rows: Ints
    at: Ints  # where the next field begins
    left: Ints  # how many fields follow
    names: list[bytes]
    spans: list[tuple[Ints, Ints]]  # where the value of each field begins and ends


class Block:
    """Entries as wire bytes, decoded by vectors when asked."""

    def __init__(
        self,
        ms: npt.NDArray[np.uint64],
        seq: npt.NDArray[np.uint64],
        positions: Ints | None,
        ends: Ints,
        data: bytes,
        tables: Sequence[Alike] = (),
    ) -> None:
        """`data` holds the fragments one behind the other and then some bytes of padding.

        Entries of `tables` are no fragments, see `Export`. Raises `PayloadError` for more than
        Arrow can hold.
        """
        if len(data) > _BYTES_MAX:
            raise PayloadError("entries of more than 2 GiB in one piece: set maxBatchBytes lower")
        self.ms = ms
        self.seq = seq
        self.positions = positions
        self._ends = ends
        self._data = data
        self._tables = tables
        self._bytes: Bytes = np.frombuffer(data, np.uint8)
        self._words = self._at_each("<u8")
        self._walked: list[Alike] | None = None
        self._parsed: Parsed | None = None

    @classmethod
    def of_export(cls, export: Export) -> Block:
        """The entries of a reply of AB.EXPORT; those that are broken are found when decoded."""
        data = b"".join([*export.data, _PADDING])
        return cls(export.ms, export.seq, export.positions, export.ends, data, export.tables)

    @classmethod
    def of_xrange(cls, data: bytes | memoryview) -> Block:
        """The entries of a reply of XRANGE, without its first line.

        Raises `PayloadError` if they do not begin where they seem to, and if parsing is quicker.
        """
        none, no_id = np.empty(0, np.int64), np.empty(0, np.uint64)
        block = cls(no_id, no_id, None, none, b"".join((data, _PADDING)))
        begins = np.flatnonzero(block._bytes[: len(data)] == _BEGIN[0])
        begins = begins[block._equal(begins, _BEGIN)]
        begins = begins[(begins == 0) | block._equal(np.maximum(begins - len(_CRLF), 0), _CRLF)]
        size, text_at = block._number(begins + len(_BEGIN) - 1, b"$")
        begins = begins[block._equal(text_at + size, b"\r\n*")]  # after a name there is a value
        block._ends = np.append(begins[1:], len(data))
        try:
            block._walked = block._walk(None)
            text = block._gather(*block._id_spans(np.arange(len(block)))).cast(pa.string())
            halves = pc.split_pattern(text, "-", max_splits=1).flatten().cast(pa.uint64())
        except (_TooManyShapesError, pa.ArrowInvalid):
            raise PayloadError("these entries are to be parsed one by one") from None
        if len(halves) != 2 * len(block):
            raise PayloadError("an entry has no ID")
        # Arrow's own way to numpy imports pandas.
        numbers = np.frombuffer(halves.buffers()[1], np.uint64, len(halves))
        block.ms, block.seq = numbers[::2].copy(), numbers[1::2].copy()
        return block

    def _at_each(self, kind: str) -> npt.NDArray[Any]:
        """The bytes at each place, read as numbers of one type."""
        count = len(self._data) - np.dtype(kind).itemsize + 1
        return np.ndarray((count,), kind, self._data, strides=(1,))

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def nbytes(self) -> int:
        """See `Entries`."""
        return len(self._data)

    def values(self, names: Sequence[bytes]) -> list[pa.Array]:
        """See `Entries`."""
        groups = self._groups(frozenset(names))
        if self._parsed is not None:
            return self._parsed.values(names)
        return [self._column(groups, name) for name in names]

    def _groups(self, wanted: frozenset[bytes] | None) -> list[Alike]:
        """The tables and what `_walk` finds. With too many shapes, hiredis parses all entries."""
        if self._walked is not None:
            return self._walked
        if self._parsed is None:
            try:
                return [*self._tables, *self._walk(wanted)]
            except _TooManyShapesError:
                self._parsed = self._parse()
        return []

    def _column(self, groups: Sequence[Alike], name: bytes) -> pa.Array:
        """The values of one field, null in groups without it."""
        if len(groups) == 1 and name in groups[0].names:
            return self._gather(*groups[0].spans[groups[0].names.index(name)])
        begins = np.full(len(self), -1, np.int64)
        ends = np.zeros(len(self), np.int64)
        for group in groups:
            if name in group.names:
                begin, end = group.spans[group.names.index(name)]
                begins[group.rows] = begin
                ends[group.rows] = end
        return self._gather(begins, ends, begins < 0)

    def fields(self) -> tuple[Ints, pa.Array, pa.Array]:
        """See `Entries`."""
        groups = self._groups(None)
        if self._parsed is not None:
            return self._parsed.fields()
        counts = np.zeros(len(self), np.int64)
        for group in groups:
            counts[group.rows] = len(group.names)
        offsets = np.zeros(len(self) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        # `_gather` needs places that ascend, as they do within a field. So values are gathered
        # field by field, and then put into the order of the entries.
        known: list[bytes] = []
        name_of = np.empty(int(offsets[-1]), np.int32)
        place_of = np.empty(int(offsets[-1]), np.int32)
        values: list[pa.Array] = []
        done = 0
        for group in groups:
            at = offsets[group.rows]
            for number, (name, span) in enumerate(zip(group.names, group.spans, strict=True)):
                name_of[at + number] = len(known)
                known.append(name)
                place_of[at + number] = np.arange(done, done + len(at), dtype=np.int32)
                done += len(at)
                values.append(self._gather(*span))
        joined = pa.concat_arrays(values) if values else pa.array([], pa.binary())
        names = pa.array(known, pa.binary()).take(pa.array(name_of))
        return offsets, names, joined.take(pa.array(place_of))

    def _parse(self) -> Parsed:
        rows: list[list[bytes]] = [[] for _ in range(len(self))]
        fragments = self._fragment_rows()
        starts, ends = self._starts()[fragments].tolist(), self._ends[fragments].tolist()
        data = b"".join(map(self._data.__getitem__, map(slice, starts, ends)))
        for row, entry in zip(fragments.tolist(), parse_fragments(data, len(starts)), strict=True):
            rows[row] = entry[1]
        for table in self._tables:
            for name, span in zip(table.names, table.spans, strict=True):
                for row, value in zip(
                    table.rows.tolist(), self._gather(*span).to_pylist(), strict=True
                ):
                    rows[row] += name, value
        return Parsed(self.ms, self.seq, self.positions, rows)

    def _fragment_rows(self) -> Ints:
        """The entries that are fragments."""
        is_fragment = np.ones(len(self), np.bool_)
        for table in self._tables:
            is_fragment[table.rows] = False
        return np.flatnonzero(is_fragment)

    def _starts(self) -> Ints:
        """Where each fragment begins."""
        return np.concatenate(([0], self._ends[:-1]))

    def _walk(self, wanted: frozenset[bytes] | None) -> list[Alike]:
        """Groups of fragments, with the values of each wanted field, or of all."""
        rows = self._fragment_rows()
        if not len(rows):
            return []
        words, at = self._number(self._id_spans(rows)[1], b"\r\n*")
        if (words % 2).any():
            raise PayloadError("an entry has a field without a value")
        done: list[_Group] = []
        todo = [_Group(rows, at - len(_CRLF), words // 2, [], [])]
        shapes = 1
        while todo:
            group = todo.pop()
            if wanted is not None and wanted.issubset(group.names):
                self._expect(group.at, _CRLF)
                done.append(group)
                continue
            finished = group.left == 0
            if finished.any():
                ended = group if finished.all() else _part(group, finished)
                self._expect(ended.at, _CRLF)
                if (ended.at + len(_CRLF) != self._ends[ended.rows]).any():
                    raise PayloadError("an entry does not end where it should")
                done.append(ended)
                if ended is group:
                    continue
                shapes += 1
                group = _part(group, ~finished)
            steps = self._step(group)
            shapes += len(steps) - 1
            if shapes > SHAPES_MAX:
                raise _TooManyShapesError
            todo += steps
        return [Alike(group.rows, group.names, group.spans) for group in done]

    def _id_spans(self, rows: Ints) -> tuple[Ints, Ints]:
        """Where the ID of each of these fragments begins and ends."""
        starts = self._starts()[rows]
        first = _HEAD.match(self._data, int(starts[0]))
        if first and self._equal(starts, first[0]).all():  # IDs are equally long
            begins = starts + len(first[0])
            return begins, begins + int(first[1])
        self._expect(starts, _BEGIN)
        length, begins = self._number(starts + len(_BEGIN) - 1, b"$")
        return begins, begins + length

    def _step(self, group: _Group) -> list[_Group]:
        """Advance over one field of a group, which is divided if the names differ."""
        first = _SIZE.match(self._data, int(group.at[0]))
        name_end = first.end() + int(first[1]) if first else 0
        text = self._data[int(group.at[0]) : name_end]
        # Usually all have the same name. A long name is not fetched from entries that may lack it,
        # because such an entry may end before.
        is_near = int(group.at.max()) + len(text) + _WORD <= len(self._data)
        if first and len(text) <= _NAME_MAX and is_near and self._equal(group.at, text).all():
            span = self._value(group.at + len(text))
            names = [*group.names, self._data[first.end() : name_end]]
            return [_Group(group.rows, span[1], group.left - 1, names, [*group.spans, span])]
        return self._split(group)

    def _value(self, name_end: Ints) -> tuple[Ints, Ints]:
        """Where the values of fields begin and end whose names are known."""
        length, start = self._number(name_end, b"\r\n$")
        return start, start + length

    def _split(self, group: _Group) -> list[_Group]:
        """Advance over one field of a group, by names."""
        length, name_start = self._number(group.at, b"\r\n$")
        span = self._value(name_start + length)
        whole = _Group(group.rows, span[1], group.left - 1, group.names, [*group.spans, span])
        found: list[_Group] = []
        rest = np.arange(len(group.rows))
        while len(rest):
            begin = int(name_start[rest[0]])
            name = self._data[begin : begin + int(length[rest[0]])]
            same = length[rest] == len(name)
            same[same] = self._equal(name_start[rest[same]], name)
            part = _part(whole, rest[same])
            part.names = [*group.names, name]
            found.append(part)
            if len(found) > SHAPES_MAX:
                raise _TooManyShapesError
            rest = rest[~same]
        return found

    def _equal(self, at: Ints, text: bytes) -> npt.NDArray[np.bool_]:
        """Where a text is."""
        width = -(-len(text) // _WORD)
        self._within(at, width * _WORD)
        same = np.ones(len(at), np.bool_)
        if width and len(at):
            # All bytes of a place are fetched at once: the access costs most, not the length.
            found = self._at_each(f"V{width * _WORD}")[at].view("<u8").reshape(len(at), width)
            for place in range(width):
                some = text[place * _WORD : (place + 1) * _WORD]
                same &= (found[:, place] & _LOW[len(some)]) == _word(some)
        return same

    def _expect(self, at: Ints, text: bytes) -> None:
        """Check that a text is at every place."""
        if not self._equal(at, text).all():
            raise PayloadError("an entry is not in the form it should be")

    def _number(self, at: Ints, before: bytes) -> tuple[Ints, Ints]:
        """Decimal digits between a short text and CR LF, and the places behind.

        Usually one word contains all digits, and the numbers are equal, or equally long.
        """
        self._within(at, _WORD)
        words = self._words[at]
        if first := re.match(re.escape(before) + _DIGITS + _CRLF, words[:1].tobytes()):
            text = first[0]
            if ((words & _LOW[len(text)]) == _word(text)).all():
                return np.full(len(at), int(first[1])), at + len(text)
        if ((words & _LOW[len(before)]) != _word(before)).any():
            raise PayloadError("an entry is not in the form it should be")
        words >>= np.uint64(8 * len(before))
        number = np.zeros(len(at), np.uint64)
        for size in range(_WORD - len(before) - len(_CRLF)):
            digit = (words & _LOW[1]) - _ZERO  # wraps: a byte that is no digit becomes large
            if (digit > 9).any():
                break
            number = number * np.uint64(10) + digit
            words >>= np.uint64(8)
            if ((words & _LOW[2]) == _word(_CRLF)).all():
                return number.view(np.int64), at + (len(before) + size + 1 + len(_CRLF))
        return self._uneven_number(at + len(before))

    def _uneven_number(self, at: Ints) -> tuple[Ints, Ints]:
        """The same digit by digit, for numbers of different lengths."""
        self._within(at, _DIGITS_MAX + 1)
        near = self._at_each(f"V{_DIGITS_MAX + 1}")[at].view(np.uint8).reshape(-1, _DIGITS_MAX + 1)
        values = near - np.uint8(ord("0"))
        digits = (values > 9).argmax(axis=1)  # 0 if all of them are digits, too
        number = np.zeros(len(at), np.int64)
        for place in range(int(digits.max(initial=0))):
            number = np.where(place < digits, number * 10 + values[:, place], number)
        if not digits.all():
            raise PayloadError("an entry has a length without digits, or one with too many")
        self._expect(at + digits, _CRLF)
        return number, at + digits + len(_CRLF)

    def _within(self, at: Ints, size: int) -> None:
        """Check that so many bytes follow each place."""
        if len(at) and int(at.max()) + size > len(self._data):
            raise PayloadError("an entry is longer than it should be")

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


def _part(group: _Group, some: npt.NDArray[Any]) -> _Group:
    """Some of the entries, by a mask or by index."""
    return _Group(
        group.rows[some],
        group.at[some],
        group.left[some],
        group.names,
        [(begins[some], ends[some]) for begins, ends in group.spans],
    )
