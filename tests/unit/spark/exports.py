"""Payloads of AB.EXPORT made by hand, from entries given as lists."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pyzstd

Entry = tuple[int, int, int, Sequence[tuple[bytes, bytes]]]
"""Position, ms, seq, fields."""


def fragment(ms: int, seq: int, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """An entry's wire bytes."""
    entry_id = b"%d-%d" % (ms, seq)
    words = [word for pair in fields for word in pair]
    return b"*2\r\n$%d\r\n%b\r\n*%d\r\n" % (len(entry_id), entry_id, len(words)) + b"".join(
        b"$%d\r\n%b\r\n" % (len(word), word) for word in words
    )


def chunk(
    entries: Sequence[Entry], *, packed: bool, width: int, explicit: bool, base: int
) -> bytes:
    """One stretch of a block; `base` is how far its ends count from."""
    parts = [fragment(ms, seq, fields) for _, ms, seq, fields in entries]
    base_ms = min(ms for _, ms, _, _ in entries)
    ends, at = [], base
    for part in parts:
        at += len(part)
        ends.append(at)
    data = b"".join(parts)
    head = struct.pack(
        "<IBBBBQQQQ",
        *(len(entries), 0 if packed else 1, width, 1 if explicit else 0, 0),
        *(base_ms if packed else 0, entries[0][0], base, len(data)),
    )
    count = len(entries)
    if packed:
        ids = struct.pack(f"<{count}Q", *((ms - base_ms) << 24 | seq for _, ms, seq, _ in entries))
    else:
        ids = struct.pack(f"<{count}Q", *(ms for _, ms, _, _ in entries))
        ids += struct.pack(f"<{count}Q", *(seq for _, _, seq, _ in entries))
    positions = struct.pack(f"<{count}Q", *(each[0] for each in entries)) if explicit else b""
    tail = struct.pack(f"<{count}{'H' if width == 2 else 'Q'}", *ends)
    return head + ids + positions + tail + data


def node(entries: Sequence[Entry], *, kind: str, run: bool) -> bytes:
    """A whole node in its compressed form; `kind` is the type of its sizes, or C for columns.

    With `run` its IDs must be of one millisecond and ascend by one. Columns need the same names in
    all entries.
    """
    parts = [fragment(ms, seq, fields) for _, ms, seq, fields in entries]
    base_ms = entries[0][1]
    words = [(ms - base_ms) << 24 | seq for _, ms, seq, _ in entries]
    places = [
        byte for byte in range(8) if not run and any(word >> 8 * byte & 255 for word in words)
    ]
    written = sum(1 << byte for byte in places)
    head = struct.pack("<QQIcB", base_ms, words[0], len(entries), kind.encode(), written)
    if kind == "C":
        contents = columns([fields for *_, fields in entries])
    else:
        contents = struct.pack(f"<{len(parts)}{kind}", *map(len, parts)) + b"".join(parts)
    planes = b"".join(bytes(word >> 8 * byte & 255 for word in words) for byte in places)
    frame = pyzstd.compress(head + planes + contents)
    facts = (len(entries), 2, 0, 0, 0, 0, entries[0][0], 0, len(frame))
    return struct.pack("<IBBBBQQQQ", *facts) + frame


def columns(rows: Sequence[Sequence[tuple[bytes, bytes]]]) -> bytes:
    """Entries with the same names as columns."""
    schema, sizes, values = b"", b"", b""
    for number, (name, _) in enumerate(rows[0]):
        column = [fields[number][1] for fields in rows]
        assert all(fields[number][0] == name for fields in rows)
        lengths = [len(value) for value in column]
        width = 0 if len(set(lengths)) == 1 else 1 if max(lengths) < 256 else 2
        schema += struct.pack("<H", len(name)) + name + bytes([width])
        sizes += struct.pack(f"<{'HBH'[width]}", lengths[0]) if not width else b""
        sizes += struct.pack(f"<{len(rows)}{'HBH'[width]}", *lengths) if width else b""
        values += b"".join(column)
    return struct.pack("<H", len(schema)) + schema + sizes + values


def payload(chunks: Sequence[bytes], next_position: int) -> bytes:
    """A whole reply."""
    return struct.pack("<BBHIQ", 2, 0, 0, len(chunks), next_position) + b"".join(chunks)
