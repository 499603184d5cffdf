"""Pending entries as an array of rows, written at once as bytes: a group may have millions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from anabranch.resp.encode import array_header
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS
from anabranch.stream.groups.pending_entry import PendingEntry

_PIECE: Final = 1000
"""Rows joined at a time, while the processor still has them at hand."""


def pending_rows(
    entries: Iterable[PendingEntry], tail_of: Callable[[PendingEntry], bytes], fields: int = 4
) -> bytes:
    """An array with an array of ``fields`` for each entry: its ID and what ``tail_of`` writes."""
    written = [b""]
    total = 0
    source = iter(entries)
    while piece := list(islice(source, _PIECE)):
        total += len(piece)
        written.append(_rows(piece, tail_of, fields))
    written[0] = array_header(total)
    return b"".join(written)


def pending_rows_steps(
    pieces: Iterable[list[PendingEntry]],
    tail_of: Callable[[PendingEntry], bytes],
    fields: int = 4,
) -> Steps[list[bytes]]:
    """The same in short steps, a piece of the entries in each."""
    written = [b""]
    total = 0
    for piece in pieces:
        total += len(piece)
        written.append(_rows(piece, tail_of, fields))
        yield
    written[0] = array_header(total)
    return written


def _rows(
    piece: list[PendingEntry], tail_of: Callable[[PendingEntry], bytes], fields: int
) -> bytes:
    """The rows of some entries.

    Neighbours usually have the same owner, time and count, and the same millisecond of the ID:
    these bytes are made once. Rows are put together as text, a character for each byte, as that is
    quicker in CPython.
    """
    rows: list[str] = []
    append = rows.append
    owner: object = rows  # a released entry
    time_ms = count = base = end = -1
    tail = head = ""
    for entry in piece:
        if (
            entry.consumer is not owner
            or entry.delivery_ms != time_ms
            or entry.delivery_count != count
        ):
            owner, time_ms, count = entry.consumer, entry.delivery_ms, entry.delivery_count
            tail = "\r\n" + tail_of(entry).decode("latin-1")
        entry_id = entry.entry_id
        if entry_id >= end:
            ms, seq = entry_id >> SEQ_BITS, entry_id & MAX_SEQ
            digits = len(str(seq))
            base = ms << SEQ_BITS
            end = base + min(10**digits, MAX_SEQ + 1)  # the first ID of which the head differs
            head = f"*{fields}\r\n${len(str(ms)) + 1 + digits}\r\n{ms}-"
        append(f"{head}{entry_id - base}{tail}")
    return "".join(rows).encode("latin-1")
