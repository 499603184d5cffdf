"""Version vectors as short printable words that clients keep and bring to any region.

A token is ``v1:`` and the base64url of a msgpack list: region, epoch and number of each replica ID.
An empty version vector is ``0``. There is exactly one token for a version vector; every other
spelling is refused.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

import msgspec

from anabranch.keyspace.replica import epoch_of, region_of, replica_id_of

TOKEN_PREFIX: Final = b"v1:"
_NOTHING: Final = b"0"
_NUMBERS: Final = msgspec.msgpack.Decoder(list[int])


def write_token(vector: Mapping[int, int]) -> bytes:
    """The token of a vector; replica IDs of which it covers nothing are left out."""
    triples = sorted((region_of(o), epoch_of(o), number) for o, number in vector.items() if number)
    if not triples:
        return _NOTHING
    data = msgspec.msgpack.encode([each for triple in triples for each in triple])
    return TOKEN_PREFIX + urlsafe_b64encode(data).rstrip(b"=")


def read_token(raw: bytes) -> dict[int, int]:
    """The vector of a token. Raises :class:`ValueError` for anything that is none."""
    if raw == _NOTHING:
        return {}
    coded = raw.removeprefix(TOKEN_PREFIX)
    try:
        flat = _NUMBERS.decode(urlsafe_b64decode(coded + b"=" * (-len(coded) % 4)))
    except msgspec.MsgspecError as problem:
        raise ValueError("not a list of numbers") from problem
    vector = {
        replica_id_of(region, epoch): number
        for region, epoch, number in zip(flat[::3], flat[1::3], flat[2::3], strict=False)
    }
    if min(flat, default=0) < 0 or write_token(vector) != raw:
        raise ValueError("not as a token is written")
    return vector
