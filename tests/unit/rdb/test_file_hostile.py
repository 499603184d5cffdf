"""Damaged files: an error with a place, whatever is cut off or changed. Never anything else.

With a checksum no damage goes unnoticed; without one it may, but then what is read is sound.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.rdb.errors import PayloadFormatError, RdbFileError
from anabranch.rdb.file import RdbFile
from anabranch.rdb.payload import decode_body
from anabranch.stream.image import StreamImage
from tests.support.payloads import encode_payload

from .test_file import (
    _MODULE_ID,
    _MODULE_PIECES,
    FILES,
    PASSED,
    aux,
    framed,
    key,
    length_bytes,
    recorded,
    text,
    texts,
)

LIMIT = 1 << 20
CHECKSUM = 8


def small_file() -> bytes:
    """One of each opcode and of each encoding that is passed over, and small values."""
    return framed(
        aux(b"redis-ver", b"8.8.0"),
        b"\xf7" + length_bytes(_MODULE_ID) + b"\x02\x02" + _MODULE_PIECES,
        b"\xf5" + text(b"#!lua name=lib"),
        b"\xfe\x00" + b"\xfb\x05\x01" + b"\xf4\x07\x05\x01",
        b"\xfc" + bytes(7) + b"\x01" + b"\xf8\x05" + key(1, b"list", texts(b"a", b"12")),
        b"\xf9\xff" + b"\xfd" + bytes(4) + key(2, b"set", texts(b"a", b"b")),
        b"\xf3\x01" + b"META" + _MODULE_PIECES + key(0, b"string", text(b"value")),
        *(key(type_byte, b"k", value) for type_byte, value in PASSED.values() if len(value) < 300),
        version=14,
    )


def recorded_small() -> bytes:
    """The smallest recorded file that has a checksum."""
    files = (recorded(path) for path in FILES)
    return min((data for record, data in files if record["rdbchecksum"]), key=len)


def unchecked(data: bytes) -> bytes:
    return data[:-CHECKSUM] + bytes(CHECKSUM)


def read(data: bytes) -> int:
    """Read all, decode all; what cannot be decoded counts as damage that was noticed."""
    size = 1 + len(data) // 3  # the places where pieces meet are tried too
    chunks = (data[index : index + size] for index in range(0, len(data), size))
    values = 0
    for one in RdbFile(chunks, value_bytes_max=LIMIT):
        if one.body is None:
            continue
        try:
            value = decode_body(one.body)
        except PayloadFormatError:
            continue
        values += 1
        if isinstance(value, StreamImage):
            value.check()
        encode_payload(value)
    return values


def test_the_files_are_whole() -> None:
    assert read(small_file()) == 3
    assert read(recorded_small()) > 20


@pytest.mark.parametrize("make", [small_file, recorded_small])
def test_cut_anywhere(make: object) -> None:
    assert callable(make)
    data = make()
    step = 1 if len(data) < 4000 else 31
    for size in range(0, len(data), step):
        with pytest.raises(RdbFileError) as caught:
            read(data[:size])
        assert caught.value.offset <= size
        assert str(caught.value).startswith(f"byte {caught.value.offset}: ")
        if size >= len("REDIS0014"):
            assert "ends early" in caught.value.text
            assert caught.value.offset == size


def test_each_byte_changed() -> None:
    data = small_file()
    for place in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= mask
            with pytest.raises(RdbFileError):
                read(bytes(damaged))


def damages(data: bytes, count: int) -> Iterator[bytes]:
    """A few bytes changed at random places."""
    chance = random.Random(7)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(data))] = chance.randrange(256)
        if damaged != data:
            yield bytes(damaged)


def test_a_recorded_file_changed_at_random_places() -> None:
    for damaged in damages(recorded_small(), 300):
        with pytest.raises(RdbFileError):
            read(damaged)


@pytest.mark.parametrize("make", [small_file, recorded_small])
def test_without_a_checksum_what_is_read_is_sound(make: object) -> None:
    assert callable(make)
    data = make()
    noticed = 0
    for damaged in damages(data[:-CHECKSUM], 400):
        try:
            read(damaged + bytes(CHECKSUM))
        except RdbFileError:
            noticed += 1
    assert noticed > 20


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_behind_a_header(data: bytes) -> None:
    try:
        read(b"REDIS0014" + data)
    except RdbFileError:
        return
    assert data[-9:-8] == b"\xff"


@pytest.mark.parametrize("type_byte", [0, 1, 2, 3, 4, 5, 14, 15, 18, 22, 24, 27, 28])
def test_huge_announcements_cost_nothing(type_byte: int) -> None:
    """Lengths and counts of 2**64 - 1 in a file of a few bytes."""
    announced = b"\x81" + b"\xff" * 8
    for head in (b"", b"\x01", bytes(8)):
        with pytest.raises(RdbFileError):
            read(framed(key(type_byte, b"k", head + announced), version=14))


def test_compressed_keys_do_not_explode() -> None:
    bomb = b"\xc3" + length_bytes(4) + b"\x81" + (1 << 40).to_bytes(8, "big") + bytes(4)
    with pytest.raises(RdbFileError, match="expands too far"):
        read(framed(b"\x00" + bomb + text(b"v")))
    assert read(unchecked(framed(b"\x00\x01k" + bomb))) == 0  # a value: refused when decoded
