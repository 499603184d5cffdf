r"""Checks the names and values of entries that come from outside, and reads them.

A row is ``*2n\r\n$5\r\nfield\r\n$5\r\nvalue\r\n...``. Readers are sent these bytes as they are, so
all of them are checked. The compiled core scans them byte by byte. A scan by the interpreter would
cost more than everything else, so the interpreted form makes a fixed number of calls for all rows.
Rows of a table have the same names in the same order, so they become columns when the bytes are cut
at their sizes. Other rows are cut at their line ends. Rows are parsed one by one only if neither
works, or if they are too few. All these ways accept the same rows.

A *fragment* is a whole entry: ``*2\r\n$3\r\n1-0\r\n`` and a row.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, compress, pairwise, repeat
from operator import add
from typing import TYPE_CHECKING, Final

from hiredis import ProtocolError, Reader, pack_command

from anabranch.compiling import mypyc_attr
from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS, text
from anabranch.stream.scanning import ScanError, behind, number_at, pairs_at
from anabranch.version import IS_COMPILED

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

_LINE_END: Final = b"\r\n"
_HEAD: Final = re.compile(rb"\*([1-9][0-9]{0,9})\r\n")
_SIZE: Final = re.compile(rb"\$(0|[1-9][0-9]{0,9})\r\n")
_LARGE_AGGREGATE: Final = re.compile(rb"[*~>|%][0-9]{6}")
_BULK_BYTES_MIN: Final = len(b"$0\r\n\r\n")
_FEW: Final = 4
"""Fewer rows than this are parsed faster one by one."""
_FRAGMENT: Final = b"*2"
"""An entry is an ID and a row."""
_FEW_OF_A_MS: Final = 8
"""With fewer IDs in a millisecond, on average, IDs have nothing in common to be shared."""
_CUT: Final = _LINE_END + b"$"
"""The bytes before the size of each word. CPython finds so short a string without preparation."""


class RowError(ValueError):
    """Bytes that a client sent as rows are none; the text says where."""


@mypyc_attr(acyclic=True)
class CheckedRows:
    """Rows of bulk producers, checked and cut into the pieces in which they differ."""

    __slots__ = ("columns", "cuts", "sizes", "words")

    def __init__(
        self,
        sizes: list[int],
        words: int | list[int],
        cuts: list[bytes],
        columns: list[list[bytes]],
    ) -> None:
        self.sizes = sizes
        """Bytes of each."""
        self.words = words
        """The count of names and values: one number for all rows, or one for each."""
        self.cuts = cuts
        """The bytes before, between and behind the pieces of every row."""
        self.columns = columns
        """The pieces: each row has one less than there are cuts."""

    def __len__(self) -> int:
        return len(self.sizes)


def check_fragments(ids: Sequence[int], sizes: Sequence[int], data: bytes) -> None:
    """Whether these are the fragments of entries, one after the other; :class:`RowError` if not.

    There is at least one, the IDs ascend, and ``sizes`` are above 0 and add up to the length.
    """
    if IS_COMPILED:
        _scan_fragments(ids, sizes, data)
        return
    if len(ids) > _FEW and _are_tabular(ids, sizes, data):
        return
    rows = []
    end = 0
    for entry_id, size in zip(ids, sizes, strict=True):
        shown = text(entry_id)
        head = b"*2\r\n$%d\r\n%b\r\n" % (len(shown), shown)
        if not data.startswith(head, end):
            raise RowError("an entry does not begin with its ID")
        rows.append(data[end + len(head) : end + size])
        end += size
    if len(rows) <= _FEW:
        reader = Reader()
        if not all(map(_words_in, repeat(reader), rows)):
            raise RowError("an entry has no names and values")
    else:
        rows_in(array("I", accumulate(map(len, rows))), b"".join(rows))


def _are_tabular(ids: Sequence[int], sizes: Sequence[int], data: bytes) -> bool:
    """Whether these are fragments whose rows have the names of the first one.

    False also if this method cannot find out. It works like :func:`_tabular`, and compares the
    bytes before the first value of an entry with those that must be there.
    """
    count = len(ids)
    first = data[: sizes[0]]
    begin = b"%b%b%d\r\n%b\r\n" % (_FRAGMENT, _CUT, len(text(ids[0])), text(ids[0]))
    names = _names_in(first[len(begin) :]) if first.startswith(begin) else []
    if not names or not data.endswith(_LINE_END):
        return False
    front = _LINE_END + _FRAGMENT + _CUT
    behind = b"\r\n*%d%b%b%b" % (2 * len(names), _CUT, names[0], _CUT)
    heads = _id_pieces(ids, front)
    pieces = data[len(front) - len(_LINE_END) : -len(_LINE_END)].split(behind)
    if len(pieces) != count + 1 or pieces[0] != heads[0][len(front) :]:
        return False
    del pieces[0]
    if not all(map(bytes.endswith, pieces, heads[1:])):
        return False
    pieces[:-1] = map(bytes.removesuffix, pieces[:-1], heads[1:])
    columns = _columns(pieces, names)
    if columns is None:
        return False
    lengths = [list(map(len, column)) for column in columns]
    same = len(behind) + sum(len(_CUT + name + _CUT) for name in names[1:])
    counted = list(map(add, map(len, heads), repeat(same)))
    for each in lengths:
        counted = list(map(add, counted, each))
    return counted == list(sizes) and all(map(_are_sized, columns, lengths))


def _names_in(row: bytes) -> list[bytes]:
    """The names of a row, each with its size before it; none if this is no row."""
    reader = Reader()
    if not _words_in(reader, row):
        return []
    reader.feed(row)
    return [b"%d\r\n%b" % (len(name), name) for name in reader.gets()[0::2]]


def _columns(pieces: list[bytes], names: list[bytes]) -> list[list[bytes]] | None:
    """The values of rows, column by column, each with its size before it; None without a name.

    ``pieces`` are the rows from their first values on, without the last line end. The search for a
    name includes the bytes before and behind it: a value seldom contains all of them.
    """
    columns = []
    for name in names[1:]:
        values, found, rest = zip(
            *map(bytes.partition, pieces, repeat(_CUT + name + _CUT)), strict=True
        )
        if not all(found):
            return None
        columns.append(list(values))
        pieces = list(rest)
    return [*columns, pieces]


def _id_pieces(ids: Sequence[int], front: bytes) -> list[bytes]:
    """IDs that ascend, each with its size and other bytes before it."""
    pieces: list[bytes] = []
    low = 0
    if ((ids[-1] - ids[0]) >> SEQ_BITS) * _FEW_OF_A_MS > len(ids):
        return [b"%b%d\r\n%b" % (front, len(each), each) for each in map(text, ids)]
    while low < len(ids):
        ms = ids[low] >> SEQ_BITS
        base = ms << SEQ_BITS
        high = bisect_left(ids, base + (1 << SEQ_BITS), low)
        shown = b"%d-" % ms
        longest = len(b"%d" % (ids[high - 1] - base))
        begins = [
            b"%b%d\r\n%b" % (front, len(shown) + digits, shown) for digits in range(longest + 1)
        ]
        seqs = [b"%d" % (each - base) for each in ids[low:high]]
        pieces += [begins[len(each)] + each for each in seqs]
        low = high
    return pieces


def rows_in(ends: array[int], data: bytes) -> CheckedRows:
    """At least one row, checked; :class:`RowError` if a row is malformed."""
    if IS_COMPILED:
        return _scanned(ends, data)
    return _tabular(ends, data) or _mixed(ends, data) or _parsed(ends, data)


def _tabular(ends: array[int], data: bytes) -> CheckedRows | None:
    """Rows that have the names of the first one; None if not, or if this cannot be found out.

    The names and the bytes around them are between the values. Everything between two values is
    compared, and the length of a value must equal the size before it. So nothing else can be in the
    rows.
    """
    names = _names_in(data[: ends[0]])
    if not names or not data.endswith(_LINE_END):
        return None
    cuts = [_CUT + name + _CUT for name in names]
    cuts = [b"*%d%b" % (2 * len(names), cuts[0]), *cuts[1:], _LINE_END]
    pieces = data[len(cuts[0]) : -len(_LINE_END)].split(_LINE_END + cuts[0])
    columns = _columns(pieces, names) if len(pieces) == len(ends) else None
    if columns is None:
        return None
    lengths = [list(map(len, column)) for column in columns]
    sizes = list(map(add, lengths[0], repeat(sum(map(len, cuts)))))
    for each in lengths[1:]:
        sizes = list(map(add, sizes, each))
    if array("I", accumulate(sizes)) != ends or not all(map(_are_sized, columns, lengths)):
        return None
    return CheckedRows(sizes, 2 * len(names), cuts, columns)


def _are_sized(pieces: list[bytes], lengths: list[int]) -> bool:
    """Whether each is a value with its size before it and a line end behind it."""
    try:
        begins = list(map(_SIZE_LINES.__getitem__, lengths))
    except IndexError:
        begins = list(map(_size_line, lengths))
    return all(map(bytes.startswith, pieces, begins))


def _size_line(size: int) -> bytes:
    """The first bytes of a text of that size, if it is a value with its own size before it.

    More bytes than the text has, if there is no such value: no text begins with them.
    """
    for digits in range(1, len(str(size)) + 1):
        value = size - digits - len(_LINE_END)
        if value >= 0 and len(str(value)) == digits:
            return b"%d\r\n" % value
    return bytes(size + 1)


_SIZE_LINES: Final = [_size_line(size) for size in range(1024)]


def _mixed(ends: array[int], data: bytes) -> CheckedRows | None:
    """Rows of any names; None if they are malformed, or a word contains a line end."""
    lines = data.split(_LINE_END)
    if lines.pop():
        return None
    rows = [data[low:high] for low, high in pairwise([0, *ends])]
    if not all(map(bytes.endswith, rows, repeat(_LINE_END))):
        return None
    counts = list(map(bytes.count, rows, repeat(_LINE_END)))
    shapes = set(counts)
    if any(lines_of % 4 != 1 or lines_of == 1 for lines_of in shapes):
        return None
    marks = {lines_of: b"*%d" % (lines_of >> 1) for lines_of in shapes}
    begins = [0, *accumulate(counts)]
    if [lines[at] for at in begins[:-1]] != [marks[lines_of] for lines_of in counts]:
        return None
    # Of each row's lines the second, fourth ... are sizes, the third, fifth ... words.
    masks = {lines_of: b"\0" + b"\1\0" * (lines_of >> 1) for lines_of in shapes}
    mask = b"".join([masks[lines_of] for lines_of in counts])
    sizes, words = list(compress(lines, mask)), list(compress(lines[1:], mask))
    if [b"$%d" % len(word) for word in words] != sizes:
        return None
    return _whole(rows, [lines_of >> 1 for lines_of in counts])


def _parsed(ends: array[int], data: bytes) -> CheckedRows:
    """Any rows; :class:`RowError` if they are malformed."""
    rows = [data[low:high] for low, high in pairwise([0, *ends])]
    reader = Reader()
    words = [_words_in(reader, row) for row in rows]
    if not all(words):
        raise RowError("rows that are not names and values")
    return _whole(rows, words)


def _whole(rows: list[bytes], words: list[int]) -> CheckedRows:
    return CheckedRows(list(map(len, rows)), words, [b"", b""], [rows])


def _words_in(reader: Reader, row: bytes) -> int:
    r"""How many bulk strings these bytes are, ``*2n\r\n`` before them; 0 if they are not.

    Written again by who writes requests they must be the same bytes: that is strict.
    """
    head = _HEAD.match(row)
    if head is None:
        return 0
    words = int(head[1])
    # The count is checked first, because the reader allocates memory for it.
    if words % 2 or words * _BULK_BYTES_MIN > len(row):
        return 0
    if _LARGE_AGGREGATE.search(row, head.end()):
        # In malformed bytes the reader would allocate memory for those, too.
        return words if _holds_words(row, head.end(), words) else 0
    reader.feed(row)
    try:
        return words if pack_command(tuple(reader.gets())) == row else 0
    except (ProtocolError, TypeError):
        return 0


def _holds_words(row: bytes, at: int, words: int) -> bool:
    """Whether the bytes after the first line are so many bulk strings; checks one by one."""
    for _ in range(words):
        size = _SIZE.match(row, at)
        if size is None:
            return False
        end = size.end() + int(size[1])
        at = end + len(_LINE_END)
        if row[end:at] != _LINE_END:
            return False
    return at == len(row)


# -- byte by byte ---------------------------------------------------------------------------------

_SEQ_END: Final = 10**18
"""Sequence numbers below are compared as numbers."""


def _scan_fragments(ids: Sequence[int], sizes: Sequence[int], data: bytes) -> None:
    """Check entries byte by byte, in machine code; raises what :func:`check_fragments` does."""
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


def _scanned(ends: array[int], data: bytes) -> CheckedRows:
    """Any rows; :class:`RowError` if they are malformed."""
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
    return _whole(rows, words)
