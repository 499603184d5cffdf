"""Where the value of each kind ends: skips over a value without decoding it.

Values that cannot be kept here must be skipped exactly, otherwise nothing after them could be read.
Most encodings are a string around packed data; the others are counts of strings and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from anabranch.rdb.chunk_reader import ChunkReader
from anabranch.rdb.kinds import StreamType

_SCORE_WORDS: Final = range(253, 256)  # not a number, and the two infinities

_ID_BYTES: Final = 16

_ARRAY_TEXTS: Final = (0, 3)
_ARRAY_NUMBERS: Final = (1, 2)

_Walk = Callable[[ChunkReader], object]


def _layout(marks: str) -> _Walk:
    """A walk: ``s`` is a string, ``n`` a number, ``8`` so many bytes, ``t`` a score as text.

    In parentheses stands what a count before it repeats, and ``#`` is a count of entry IDs.
    """
    open_parts: list[list[_Walk]] = [[]]
    for mark in marks:
        if mark == "(":
            open_parts.append([])
        elif mark == ")":
            repeated = open_parts.pop()
            open_parts[-1].append(_counted(repeated))
        else:
            open_parts[-1].append(_PARTS[mark])
    (parts,) = open_parts

    def walk(reader: ChunkReader) -> None:
        for part in parts:
            part(reader)

    return walk


def _counted(parts: Sequence[_Walk]) -> _Walk:
    def walk(reader: ChunkReader) -> None:
        for _ in range(reader.length()):
            for part in parts:
                part(reader)

    return walk


def _score_as_text(reader: ChunkReader) -> None:
    size = reader.byte()
    if size not in _SCORE_WORDS:
        reader.skip(size)


_PARTS: Final[dict[str, _Walk]] = {
    "s": ChunkReader.skip_string,
    "n": ChunkReader.length,
    "8": lambda reader: reader.skip(8),
    "t": _score_as_text,
    "#": lambda reader: reader.skip(reader.length() * _ID_BYTES),
}


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


_LAYOUTS: Final = {
    "s": (0, 9, 10, 11, 12, 13, 16, 17, 20, 23),
    "(s)": (1, 2, 14),
    "(st)": (3,),
    "(ss)": (4,),
    "(s8)": (5,),  # scores
    "(ns)": (18,),  # nodes of a list, and their form
    "(nss)": (22,),  # fields, and when they expire
    "8(nss)": (24,),  # the same, and when the first of them expires
    "8s": (25,),
    # Nodes, counters, groups with pending entries and consumers, producers: see .stream_codec.
    "(ss)nnn(snn(888n)(s8#))": (StreamType.V1,),
    "(ss)nnnnnnnn(snnn(888n)(s8#))": (StreamType.V2,),
    "(ss)nnnnnnnn(snnn(888n)(s88#))": (StreamType.V3,),
    "(ss)nnnnnnnn(snnn(888n)(s88#))nn(s(snn))nn": (StreamType.V4,),
    "(ss)nnnnnnnn(snnn(888n)(s88#)#)nn(s(snn))nn": (StreamType.V5,),
}

WALKS: Final[dict[int, _Walk]] = {
    **{int(kind): _layout(marks) for marks, kinds in _LAYOUTS.items() for kind in kinds},
    7: walk_module,
    28: _array,
}
"""By type byte; that of preliminary modules is missing, because their end is not known."""
