"""Pending entries as an array of rows, written at once as bytes: a group may have millions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from anabranch.resp.encode import array_header
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.entry_id import SEQ_BITS
from anabranch.stream.pending import PendingEntry

__all__ = ["pending_rows", "pending_rows_steps"]

_PIECE: Final = 1000
"""Rows joined at a time, while the processor still has them at hand."""


def pending_rows(
    entries: Iterable[PendingEntry], tail_of: Callable[[PendingEntry], bytes], fields: int = 4
) -> bytes:
    """An array with an array of ``fields`` for each entry: its ID and what ``tail_of`` writes."""
    return b"".join(in_one_go(pending_rows_steps(_pieces(entries), tail_of, fields)))


def _pieces(entries: Iterable[PendingEntry]) -> Iterator[list[PendingEntry]]:
    source = iter(entries)
    while piece := list(islice(source, _PIECE)):
        yield piece


def pending_rows_steps(
    pieces: Iterable[list[PendingEntry]],
    tail_of: Callable[[PendingEntry], bytes],
    fields: int = 4,
) -> Steps[list[bytes]]:
    """The same in short steps, a piece of the entries in each.

    Neighbours usually have the same owner, time and count, and the same millisecond of the ID:
    these bytes are made once. Rows are put together as text, a character for each byte, as that is
    quicker in CPython.
    """
    written = [b""]
    total = 0
    owner: object = written  # a released entry
    time_ms = count = high = base = -1
    tail = prefix = ""
    for piece in pieces:
        rows: list[str] = []
        append = rows.append
        for entry in piece:
            if (
                entry.consumer is not owner
                or entry.delivery_ms != time_ms
                or entry.delivery_count != count
            ):
                owner, time_ms, count = entry.consumer, entry.delivery_ms, entry.delivery_count
                tail = tail_of(entry).decode("latin-1")
            entry_id = entry.entry_id
            if entry_id >> SEQ_BITS != high:
                high = entry_id >> SEQ_BITS
                base = high << SEQ_BITS
                prefix = f"{high}-"
            shown = f"{prefix}{entry_id - base}"
            append(f"*{fields}\r\n${len(shown)}\r\n{shown}\r\n{tail}")
        total += len(rows)
        written.append("".join(rows).encode("latin-1"))
        yield
    written[0] = array_header(total)
    return written
