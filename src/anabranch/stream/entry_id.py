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
    size: i64 = len(raw)
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


# -- new IDs where several regions write ----------------------------------------------------------
#
# A new ID is above everything that its region has seen in the key, so the order of IDs extends the
# order of cause and effect. IDs that the server makes are unique over all regions: a region uses
# the sequence numbers that are its own number modulo 256, and a later epoch of it, whose
# predecessor may have given out IDs that nobody remembers, begins at ``epoch x 2**32``. An earlier
# epoch that must go above an ID of another region's later one does not enter what may be its own
# successor's: the upper half of a sequence number is the epoch modulo 65536.

MODULUS: Final = 256
"""Fixed for a cluster: region numbers are below it."""

_EPOCH_BITS: Final = 32
_EPOCHS: Final = 65536
"""After so many epochs of a region a sequence number may be ambiguous."""


def next_sequence(own: int, after: int) -> int:
    """The smallest sequence number above ``after`` that a replica ID may use."""
    region, epoch = own & 0xFF, own >> 8
    low = max(after + 1, epoch << _EPOCH_BITS)
    number = low + (region - low) % MODULUS
    high = number >> _EPOCH_BITS
    if others := (epoch - high) % _EPOCHS:
        number = (high + others << _EPOCH_BITS) + region
    return number


def sequence_in(own: int, ms: int, last: int) -> int:
    """The next ID of a replica ID in a millisecond, which may be before that of ``last``.

    Above the last sequence number there is none: then the result is an ID of another millisecond.
    """
    after = last & MAX_SEQ if ms == last >> SEQ_BITS else -1
    return (ms << SEQ_BITS) + next_sequence(own, after)


def automatic_id(own: int, now_ms: int, last: int) -> int:
    """The next ID of a replica ID above ``last``: of now, or of the latest millisecond seen."""
    ms = last >> SEQ_BITS
    if ms < now_ms:
        return (now_ms << SEQ_BITS) + next_sequence(own, -1)
    after = last & MAX_SEQ
    if not (after - own) % MODULUS and (after + MODULUS) >> _EPOCH_BITS == own >> 8:
        return last + MODULUS  # the usual case: an own ID follows an own ID
    return (ms << SEQ_BITS) + next_sequence(own, after)


def steps_below(own: int, seq: int) -> int:
    """Below which sequence number an own ID is followed by the one ``MODULUS`` above.

    ``seq`` is that of an own ID. If it is not within those of the epoch, the result is 0.
    """
    begin = own >> 8 << _EPOCH_BITS
    return begin + (1 << _EPOCH_BITS) - MODULUS if seq >= begin else 0
