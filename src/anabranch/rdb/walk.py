"""Where the value of each kind ends: skips over a value without decoding it.

Values that cannot be kept here must be skipped exactly, otherwise nothing after them could be read.
Most encodings are a string around packed data; the others are counts of strings and numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.rdb.chunk_reader import ChunkReader
from anabranch.rdb.kinds import StreamType

_SCORE_WORDS: Final = range(253, 256)  # not a number, and the two infinities

_PENDING_FIXED: Final = 24  # ID and delivery time
_ID_BYTES: Final = 16
_TIME_BYTES: Final = 8

_ARRAY_TEXTS: Final = (0, 3)
_ARRAY_NUMBERS: Final = (1, 2)


def _strings(reader: ChunkReader) -> None:
    for _ in range(reader.length()):
        reader.skip_string()


def _pairs(reader: ChunkReader) -> None:
    for _ in range(reader.length()):
        reader.skip_string()
        reader.skip_string()


def _scores_as_text(reader: ChunkReader) -> None:
    for _ in range(reader.length()):
        reader.skip_string()
        size = reader.byte()
        if size not in _SCORE_WORDS:
            reader.skip(size)


def _scores(reader: ChunkReader) -> None:
    for _ in range(reader.length()):
        reader.skip_string()
        reader.skip(8)


def _quicklist(reader: ChunkReader) -> None:
    for _ in range(reader.length()):
        reader.length()
        reader.skip_string()


def _expiring_fields(reader: ChunkReader) -> None:
    for _ in range(reader.length()):
        reader.length()  # when
        reader.skip_string()
        reader.skip_string()


def _dated_expiring_fields(reader: ChunkReader) -> None:
    reader.skip(_TIME_BYTES)  # when the first of them expires
    _expiring_fields(reader)


def _dated_string(reader: ChunkReader) -> None:
    reader.skip(_TIME_BYTES)
    reader.skip_string()


def _array(reader: ChunkReader) -> None:
    count = reader.length()
    if reader.length():  # an index to insert at follows
        reader.length()
    for _ in range(count):
        reader.length()  # index
        form = reader.length()
        if form in _ARRAY_TEXTS:
            reader.skip_string()
        elif form in _ARRAY_NUMBERS:
            reader.skip(8)
        else:
            raise reader.error(f"array: unknown form of element {form}")


def walk_module(reader: ChunkReader) -> None:
    """What a module wrote, behind the module's ID: marked pieces up to an end mark."""
    while mark := reader.length():
        if mark in (1, 2):  # integers
            reader.length()
        elif mark == 3:
            reader.skip(4)
        elif mark == 4:
            reader.skip(8)
        elif mark == 5:
            reader.skip_string()
        else:
            raise reader.error(f"module: unknown mark {mark}")


def _stream(stream_type: StreamType) -> Callable[[ChunkReader], None]:
    return lambda reader: _walk_stream(reader, stream_type)


def _id(reader: ChunkReader) -> None:
    reader.length()
    reader.length()


def _walk_stream(reader: ChunkReader, stream_type: StreamType) -> None:
    """The layout is described in :mod:`.stream_codec` and :mod:`.stream_groups`."""
    _pairs(reader)  # nodes
    reader.length()
    _id(reader)
    if stream_type.has_counters:
        _id(reader)
        _id(reader)
        reader.length()
    for _ in range(reader.length()):
        _walk_group(reader, stream_type)
    if stream_type.has_producers:
        _walk_producers(reader)


def _walk_group(reader: ChunkReader, stream_type: StreamType) -> None:
    reader.skip_string()
    _id(reader)
    if stream_type.has_counters:
        reader.length()
    for _ in range(reader.length()):
        reader.skip(_PENDING_FIXED)
        reader.length()
    for _ in range(reader.length()):
        reader.skip_string()
        reader.skip(2 * _TIME_BYTES if stream_type.has_active_time else _TIME_BYTES)
        reader.skip(reader.length() * _ID_BYTES)
    if stream_type.has_nacked:
        reader.skip(reader.length() * _ID_BYTES)


def _walk_producers(reader: ChunkReader) -> None:
    reader.length()
    reader.length()
    for _ in range(reader.length()):
        reader.skip_string()
        for _ in range(reader.length()):
            reader.skip_string()
            _id(reader)
    reader.length()
    reader.length()


_string = ChunkReader.skip_string

WALKS: Final[dict[int, Callable[[ChunkReader], None]]] = {
    0: _string,
    1: _strings,
    2: _strings,
    3: _scores_as_text,
    4: _pairs,
    5: _scores,
    7: walk_module,
    9: _string,
    10: _string,
    11: _string,
    12: _string,
    13: _string,
    14: _strings,
    16: _string,
    17: _string,
    18: _quicklist,
    20: _string,
    22: _expiring_fields,
    23: _string,
    24: _dated_expiring_fields,
    25: _dated_string,
    28: _array,
    **{int(stream_type): _stream(stream_type) for stream_type in StreamType},
}
"""By type byte; that of preliminary modules is missing, because their end is not known."""
