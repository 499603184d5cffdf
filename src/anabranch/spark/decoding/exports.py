"""Decodes replies of AB.EXPORT: chunks of the server's blocks.

Chunks are short, and a call of numpy costs as much as the numbers of one of them. So those of one
form are collected first, wherever they are, and computed together: IDs, positions and the ends of
entries become arrays over all chunks when somebody asks for them. The bytes of the entries are not
copied, except to decompress them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from anabranch import zstd
from anabranch.errors import AnabranchError

_VERSION: Final = 2
_NONE, _ZSTD = 0, 1
_HEADER: Final = struct.Struct("<BBHIQ")
_CHUNK: Final = struct.Struct("<IBBBBQQQQ")
_PACKED, _PLAIN, _NODE = 0, 1, 2
_HAS_POSITIONS: Final = 1
_WORD_BYTES: Final = 8
_NODE_HEAD: Final = np.dtype(
    [("ms", "<u8"), ("word", "<u8"), ("count", "<u4"), ("code", "u1"), ("written", "u1")]
)
_SHORT: Final = struct.Struct("<H")
_SEQ_BITS: Final = 24
_SIZES: Final = {ord("B"): 1, ord("H"): 2, ord("Q"): 8}
"""Bytes of a size, by its type."""
_COLUMNS: Final = ord("C")
PADDING: Final = bytes(24)
"""Behind the joined data, so that reading ahead stays within the buffer."""

_COLUMNS_MAX: Final = (1 << 16) // 29
"""So many entries are columns at most: their fragments have less than 64 KB, and each 29 bytes."""

Ints = npt.NDArray[np.int64]
Ids = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
"""Milliseconds and sequence numbers."""


class MalformedReply(AnabranchError):
    """An export is malformed."""


Alike = tuple[Ints, list[bytes], list[tuple[Ints, Ints]]]
"""Rows of entries with the same names; the names; where the values of each begin and end."""


class Export:
    """Replies of AB.EXPORT, with joined fragments.

    Entries of `tables` are not fragments: the names are known, and `data` has the values. For these
    `ends` says where their node ends.
    """

    def __init__(self, parts: list[tuple[int, int]], parser: _Parser) -> None:
        """Raises `MalformedReply` if fragments do not end where their chunk does."""
        self.parts = parts
        """Of each reply: how many entries, and the position of the next one."""
        self.data = parser.joined()
        """What all chunks have, one behind the other, and `PADDING`."""
        self._groups = groups = parser.grouped(self.data)
        self.first_rows, self.begins = np.array(parser.begins, np.int64).reshape(-1, 2).T
        """Of each chunk the first row, and where its entries begin in the data."""
        nodes = [each for each in groups if isinstance(each, _Nodes)]
        for each in nodes:
            self.begins[each.chunks] = each.begins
        self.tables = [each.table() for each in nodes if each.is_table]
        if len(self.tables) < len(groups):
            _ = self.ends

    def __len__(self) -> int:
        return sum(count for count, _ in self.parts)

    @property
    def next_position(self) -> int:
        """Where the last reply ends."""
        return self.parts[-1][1]

    @cached_property
    def ids(self) -> Ids:
        """Of each entry."""
        ms, seq = self._gathered(2, lambda group: group.ids())
        return ms, seq

    @cached_property
    def positions(self) -> Ints:
        """Of each entry."""
        (found,) = self._gathered(1, lambda group: (group.positions(),))
        return np.asarray(found, np.int64)

    @cached_property
    def ends(self) -> Ints:
        """Where each entry ends in the joined data."""
        (found,) = self._gathered(1, lambda group: (group.ends(),))
        return np.asarray(found, np.int64)

    def _gathered(
        self, count: int, numbers: Callable[[_Chunks | _Nodes], tuple[Any, ...]]
    ) -> tuple[Any, ...]:
        """So many arrays of numbers of all groups, in the order of the rows."""
        parts = [numbers(group) for group in self._groups]
        if len(parts) < 2:
            return parts[0] if parts else tuple(np.empty((count, 0), np.uint64))
        rows = np.concatenate([group.rows for group in self._groups])
        found = []
        for some in zip(*parts, strict=True):
            found.append(np.empty(len(rows), some[0].dtype))
            found[-1][rows] = np.concatenate(some)
        return tuple(found)

    def last_id(self, row: int) -> tuple[int, int]:
        """The ID of the entry before a row."""
        ms, seq = self.ids
        return int(ms[row - 1]), int(seq[row - 1])


def parse_export(*payloads: bytes) -> Export:
    """Decode the outer form of replies of AB.EXPORT as one; raises `MalformedReply`."""
    try:
        return _parse_export(payloads)
    except (struct.error, ValueError, OverflowError, zstd.ZstdError, MemoryError) as error:
        raise MalformedReply(f"the reply of AB.EXPORT is cut off or damaged ({error})") from None


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
        body = zstd.expanded(payload[_HEADER.size :])
        return memoryview(body), 0, chunks, following
    return payload, _HEADER.size, chunks, following


def _parse_export(payloads: Sequence[bytes]) -> Export:
    parser = _Parser()
    parts: list[tuple[int, int]] = []
    for payload, at, chunks, following in map(_chunks, payloads):
        before = parser.rows
        for _ in range(chunks):
            at = parser.read(payload, at)
        if at != len(payload):
            raise MalformedReply(_DISAGREE)
        parts.append((parser.rows - before, following))
    return Export(parts, parser)


_DISAGREE: Final = "the reply of AB.EXPORT is cut off or damaged (lengths disagree)"


class _Parser:
    """Collects chunks in groups of one form."""

    def __init__(self) -> None:
        self.begins: list[tuple[int, int]] = []
        self.rows = 0
        self._chunks: dict[tuple[int, int, int], _Chunks] = {}
        self._nodes: list[int] = []  # of each: chunk, row, entries, first position, begin, end
        self._pieces: list[bytes | memoryview] = []
        self._joined = 0

    def read(self, payload: memoryview, at: int) -> int:
        """Take a chunk that begins at an offset; returns where the next one does."""
        count, form, width, flags, _, base_ms, first, end_base, size = _CHUNK.unpack_from(
            payload, at
        )
        at += _CHUNK.size
        if not count:
            raise MalformedReply(_DISAGREE)
        if form == _NODE:
            node = zstd.expanded(payload[at : (at := at + size)])
            size = len(node)
            if size < _NODE_HEAD.itemsize:
                raise MalformedReply(_DISAGREE)
            end = self._joined + size
            self._nodes += (len(self.begins), self.rows, count, first, self._joined, end)
            self._pieces.append(node)
        else:
            kind = form, width, flags
            chunks = self._chunks.get(kind)
            if chunks is None:
                chunks = self._chunks[kind] = _Chunks(*kind)
            stop = self._joined + size
            facts = count, self.rows, first, self._joined - end_base, stop
            at = chunks.add(facts, base_ms, payload, at)
            self._pieces.append(payload[at : (at := at + size)])
        self.begins.append((self.rows, self._joined))
        self._joined += size
        self.rows += count
        return at

    def joined(self) -> bytes:
        """The data of all chunks, with `PADDING`."""
        return b"".join([*self._pieces, PADDING])

    def grouped(self, data: bytes) -> list[_Chunks | _Nodes]:
        """All chunks by their form; raises `MalformedReply`.

        Entries of a node are fragments, or columns without their schema and sizes.
        """
        groups: list[_Chunks | _Nodes] = [*self._chunks.values()]
        if not self._nodes:
            return groups
        nodes = np.array(self._nodes, np.int64).reshape(-1, 6)
        heads = _taken(data, nodes[:, 4], _NODE_HEAD.itemsize).view(_NODE_HEAD)[:, 0]
        codes = heads["code"]
        if (heads["count"] != nodes[:, 2]).any() or not np.isin(codes, [*_SIZES, _COLUMNS]).all():
            raise MalformedReply(_DISAGREE)
        forms: dict[tuple[int, int, int, bytes], list[int]] = {}
        kinds = nodes[:, 2] << 16 | codes.astype(np.int64) << 8 | heads["written"]
        for kind in np.unique(kinds[codes != _COLUMNS]).tolist():
            form = kind >> 16, kind >> 8 & 0xFF, kind & 0xFF, b""
            forms[form] = np.flatnonzero(kinds == kind).tolist()
        for number in np.flatnonzero(codes == _COLUMNS).tolist():
            count, written = int(nodes[number, 2]), int(heads["written"][number])
            at = int(nodes[number, 4]) + _NODE_HEAD.itemsize + count * written.bit_count()
            if count > _COLUMNS_MAX:
                raise MalformedReply(_DISAGREE)
            schema = data[at : at + _SHORT.size + _SHORT.unpack_from(data, at)[0]]
            forms.setdefault((count, _COLUMNS, written, schema), []).append(number)
        groups += [_Nodes(data, form, nodes[some], heads[some]) for form, some in forms.items()]
        return groups


def _taken(data: bytes, at: Ints, size: int) -> npt.NDArray[np.uint8]:
    """So many bytes from each place on, a row for each; there must be as many."""
    if not size:
        return np.empty((len(at), 0), np.uint8)
    whole = np.ndarray((len(data) - size + 1,), f"V{size}", data, strides=(1,))
    return whole[at].view(np.uint8).reshape(len(at), size)


class _Chunks:
    """Chunks of one form, whose entries are fragments."""

    def __init__(self, form: int, width: int, flags: int) -> None:
        """Of the IDs the form, of ends the bytes. Raises `MalformedReply`."""
        if form not in (_PACKED, _PLAIN):
            raise MalformedReply(f"the reply of AB.EXPORT has IDs in an unknown form ({form})")
        if width not in (2, 8):
            raise MalformedReply(f"the reply of AB.EXPORT has ends of {width} bytes")
        ids = 1 + (form == _PLAIN)
        self._has_positions = flags & _HAS_POSITIONS
        self._widths = [8] * (ids + self._has_positions) + [width]
        """Of the numbers in each array: IDs, packed or in halves, maybe positions, ends."""
        self._arrays: list[list[memoryview]] = [[] for _ in self._widths]
        self._is_packed = ids == 1
        self._base_ms: list[int] = []
        self._facts: list[tuple[int, ...]] = []

    def add(self, facts: tuple[int, ...], base_ms: int, payload: memoryview, at: int) -> int:
        """Collect a chunk whose arrays begin at an offset; returns where its data do.

        `facts`: entries, first row, first position, what its ends lack, end in the joined data.
        """
        self._base_ms.append(base_ms)
        self._facts.append(facts)
        for array, width in zip(self._arrays, self._widths, strict=True):
            array.append(payload[at : (at := at + width * facts[0])])
        return at

    @cached_property
    def _columns(self) -> Ints:
        return np.array(self._facts, np.int64).T

    def _numbers(self, array: int) -> npt.NDArray[Any]:
        return np.frombuffer(b"".join(self._arrays[array]), f"<u{self._widths[array]}")

    @cached_property
    def rows(self) -> Ints:
        """The rows of the entries."""
        counts, rows, *_ = self._columns
        return upwards(rows, counts)

    def ids(self) -> Ids:
        """Of each entry."""
        first = self._numbers(0)
        if not self._is_packed:
            return first, self._numbers(1)
        base_ms = np.array(self._base_ms, np.uint64)
        ms = (first >> np.uint64(_SEQ_BITS)) + np.repeat(base_ms, self._columns[0])
        return ms, first & np.uint64((1 << _SEQ_BITS) - 1)

    def positions(self) -> Ints:
        """Of each entry."""
        if self._has_positions:
            return self._numbers(-2).astype(np.int64)
        counts, _, firsts, *_ = self._columns
        return upwards(firsts, counts)

    def ends(self) -> Ints:
        """Where each entry ends in the joined data; raises `MalformedReply`."""
        counts, _, _, lacking, stops = self._columns
        ends: Ints = self._numbers(-1).astype(np.int64) + np.repeat(lacking, counts)
        if (ends[np.cumsum(counts) - 1] != stops).any():
            raise MalformedReply(_DISAGREE)
        return ends


class _Nodes:
    """Nodes of one form, whose entries are fragments or columns."""

    def __init__(
        self, data: bytes, form: tuple[int, int, int, bytes], nodes: Ints, heads: Any
    ) -> None:
        """`form`: how many entries, type of sizes or columns, which bytes of IDs, the schema.

        `nodes`: of each node the number of its chunk, its first row, how many entries, the first
        position, and where it begins and ends in the data. Raises `MalformedReply`.
        """
        self._data, self._heads = data, heads
        self._count, self._code, self._written, schema = form
        self.is_table = self._code == _COLUMNS
        self._names, self._widths = _names_of(schema[_SHORT.size :])
        self.chunks, self._rows, _, self._firsts, begins, self._stops = nodes.T
        self._planes_at = begins + _NODE_HEAD.itemsize
        self._sizes_at = self._planes_at + self._count * self._written.bit_count() + len(schema)
        self._sizes_bytes = self._count * _SIZES.get(self._code, 0)
        if self.is_table:
            self._sizes_bytes = sum([self._count * width or _SHORT.size for width in self._widths])
        self.begins = self._sizes_at + self._sizes_bytes
        """Where the entries of each node begin in the data."""
        if (self.begins > self._stops).any():
            raise MalformedReply(_DISAGREE)

    @cached_property
    def rows(self) -> Ints:
        """The rows of the entries."""
        return self._upwards(self._rows)

    def _upwards(self, firsts: Ints) -> Ints:
        return (firsts[:, None] + np.arange(self._count)).ravel()

    def ids(self) -> Ids:
        """Of each entry; those of a node are a run, or the bytes of words that are not 0."""
        words: Any = self._heads["word"][:, None] + np.arange(self._count, dtype=np.uint64)
        if self._written:
            places = [byte for byte in range(_WORD_BYTES) if self._written >> byte & 1]
            planes = np.zeros((len(words), _WORD_BYTES, self._count), np.uint8)
            some = _taken(self._data, self._planes_at, len(places) * self._count)
            planes[:, places] = some.reshape(-1, len(places), self._count)
            words = np.ascontiguousarray(planes.transpose(0, 2, 1)).view("<u8")[:, :, 0]
        ms = (words >> np.uint64(_SEQ_BITS)) + self._heads["ms"][:, None]
        return ms.ravel(), (words & np.uint64((1 << _SEQ_BITS) - 1)).ravel()

    def positions(self) -> Ints:
        """Of each entry."""
        return self._upwards(self._firsts)

    def _sizes(self) -> npt.NDArray[np.uint8]:
        """The bytes of the sizes, a row for each node."""
        return _taken(self._data, self._sizes_at, self._sizes_bytes)

    def ends(self) -> Ints:
        """Where each entry ends in the joined data, or its node; raises `MalformedReply`."""
        if self.is_table:
            return np.repeat(self._stops, self._count)
        sizes = self._sizes().view(f"<u{_SIZES[self._code]}")
        ends: Ints = np.cumsum(sizes, axis=1, dtype=np.int64) + self.begins[:, None]
        if (ends[:, -1] != self._stops).any():
            raise MalformedReply(_DISAGREE)
        return ends.ravel()

    def table(self) -> Alike:
        """The entries, if they are columns; raises `MalformedReply`."""
        count, plain = self._count, self._sizes()
        end, at = self.begins[:, None], 0
        spans = []
        for width in self._widths:
            upto = at + (count * width or _SHORT.size)
            some = np.ascontiguousarray(plain[:, at:upto]).view(f"<u{width or _SHORT.size}")
            at = upto
            sizes = np.broadcast_to(some, (len(plain), count)).astype(np.int64)
            ends = np.cumsum(sizes, axis=1) + end
            spans.append(((ends - sizes).ravel(), ends.ravel()))
            end = ends[:, -1:]
        if (end[:, 0] != self._stops).any():
            raise MalformedReply(_DISAGREE)
        return self.rows, self._names, spans


def upwards(firsts: Ints, counts: Ints) -> Ints:
    """From each number on so many."""
    offsets: Ints = firsts - (np.cumsum(counts) - counts)
    return np.arange(int(counts.sum())) + np.repeat(offsets, counts)


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
