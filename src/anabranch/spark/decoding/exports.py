"""Decodes replies of AB.EXPORT: runs of the server's blocks.

IDs, positions and the ends of entries become arrays over all runs. The bytes of the entries are not
copied, except to decompress them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import zstandard

from anabranch.errors import AnabranchError

_VERSION: Final = 2
_NONE, _ZSTD = 0, 1
_HEADER: Final = struct.Struct("<BBHIQ")
_CHUNK: Final = struct.Struct("<IBBBBQQQQ")
_PACKED, _PLAIN, _NODE = 0, 1, 2
_HAS_POSITIONS: Final = 1
_WORD_BYTES: Final = 8
_NODE_HEAD: Final = struct.Struct("<QQIBB")
_SHORT: Final = struct.Struct("<H")
_SEQ_BITS: Final = 24
_SIZES: Final = {ord("B"): 1, ord("H"): 2, ord("Q"): 8}
"""Bytes of a size, by its type."""
_COLUMNS: Final = ord("C")
_COLUMNS_MAX: Final = (1 << 16) // 29
"""So many entries are columns at most: their fragments have less than 64 KB, and each 29 bytes."""

Ints = npt.NDArray[np.int64]
_KINDS: Final = (np.uint64, np.uint64, np.int64, np.int64)
"""Types of milliseconds, sequence numbers, positions and ends."""


class MalformedReply(AnabranchError):
    """An export is malformed."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Entries with the same names; where the values of each field begin and end."""

    rows: Ints
    names: list[bytes]
    spans: list[tuple[Ints, Ints]]

    def of(self, mask: npt.NDArray[np.bool_]) -> Alike:
        """Some of them."""
        spans = [(begins[mask], ends[mask]) for begins, ends in self.spans]
        return Alike(self.rows[mask], self.names, spans)


@dataclass(frozen=True, slots=True)
class Export:
    """Replies of AB.EXPORT, with decoded arrays and joined fragments.

    Entries of `tables` are not fragments: the names are known, and `data` has the values. For these
    `ends` says where their node ends.
    """

    parts: list[tuple[int, int]]
    """Of each reply: how many entries, and the position of the next one."""
    ms: npt.NDArray[np.uint64]
    seq: npt.NDArray[np.uint64]
    positions: Ints
    ends: Ints
    data: list[memoryview]
    tables: list[Alike]

    def __len__(self) -> int:
        return len(self.ms)

    @property
    def next_position(self) -> int:
        """Where the last reply ends."""
        return self.parts[-1][1]

    def first(self, count: int) -> Export:
        """So many entries from the first on, of a single reply."""
        return Export(
            [(count, self.next_position)],
            self.ms[:count],
            self.seq[:count],
            self.positions[:count],
            self.ends[:count],
            self.data,
            [table.of(table.rows < count) for table in self.tables],
        )


def next_position(payload: bytes) -> int:
    """Where a reply of AB.EXPORT ends, without decoding it; raises `MalformedReply`."""
    try:
        return int(_HEADER.unpack_from(payload)[-1])
    except struct.error as error:
        raise MalformedReply(_damaged(error)) from None


def parse_export(*payloads: bytes) -> Export:
    """Decode the outer form of replies of AB.EXPORT as one; raises `MalformedReply`."""
    try:
        return _parse_export(payloads)
    except (struct.error, ValueError, OverflowError, zstandard.ZstdError, MemoryError) as error:
        raise MalformedReply(_damaged(error)) from None


def _damaged(error: Exception) -> str:
    return f"the reply of AB.EXPORT is cut off or damaged ({error})"


