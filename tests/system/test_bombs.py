"""Small payloads that claim or unpack to very much: refused, and no memory is kept for them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.rdb.payload import frame
from tests.support.inspection import rss_bytes, wait_until
from tests.support.servers import AnabranchServer

VERSION = 12
LIMIT = 48 << 20
"""How much the process may grow: the payloads have 4 MB at most."""

EXPANDED = 256 << 20
"""What a payload may unpack to (docs/limits.md); nothing sound comes of those here."""


def lzf(length: int) -> bytes:
    """Bytes that unpack to this many: one letter, and matches of 264 of them."""
    return b"\x00a" + b"\xe0\xff\x00" * (length // 264)


def packed(length: int, data: bytes) -> bytes:
    """A string of RDB that says it is LZF: its size, the size that it claims, and the data."""
    return b"\xc3" + _long(len(data)) + _long(length) + data


def _long(value: int) -> bytes:
    return b"\x81" + value.to_bytes(8, "big")


def whole(body: bytes) -> bytes:
    return frame(body, VERSION)


GIGABYTE = 1 << 30
BIG = 264 * 1_200_000 + 1
ALLOWED = 264 * 1_000_000 + 1  # below EXPANDED
STREAM = b"\x15"  # RDB_TYPE_STREAM_LISTPACKS_3
Bombs = dict[str, Callable[[], tuple[str | bytes, ...]]]
BOMBS: Bombs = {
    "a string that claims a gigabyte": lambda: (
        *("RESTORE", "k", "0", whole(b"\x00" + packed(GIGABYTE, lzf(1000)))),
    ),
    "a string that is longer than it claims": lambda: (
        *("RESTORE", "k", "0", whole(b"\x00" + packed(1000, lzf(BIG)))),
    ),
    "a string of an exabyte": lambda: (
        *("RESTORE", "k", "0", whole(b"\x00" + _long(1 << 60) + b"a")),
    ),
    "a list of as many elements": lambda: (
        *("RESTORE", "k", "0", whole(b"\x01" + _long(1 << 60) + b"\x01a")),
    ),
    "a stream of as many nodes": lambda: (
        *("RESTORE", "k", "0", whole(STREAM + _long(1 << 60) + b"\x10" + bytes(16))),
    ),
    "a node that unpacks to much": lambda: (
        *("RESTORE", "k", "0", whole(STREAM + b"\x01\x10" + bytes(16) + packed(BIG, lzf(BIG)))),
    ),
    "a library that claims a gigabyte": lambda: (
        *("FUNCTION", "RESTORE", whole(b"\xf5" + packed(GIGABYTE, lzf(1000)))),
    ),
    "a library that unpacks to much": lambda: (
        *("FUNCTION", "RESTORE", whole(b"\xf5" + packed(BIG, lzf(BIG)))),
    ),
    "rows of which there are four billion": lambda: (
        *("AB.IMPORT", "k", struct.pack("<II", 0xFFFFFFFF, 8) + b"*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
    ),
    "a row of a billion fields": lambda: (
        *("AB.IMPORT", "k", struct.pack("<II", 1, 13) + b"*1000000000\r\n"),
    ),
    "a field of a gigabyte that is not there": lambda: (
        *("AB.IMPORT", "k", struct.pack("<II", 1, 22) + b"*2\r\n$1\r\na\r\n$1073741824\r\n"),
    ),
}

WITHIN_LIMITS: Bombs = {
    "a node that unpacks to what is allowed": lambda: (
        "RESTORE", "k", "0",
        whole(STREAM + b"\x01\x10" + bytes(16) + packed(ALLOWED, lzf(ALLOWED))),
    ),
    "a library that unpacks to what is allowed": lambda: (
        *("FUNCTION", "RESTORE", whole(b"\xf5" + packed(ALLOWED, lzf(ALLOWED)))),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[AnabranchServer]:
    with AnabranchServer() as server:
        yield server


@pytest.mark.parametrize("name", BOMBS)
def test_it_is_refused_and_takes_no_memory(server: AnabranchServer, name: str) -> None:
    with server.client(timeout=60) as client:
        assert client.call("SET", "other", "v") == ("+", b"OK")
        before = peak_bytes(server)
        kind, text = client.call(*BOMBS[name]())
        assert kind == "-", text
        assert peak_bytes(server) - before < LIMIT
        assert rss_bytes(server) - before < LIMIT
        assert client.call("DBSIZE") == (":", 1)
        assert client.call("PING") == ("+", b"PONG")


@pytest.mark.parametrize("name", WITHIN_LIMITS)
def test_what_is_unpacked_in_vain_is_given_back(tmp_path: Path, name: str) -> None:
    with AnabranchServer(tmp_path) as server, server.client(timeout=60) as client:
        before = peak_bytes(server)
        kind, text = client.call(*WITHIN_LIMITS[name]())
        assert kind == "-", text
        assert peak_bytes(server) - before < 3 * EXPANDED  # twice while it is unpacked
        wait_until(lambda: rss_bytes(server) - before < LIMIT, "the memory is given back")
        assert client.call("DBSIZE") == (":", 0)


def peak_bytes(server: AnabranchServer) -> int:
    """The most memory that the process has had."""
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
