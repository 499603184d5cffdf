"""Whole RDB files: each opcode and each encoding is read, or passed without touching what follows.

``fixtures/files``: files that three generations of servers wrote, with what those servers answered.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from anabranch.rdb.crc64 import crc64
from anabranch.rdb.errors import RdbFileError
from anabranch.rdb.file import FileKey, RdbFile
from anabranch.rdb.kinds import KINDS, MODULE_PRELIMINARY, SUPPORTED, module_name
from anabranch.rdb.lengths import length_bytes, string_bytes
from anabranch.rdb.payload import RDB_VERSION, decode_body
from anabranch.rdb.walk import WALKS
from anabranch.stream.image import StreamImage

from .conftest import FIXTURES

FILES = sorted((FIXTURES / "files").glob("*.json.gz"))
LIMIT = 1 << 20


def framed(*records: bytes, version: int = 11) -> bytes:
    """A file around records."""
    data = b"REDIS%04d" % version + b"".join(records) + b"\xff"
    return data + (crc64(data).to_bytes(8, "little") if version >= 5 else b"")


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """The file as it may come."""
    return (data[index : index + size] for index in range(0, len(data), size))


def read(data: bytes, size: int = 1 << 16) -> tuple[RdbFile, list[FileKey]]:
    file = RdbFile(pieces(data, size), value_bytes_max=LIMIT)
    return file, list(file)


def key(type_byte: int, name: bytes, value: bytes) -> bytes:
    return bytes((type_byte,)) + string_bytes(name) + value


def text(data: bytes) -> bytes:
    return length_bytes(len(data)) + data


def texts(*items: bytes) -> bytes:
    return length_bytes(len(items)) + b"".join(map(text, items))


AFTER = key(0, b"after", text(b"v"))


# -- values that are passed over ------------------------------------------------------------------

_MILLISECONDS = (1_900_000_000_000).to_bytes(8, "little")
_MODULE_PIECES = (
    b"\x01\x05" + b"\x02" + length_bytes(70_000) + b"\x03" + bytes(4) + b"\x04" + bytes(8)
) + (b"\x05" + text(b"\x00\x00 text") + b"\x00")
_MODULE_ID = int("".join(f"{index:06b}" for index in range(9)) + f"{7:010b}", 2)

PASSED = {
    "zset, scores as text": (3, b"\x04" + b"".join(
        text(b"m%d" % number) + score
        for number, score in enumerate([b"\xfd", b"\xfe", b"\xff", b"\x03" + b"1.5"])
    )),
    "hash": (4, b"\x02" + text(b"f") + text(b"v") + text(b"g") + b"\xc1\x10\x27"),
    "zset": (5, b"\x02" + text(b"a") + bytes(8) + text(b"b") + b"\xff" * 8),
    "hash, zipmap": (9, text(b"\x01\x01f\x01\x00v\xff")),
    "zset, ziplist": (12, text(b"ziplist" * 20)),
    "hash, ziplist": (13, text(b"ziplist" * 20)),
    "hash, listpack": (16, text(b"listpack" * 2000)),
    "zset, listpack": (17, b"\xc3" + length_bytes(5) + length_bytes(900) + b"\xff" * 5),
    "hash with expiring fields, preliminary": (
        22, b"\x02" + b"\x00" + text(b"f") + text(b"v")
        + b"\x81" + bytes(8) + text(b"g") + text(b"w"),
    ),
    "hash with expiring fields, preliminary listpack": (23, text(b"listpack")),
    "hash with expiring fields": (
        24, _MILLISECONDS + b"\x02" + b"\x00" + text(b"f") + text(b"v")
        + length_bytes(90_000) + text(b"g") + text(b"w"),
    ),
    "hash with expiring fields, listpack": (25, _MILLISECONDS + text(b"listpack")),
    "array": (
        28, b"\x04\x01" + length_bytes(1 << 40) + b"\x00\x00" + text(b"text") + b"\x01\x01"
        + bytes(8) + b"\x05\x02" + bytes(8) + length_bytes(99_999) + b"\x03" + text(b"small"),
    ),
    "array without an index": (28, b"\x01\x00\x07\x00" + text(b"text")),
    "module": (7, length_bytes(_MODULE_ID) + _MODULE_PIECES),
}  # fmt: skip


@pytest.mark.parametrize("name", PASSED)
@pytest.mark.parametrize("size", [1, 3, 1 << 16])
def test_values_of_other_kinds_are_passed_exactly(name: str, size: int) -> None:
    type_byte, value = PASSED[name]
    data = framed(key(type_byte, b"k", value), AFTER, version=RDB_VERSION)
    _, (other, after) = read(data, size)
    assert (other.key, other.body, other.size) == (b"k", None, 1 + len(value))
    assert other.kind == ("ABCDEFGHI" if type_byte == 7 else KINDS[type_byte])
    assert (after.key, after.body) == (b"after", b"\x00\x01v")


def test_every_type_byte_is_passed_but_one() -> None:
    assert set(KINDS) - set(WALKS) == {MODULE_PRELIMINARY}
    assert set(WALKS) <= set(KINDS)
    tried = {type_byte for type_byte, _ in PASSED.values()}
    assert {number for number, kind in KINDS.items() if kind not in SUPPORTED} - tried == {
        MODULE_PRELIMINARY
    }


def test_module_names() -> None:
    assert module_name(_MODULE_ID) == "ABCDEFGHI"


def test_module_values_of_old_are_refused_with_their_name() -> None:
    with pytest.raises(RdbFileError, match=r"byte 9: key 'old': a module's value .* no end mark"):
        read(framed(key(6, b"old", b"\x00"), AFTER))


@pytest.mark.parametrize("value", [b"\x01\x00\x01\x09", b"\x01\x00\x00\x04"])
def test_unknown_forms_inside_an_array_are_errors(value: bytes) -> None:
    with pytest.raises(RdbFileError, match=r"key 'k' \(array\): array: unknown form"):
        read(framed(key(28, b"k", value), version=14))


def test_unknown_marks_inside_a_module_are_errors() -> None:
    with pytest.raises(RdbFileError, match=r"module: unknown mark 6"):
        read(framed(key(7, b"k", length_bytes(_MODULE_ID) + b"\x06\x00")))


# -- values that are kept -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 5, 1 << 16])
def test_values_are_kept_whole_whatever_the_pieces(size: int) -> None:
    long = bytes(range(256)) * 40
    data = framed(key(0, b"s", text(long)), key(1, b"l", texts(b"a", b"", b"12")), AFTER)
    _, keys = read(data, size)
    assert [decode_body(one.body or b"") for one in keys] == [long, [b"a", b"", b"12"], b"v"]
    assert [one.offset for one in keys] == [9, 9 + 3 + 2 + len(long), len(data) - 18]


def test_too_large_values_are_passed_and_measured() -> None:
    data = framed(key(0, b"k", text(b"x" * LIMIT)), AFTER)
    for size in (1 << 10, len(data)):
        _, (large, after) = read(data, size)
        assert (large.body, large.size) == (None, LIMIT + 6)
        assert after.body == b"\x00\x01v"
    fitting = text(b"x" * (LIMIT - 6))
    _, (large, _) = read(framed(key(0, b"k", fitting), AFTER))
    assert large.body == b"\x00" + fitting
    assert large.size == LIMIT


def test_only_kinds_that_are_asked_for_are_kept() -> None:
    data = framed(key(0, b"s", text(b"x")), key(2, b"m", texts(b"a")))
    keys = list(RdbFile(iter([data]), kinds={"set"}, value_bytes_max=LIMIT))
    assert [one.body for one in keys] == [None, b"\x02\x01\x01a"]


def test_memory_is_bounded_by_the_pieces() -> None:
    """A file much larger than what is ever held."""
    record = key(4, b"h", b"\x01" + text(b"f") + text(b"x" * (1 << 20)))
    held = []

    def chunks() -> Iterator[bytes]:
        data = [b"REDIS0011", *[record] * 20, b"\xff", bytes(8)]
        for part in data:
            for piece in pieces(part, 1 << 16):
                held.append(len(file._reader._buffer) if len(held) else 0)
                yield piece

    file = RdbFile(chunks(), value_bytes_max=LIMIT)
    assert len(list(file)) == 20
    assert max(held) < 1 << 17


# -- opcodes --------------------------------------------------------------------------------------


def aux(name: bytes, value: bytes) -> bytes:
    return b"\xfa" + string_bytes(name) + string_bytes(value)


@pytest.mark.parametrize("size", [1, 1 << 16])
def test_opcodes_tell_of_keys_and_of_the_file(size: int) -> None:
    data = framed(
        aux(b"redis-ver", b"8.8.0") + aux(b"redis-bits", b"64"),
        b"\xf7" + length_bytes(_MODULE_ID) + b"\x02\x02" + _MODULE_PIECES,
        b"\xf5" + text(b"#!lua name=lib") + b"\xf5" + text(b"#!lua name=other"),
        b"\xfe\x00" + b"\xfb\x05\x01" + b"\xf4\x07\x05\x01",
        key(0, b"a", text(b"1")),
        b"\xfc" + _MILLISECONDS + b"\xf8" + length_bytes(77_777) + key(0, b"b", text(b"2")),
        b"\xf9\xff" + b"\xfd" + (1_900_000_000).to_bytes(4, "little") + key(0, b"c", text(b"3")),
        b"\xf3\x02" + (b"META" + _MODULE_PIECES) * 2 + key(0, b"d", text(b"4")),
        b"\xfe" + length_bytes(12_345) + key(0, b"e", text(b"5")),
        version=14,
    )
    file, keys = read(data, size)
    assert [(one.db, one.key, one.expire_at_ms) for one in keys] == [
        (0, b"a", None),
        (0, b"b", 1_900_000_000_000),
        (0, b"c", 1_900_000_000_000),
        (0, b"d", None),
        (12_345, b"e", None),
    ]
    assert file.aux == {b"redis-ver": b"8.8.0", b"redis-bits": b"64"}
    assert file.functions == 2
    assert file.module_data == {"ABCDEFGHI", "key metadata"}
    assert file.has_checksum


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (framed(b"\xf6"), "byte 9: functions of a release candidate"),
        (framed(b"\x08"), "byte 9: unknown type or opcode 8"),
        (framed(b"\xc8"), "byte 9: unknown type or opcode 200"),
        (framed(b"\xfe" + length_bytes(1 << 31)), "byte 15: no number of a database"),
        (framed(b"\xfe\xc0\x01"), "byte 11: a string where a length"),
        (framed(b"\xfe\x82"), "byte 11: unknown length form"),
        (framed(b"\x00\xc4"), "byte 11: unknown string form"),
        (framed(b"\xfa\xc3\x02\x20\x00a\x00"), "byte 15: LZF"),
        (framed() + b"*1", "byte 18: more bytes behind the end"),
        (b"REDIS", "byte 5: the file ends early"),
        (b"", "byte 0: the file ends early"),
        (b"# a configuration file", "byte 0: not an RDB file"),
        (b"VALKEY080", "byte 0: a file of Valkey 9"),
        (b"REDIS00x1", "byte 5: no version"),
        (b"REDIS0000", "byte 5: no version"),
        (framed(version=15), "byte 5: RDB version 15 is newer than 14"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(data: bytes, complaint: str) -> None:
    with pytest.raises(RdbFileError) as caught:
        read(data)
    assert str(caught.value).lower().startswith(complaint.lower())


def test_the_checksum_is_verified_if_there_is_one() -> None:
    data = framed(AFTER)
    wrong = data[:-1] + bytes((data[-1] ^ 1,))
    with pytest.raises(RdbFileError, match=f"byte {len(data) - 8}: the checksum is wrong"):
        read(wrong)
    file, keys = read(data[:-8] + bytes(8))
    assert len(keys) == 1
    assert not file.has_checksum


def test_files_before_version_5_have_none() -> None:
    file, keys = read(framed(AFTER, version=4))
    assert len(keys) == 1
    assert not file.has_checksum


# -- recorded files -------------------------------------------------------------------------------


def recorded(path: Any) -> tuple[dict[str, Any], bytes]:
    record = json.loads(gzip.decompress(path.read_bytes()))
    return record, base64.b64decode(record["rdb_base64"])


def plain(reply: Any) -> Any:
    """A recorded reply without its types, as bytes and lists."""
    _, value = reply
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.encode("latin-1") if isinstance(value, str) else value


def contents(keys: Iterable[FileKey]) -> dict[tuple[int, str], FileKey]:
    return {(one.db, one.key.decode("latin-1")): one for one in keys}


@pytest.mark.parametrize("path", FILES, ids=[path.name.split(".json")[0] for path in FILES])
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_recorded_files_hold_what_their_servers_showed(path: Any, size: int) -> None:
    record, data = recorded(path)
    file, keys = read(data, size)
    assert file.version == record["rdb_version"]
    assert file.functions == len(record["functions"])
    assert file.has_checksum == record["rdbchecksum"]
    found = contents(keys)
    assert len(found) == len(keys)
    expected = {
        (int(db), name): facts
        for db, names in record["databases"].items()
        for name, facts in names.items()
    }
    assert {name: one.kind for name, one in found.items()} == {
        name: facts["type"] for name, facts in expected.items()
    }
    for name, facts in expected.items():
        one = found[name]
        assert one.expire_at_ms == facts.get("expires_at_ms")
        if facts["type"] not in SUPPORTED:
            assert one.body is None
            continue
        assert one.body is not None
        value = decode_body(one.body)
        if "read" not in facts:  # expired when the server loaded it
            assert name[1] == "expired-at-load"
            continue
        replies = {step[2][0]: plain(step[3]) for step in facts["read"]}
        if isinstance(value, StreamImage):
            entries = [
                [b"%d-%d" % (entry_id >> 64, entry_id & (1 << 64) - 1), pairs]
                for node in value.nodes
                for entry_id, pairs in node.entries
            ]
            assert entries == replies["XRANGE"], name
        elif isinstance(value, bytes):
            assert value == replies["GET"], name
        elif isinstance(value, list):
            assert value == replies["LRANGE"], name
        else:
            assert value == set(replies["SMEMBERS"]), name


def test_all_generations_are_recorded() -> None:
    assert {recorded(path)[0]["rdb_version"] for path in FILES} == {10, 12, 14}