def _chunks(whole: bytes) -> tuple[memoryview, int, int, int]:
    """Chunks of a reply and where they begin; how many, and the position of the next entry."""
    payload = memoryview(whole)
    version, codec, _, chunks, following = _HEADER.unpack_from(payload)
    if version != _VERSION or codec not in (_NONE, _ZSTD):
        raise MalformedReply(
            f"the server exports in form {version}.{codec}, this package reads {_VERSION}.{_NONE} "
            f"and {_VERSION}.{_ZSTD}: "
            "install the anabranch release of the server on Spark's side"
        )
    if codec == _ZSTD:
        return memoryview(_expanded(payload[_HEADER.size :])), 0, chunks, following
    return payload, _HEADER.size, chunks, following


def _parse_export(payloads: Sequence[bytes]) -> Export:
    runs: list[_ChunkRun | _Nodes] = []
    data: list[memoryview] = []
    counts: list[int] = []
    parts: list[tuple[int, int]] = []
    joined = 0
    before = None
    for payload, at, chunks, following in map(_chunks, payloads):
        entries_before = sum(counts)
        for _ in range(chunks):
            count, form, width, flags, _, base_ms, first, end_base, size = _CHUNK.unpack_from(
                payload, at
            )
            at += _CHUNK.size
            if (form, width, flags) != before:
                before = form, width, flags
                runs.append(
                    _Nodes() if form == _NODE else _ChunkRun(form, width, flags & _HAS_POSITIONS)
                )
            run = runs[-1]
            if isinstance(run, _Nodes):
                entries = run.add(payload[at : (at := at + size)], count, first, joined)
            else:
                at = run.add(payload, at, base_ms, count, first, joined - end_base)
                entries = payload[at : (at := at + size)]
            counts.append(count)
            data.append(entries)
            joined += len(entries)
        if at < len(payload):
            raise MalformedReply("the reply of AB.EXPORT is longer than it says")
        if at > len(payload) or not all(counts):
            raise MalformedReply(_DISAGREE)
        parts.append((sum(counts) - entries_before, following))
    columns = [each.columns() for each in runs]
    ms, seq, positions, ends = (
        _concatenated([each[number] for each in columns], kind)
        for number, kind in enumerate(_KINDS)
    )
    sizes = np.cumsum([len(each) for each in data], dtype=np.int64)
    if (ends[np.cumsum(counts, dtype=np.int64) - 1] != sizes).any():
        raise MalformedReply(_DISAGREE)
    tables: list[Alike] = []
    row = 0
    for run, (first, *_) in zip(runs, columns, strict=True):
        if isinstance(run, _Nodes):
            tables += run.tables(row)
        row += len(first)
    return Export(parts, ms, seq, positions, ends, data, tables)


def _expanded(smaller: memoryview) -> bytes:
    body: bytes = zstandard.ZstdDecompressor().decompress(smaller, allow_extra_data=False)
    return body


_DISAGREE: Final = "the reply of AB.EXPORT is cut off or damaged (lengths disagree)"


