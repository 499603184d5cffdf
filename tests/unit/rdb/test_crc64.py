"""CRC-64/Jones: the published check value, and the fast way against the slow one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.rdb.crc64 import crc64


def _bit_by_bit(data: bytes) -> int:
    crc = 0
    for byte in data:
        for bit in range(8):
            top = crc >> 63 ^ byte >> bit & 1
            crc = crc << 1 & (1 << 64) - 1
            if top:
                crc ^= 0xAD93D23594C935A9
    return int(f"{crc:064b}"[::-1], 2)


def test_the_published_check_value() -> None:
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA


def test_nothing_has_the_crc_zero() -> None:
    assert crc64(b"") == 0


@given(st.binary(max_size=700))
def test_equals_the_definition(data: bytes) -> None:
    assert crc64(data) == _bit_by_bit(data)


def test_folding_is_right_around_each_power_of_two() -> None:
    text = bytes(range(256)) * 40
    for size in (511, 512, 513, 519, 520, 521, 1032, 1033, 2047, 2048, 4104, 4105, 9999):
        assert crc64(text[:size]) == _bit_by_bit(text[:size]), size


def test_long_messages_are_taken_in_pieces() -> None:
    text = bytes(range(251)) * 800
    for size in (65_535, 65_536, 65_537, 131_072, 200_000):
        assert crc64(text[:size], 5) == _table_free(text[:size], 5), size


def _table_free(data: bytes, crc: int) -> int:
    """Piece by piece, each too short to be folded."""
    for start in range(0, len(data), 500):
        crc = crc64(data[start : start + 500], crc)
    return crc


@given(st.binary(max_size=1500), st.integers(0, 1500))
def test_can_be_continued(data: bytes, cut: int) -> None:
    assert crc64(data[cut:], crc64(data[:cut])) == crc64(data)
