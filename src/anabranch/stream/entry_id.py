"""Entry IDs as one integer: ``(ms << 64) | seq``.

One integer compares, hashes and bisects at C speed, and "next ID" is ``+ 1``. Text appears only
at the edges: :func:`parse` reads what clients send, :func:`text` writes what they get.

Sources: the ID rules of Redis Streams (incomplete IDs, lexical quirks), see docs/compatibility.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

SEQ_BITS: Final = 64
MAX_SEQ: Final = (1 << 64) - 1
MIN_ID: Final = 0
MAX_ID: Final = (1 << 128) - 1

SEALED_ID: Final = MAX_ID - 1
"""The last-generated-id of a stream that AB.SEAL has ended; no entry has it."""


_MAX_TEXT: Final = 127  # Redis copies an ID into a buffer of 128 bytes; longer is invalid
_SAFE_TEXT: Final = 20  # two parts of fewer digits cannot overflow
_BLANKS: Final = b" \t\n\v\f\r"


class InvalidId(ValueError):
    """The text is not an entry ID."""


def make(ms: int, seq: int) -> int:
    """The ID ``ms-seq`` as an integer."""
    return (ms << SEQ_BITS) | seq


def split(entry_id: int) -> list[int]:
    """Milliseconds and sequence number, as files have them; :func:`make` is the reverse."""
    return [entry_id >> SEQ_BITS, entry_id & MAX_SEQ]


def text(entry_id: int) -> bytes:
    """The ID as clients see it, always complete: ``b"1526919030474-55"``."""
    return b"%d-%d" % (entry_id >> SEQ_BITS, entry_id & MAX_SEQ)


def _part(digits: bytes) -> int:
    """One half of an ID; Redis skips leading blanks and one ``+`` (strtoull), so do we."""
    if not digits.isdigit():
        digits = digits.lstrip(_BLANKS)
        digits = digits.removeprefix(b"+")
        if not digits.isdigit():
            raise InvalidId
    value = int(digits)
    if value > MAX_SEQ:
        raise InvalidId
    return value


def _everyday(raw: bytes) -> tuple[i64, i64]:
    """Milliseconds and number of digits, a dash and digits, too few to overflow; or -1 and 0.

    Digit by digit, which takes a fifth of the time of splitting and ``int`` in machine code.
    """
    ms: i64 = -1
    part: i64 = 0
    digits: i64 = 0
    size = len(raw)
    if size >= _SAFE_TEXT:
        return -1, 0
    for at in range(size):
        digit: i64 = raw[at] - 0x30
        if 0 <= digit <= 9:
            part = part * 10 + digit
            digits += 1
        elif digit == 0x2D - 0x30 and ms < 0 and digits:
            ms, part, digits = part, 0, 0
        else:
            return -1, 0
    if ms < 0 or not digits:
        return -1, 0
    return ms, part


def parse(raw: bytes, missing_seq: int = 0) -> int:
    """Read ``ms`` or ``ms-seq``; an incomplete ID gets ``missing_seq``.

    Raises :class:`InvalidId` for everything else, ``-``, ``+``, ``*`` and ``$`` included.
    """
    everyday = _everyday(raw)
    if everyday[0] >= 0:
        whole_ms: int = everyday[0]
        number: int = everyday[1]
        return (whole_ms << SEQ_BITS) | number
    ms, dash, seq = raw.partition(b"-")
    if len(raw) > _MAX_TEXT:
        raise InvalidId
    if b"\0" in raw:  # to Redis the text ends there
        return parse(raw.partition(b"\0")[0], missing_seq)
    if not dash:
        return (_part(ms) << SEQ_BITS) | missing_seq
    return (_part(ms) << SEQ_BITS) | _part(seq)


def parse_all(raw_ids: Sequence[bytes]) -> list[int]:
    """Read several IDs; :class:`InvalidId` if one is none.

    Neighbours often have one millisecond, which is then shifted once.
    """
    ids: list[int] = []
    known_ms: i64 = -1
    first = 0
    for raw in raw_ids:
        ms, part = _everyday(raw)
        if ms < 0:
            ids.append(parse(raw))
            continue
        if ms != known_ms:
            known_ms = ms
            whole_ms: int = ms
            first = whole_ms << SEQ_BITS
        number: int = part
        ids.append(first + number)
    return ids


def equal_id_rank(replica_id: int) -> tuple[int, int]:
    """The rank of a log: entries with equal IDs are ordered by region, and by epoch within it."""
    return replica_id & 0xFF, replica_id
