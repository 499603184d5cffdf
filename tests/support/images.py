"""Streams out of payloads and files, so that they can be compared."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.rdb.values import Value
from anabranch.stream.image import NodeImage, StreamImage
from anabranch.stream.producer import DURATION_DEFAULT_S, MAXSIZE_DEFAULT

__all__ = ["comparable"]


def comparable(value: Value, known: Value | None = None) -> StreamImage:
    """What a stream holds, however its entries are stored.

    Regions always know entries-read: it is left out where ``known`` does not tell it.
    """
    other = value if known is None else known
    assert isinstance(value, StreamImage)
    assert isinstance(other, StreamImage)
    entries = [entry for node in value.nodes for entry in node.entries]
    return replace(
        value,
        nodes=[NodeImage(entries, len(entries))] if entries else [],
        idmp_duration=value.idmp_duration or DURATION_DEFAULT_S,
        idmp_maxsize=value.idmp_maxsize or MAXSIZE_DEFAULT,
        groups=[
            replace(
                group,
                estimate_entries_read=False,
                entries_read=None if told.entries_read is None else group.entries_read,
            )
            for group, told in zip(value.groups, other.groups, strict=True)
        ],
    )
