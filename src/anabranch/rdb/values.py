"""One value by its type byte: strings, lists, sets and streams, in every form servers wrote.

Sets and lists are never empty in Redis, and a set never has a member twice; payloads that claim so
are refused. Hashes, sorted sets and modules are known by name only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from anabranch.rdb import intset, listpack, ziplist
from anabranch.rdb.errors import PayloadFormatError
from anabranch.rdb.kinds import KINDS
from anabranch.rdb.lengths import Cursor, length_bytes, string_bytes
from anabranch.rdb.stream_codec import decode_steps, decode_stream, encode_stream
from anabranch.rdb.stream_types import StreamType
from anabranch.scheduling import Steps
from anabranch.stream.image import NodeImage, StreamImage

__all__ = ["Value", "decode_value", "decode_value_steps", "encode_value"]

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


def decode_value(cursor: Cursor, type_byte: int) -> Value:
    """Read the value that follows ``type_byte``."""
    decoder = _DECODERS.get(type_byte)
    if decoder is not None:
        return decoder(cursor)
    if type_byte in KINDS:
        raise PayloadFormatError(f"{KINDS[type_byte]} (type {type_byte}) is not supported")
    raise PayloadFormatError(f"unknown value type {type_byte}")


def decode_value_steps(
    cursor: Cursor, type_byte: int, take: Callable[[NodeImage], None]
) -> Steps[Value]:
    """The same in short steps; ``take`` gets the nodes of a stream, which its image then lacks."""
    if type_byte in _STREAM_TYPES:
        return (yield from decode_steps(cursor, StreamType(type_byte), take))
    return decode_value(cursor, type_byte)


def encode_value(value: Value, stream_type: StreamType, *, compress: bool = False) -> bytes:
    """Type byte and value, in forms every server since Redis 7.0 reads.

    ``stream_type`` matters to streams alone. Members of sets are written in ascending order, so
    equal sets have equal bytes.
    """
    if isinstance(value, bytes):
        return bytes((_STRING,)) + string_bytes(value, compress=compress)
    if isinstance(value, StreamImage):
        return bytes((stream_type,)) + encode_stream(value, stream_type, compress=compress)
    if not value:
        raise ValueError("no server keeps an empty list or set")
    if isinstance(value, list):
        return bytes((_LIST_QUICKLIST_2,)) + _quicklist_bytes(value, compress)
    members = [string_bytes(member, compress=compress) for member in sorted(value)]
    return bytes((_SET,)) + length_bytes(len(members)) + b"".join(members)


def _strings(cursor: Cursor) -> list[bytes]:
    return [cursor.string() for _ in range(cursor.count(1))]


def _non_empty(items: list[bytes]) -> list[bytes]:
    if not items:
        raise PayloadFormatError("an empty list or set")
    return items


def _as_set(members: list[bytes]) -> set[bytes]:
    unique = set(_non_empty(members))
    if len(unique) != len(members):
        raise PayloadFormatError("a set with a member twice")
    return unique


def _quicklist(cursor: Cursor) -> list[bytes]:
    items: list[bytes] = []
    for _ in range(cursor.count(2)):
        container = cursor.length()
        data = cursor.string()
        if container == _PLAIN:
            items.append(data)
        elif container == _PACKED:
            items += listpack.texts(listpack.decode(data))
        else:
            raise PayloadFormatError("list: unknown kind of node")
    return _non_empty(items)


def _old_quicklist(cursor: Cursor) -> list[bytes]:
    items: list[bytes] = []
    for _ in range(cursor.count(1)):
        items += ziplist.decode(cursor.string())
    return _non_empty(items)


def _quicklist_bytes(items: list[bytes], compress: bool) -> bytes:
    nodes: list[bytes] = []
    packed: list[bytes] = []
    packed_bytes = 0

    def add_node(container: int, data: bytes) -> None:
        nodes.append(bytes((container,)) + string_bytes(data, compress=compress))

    for item in items:
        if packed and packed_bytes + len(item) > _NODE_BYTES_MAX:
            add_node(_PACKED, listpack.encode(packed))
            packed = []
            packed_bytes = 0
        if len(item) > _NODE_BYTES_MAX:
            add_node(_PLAIN, item)
        else:
            packed.append(item)
            packed_bytes += len(item) + 2  # the least an element needs beside its text
    if packed:
        add_node(_PACKED, listpack.encode(packed))
    return length_bytes(len(nodes)) + b"".join(nodes)


def _stream_decoder(stream_type: StreamType) -> Callable[[Cursor], Value]:
    return lambda cursor: decode_stream(cursor, stream_type)


_STREAM_TYPES: Final = frozenset(map(int, StreamType))

_DECODERS: Final[dict[int, Callable[[Cursor], Value]]] = {
    _STRING: Cursor.string,
    _LIST: lambda cursor: _non_empty(_strings(cursor)),
    _LIST_ZIPLIST: lambda cursor: _non_empty(ziplist.decode(cursor.string())),
    _LIST_QUICKLIST: _old_quicklist,
    _LIST_QUICKLIST_2: _quicklist,
    _SET: lambda cursor: _as_set(_strings(cursor)),
    _SET_INTSET: lambda cursor: _as_set(intset.decode(cursor.string())),
    _SET_LISTPACK: lambda cursor: _as_set(listpack.texts(listpack.decode(cursor.string()))),
    **{int(stream_type): _stream_decoder(stream_type) for stream_type in StreamType},
}
