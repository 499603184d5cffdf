"""Listpacks in both directions; ziplists and intsets as read from old payloads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.rdb import intset, listpack, ziplist
from anabranch.rdb.errors import PayloadFormatError

_EDGES = sorted(
    sign * (1 << bits) + delta
    for bits in (0, 7, 12, 13, 15, 23, 31, 63)
    for sign in (1, -1)
    for delta in (-1, 0, 1)
    if -(1 << 63) <= sign * (1 << bits) + delta < 1 << 63
)


@pytest.mark.parametrize(
    ("element", "written"),
    [
        (0, "0001"),
        (127, "7f01"),
        (-1, "dfff02"),
        (128, "c08002"),
        (4095, "cfff02"),
        (-4096, "d00002"),
        (4096, "f1001003"),
        (-32769, "f2ff7fff04"),
        (8_388_608, "f30000800005"),
        (2**31, "f4000000800000000009"),
        (b"", "8001"),
        (b"ab", "82616203"),
        (b"12", "0c01"),
        (b"-5", "dffb02"),
        (b"+5", "822b3503"),
        (b"05", "82303503"),
        (b"9223372036854775807", "f4ffffffffffffff7f09"),
        (b"9223372036854775808", "933932323333373230333638353437373538303814"),
    ],
)
def test_elements_have_the_documented_bytes(element: int | bytes, written: str) -> None:
    packed = listpack.encode([element])
    assert packed[6:-1].hex() == written
    back = listpack.decode(packed)
    assert listpack.texts(back) == listpack.texts([element])


@pytest.mark.parametrize("number", _EDGES)
def test_integers_at_the_edges_of_each_form(number: int) -> None:
    assert listpack.decode(listpack.encode([number])) == [number]
    assert listpack.decode(listpack.encode([b"%d" % number])) == [number]


@pytest.mark.parametrize(
    "size", [0, 62, 63, 64, 124, 125, 126, 4095, 4096, 16_380, 2_097_140, 2**21]
)
def test_strings_at_the_edges_of_each_form(size: int) -> None:
    elements: list[listpack.Element] = [b"x" * size, 1, b"x" * size]
    assert listpack.decode(listpack.encode(elements)) == elements


@given(st.lists(st.binary(max_size=80) | st.integers(-(2**63), 2**63 - 1)))
def test_elements_come_back_as_the_same_texts(elements: list[int | bytes]) -> None:
    assert listpack.texts(listpack.decode(listpack.encode(elements))) == listpack.texts(elements)


def test_more_elements_than_the_header_can_count() -> None:
    packed = listpack.encode(range(70_000))
    assert packed[4:6] == b"\xff\xff"
    assert listpack.decode(packed) == list(range(70_000))


def test_each_wrong_byte_of_the_frame_is_noticed() -> None:
    packed = listpack.encode([1, -300, b"text", b"y" * 100, 2**40])
    for cut in range(len(packed)):
        with pytest.raises(PayloadFormatError):
            listpack.decode(packed[:cut])
    for index in (0, 1, 4, 7, 10, len(packed) - 1):
        wrong = packed[:index] + bytes((packed[index] ^ 1,)) + packed[index + 1 :]
        with pytest.raises(PayloadFormatError):
            listpack.decode(wrong)


@pytest.mark.parametrize("body", ["f50101", "fe01", "f0ffffffff01", "efff01", "8a0101", "0002"])
def test_listpack_refuses(body: str) -> None:
    data = bytes.fromhex(body)
    packed = (7 + len(data)).to_bytes(4, "little") + b"\x01\x00" + data + b"\xff"
    with pytest.raises(PayloadFormatError):
        listpack.decode(packed)


def _all(pieces: Iterable[list[bytes]]) -> list[bytes]:
    return list(chain.from_iterable(pieces))


def _ziplist(*entries: bytes) -> bytes:
    """Entries are form byte and data; the links to the entry before are added here."""
    body = b""
    previous = last = 0
    for entry in entries:
        last = len(body)
        link = bytes((previous,)) if previous < 254 else b"\xfe" + previous.to_bytes(4, "little")
        body += link + entry
        previous = len(link + entry)
    head = (11 + len(body)).to_bytes(4, "little") + (10 + last).to_bytes(4, "little")
    return head + len(entries).to_bytes(2, "little") + body + b"\xff"


def test_ziplist_forms() -> None:
    packed = _ziplist(
        b"\x02ab",
        b"\x41\x2c" + b"x" * 300,
        b"\x80\x00\x00\x00\x01y",
        b"\xf1",
        b"\xfd",
        b"\xfe\x80",
        b"\xc0\x00\x80",
        b"\xf0\xff\xff\x7f",
        b"\xd0\xff\xff\xff\xff",
        b"\xe0" + b"\xff" * 7 + b"\x7f",
    )
    expected = [b"ab", b"x" * 300, b"y", b"0", b"12", b"-128", b"-32768", b"8388607", b"-1"]
    assert _all(ziplist.pieces(packed)) == [*expected, b"9223372036854775807"]


def test_ziplist_refuses_all_that_is_cut_or_changed() -> None:
    packed = _ziplist(b"\x02ab", b"\xf3", b"\x01c")
    assert _all(ziplist.pieces(packed)) == [b"ab", b"2", b"c"]
    for cut in range(len(packed)):
        with pytest.raises(PayloadFormatError):
            _all(ziplist.pieces(packed[:cut]))
    for index in (0, 4, 8, 10, 14, len(packed) - 1):
        wrong = packed[:index] + bytes((packed[index] ^ 3,)) + packed[index + 1 :]
        with pytest.raises(PayloadFormatError):
            _all(ziplist.pieces(wrong))


def test_intset() -> None:
    assert _all(intset.pieces(bytes.fromhex("02000000 02000000 ffff 0100"))) == [b"-1", b"1"]
    assert _all(intset.pieces(bytes.fromhex("08000000 01000000 ffffffffffffff7f"))) == [
        b"9223372036854775807"
    ]


@pytest.mark.parametrize(
    "packed",
    [
        "02000000",
        "03000000 00000000",
        "02000000 02000000 ffff",
        "02000000 ffffffff ffff",
        "02000000 02000000 0100 0100",
        "02000000 02000000 0200 0100",
    ],
)
def test_intset_refuses(packed: str) -> None:
    with pytest.raises(PayloadFormatError):
        _all(intset.pieces(bytes.fromhex(packed)))
