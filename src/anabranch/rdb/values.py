"""One value by its type byte: strings, lists, sets and streams, in every form servers wrote.

Sets and lists are never empty in Redis, and a set never has a member twice; payloads that claim so
are refused. Hashes, sorted sets and modules are known by name only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import merge
from itertools import islice
from typing import Final

from anabranch.rdb import intset, listpack, ziplist
from anabranch.rdb.errors import PayloadFormatError, PayloadKindError
from anabranch.rdb.kinds import KINDS, StreamType
from anabranch.rdb.lengths import ITEM_BYTES, Cursor, length_bytes, string_bytes
from anabranch.rdb.stream_codec import decode_steps, encode_stream
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.image import NodeImage, StreamImage

Value = bytes | list[bytes] | set[bytes] | StreamImage

_STRING: Final = 0
_LIST: Final = 1
_SET: Final = 2
_LIST_ZIPLIST: Final = 10
_SET_INTSET: Final = 11
_LIST_QUICKLIST: Final = 14
_LIST_QUICKLIST_2: Final = 18
_SET_LISTPACK: Final = 20

_PLAIN: Final = 1  # a quicklist node that is one large element
_PACKED: Final = 2  # a quicklist node that is a listpack
_NODE_BYTES_MAX: Final = 8192  # Redis' default for list nodes; larger elements get a plain node

_STEP: Final = 500
"""Items that are read or written in one step."""
_RUN: Final = 2000
"""Members of a set that are sorted in one step."""


def decode_value(cursor: Cursor, type_byte: int) -> Value:
    """Read the value that follows ``type_byte``."""
    nodes: list[NodeImage] = []
    value = in_one_go(decode_value_steps(cursor, type_byte, nodes.append))
    if isinstance(value, StreamImage):
        value.nodes = nodes
    return value


def decode_value_steps(
    cursor: Cursor, type_byte: int, take: Callable[[NodeImage], None]
) -> Steps[Value]:
    """Decode a value in short steps; ``take`` gets the nodes of a stream, which its image lacks."""
    if type_byte in _STREAM_TYPES:
        return (yield from decode_steps(cursor, StreamType(type_byte), take))
    if type_byte == _STRING:
        return (yield from cursor.string_steps())
    if type_byte in _LIST_READERS:
        return (yield from _list(cursor, _LIST_READERS[type_byte]))
    if type_byte in _SET_READERS:
        return (yield from _set(cursor, _SET_READERS[type_byte]))
    if type_byte in KINDS:
        raise PayloadKindError(KINDS[type_byte], type_byte)
    raise PayloadFormatError(f"unknown value type {type_byte}")


def encode_value(value: Value, stream_type: StreamType) -> bytes:
    """Type byte and value, in forms every server since Redis 7.0 reads.

    ``stream_type`` matters to streams alone. Members of sets are written in ascending order, so
    equal sets have equal bytes.
    """
    if isinstance(value, StreamImage):
        return bytes((stream_type,)) + encode_stream(value, stream_type)
    return b"".join(in_one_go(encode_small_steps(value)))


def encode_small_steps(value: bytes | list[bytes] | set[bytes]) -> Steps[list[bytes]]:
    """Type byte and value of all but streams, in short steps and in pieces.

    The first step copies a set, which may then change; a list must stay as it is.
    """
    if isinstance(value, bytes):
        return [bytes((_STRING,)), string_bytes(value)]
    if not value:
        raise ValueError("no server keeps an empty list or set")
    if isinstance(value, list):
        return (yield from _quicklist_steps(value))
    return (yield from _set_steps(value))


# -- decoding ---------------------------------------------------------------------------------

_Add = Callable[[list[bytes]], None]
_Reader = Callable[[Cursor, _Add], Steps[None]]
"""Reads items in short steps, and passes them on some at a time."""


def _list(cursor: Cursor, read: _Reader) -> Steps[list[bytes]]:
    items: list[bytes] = []

    def add(piece: list[bytes]) -> None:
        cursor.spend(ITEM_BYTES * len(piece))
        items.extend(piece)

    yield from read(cursor, add)
    if not items:
        raise PayloadFormatError("an empty list")
    return items


def _set(cursor: Cursor, read: _Reader) -> Steps[set[bytes]]:
    members: set[bytes] = set()

    def add(piece: list[bytes]) -> None:
        cursor.spend(ITEM_BYTES * len(piece))
        count = len(members) + len(piece)
        members.update(piece)
        if len(members) != count:
            raise PayloadFormatError("a set with a member twice")

    yield from read(cursor, add)
    if not members:
        raise PayloadFormatError("an empty set")
    return members


def _strings(cursor: Cursor, add: _Add) -> Steps[None]:
    left = cursor.count(1)
    while left:
        piece = []
        for _ in range(min(left, _STEP)):
            item = yield from cursor.string_steps()
            piece.append(item)
        left -= len(piece)
        add(piece)
        yield


def _packed(pieces: Callable[[bytes], Iterable[list[bytes]]]) -> _Reader:
    """A reader of one string of packed items."""

    def read(cursor: Cursor, add: _Add) -> Steps[None]:
        data = yield from cursor.string_steps()
        for piece in pieces(data):
            add(piece)
            yield

    return read


def _listpack_pieces(data: bytes) -> Iterable[list[bytes]]:
    return map(listpack.texts, listpack.pieces(data))


_ziplist: Final = _packed(ziplist.pieces)
_listpack: Final = _packed(_listpack_pieces)


def _quicklist(cursor: Cursor, add: _Add) -> Steps[None]:
    for _ in range(cursor.count(2)):
        container = cursor.length()
        if container == _PLAIN:
            item = yield from cursor.string_steps()
            add([item])
            yield
        elif container == _PACKED:
            yield from _listpack(cursor, add)
        else:
            raise PayloadFormatError("list: unknown kind of node")


def _old_quicklist(cursor: Cursor, add: _Add) -> Steps[None]:
    for _ in range(cursor.count(1)):
        yield from _ziplist(cursor, add)


_STREAM_TYPES: Final = frozenset(map(int, StreamType))

_LIST_READERS: Final[dict[int, _Reader]] = {
    _LIST: _strings,
    _LIST_ZIPLIST: _ziplist,
    _LIST_QUICKLIST: _old_quicklist,
    _LIST_QUICKLIST_2: _quicklist,
}

_SET_READERS: Final[dict[int, _Reader]] = {
    _SET: _strings,
    _SET_INTSET: _packed(intset.pieces),
    _SET_LISTPACK: _listpack,
}

# -- encoding ---------------------------------------------------------------------------------


def _quicklist_steps(items: list[bytes]) -> Steps[list[bytes]]:
    parts = [b""]
    packed: list[bytes] = []
    packed_bytes = 0

    def add_node(container: int, data: bytes) -> None:
        parts.append(bytes((container,)) + string_bytes(data))

    for item in items:
        if packed and packed_bytes + len(item) > _NODE_BYTES_MAX:
            add_node(_PACKED, listpack.encode(packed))
            packed = []
            packed_bytes = 0
            yield
        if len(item) > _NODE_BYTES_MAX:
            add_node(_PLAIN, item)
            yield
        else:
            packed.append(item)
            packed_bytes += len(item) + 2  # the least an element needs beside its text
    if packed:
        add_node(_PACKED, listpack.encode(packed))
    parts[0] = bytes((_LIST_QUICKLIST_2,)) + length_bytes(len(parts) - 1)
    return parts


def _set_steps(members: set[bytes]) -> Steps[list[bytes]]:
    unsorted = list(members)
    parts = [bytes((_SET,)) + length_bytes(len(unsorted))]
    runs = []
    for at in range(0, len(unsorted), _RUN):
        runs.append(sorted(unsorted[at : at + _RUN]))
        yield
    ascending = merge(*runs)
    while piece := list(islice(ascending, _STEP)):
        parts += [string_bytes(member) for member in piece]
        yield
    return parts
