"""One node of a stream: a listpack in which entries share the field names of the first.

The node's key is the *master ID*; the listpack opens with the master entry (live count, deleted
count, number of fields, their names, 0). Then each entry::

    flags, ms - master ms, seq - master seq,          flags: 1 deleted, 2 the master's fields
    values ...                                        with flag 2
    number of fields, field, value, field, value ...  without
    number of elements of this entry

Differences wrap around at 64 bits, so ``seq`` may fall when ``ms`` rises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from anabranch.rdb import listpack
from anabranch.rdb.errors import PayloadFormatError
from anabranch.stream.image import NodeImage

_DELETED: Final = 1
_SAME_FIELDS: Final = 2
_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63
_PIECE: Final = 1 << 14  # elements; many times what is in a node with the limits of Redis
_ENTRY_HEAD: Final = 3  # flags and the two differences

# The place of a deleted entry with unknown contents. It is at the beginning of the node and has the
# master's ID, so that no reader that stops at an ID stops there. It has one empty pair, because an
# entry without pairs is not valid.
_PLACEHOLDER: Final[tuple[listpack.Element, ...]] = (_DELETED, 0, 0, 1, b"", b"", 6)


def decode_node(
    master_id: int, elements: list[listpack.Element], spend: Callable[[int], None]
) -> Iterator[NodeImage]:
    """The node's live entries; all its counts are verified (the order of IDs is not).

    A very large node becomes several. ``spend`` gets the bytes of the names that entries share.
    """
    try:
        yield from _decode_elements(master_id, elements, spend)
    except IndexError:
        raise PayloadFormatError("stream node: cut short") from None


def _decode_elements(
    master_id: int, elements: list[listpack.Element], spend: Callable[[int], None]
) -> Iterator[NodeImage]:
    live = _natural(elements[0])
    deleted = _natural(elements[1])
    fields_count = _natural(elements[2])
    index = 3 + fields_count
    fields = listpack.texts(elements[3:index])
    if elements[index] != 0 or elements[index].__class__ is not int:
        raise PayloadFormatError("stream node: unterminated master entry")
    index += 1
    spend(live * sum(map(len, fields)))
    found = found_dead = 0
    while True:
        node, index = _decode_some(master_id, elements, index, fields)
        found += len(node.entries)
        found_dead += node.slots - len(node.entries)
        yield node
        if index == len(elements):
            break
    if live != found or deleted != found_dead:
        raise PayloadFormatError("stream node: wrong number of entries")


def _decode_some(
    master_id: int, elements: list[listpack.Element], index: int, fields: list[bytes]
) -> tuple[NodeImage, int]:
    """The entries from ``index`` on until they are many, and where they end."""
    fields_count = len(fields)
    master_ms = master_id >> 64
    master_seq = master_id & _MASK
    entries: list[tuple[int, list[bytes]]] = []
    dead = 0
    stop = min(index + _PIECE, len(elements))
    while index < stop:
        start = index
        flags = elements[index]
        ms_delta = elements[index + 1]
        seq_delta = elements[index + 2]
        if not (isinstance(flags, int) and isinstance(ms_delta, int)):
            raise PayloadFormatError("stream node: no integer")
        if not isinstance(seq_delta, int) or not 0 <= flags <= _DELETED | _SAME_FIELDS:
            raise PayloadFormatError("stream node: no integer, or unknown flags")
        index += _ENTRY_HEAD
        if flags & _SAME_FIELDS:
            after = index + fields_count
        else:
            after = index + 1 + 2 * _natural(elements[index])
            index += 1
        if elements[after] != after - start:  # also: raises IndexError if cut short
            raise PayloadFormatError("stream node: wrong entry size")
        if flags & _DELETED:
            dead += 1
        else:
            pairs = listpack.texts(elements[index:after])
            if flags & _SAME_FIELDS:
                values = pairs
                pairs = fields * 2
                pairs[::2] = fields
                pairs[1::2] = values
            ms = (master_ms + ms_delta) & _MASK
            entries.append((ms << 64 | (master_seq + seq_delta) & _MASK, pairs))
        index = after + 1
    return NodeImage(entries, len(entries) + dead), index


def encode_node(node: NodeImage) -> tuple[int, bytes]:
    """The master ID and the listpack of a node that has entries.

    Without deleted entries these are the very bytes Redis has. What deleted entries held is not
    in the image; each gets a placeholder, so that the node keeps its size.
    """
    master_id, first_pairs = node.entries[0]
    fields = first_pairs[::2]
    dead = node.slots - len(node.entries)
    elements: list[listpack.Element] = [len(node.entries), dead, len(fields), *fields, 0]
    elements += _PLACEHOLDER * dead
    master_ms = master_id >> 64
    master_seq = master_id & _MASK
    for entry_id, pairs in node.entries:
        ms_delta = _signed((entry_id >> 64) - master_ms)
        seq_delta = _signed((entry_id & _MASK) - master_seq)
        if pairs[::2] == fields:
            elements += (_SAME_FIELDS, ms_delta, seq_delta)
            elements += pairs[1::2]
            elements.append(_ENTRY_HEAD + len(fields))
        else:
            elements += (0, ms_delta, seq_delta, len(pairs) // 2)
            elements += pairs
            elements.append(_ENTRY_HEAD + 1 + len(pairs))
    return master_id, listpack.encode(elements)


def _natural(element: listpack.Element) -> int:
    if isinstance(element, int) and element >= 0:
        return element
    raise PayloadFormatError("stream node: no count")


def _signed(difference: int) -> int:
    """``difference`` wrapped into 64 bits."""
    return ((difference + _SIGN) & _MASK) - _SIGN
