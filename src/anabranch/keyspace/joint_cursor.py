"""One cursor for many streams: where a reader stands in all of them, as one printable word.

A version vector, the *base*, says how far the reader has read; streams in which it stands elsewhere
have a row of their own. Where several regions write, numbers are those of effects, of all keys
together: a reader that has read everything needs no row. On a server of its own numbers belong to
one stream, so each stream that was read has a row there, and the base is empty.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from heapq import merge
from itertools import islice
from sys import getsizeof
from typing import Final

import msgspec
from xxhash import xxh32_digest

from anabranch import zstd
from anabranch.keyspace.version_vectors import covers, maximum, row_of, vector_of
from anabranch.metrics.holdings import NAME_BYTES
from anabranch.scheduling import Steps
from anabranch.stream.groups.group import LOCAL_REPLICA_ID
from anabranch.stream.numbering import has_behind
from anabranch.stream.stream import Stream

STREAMS_MAX = 100_000
"""The most rows of a cursor: it takes some megabytes then. Tests change it."""

_PREFIX: Final = b"c1:"
_NOTHING: Final = b"0"
_CHECK_BYTES: Final = 4
_BYTES_MAX: Final = 64 << 20

_Row = list[int]
"""A version vector: replica ID, number, replica ID, number ... Of thousands few are looked at."""

_ROW_BYTES: Final = getsizeof([0, 0]) + getsizeof(1 << 20) + NAME_BYTES
"""A row beside its place in the table, and a name."""


PAGE = 500
"""Rows that are written or read in one step: a fraction of a millisecond. Tests change it."""

_Table = dict[bytes, _Row] | list[msgspec.Raw]
"""Rows as they are written; more than a page of them as a list of pages."""


class _WrittenCursor(msgspec.Struct, array_like=True):
    """A cursor as it is written."""

    base: list[int]
    rows: dict[bytes, list[int]] | list[msgspec.Raw]
    ended: list[bytes]
    after: bytes
    places: dict[bytes, list[int]] | list[msgspec.Raw] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_WrittenCursor).decode
_decode_page = msgspec.msgpack.Decoder(dict[bytes, list[int]]).decode
_compressor: Final = zstd.FrameCompressor(1)


class JointCursor:
    """Where a reader stands."""

    __slots__ = ("after", "base", "ended", "places", "rows")

    def __init__(
        self,
        base: Mapping[int, int],
        rows: dict[bytes, _Row],
        ended: set[bytes],
        after: bytes,
        places: dict[bytes, _Row] | None = None,
    ) -> None:
        self.base = base
        self.rows = rows
        """Of streams in which the reader does not stand at the base: how far it has read."""
        self.ended = ended
        """Streams of which the reader was told that they have ended."""
        self.after = after
        """The stream at which the last reply was full: the next one begins behind it."""
        self.places = places
        """By stream, how many positions of each log the reader has come past. Only for a reader who
        wants to know of gaps, where several regions write; None: it has not asked yet."""

    def seen(self, key: bytes) -> Mapping[int, int]:
        """The version vector of what was read of a stream."""
        row = self.rows.get(key)
        return self.base if row is None else vector_of(row)

    def has_news(self, key: bytes, stream: Stream) -> bool:
        """Whether an entry was ever added to a stream that the reader has not seen."""
        row = self.rows.get(key)
        if row is None:
            return has_behind(stream, self.base)
        if len(row) == 2 and row[0] == LOCAL_REPLICA_ID:  # a number is a position, plus 1
            return stream.incarnation + stream.local.next_position > row[1]
        return has_behind(stream, vector_of(row))

    def raise_base(self, vector: Mapping[int, int]) -> None:
        """All that these effects have added was read, but for the streams with rows."""
        if vector:
            self.base = maximum(self.base, vector)

    def stand(self, key: bytes, seen: Mapping[int, int]) -> None:
        """The reader has read so far of a stream."""
        if covers(self.base, seen) and covers(seen, self.base):
            self.rows.pop(key, None)
        else:
            self.rows[key] = row_of(seen)

    @property
    def used_bytes(self) -> int:
        """About how much memory it takes."""
        return getsizeof(self.rows) + _ROW_BYTES * (len(self.rows) + len(self.places or ()))

    def text_steps(self) -> Steps[bytes]:
        """The cursor as a client gets it, made in steps: ``c1:`` and base64url.

        The bytes are a checksum and a msgpack list, which is compressed if that makes it shorter.
        """
        if not (self.base or self.rows or self.ended or self.after or self.places):
            return _NOTHING
        rows = yield from _written(self.rows)
        fields = [row_of(self.base), rows, sorted(self.ended), self.after]
        if self.places is not None:
            fields.append((yield from _written(self.places)))
        plain = _encode(fields)
        yield
        body = min(plain, _compressor.compress(plain), key=len)
        return _PREFIX + urlsafe_b64encode(xxh32_digest(body) + body).rstrip(b"=")


def cursor_steps(raw: bytes) -> Steps[JointCursor]:
    """The cursor of a text, read in steps. Raises :class:`ValueError` for anything that is none."""
    if raw == _NOTHING:
        return JointCursor({}, {}, set(), b"")
    coded = raw.removeprefix(_PREFIX)
    if coded is raw:
        raise ValueError("another beginning")
    data = urlsafe_b64decode(coded + b"=" * (-len(coded) % 4))
    body = data[_CHECK_BYTES:]
    if xxh32_digest(body) != data[:_CHECK_BYTES]:
        raise ValueError("not as it was written")
    try:
        if body.startswith(zstd.MAGIC):
            body = zstd.expanded(body, _BYTES_MAX)
            yield
        fields = _decode(body)
        rows = yield from _read(fields.rows)
        places = None if fields.places is None else (yield from _read(fields.places))
    except (msgspec.MsgspecError, zstd.ZstdError) as problem:
        raise ValueError("not a cursor") from problem
    return JointCursor(vector_of(fields.base), rows, set(fields.ended), fields.after, places)


def _written(rows: dict[bytes, _Row]) -> Steps[_Table]:
    """Rows in the order of names, which is compressed best."""
    if len(rows) <= PAGE:
        return {key: rows[key] for key in sorted(rows)}
    names = list(rows)
    parts: list[list[bytes]] = []
    for at in range(0, len(names), PAGE):
        parts.append(sorted(names[at : at + PAGE]))
        yield
    ordered = merge(*parts)
    pages: list[msgspec.Raw] = []
    while page := {key: rows[key] for key in islice(ordered, PAGE)}:
        pages.append(msgspec.Raw(_encode(page)))
        yield
    return pages


def _read(table: _Table) -> Steps[dict[bytes, _Row]]:
    """Rows that were written. Raises :class:`ValueError` for one that has no pairs."""
    if isinstance(table, dict):
        _check(table)
        return table
    rows: dict[bytes, _Row] = {}
    for raw in table:
        page = _decode_page(raw)
        _check(page)
        rows.update(page)
        yield
    return rows


def _check(rows: dict[bytes, _Row]) -> None:
    for row in rows.values():
        if len(row) % 2:
            raise ValueError("not a cursor")
