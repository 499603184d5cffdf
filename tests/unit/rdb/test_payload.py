"""The frame of DUMP payloads, and the small values."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.rdb import listpack
from anabranch.rdb.crc64 import crc64
from anabranch.rdb.errors import (
    PayloadChecksumError,
    PayloadError,
    PayloadFormatError,
    PayloadSizeError,
)
from anabranch.rdb.lengths import string_bytes
from anabranch.rdb.payload import RDB_VERSION, decode_payload_steps, frame
from anabranch.scheduling import in_one_go
from anabranch.stream.image import StreamImage
from tests.support.lzf import lzf_string
from tests.support.payloads import decode_payload, encode_payload

_VALUES = st.one_of(
    st.binary(max_size=100),
    st.lists(st.binary(max_size=60), min_size=1),
    st.sets(st.binary(max_size=9) | st.integers().map(lambda n: b"%d" % n), min_size=1),
)


def _framed(body: str, version: int = 10) -> bytes:
    data = bytes.fromhex(body) + version.to_bytes(2, "little")
    return data + crc64(data).to_bytes(8, "little")


@given(_VALUES, st.sampled_from([10, 11, 12, 13, 14]))
def test_values_come_back(value: bytes | list[bytes] | set[bytes], version: int) -> None:
    payload = encode_payload(value, rdb_version=version)
    assert int.from_bytes(payload[-10:-8], "little") == version
    assert decode_payload(payload) == value


def test_long_lists_are_split_and_huge_elements_stand_alone() -> None:
    value = [b"x" * 3000] * 7 + [b"y" * 9000, b"1", b"z" * 8192, b"2"]
    payload = encode_payload(value)
    assert decode_payload(payload) == value
    assert payload[1] == 8  # 2, 2, 2 and 1 of the first; the huge one; "1"; the large one; "2"


def test_streams_get_the_newest_type_of_the_version() -> None:
    types = {
        version: encode_payload(StreamImage(), rdb_version=version)[0] for version in range(10, 15)
    }
    assert types == {10: 19, 11: 21, 12: 21, 13: 26, 14: 27}


def test_sets_are_written_in_order() -> None:
    assert encode_payload({b"b", b"c", b"a"})[1:-10] == b"\x03\x01a\x01b\x01c"


@pytest.mark.parametrize("version", [0, 9, RDB_VERSION + 1])
def test_only_known_versions_are_written(version: int) -> None:
    with pytest.raises(ValueError, match="version"):
        encode_payload(b"v", rdb_version=version)


@pytest.mark.parametrize("value", [[], set()])
def test_empty_collections_are_not_written(value: list[bytes] | set[bytes]) -> None:
    with pytest.raises(ValueError, match="empty"):
        encode_payload(value)


def test_a_wrong_byte_anywhere_fails_the_checksum() -> None:
    payload = encode_payload([b"a", b"b"])
    for index in range(len(payload)):
        wrong = payload[:index] + bytes((payload[index] ^ 0x10,)) + payload[index + 1 :]
        with pytest.raises(PayloadChecksumError):
            decode_payload(wrong)


def test_a_checksum_of_zeros_is_not_checked() -> None:
    assert decode_payload(encode_payload(b"hello")[:-8] + bytes(8)) == b"hello"


def test_too_short_or_too_new() -> None:
    for size in range(10):
        with pytest.raises(PayloadChecksumError):
            decode_payload(bytes(size))
    with pytest.raises(PayloadChecksumError, match="newer"):
        decode_payload(_framed("000161", RDB_VERSION + 1))
    assert decode_payload(_framed("000161", 1)) == b"a"


def test_the_two_errors_have_a_common_base() -> None:
    assert issubclass(PayloadChecksumError, PayloadError)
    assert issubclass(PayloadFormatError, PayloadError)


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("00 c1e803", b"1000"),
        ("01 02 0161 c005", [b"a", b"5"]),
        ("02 02 0161 c005", {b"a", b"5"}),
        ("0a 0e 0e000000 0a000000 0100 00 0161 ff", [b"a"]),
        ("0e 01 0e 0e000000 0a000000 0100 00 0161 ff", [b"a"]),
        ("0b 0a 02000000 01000000 0700", {b"7"}),
        ("12 02 01 03616263 02 0a 0a000000 0100 816102 ff", [b"abc", b"a"]),
        ("14 0a 0a000000 0100 816102 ff", {b"a"}),
    ],
)
def test_every_form_of_string_list_and_set(body: str, value: object) -> None:
    assert decode_payload(_framed(body)) == value


@pytest.mark.parametrize(
    "body",
    [
        "",
        "01 00",
        "02 00",
        "02 02 0161 0161",
        "12 00",
        "12 01 03 0161",
        "14 07 07000000 0000 ff",
        "14 0d 0d000000 0200 816102 816102 ff",
        "0b 08 02000000 00000000",
        "0e 00",
        "00 0161 00",  # bytes left over
        "01 80ffffffff",
        "02 81ffffffffffffffff",
    ],
)
def test_refuses(body: str) -> None:
    with pytest.raises(PayloadFormatError):
        decode_payload(_framed(body))


@pytest.mark.parametrize(
    ("type_byte", "name"),
    [(3, "zset"), (4, "hash"), (7, "module"), (16, "hash"), (25, "hash"), (28, "array")],
)
def test_unsupported_types_are_named(type_byte: int, name: str) -> None:
    with pytest.raises(PayloadFormatError, match=name):
        decode_payload(_framed(f"{type_byte:02x}00"))


@pytest.mark.parametrize("type_byte", [8, 29, 99, 255])
def test_unknown_types_are_refused(type_byte: int) -> None:
    with pytest.raises(PayloadFormatError, match="unknown"):
        decode_payload(_framed(f"{type_byte:02x}00"))


_NUMBERS = range(20_000)
_INTSET = struct.pack("<II20000h", 2, 20_000, *_NUMBERS)
_ENTRIES = [element for _ in _NUMBERS for element in (2, 0, 1, 1, 4)]
_NODE = listpack.encode([20_000, 0, 1, b"f", 0, *_ENTRIES])


@pytest.mark.parametrize(
    "body",
    [
        b"\x0b" + string_bytes(_INTSET),
        b"\x12\1\2" + string_bytes(listpack.encode(_NUMBERS)),
        b"\x14" + string_bytes(listpack.encode(_NUMBERS)),
        b"\x13\1\x10" + bytes(16) + string_bytes(_NODE),
        b"\x00" + lzf_string(b"".join(b"%d" % number for number in _NUMBERS)),
    ],
    ids=["intset", "list", "set", "stream", "compressed"],
)
def test_one_packed_string_is_read_in_several_steps(body: bytes) -> None:
    unchecked = body + RDB_VERSION.to_bytes(2, "little") + bytes(8)
    steps = decode_payload_steps(unchecked, lambda _: None)
    for _ in range(5):
        next(steps)


def test_names_that_entries_share_cannot_be_used_to_fill_the_memory() -> None:
    node = listpack.encode([20_000, 0, 1, b"f" * 100_000, 0, *_ENTRIES])
    unchecked = b"\x13\1\x10" + bytes(16) + string_bytes(node) + RDB_VERSION.to_bytes(2, "little")
    with pytest.raises(PayloadSizeError):
        in_one_go(decode_payload_steps(unchecked + bytes(8), lambda _: None, is_limited=True))


def test_compression_cannot_be_used_to_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.rdb.lengths.EXPANDED_BYTES_MIN", 99_999)
    packed = frame(b"\0" + lzf_string(b"x" * 100_000), RDB_VERSION)
    assert len(packed) < 1500
    with pytest.raises(PayloadFormatError, match="expands"):
        decode_payload(packed)
    # A listpack claiming four gigabytes in a string of 20 bytes
    bomb = "14 c3 0a 80ffffffff" + listpack.encode([1, 2]).hex()
    with pytest.raises(PayloadFormatError):
        decode_payload(_framed(bomb, 11))
