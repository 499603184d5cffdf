"""Lengths and strings of RDB, by their documented bytes and in round trips."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.rdb.errors import PayloadFormatError
from anabranch.rdb.lengths import Cursor, length_bytes, string_bytes
from tests.support.lzf import lzf_string


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "00"),
        (63, "3f"),
        (64, "4040"),
        (16_383, "7fff"),
        (16_384, "8000004000"),
        (2**32 - 1, "80ffffffff"),
        (2**32, "810000000100000000"),
        (2**64 - 1, "81ffffffffffffffff"),
    ],
)
def test_lengths_take_the_shortest_form(value: int, written: str) -> None:
    assert length_bytes(value).hex() == written
    assert Cursor(bytes.fromhex(written)).length() == value


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (b"", "00"),
        (b"ab", "026162"),
        (b"0", "c000"),
        (b"-128", "c080"),
        (b"128", "c18000"),
        (b"-32769", "c2ff7fffff"),
        (b"2147483647", "c2ffffff7f"),
        (b"2147483648", "0a32313437343833363438"),
        (b"-0", "022d30"),
        (b"01", "023031"),
        (b"-", "012d"),
    ],
)
def test_strings_that_are_integers_are_stored_as_such(value: bytes, written: str) -> None:
    assert string_bytes(value).hex() == written
    assert Cursor(bytes.fromhex(written)).string() == value


@given(
    st.binary(max_size=90) | st.integers(-(2**40), 2**40).map(lambda n: b"%d" % n),
    st.sampled_from([string_bytes, lzf_string]),
)
def test_strings_come_back(value: bytes, written: Callable[[bytes], bytes]) -> None:
    cursor = Cursor(written(value) + b"rest")
    assert cursor.string() == value
    assert cursor.remaining == 4


@pytest.mark.parametrize(
    "written",
    [
        "",
        "40",  # second byte missing
        "80000000",
        "82",  # no such form
        "c4",
        "036162",  # string cut short
        "c17f",
        "81ffffffffffffffff",  # longer than all there is
        "c30505",
        "c381ffffffffffffffff81ffffffffffffffff00",
        "c30181ffffffffffffffff00",
    ],
)
def test_refuses(written: str) -> None:
    with pytest.raises(PayloadFormatError):
        Cursor(bytes.fromhex(written)).string()


def test_a_length_is_not_a_string_form() -> None:
    with pytest.raises(PayloadFormatError):
        Cursor(b"\xc0\x01").length()


def test_counts_are_held_against_what_remains() -> None:
    assert Cursor(b"\x02abcd").count(2) == 2
    with pytest.raises(PayloadFormatError):
        Cursor(b"\x03abcd").count(2)


def test_compressed_strings_share_a_budget() -> None:
    data = lzf_string(b"a" * 100) * 2
    cursor = Cursor(data, expanded_max=150)
    assert cursor.string() == b"a" * 100
    with pytest.raises(PayloadFormatError, match="expands too far"):
        cursor.string()


def test_a_cursor_ends_where_it_is_told() -> None:
    cursor = Cursor(b"\x01\x02\x03", 1, 2)
    assert cursor.byte() == 2
    with pytest.raises(PayloadFormatError):
        cursor.byte()
