"""A whole stream between its image and its bytes, in each of the five generations.

Order of the bytes: nodes (key and listpack, both as strings), length, last ID; from type 19 on
first ID, highest deleted ID and entries added; groups; from type 26 on idempotent producers.
Lacking counters are replaced as Redis does it: entries added := length, highest deleted := 0-0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from anabranch.rdb import listpack
from anabranch.rdb.errors import PayloadFormatError
from anabranch.rdb.kinds import StreamType
from anabranch.rdb.lengths import ITEM_BYTES, Cursor, length_bytes, string_bytes
from anabranch.rdb.stream_groups import (
    decode_groups,
    decode_id,
    decode_producers,
    encode_group,
    encode_id,
    encode_producers,
)
from anabranch.rdb.stream_node import decode_node, encode_node
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.image import NodeImage, NodesCheck, PendingImage, StreamImage

_NODE_MIN: Final = 19  # bytes: a key of 16 and its length, a listpack
_KEY_BYTES: Final = 16


def decode_steps(
    cursor: Cursor, stream_type: StreamType, take: Callable[[NodeImage], None]
) -> Steps[StreamImage]:
    """Read a stream in short steps; ``take`` gets the nodes, which the image then lacks.

    The image is consistent in itself, else PayloadFormatError.
    """
    image = StreamImage()
    nodes = NodesCheck()
    try:
        for _ in range(cursor.count(_NODE_MIN)):
            key = cursor.string()
            if len(key) != _KEY_BYTES:
                raise PayloadFormatError("stream: a node key that is no ID")
            elements: list[listpack.Element] = []
            for piece in listpack.pieces((yield from cursor.string_steps())):
                cursor.spend(ITEM_BYTES * len(piece))
                elements += piece
                yield
            for node in decode_node(int.from_bytes(key, "big"), elements, cursor.spend):
                if node.entries:  # a node with deleted entries only has no information
                    nodes.add(node)
                    take(node)
                yield
            cursor.spend(-ITEM_BYTES * len(elements))
        image.length = cursor.length()
        image.last_id = decode_id(cursor)
        image.entries_added = image.length
        if stream_type.has_counters:
            decode_id(cursor)
            image.max_deleted_id = decode_id(cursor)
            image.entries_added = cursor.length()
        # The stored first ID, if there is one, follows from the entries.
        image.first_id = nodes.first_id
        nodes.end(image)
        image.groups = yield from decode_groups(cursor, stream_type)
        if stream_type.has_producers:
            decode_producers(cursor, image)
        image.check_rest()
    except ValueError as error:
        raise PayloadFormatError(f"stream: {error}") from None
    return image


def encode_stream(image: StreamImage, stream_type: StreamType = StreamType.V5) -> bytes:
    """Write a stream, without the type byte; raises ValueError if the image is not consistent.

    What the type cannot store is left out, except NACKed entries: these raise ValueError.
    """
    pending = [group.pending for group in image.groups]
    steps = encode_steps(image, image.nodes, pending, stream_type)
    return b"".join(in_one_go(steps))


def encode_steps(
    image: StreamImage,
    nodes: Iterable[NodeImage],
    pending: Sequence[Iterable[PendingImage]],
    stream_type: StreamType = StreamType.V5,
) -> Steps[list[bytes]]:
    """The value of a stream, without its type byte, in short steps and in pieces.

    The nodes, and the pending entries of each group, are not part of the image: they may be too
    many for the memory.
    """
    image.check_rest()
    check = NodesCheck()
    parts = [b""]
    count = 0
    for node in nodes:
        check.add(node)
        master_id, packed = encode_node(node)
        parts.append(length_bytes(_KEY_BYTES) + master_id.to_bytes(_KEY_BYTES, "big"))
        parts.append(string_bytes(packed))
        count += 1
        yield
    check.end(image)
    parts[0] = length_bytes(count)
    parts.append(length_bytes(image.length))
    parts.append(encode_id(image.last_id))
    if stream_type.has_counters:
        parts.append(encode_id(image.first_id) + encode_id(image.max_deleted_id))
        parts.append(length_bytes(image.entries_added))
    parts.append(length_bytes(len(image.groups)))
    for group, items in zip(image.groups, pending, strict=True):
        yield from encode_group(parts, group, items, stream_type)
    if stream_type.has_producers:
        parts.append(encode_producers(image))
    return parts
