"""Makes effects from rows of AB.IMPORT that :mod:`anabranch.stream.rows` has checked."""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from functools import lru_cache
from itertools import accumulate
from operator import add
from typing import Final

from anabranch.effects import kinds
from anabranch.errors import CommandError
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS, text
from anabranch.stream.region_log import entry_weight
from anabranch.stream.rows import CheckedRows, RowError, rows_in

_COUNT: Final = struct.Struct("<I")
_SWAP: Final = sys.byteorder != "little"
_INVALID: Final = "ERR invalid payload"
_ROWS_TOGETHER: Final = 2500
"""CheckedRows that are checked in one step, and added with one effect: a millisecond each."""
_CACHED_MAX: Final = 8192


def content_of(payload: bytes) -> tuple[array[int], bytes]:
    """The ends of the rows of a payload, and the rows; :class:`CommandError` if malformed."""
    if len(payload) < _COUNT.size:
        raise CommandError(_INVALID)
    (count,) = _COUNT.unpack_from(payload)
    data_at = _COUNT.size * (1 + count)
    if len(payload) < data_at:
        raise CommandError(_INVALID)
    ends = array("I")
    ends.frombytes(payload[_COUNT.size : data_at])
    if _SWAP:
        ends.byteswap()
    if (ends[-1] if count else 0) != len(payload) - data_at:
        raise CommandError(_INVALID)
    return ends, payload[data_at:]


def rows_of(ends: array[int], data: bytes) -> Steps[list[CheckedRows]]:
    """The rows, about a thousand at a time; :class:`CommandError` if a row is malformed.

    :func:`content_of` returned ``ends``, the ends of the rows.
    """
    found = []
    for low in range(0, len(ends), _ROWS_TOGETHER):
        begin = ends[low - 1] if low else 0
        some = ends[low : low + _ROWS_TOGETHER]
        try:
            if begin:
                some = array("I", [end - begin for end in some])
            found.append(rows_in(some, data[begin : begin + some[-1]]))
        except (RowError, OverflowError):  # ends that do not ascend
            raise CommandError(_INVALID) from None
        yield
    return found


def added(
    rows: CheckedRows,
    db: int,
    key: bytes,
    ids: range,
    newest: tuple[int, int],
    limits: tuple[int, int],
) -> kinds.AddRun:
    """The effect that adds rows, divided into nodes in the same way as by XADD.

    ``newest`` is how many entries the newest node has had and its weight, ``limits`` how much
    of either a node may have.
    """
    row_sizes = list(map(len, rows.rows))
    weights = list(map(entry_weight, row_sizes, rows.words))
    begins, lines, head_sizes = _heads(ids)
    parts = [b""] * (3 * len(ids))
    parts[::3], parts[1::3], parts[2::3] = begins, lines, rows.rows
    sizes = list(map(add, head_sizes, row_sizes))
    opens = _opening(weights, newest, limits)
    return kinds.AddRun(db, key, ids, b"".join(parts), sizes, weights, opens)


def _heads(ids: range) -> tuple[list[bytes], list[bytes], list[int]]:
    """What precedes the row of each entry, in two parts, and its size. IDs ascend evenly."""
    ms, low = ids[0] >> SEQ_BITS, ids[0] & MAX_SEQ
    if ids[-1] >> SEQ_BITS != ms:  # the sequence numbers continue in the next millisecond
        texts = list(map(text, ids))
        begins = [b"*2\r\n$%d\r\n" % len(each) for each in texts]
        sizes = [len(begin) + len(each) + 2 for begin, each in zip(begins, texts, strict=True)]
        return begins, [each + b"\r\n" for each in texts], sizes
    numbers = range(low, low + ids[-1] - ids[0] + 1, ids.step)
    lines = (_lines if len(ids) <= _CACHED_MAX else _lines.__wrapped__)(numbers)
    begins = []
    sizes = []
    for digits in range(len(str(numbers[0])), len(str(numbers[-1])) + 1):
        count = bisect_left(numbers, 10**digits) - len(begins)
        begin = b"*2\r\n$%d\r\n%d-" % (len(b"%d-" % ms) + digits, ms)
        begins += [begin] * count
        sizes += [len(begin) + digits + 2] * count
    return begins, lines, sizes


@lru_cache(maxsize=8)
def _lines(numbers: range) -> list[bytes]:
    """The second halves of IDs. They are cached: most runs begin with that of a millisecond."""
    return [b"%d\r\n" % number for number in numbers]


def _opening(weights: list[int], newest: tuple[int, int], limits: tuple[int, int]) -> list[int]:
    """Which of the new entries open a node; see :func:`added`."""
    entries_max, bytes_max = limits
    slots, filled = newest
    sums = list(accumulate(weights))
    count = len(sums)
    opens = []
    # The first entry beyond the limits of the node.
    at = bisect_left(sums, bytes_max - filled, 0, min(max(entries_max - slots, 0), count))
    while at < count:
        opens.append(at)
        before = sums[at] - weights[at]
        # A node contains at least the entry that opens it.
        at = bisect_left(sums, bytes_max + before, at + 1, min(at + entries_max, count))
    return opens
