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

_Walk = Callable[[ChunkReader], None]


def _row(layout: str) -> _Walk:
    """A walk: ``s`` is a string, ``n`` a number, ``8`` so many bytes; ``*`` a count of the rest."""
    first, _, repeated = layout.partition("*")
    ahead, each = ([_PARTS[part] for part in parts] for parts in (first, repeated))

    def walk(reader: ChunkReader) -> None:
        for part in ahead:
            part(reader)
        for _ in range(reader.length() if each else 0):
            for part in each:
                part(reader)

    return walk


def _eight_bytes(reader: ChunkReader) -> None:
    reader.skip(8)


_PARTS: Final[dict[str, Callable[[ChunkReader], object]]] = {
    "s": ChunkReader.skip_string,
    "n": ChunkReader.length,
    "8": _eight_bytes,
}


def _scores_as_text(reader: ChunkReader) -> None:
    for _ in range(reader.length()):
        reader.skip_string()
        size = reader.byte()
        if size not in _SCORE_WORDS:
            reader.skip(size)


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


def _stream(stream_type: StreamType) -> _Walk:
    return lambda reader: _walk_stream(reader, stream_type)


def _id(reader: ChunkReader) -> None:
    reader.length()
    reader.length()


def _walk_stream(reader: ChunkReader, stream_type: StreamType) -> None:
    """The layout is described in :mod:`.stream_codec` and :mod:`.stream_groups`."""
    _row("*ss")(reader)  # nodes
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


_LAYOUTS: Final = {
    "s": (0, 9, 10, 11, 12, 13, 16, 17, 20, 23),
    "*s": (1, 2, 14),
    "*ss": (4,),
    "*s8": (5,),  # scores
    "*ns": (18,),  # nodes of a list, and their form
    "*nss": (22,),  # fields, and when they expire
    "8*nss": (24,),  # the same, and when the first of them expires
    "8s": (25,),
}

WALKS: Final[dict[int, _Walk]] = {
    **{kind: _row(layout) for layout, kinds in _LAYOUTS.items() for kind in kinds},
    3: _scores_as_text,
    7: walk_module,
    28: _array,
    **{int(stream_type): _stream(stream_type) for stream_type in StreamType},
}
"""By type byte; that of preliminary modules is missing, because their end is not known."""
