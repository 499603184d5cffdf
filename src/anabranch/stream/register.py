"""The string of a key that several regions write: a register, and a counter upon it.

A *write* (SET) replaces what its region had seen. Of concurrent writes the one with the greatest
stamp counts; the others stay beside it, because a deletion may have seen some of them only.

An *increment* (INCR) adds to the number that the writes show, or to 0. It counts until a write or a
deletion has seen it. A region sends the running total of its increments, so one row for each
replica ID is enough: who has seen a total says which one, and what was added later stays. This is
the *cut* of a row. A region whose whole row was cut begins a new one.

Numbers are exact decimals with up to 17 digits after the point, as many as INCRBYFLOAT shows, so
the order in which they are added does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

Dot = tuple[int, int]
"""(replica ID, number) of an effect."""

Deadlines = Mapping[Dot, int | None]
"""By the effect that set it, when a value expires; None for never."""

NO_DEADLINES: Final[Deadlines] = {}

Cut = tuple[int, int, bytes]
"""A replica ID, the number of its last increment that was seen, and the total then."""

_DIGITS: Final = 17
_UNIT: Final = 10**_DIGITS
_NUMBER_BYTES_MAX: Final = 400
_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d{1,17})?")

_encode = msgspec.msgpack.Encoder().encode


class Write(NamedTuple):
    """A string that was written."""

    stamp_ms: int
    data: bytes
    deadlines: Deadlines
    """The settings that no later one has seen; that of the write itself has its dot."""


class Count(NamedTuple):
    """The increments of one replica ID; amounts are in units of 10 to the power of -17."""

    number: int
    """Of the last increment."""
    since: int
    """The number of the first one of this total."""
    total: int
    at_ms: int | None
    """The deadline of the key when the last one was made."""
    cut_number: int = 0
    """All increments up to this number were seen by writes or deletions."""
    cut_total: int = 0

    @property
    def is_alive(self) -> bool:
        """Whether some increment still counts."""
        return self.number > self.cut_number

    @property
    def amount(self) -> int:
        """The sum of the increments that count."""
        return self.total - self.cut_total


Counts = dict[int, Count]
"""By replica ID."""

Writes = Mapping[Dot, Write]


# -- numbers ----------------------------------------------------------------------------------


def amount_of(text: bytes) -> int | None:
    """The amount of a plain decimal number; None for other texts, which no increment changes."""
    if len(text) > _NUMBER_BYTES_MAX or _NUMBER.fullmatch(text) is None:
        return None
    whole, _, part = text.partition(b".")
    return int(whole + part.ljust(_DIGITS, b"0"))


def amount_text(amount: int) -> bytes:
    """An amount as clients see it: without zeros at the end."""
    whole, part = divmod(abs(amount), _UNIT)
    digits = b"%d" % whole
    if part:
        digits += b"." + (b"%017d" % part).rstrip(b"0")
    return b"-" + digits if amount < 0 else digits


def _sent_amount(amount: int) -> int | bytes:
    """An amount in few bytes."""
    whole, part = divmod(amount, _UNIT)
    return whole if not part and -(1 << 63) <= whole < 1 << 63 else amount_text(amount)


def _read_amount(sent: int | bytes) -> int:
    if isinstance(sent, int):
        return sent * _UNIT
    amount = amount_of(sent)
    if amount is None:
        raise ValueError(f"{sent[:40]!r} is no number")
    return amount


# -- counts -----------------------------------------------------------------------------------


_Row = tuple[int, int, int, int | bytes, int | None, int, int | bytes]
_decode_rows = msgspec.msgpack.Decoder(list[_Row]).decode


def pack_counts(counts: Counts) -> bytes:
    """Rows in few bytes: there may be very many counters. Nothing of no rows."""
    if not counts:
        return b""
    return _encode(
        [
            (replica_id, *row[:2], _sent_amount(row.total), *row[3:5], _sent_amount(row.cut_total))
            for replica_id, row in sorted(counts.items())
        ]
    )


def read_counts(packed: bytes) -> Counts:
    """The reverse; raises :class:`ValueError`."""
    if not packed:
        return {}
    return {
        replica_id: Count(
            number, since, _read_amount(total), at_ms, cut_number, _read_amount(cut_total)
        )
        for replica_id, number, since, total, at_ms, cut_number, cut_total in _decode_rows(packed)
    }


def cuts_of(counts: Counts) -> list[Cut]:
    """What a write or a deletion of this moment has seen."""
    return [
        (replica_id, row.number, amount_text(row.total))
        for replica_id, row in counts.items()
        if row.is_alive
    ]


def increase(counts: Counts, dot: Dot, since: int, total: int, at_ms: int | None) -> None:
    """An increment: the replica ID has a new total, which began with ``since`` (0: with it)."""
    replica_id, number = dot
    since = since or number
    known = counts.get(replica_id)
    cut = known[4:] if known is not None and known.since == since else ()
    counts[replica_id] = Count(number, since, total, at_ms, *cut)


def cut(counts: Counts, cuts: Iterable[Cut]) -> None:
    """Increments up to these were seen by a write or a deletion."""
    for replica_id, number, total in cuts:
        known = counts.get(replica_id)
        if known is not None and max(known.since, known.cut_number + 1) <= number:
            amount = _read_amount(total)
            counts[replica_id] = known._replace(cut_number=number, cut_total=amount)


def join_counts(
    ours: Counts, theirs: Counts, our: Mapping[int, int], their: Mapping[int, int]
) -> Counts:
    """The rows of both sides. A row that one side has seen and dropped was cut everywhere."""
    joined: Counts = {}
    for replica_id in {**ours, **theirs}:
        mine, other = ours.get(replica_id), theirs.get(replica_id)
        if mine is None or other is None:
            row, seen = (mine, their) if mine is not None else (other, our)
            assert row is not None
            if row.number > seen.get(replica_id, 0):
                joined[replica_id] = row
            continue
        newer, older = (mine, other) if mine.number >= other.number else (other, mine)
        if older.cut_number >= newer.since and older.cut_number > newer.cut_number:
            newer = newer._replace(cut_number=older.cut_number, cut_total=older.cut_total)
        joined[replica_id] = newer
    return joined


# -- what clients see -------------------------------------------------------------------------


def ranked(writes: Writes) -> list[Dot]:
    """The writes from the one that counts, by their (stamp, region, epoch, number)."""
    return sorted(writes, key=lambda dot: (writes[dot].stamp_ms, dot[0] & 0xFF, dot), reverse=True)


def winner(writes: Writes) -> Dot | None:
    """The write that counts, None for none."""
    return next(iter(writes), None) if len(writes) < 2 else ranked(writes)[0]


def string_of(writes: Writes, counts: Counts) -> bytes | None:
    """The string of the key; None if it has none."""
    best = winner(writes)
    alive = [row.amount for row in counts.values() if row.is_alive]
    data = b"0" if best is None else writes[best].data
    if not alive:
        return None if best is None else data
    base = amount_of(data)
    return data if base is None else amount_text(base + sum(alive))


def latest(deadlines: Iterable[int | None]) -> int | None:
    """The latest of concurrent deadlines; None (never) is later than all."""
    times = list(deadlines)
    return (
        None if None in times else max([each for each in times if each is not None], default=None)
    )


def deadline_of(writes: Writes, counts: Counts, of_key: Deadlines) -> int | None:
    """The deadline of the string: that of the write that counts.

    A counter without a write has the deadline ``of_key``, or that under which it was increased.
    """
    best = winner(writes)
    if best is not None:
        return latest(writes[best].deadlines.values())
    if of_key:
        return latest(of_key.values())
    return latest(row.at_ms for row in counts.values() if row.is_alive)


def set_deadline(
    writes: Writes, dot: Dot, at_ms: int | None, covered: Callable[[Dot], bool]
) -> dict[Dot, Write]:
    """EXPIRE: the writes that it has seen get another deadline."""
    return {
        each: write._replace(
            deadlines={
                **{known: at for known, at in write.deadlines.items() if not covered(known)},
                dot: at_ms,
            }
        )
        if covered(each)
        else write
        for each, write in writes.items()
    }
