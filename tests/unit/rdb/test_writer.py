"""Files that we write: what we read out of them is what was put in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.rdb.crc64 import crc64
from anabranch.rdb.file import RdbFile, RdbWriter
from anabranch.rdb.payload import decode_body, encode_body

_KEYS = st.tuples(
    st.integers(0, 3) | st.integers(0, 2**31 - 1),
    st.binary(max_size=8) | st.integers().map(lambda number: b"%d" % number),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=40) | st.sets(st.binary(max_size=4), min_size=1),
)


@given(st.lists(_KEYS, max_size=12), st.sampled_from([10, 11, 12, 13, 14]))
def test_what_is_written_is_read(
    keys: list[tuple[int, bytes, int | None, bytes | set[bytes]]], version: int
) -> None:
    pieces: list[bytes] = []
    writer = RdbWriter(pieces.append, version, {b"redis-bits": b"64"})
    for db, key, expire_at_ms, value in keys:
        writer.write(db, key, expire_at_ms, encode_body(value, rdb_version=version))
    writer.end()
    file = RdbFile(pieces, value_bytes_max=1 << 20)
    found = [(one.db, one.key, one.expire_at_ms, decode_body(one.body or b"")) for one in file]
    assert found == keys
    assert file.version == version
    assert file.aux == {b"redis-bits": b"64"}
    assert file.has_checksum


def test_the_checksum_covers_what_was_written_in_pieces() -> None:
    pieces: list[bytes] = []
    writer = RdbWriter(pieces.append, 10, {})
    for number in range(5):
        writer.write(0, b"%d" % number, None, encode_body(b"x" * (1 << 19), rdb_version=10))
    writer.end()
    assert len(pieces) > 3
    data = b"".join(pieces)
    assert crc64(data[:-8]).to_bytes(8, "little") == data[-8:]
    assert data.startswith(b"REDIS0010\xfe\x00\x00\xc0\x00")
    assert data.count(b"\xfe\x00") == 1
