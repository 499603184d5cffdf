"""IDs of new entries where several regions write.

A new ID is above everything that its region has seen in the key, so the order of IDs extends the
order of cause and effect. IDs that the server makes are unique over all regions: a region uses the
sequence numbers that are its own number modulo 256, and a later epoch of it, whose predecessor may
have given out IDs that nobody remembers, begins at ``epoch x 2**32``. An earlier epoch that must go
above an ID of another region's later one does not enter what may be its own successor's: the upper
half of a sequence number is the epoch modulo 65536.
"""

from __future__ import annotations

from typing import Final

from anabranch.stream.entry_id import MAX_SEQ, SEQ_BITS

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
