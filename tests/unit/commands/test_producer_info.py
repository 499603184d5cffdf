"""AB.PRODUCERS on a server of its own; between regions: tests/active_active/test_producers.py."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.support.streams import NOW, Streams


@pytest.fixture
def server() -> Streams:
    return Streams()


def told(server: Streams, key: str = "s") -> dict[bytes, dict[bytes, Any]]:
    rows = [dict(zip(row[::2], row[1::2], strict=True)) for row in server.do("AB.PRODUCERS", key)]
    return {row.pop(b"producer"): row for row in rows}


def test_what_is_remembered_of_each_producer(server: Streams) -> None:
    server.run("XADD s IDMP p 1 * f v", "XADD s IDMP q 1 * f v")
    server.advance(250)
    server.run("XADD s IDMP p 2 * f v", "XADD s IDMP p 2 * f v")
    assert told(server) == {
        b"p": {
            b"iids": 2,
            b"oldest-ms": NOW,
            b"newest-ms": NOW + 250,
            b"conflicts": [],
            b"batches": [],
        },
        b"q": {
            b"iids": 1,
            b"oldest-ms": NOW,
            b"newest-ms": NOW,
            b"conflicts": [],
            b"batches": [],
        },
    }


def test_bulk_producers_have_batches(server: Streams) -> None:
    row = b"*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
    payload = struct.pack("<2I", 1, len(row)) + row
    _, rows, crc, *_ = server.do(
        "AB.IMPORT", "s", "PRODUCER", "p", "BATCH", 7, "EXPECT", 0, payload
    )
    assert told(server) == {
        b"p": {
            b"iids": 0,
            b"oldest-ms": None,
            b"newest-ms": None,
            b"conflicts": [],
            b"batches": [[0, 0, 7, rows, crc, NOW]],
        }
    }


def test_a_key_without_producers_and_no_key(server: Streams) -> None:
    server.run("XADD s * f v", "LPUSH l x")
    assert told(server) == {}
    assert server.error("AB.PRODUCERS", "none") == "ERR no such key"
    assert server.error("AB.PRODUCERS", "l").startswith("WRONGTYPE")
