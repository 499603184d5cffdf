"""Reads arguments: strict integers, entry IDs, keywords.

Hot commands read their argument lists themselves; these are the common functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.engine import texts
from anabranch.errors import CommandError
from anabranch.scheduling import Steps
from anabranch.stream import entry_id

if TYPE_CHECKING:
    from mypy_extensions import i64  # an int in a register of the processor, once compiled

IDS_AT_ONCE = 1000
"""Entry IDs that are read in one step: under a millisecond."""

LISTED_DEFAULT = 100
LISTED_MAX = 10_000
"""Rows of a list that commands of ours answer."""

_KEYWORD_MAX: Final = 32  # longer words are no keywords
_SAFE_DIGITS: Final = 19  # fewer digits cannot overflow
_INT_MIN = -(1 << 63)
_INT_MAX = (1 << 63) - 1


def keyword(raw: bytes) -> bytes:
    """A word in upper case, in which clients send it as a rule: then it is not copied."""
    size: i64 = len(raw)
    if size > _KEYWORD_MAX:
        return raw
    for at in range(size):
        if raw[at] >= 0x61:
            return raw.upper()
    return raw


def _usual(raw: bytes) -> int:
    """The number of digits that are too few to overflow, without a leading zero; -1 for others.

    Digit by digit, as :func:`anabranch.stream.entry_id.parse` reads IDs in machine code.
    """
    size: i64 = len(raw)
    value: i64 = 0 if size else -1
    for at in range(size):
        digit: i64 = raw[at] - 0x30
        if not 0 <= digit <= 9:
            return -1
        value = value * 10 + digit
        if not value and size > 1:
            return -1
    return value


def integer_or_none(raw: bytes) -> int | None:
    """A signed 64-bit decimal in canonical form, or None.

    Leading zeros, ``+5``, ``-0`` and blanks are refused, as in Redis.
    """
    if len(raw) < _SAFE_DIGITS and (usual := _usual(raw)) >= 0:
        return usual
    if not raw or len(raw) > 20:
        return None
    digits = raw[1:] if raw[0] == 45 else raw
    if not digits.isdigit() or (digits[0] == 48 and raw != b"0"):
        return None
    value = int(raw)
    return value if _INT_MIN <= value <= _INT_MAX else None


def integer(raw: bytes, text: str = texts.NOT_INTEGER) -> int:
    """A signed 64-bit decimal in canonical form; otherwise ``text`` is the error reply."""
    value = integer_or_none(raw)
    if value is None:
        raise CommandError(text)
    return value


def int32(raw: bytes, text: str = "") -> int:
    """A signed decimal of 32 bits; ``text`` is the error reply in place of the usual ones."""
    value = integer(raw, text or texts.NOT_INTEGER)
    if not -(1 << 31) <= value < 1 << 31:
        raise CommandError(text or texts.NOT_INT32)
    return value


def natural(raw: bytes, text: str = texts.NOT_POSITIVE) -> int:
    """A 64-bit decimal that is not negative; otherwise ``text`` is the error reply."""
    value = integer(raw, text)
    if value < 0:
        raise CommandError(text)
    return value


def options_of(
    words: list[bytes], widths: dict[bytes, int], refusal: bytes = texts.SYNTAX.encode()
) -> Iterator[tuple[bytes, list[bytes]]]:
    """The options of a request, from left to right: each one's name in capitals, and its values.

    ``widths`` says how many values each has. Another word, or a name with too few values behind it,
    is refused by ``refusal``, in which ``%b`` stands for the word.
    """
    at = 0
    while at < len(words):
        name = words[at].upper()
        begin = at + 1
        at = begin + widths.get(name, len(words))
        if at > len(words):
            raise CommandError(refusal.replace(b"%b", texts.shown(words[begin - 1])))
        yield name, words[begin:at]


def listed_count(words: Sequence[bytes]) -> int:
    """How many rows the last ``words`` of a request ask for: nothing, or ``COUNT n``."""
    if not words:
        return LISTED_DEFAULT
    given = integer_or_none(words[1]) if len(words) == 2 and words[0].upper() == b"COUNT" else None
    if given is None:
        raise CommandError(texts.SYNTAX)
    if not 1 <= given <= LISTED_MAX:
        raise CommandError(f"ERR COUNT must be from 1 to {LISTED_MAX}")
    return given


def timeout_argument(raw: bytes, now_ms: int = 0) -> int:
    """The time to wait in milliseconds, 0 for ever; ``now_ms`` if it must end in 64 bits."""
    timeout_ms = integer(raw, "ERR timeout is not an integer or out of range")
    if timeout_ms < 0:
        raise CommandError("ERR timeout is negative")
    if now_ms + timeout_ms > _INT_MAX:
        raise CommandError("ERR timeout is out of range")
    return timeout_ms


def symmetric(raw: bytes) -> int:
    """A signed 64-bit decimal whose negative fits into 64 bits as well."""
    value = integer(raw)
    if value == _INT_MIN:
        raise CommandError(texts.NOT_SYMMETRIC)
    return value


def id_list(raw_ids: Sequence[bytes]) -> list[int]:
    """Several entry IDs; all must be valid before one is used."""
    try:
        return entry_id.parse_all(raw_ids)
    except entry_id.InvalidId:
        raise CommandError(texts.INVALID_ID) from None


def id_list_steps(raw_ids: Sequence[bytes]) -> Steps[list[int]]:
    """Several entry IDs, read in short steps; all must be valid before one is used."""
    ids: list[int] = []
    for at in range(0, len(raw_ids), IDS_AT_ONCE):
        ids += id_list(raw_ids[at : at + IDS_AT_ONCE])
        yield
    return ids


def id_argument(raw: bytes, missing_seq: int = 0) -> int:
    """An entry ID ``ms`` or ``ms-seq``; everything else is the client's error."""
    try:
        return entry_id.parse(raw, missing_seq)
    except entry_id.InvalidId:
        raise CommandError(texts.INVALID_ID) from None
