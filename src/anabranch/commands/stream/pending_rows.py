"""Pending entries as an array of rows, written at once as bytes: a group may have millions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from librt.strings import BytesWriter

from anabranch.resp.encode import array_header
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS
from anabranch.stream.groups.pending_entry import Holder, PendingEntry

_POWERS: Final = [10**digits for digits in range(len(str(MAX_SEQ)) + 1)]
"""Of ten; to look one up takes a tenth of the time of making it."""


class RowWriter:
    """Writes rows: the ID of an entry, and what ``tail_of`` writes.

    Neighbours usually have the same owner, time and count, and the same millisecond of the ID:
    these bytes are made once.
    """

    def __init__(
        self, out: BytesWriter, tail_of: Callable[[PendingEntry], bytes], fields: int = 4
    ) -> None:
        """Rows of so many fields are appended to ``out``; those of three do not name the owner."""
        self._out = out
        self._tail_of = tail_of
        self._header = b"*%d\r\n" % fields
        self._names_owner = fields > 3
        self._has_tail = False
        self._owner: Holder | None = None
        self._time_ms = self._count = 0
        self._tail = self._head = b""
        self._base = self._low = self._end = -1  # no ID has this head

    def write_array(self, entries: list[PendingEntry]) -> None:
        """Append an array of the rows of some entries."""
        self._out.write(array_header(len(entries)))
        self.write(entries)

    def write(self, entries: list[PendingEntry]) -> None:
        """Append the rows of some entries."""
        out = self._out
        for entry in entries:
            entry_id = entry.entry_id
            if not self._low <= entry_id < self._end:
                self._make_head(entry_id)
            out.write(self._head)
            out.write(str(entry_id - self._base).encode("ascii"))
            if (
                (self._names_owner and entry.consumer is not self._owner)
                or entry.delivery_ms != self._time_ms
                or entry.delivery_count != self._count
                or not self._has_tail
            ):
                self._make_tail(entry)
            out.write(self._tail)

    def _make_head(self, entry_id: int) -> None:
        """The bytes in front of the last digits of an ID."""
        ms, seq = entry_id >> SEQ_BITS, entry_id & MAX_SEQ
        digits = len(str(seq))
        self._base = base = ms << SEQ_BITS
        self._low = base if digits == 1 else base + _POWERS[digits - 1]  # the first with this head
        self._end = base + min(_POWERS[digits], MAX_SEQ + 1)  # the first behind the last
        self._head = b"%b$%d\r\n%d-" % (self._header, len(str(ms)) + 1 + digits, ms)

    def _make_tail(self, entry: PendingEntry) -> None:
        self._has_tail = True
        self._owner = entry.consumer
        self._time_ms, self._count = entry.delivery_ms, entry.delivery_count
        self._tail = b"\r\n" + self._tail_of(entry)


def pending_rows(entries: list[PendingEntry], tail_of: Callable[[PendingEntry], bytes]) -> bytes:
    """An array with an array of four for each entry: its ID and what ``tail_of`` writes."""
    out = BytesWriter()
    RowWriter(out, tail_of).write_array(entries)
    return out.getvalue()


def pending_rows_steps(
    pieces: Iterable[list[PendingEntry]], tail_of: Callable[[PendingEntry], bytes]
) -> Steps[list[bytes]]:
    """The array of :func:`pending_rows` in parts; each step writes one piece of the entries."""
    written = [b""]
    total = 0
    for piece in pieces:
        total += len(piece)
        out = BytesWriter()
        RowWriter(out, tail_of).write(piece)
        written.append(out.getvalue())
        yield
    written[0] = array_header(total)
    return written