class _ChunkRun:
    """The numbers of neighbouring chunks of one form.

    Chunks are short, and a call of numpy costs as much as the numbers of one of them. So they are
    collected first, and computed together.
    """

    def __init__(self, form: int, width: int, has_positions: int) -> None:
        """Of the IDs the form, of ends the bytes. Raises `MalformedReply`."""
        if form not in (_PACKED, _PLAIN):
            raise MalformedReply(f"the reply of AB.EXPORT has IDs in an unknown form ({form})")
        if width not in (2, 8):
            raise MalformedReply(f"the reply of AB.EXPORT has ends of {width} bytes")
        self._form, self._width, self._has_positions = form, width, has_positions
        self._base_ms: list[int] = []
        self._facts: list[tuple[int, ...]] = []
        self._ms: list[memoryview] = []  # packed IDs are here as a whole
        self._seq: list[memoryview] = []
        self._positions: list[memoryview] = []
        self._ends: list[memoryview] = []

    def add(self, payload: memoryview, at: int, base_ms: int, *facts: int) -> int:
        """Collect a chunk whose arrays begin at an offset; returns where its data do.

        `facts`: count, first position, what its ends lack.
        """
        self._base_ms.append(base_ms)
        self._facts.append(facts)
        count, *_ = facts
        size = 8 * count
        self._ms.append(payload[at : (at := at + size)])
        if self._form == _PLAIN:
            self._seq.append(payload[at : (at := at + size)])
        if self._has_positions:
            self._positions.append(payload[at : (at := at + size)])
        self._ends.append(payload[at : (at := at + self._width * count)])
        return at

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Milliseconds, sequence numbers, positions and ends."""
        counts, firsts, offsets = np.array(self._facts, np.int64).T
        if self._form == _PACKED:
            words = np.frombuffer(b"".join(self._ms), "<u8")
            base_ms = np.array(self._base_ms, np.uint64)
            ms = (words >> np.uint64(_SEQ_BITS)) + np.repeat(base_ms, counts)
            seq = words & np.uint64((1 << _SEQ_BITS) - 1)
        else:
            ms = np.frombuffer(b"".join(self._ms), "<u8")
            seq = np.frombuffer(b"".join(self._seq), "<u8")
        if self._has_positions:
            positions = np.frombuffer(b"".join(self._positions), "<i8")
        else:
            before = np.cumsum(counts) - counts
            positions = np.arange(len(ms)) + np.repeat(firsts - before, counts)
        ends = np.frombuffer(b"".join(self._ends), f"<u{self._width}")
        return ms, seq, positions, ends.astype(np.int64) + np.repeat(offsets, counts)


class _Nodes:
    """Neighbouring chunks that are nodes as the server holds them, each in one zstd frame.

    Nodes of one form are computed together, wherever they are, as chunks are in `_ChunkRun`.
    """

    def __init__(self) -> None:
        self._decompress = zstandard.ZstdDecompressor().decompress
        self._alike: dict[tuple[int, int, int, bytes], _AlikeNodes] = {}
        self._rows = 0

    def add(self, frame: memoryview, count: int, first: int, joined: int) -> memoryview:
        """Collect a node; returns its entries, which have `joined` bytes of others before them.

        These are fragments, or columns without their schema and sizes.
        """
        whole = memoryview(self._decompress(frame, allow_extra_data=False))
        base_ms, word, known, code, written = _NODE_HEAD.unpack_from(whole)
        is_known = count <= _COLUMNS_MAX if code == _COLUMNS else code in _SIZES
        if known != count or not is_known:
            raise MalformedReply(_DISAGREE)
        planes_at = at = _NODE_HEAD.size
        at += count * written.bit_count()
        planes = whole[planes_at:at]
        schema = b""
        if code == _COLUMNS:
            schema_at = at + _SHORT.size
            at = schema_at + _SHORT.unpack_from(whole, at)[0]
            schema = whole[schema_at:at].tobytes()
        form = count, code, written, schema
        alike = self._alike.get(form)
        if alike is None:
            alike = self._alike[form] = _AlikeNodes(form)
        end = at + alike.sizes_bytes
        entries = whole[end:]
        facts = base_ms, word, first, joined, len(entries), self._rows
        alike.add(facts, planes, whole[at:end])
        self._rows += count
        return entries

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Milliseconds, sequence numbers, positions and ends."""
        columns = tuple(np.empty(self._rows, kind) for kind in _KINDS)
        for alike in self._alike.values():
            rows = alike.rows()
            for whole, part in zip(columns, alike.columns(), strict=True):
                whole[rows] = part
        return columns

    def tables(self, first_row: int) -> list[Alike]:
        """Those entries that are columns; so many rows are before all of them."""
        some = self._alike.values()
        return [each.table(first_row) for each in some if each.form[1] == _COLUMNS]


