"""Damaged payloads: a value that keeps its promises, or one of the two errors. Never anything else.

Real payloads, compressed and not, are damaged at each place in turn and at random places. The
checksum is zeroed or made right again, or the damage would not get past it.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.rdb.crc64 import crc64
from anabranch.rdb.errors import PayloadChecksumError, PayloadFormatError
from anabranch.rdb.values import Value
from anabranch.stream.image import StreamImage
from tests.support.payloads import decode_payload, encode_payload

_UNCHECKED = bytes(8)
_SIZE_MAX = 320  # larger payloads repeat what smaller ones have


@pytest.fixture(scope="module")
def payloads(recorded_streams: list[dict[str, Any]]) -> list[bytes]:
    """One of each kind, as recorded and without compression."""
    recorded = [bytes.fromhex(record["payload"]) for record in recorded_streams]
    plain = [encode_payload(decode_payload(payload)) for payload in recorded]
    small = [payload for payload in recorded + plain if len(payload) <= _SIZE_MAX]
    values: list[Value] = [b"12345", b"abc", [b"a", b"-77", b"x" * 70], {b"a", b"1"}]
    return small + [encode_payload(value) for value in values]


def _try(payload: bytes) -> bool:
    """Decode; whatever comes out must be sound enough to be written again."""
    try:
        value = decode_payload(payload)
    except (PayloadChecksumError, PayloadFormatError):
        return False
    if isinstance(value, StreamImage):
        # What older types do not state is stated once it is written as the newest.
        value.idmp_duration = value.idmp_duration or 100
        value.idmp_maxsize = value.idmp_maxsize or 100
        for group in value.groups:
            group.estimate_entries_read = False
        assert decode_payload(encode_payload(value)) == value
    return True


def test_damage_at_each_place(payloads: list[bytes]) -> None:
    accepted = refused = 0
    for payload in payloads[::3]:
        body = payload[:-8]
        for index in range(len(body)):
            byte = body[index]
            for wrong in {0, 0x7F, 0x81, 0xC3, 0xFF, byte ^ 1, byte ^ 0x80} - {byte}:
                if _try(body[:index] + bytes((wrong,)) + body[index + 1 :] + _UNCHECKED):
                    accepted += 1
                else:
                    refused += 1
    assert refused > accepted > 0


def test_cuts_and_huge_lengths_at_each_place(payloads: list[bytes]) -> None:
    for payload in payloads:
        body, version = payload[:-10], payload[-10:-8]
        for index in range(len(body)):
            assert not _try(body[:index] + version + _UNCHECKED)
            _try(body[:index] + body[index + 1 :] + version + _UNCHECKED)
            _try(body[:index] + b"\x81" + b"\xff" * 8 + body[index:] + version + _UNCHECKED)


def test_damage_at_random_places(payloads: list[bytes]) -> None:
    chance = random.Random(20260614)
    for _ in range(20_000):
        payload = bytearray(chance.choice(payloads)[:-8])
        for _ in range(chance.choice((1, 1, 2, 3, 6))):
            index = chance.randrange(len(payload) - 2)
            kind = chance.randrange(4)
            if kind == 0:
                del payload[index : index + chance.randrange(1, 4)]
            elif kind == 1:
                start = chance.randrange(len(payload))
                payload[index:index] = payload[start : start + chance.randrange(1, 40)]
            else:
                payload[index] = chance.randrange(256)
            if len(payload) < 4:
                break
        payload[-2:] = b"\x0e\x00"
        _try(bytes(payload) + crc64(bytes(payload)).to_bytes(8, "little"))


@given(st.binary(max_size=200), st.sampled_from([0, 1, 2, 10, 11, 14, 15, 18, 19, 20, 21, 26, 27]))
def test_noise(noise: bytes, type_byte: int) -> None:
    _try(bytes((type_byte,)) + noise + b"\x0e\x00" + _UNCHECKED)
