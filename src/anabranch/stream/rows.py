r"""Checks the names and values of entries that come from outside, and reads them.

A row is ``*2n\r\n$5\r\nfield\r\n$5\r\nvalue\r\n...``. Readers are sent these bytes as they are, so
all of them are checked, byte by byte but for the names and values themselves.

A *fragment* is a whole entry: ``*2\r\n$3\r\n1-0\r\n`` and a row.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from anabranch.compiling import mypyc_attr
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS, text
from anabranch.stream.scanning import ScanError, behind, number_at, pairs_at

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

_SEQ_END: Final = 10**18
"""Sequence numbers below are compared as numbers."""


class RowError(ValueError):
    """Bytes that a client sent as rows are none; the text says where."""


@mypyc_attr(acyclic=True)
class CheckedRows:
    """Checked rows, and of each the count of its names and values."""

    __slots__ = ("rows", "words")

    def __init__(self, rows: list[bytes], words: list[int]) -> None:
        self.rows = rows
        self.words = words

    def __len__(self) -> int:
        return len(self.rows)


def check_fragments(ids: Sequence[int], sizes: Sequence[int], data: bytes) -> None:
    """Whether these are the fragments of entries, one after the other; :class:`RowError` if not.

    There is at least one, the IDs ascend, and ``sizes`` are above 0 and add up to the length.
    """
    first_id = -1  # the lowest ID of the millisecond
    head = b""  # what fragments of that millisecond begin with, down to the sequence number
    head_digits: i64 = 0
    at: i64 = 0
    end: i64 = 0
    try:
        for entry_id, size in zip(ids, sizes, strict=True):
            end += size
            seq = entry_id - first_id
            if first_id < 0 or seq > MAX_SEQ:
                first_id = entry_id >> SEQ_BITS << SEQ_BITS
                seq = entry_id - first_id
                head_digits = 0
            digits = _digits_of(seq) if seq < _SEQ_END else 0
            if digits == 0:
                shown = text(entry_id)
                at = behind(data, at, b"*2\r\n$%d\r\n%b\r\n" % (len(shown), shown))
            else:
                if digits != head_digits:
                    head_digits = digits
                    shown = b"%d-" % (first_id >> SEQ_BITS)
                    head = b"*2\r\n$%d\r\n%b" % (len(shown) + digits, shown)
                number, at = number_at(data, behind(data, at, head))
                if number != seq:
                    raise ScanError
            pairs_at(data, at, end)
            at = end
    except (ScanError, IndexError):
        raise RowError("bytes that are no entries with these IDs") from None


def _digits_of(number: i64) -> i64:
    digits: i64 = 1
    while number >= 10:
        number //= 10
        digits += 1
    return digits


def rows_in(ends: array[int], data: bytes) -> CheckedRows:
    """At least one row, checked; :class:`RowError` if a row is malformed."""
    rows: list[bytes] = []
    words: list[int] = []
    low: i64 = 0
    high: i64
    try:
        for high in ends.tolist():
            words.append(pairs_at(data, low, high))
            rows.append(data[low:high])
            low = high
    except (ScanError, IndexError):
        raise RowError("rows that are not names and values") from None
    return CheckedRows(rows, words)