class _AlikeNodes:
    """Nodes of one form."""

    def __init__(self, form: tuple[int, int, int, bytes]) -> None:
        """How many entries, type of the sizes or columns, which bytes of words, the schema."""
        self.form = form
        count, code, _, schema = form
        self._names, self._widths = _names_of(schema)
        self.sizes_bytes = count * _SIZES.get(code, 0)
        if code == _COLUMNS:
            self.sizes_bytes = sum([count * width or _SHORT.size for width in self._widths])
        self._facts: list[tuple[int, ...]] = []
        self._sizes: list[memoryview] = []
        self._planes: list[memoryview] = []

    def add(self, facts: tuple[int, ...], planes: memoryview, sizes: memoryview) -> None:
        """Collect a node.

        `facts`: base of milliseconds, first word, first position, bytes of entries before its own,
        bytes of its own, rows before its own. `planes`: of the bytes of words that are written,
        those of all words, then the next ones; nothing if IDs are a run.
        """
        self._facts.append(facts)
        self._planes.append(planes)
        self._sizes.append(sizes)

    def rows(self) -> Ints:
        """The rows of the entries."""
        firsts = np.array([facts[-1] for facts in self._facts])
        return (firsts[:, None] + np.arange(self.form[0])).ravel()

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """Milliseconds, sequence numbers, positions and ends."""
        count, code, written, _ = self.form
        facts = np.array(self._facts, np.uint64).T
        base_ms, word, first, joined, size, _ = (each[:, None] for each in facts)
        rank = np.arange(count, dtype=np.uint64)
        if not written:
            words = word + rank
        else:
            places = [byte for byte in range(_WORD_BYTES) if written >> byte & 1]
            planes = np.zeros((len(self._planes), _WORD_BYTES, count), np.uint8)
            some = np.frombuffer(b"".join(self._planes), np.uint8)
            planes[:, places] = some.reshape(-1, len(places), count)
            words = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<u8")[:, :, 0]
        ms = (words >> np.uint64(_SEQ_BITS)) + base_ms
        seq = words & np.uint64((1 << _SEQ_BITS) - 1)
        if code == _COLUMNS:
            ends = np.repeat(joined + size, count, axis=1)
        else:
            sizes = np.frombuffer(b"".join(self._sizes), f"<u{_SIZES[code]}")
            ends = joined + np.cumsum(sizes.reshape(-1, count), axis=1, dtype=np.uint64)
        return tuple(each.ravel() for each in (ms, seq, first + rank, ends))

    def table(self, first_row: int) -> Alike:
        """The entries, if they are columns."""
        count = self.form[0]
        plain = np.frombuffer(b"".join(self._sizes), np.uint8).reshape(-1, self.sizes_bytes)
        before, own = np.array([facts[3:5] for facts in self._facts], np.int64).T
        end = before[:, None]
        at = 0
        spans = []
        for width in self._widths:
            upto = at + (count * width or _SHORT.size)
            some = np.ascontiguousarray(plain[:, at:upto]).view(f"<u{width or _SHORT.size}")
            at = upto
            sizes = np.broadcast_to(some, (len(plain), count)).astype(np.int64)
            ends = np.cumsum(sizes, axis=1) + end
            spans.append(((ends - sizes).ravel(), ends.ravel()))
            end = ends[:, -1:]
        if (end[:, 0] != before + own).any():
            raise MalformedReply(_DISAGREE)
        return Alike(self.rows() + first_row, self._names, spans)


def _names_of(schema: bytes) -> tuple[list[bytes], list[int]]:
    """The names in a schema, and the width of the sizes of each."""
    names: list[bytes] = []
    widths: list[int] = []
    at = 0
    while at < len(schema):
        name_at = at + _SHORT.size
        at = name_at + _SHORT.unpack_from(schema, at)[0]
        names.append(schema[name_at:at])
        widths.append(schema[at] if at < len(schema) else -1)
        if widths[-1] not in (0, 1, 2):
            raise MalformedReply(_DISAGREE)
        at += 1
    return names, widths


def _concatenated(arrays: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    """One behind the other; an array of the kind if there is none."""
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.empty(0, kind)
