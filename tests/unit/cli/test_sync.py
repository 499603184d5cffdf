"""A full synchronisation, as servers do it and as they should not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from anabranch.cli.address import Address, RefusedByServer
from anabranch.cli.transfer.record import TransferFailed
from anabranch.cli.transfer.sync import sync_source
from anabranch.rdb.file import RdbWriter
from anabranch.rdb.payload import encode_body

MARK = b"0123456789abcdef0123456789abcdef01234567"
Send = Callable[[bytes], None]


def file_bytes(keys: int = 20) -> bytes:
    pieces: list[bytes] = []
    writer = RdbWriter(pieces.append, 11, {})
    for number in range(keys):
        writer.write(0, b"k%d" % number, None, encode_body(b"x" * 200, rdb_version=11))
    writer.end()
    return b"".join(pieces)


@contextmanager
def master(answer: Callable[[Send], None], refuses_options: bool = False) -> Iterator[Address]:
    """A server that knows three commands; `answer` is what it does about SYNC."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, connection.makefile("rb") as heard:
                while line := heard.readline():
                    words = []
                    for _ in range(int(line[1:])):
                        size = int(heard.readline()[1:])
                        words.append(heard.read(size + 2)[:size])
                    if words[0] == b"REPLCONF":
                        connection.sendall(b"-ERR no\r\n" if refuses_options else b"+OK\r\n")
                    elif words == [b"SYNC"]:
                        answer(connection.sendall)
                        return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield Address(port=listener.getsockname()[1], timeout=60)
        finally:
            thread.join(60)


def keys_of(address: Address) -> list[bytes]:
    with closing(sync_source(address)) as source:
        return [record.key for record in source.records(1 << 20)]


def expected(count: int = 20) -> list[bytes]:
    return [b"k%d" % number for number in range(count)]


@pytest.mark.parametrize("refuses_options", [False, True])
def test_a_file_of_known_size(refuses_options: bool) -> None:
    data = file_bytes()

    def answer(send: Send) -> None:
        send(b"\n\n")
        send(b"$%d\r\n" % len(data))
        send(data + b"*1\r\n$4\r\nPING\r\n")  # what follows is no part of the file

    with master(answer, refuses_options) as address:
        assert keys_of(address) == expected()


@pytest.mark.parametrize("size", [1, 7, 39, 40, 41, 1 << 20])
def test_a_file_until_its_mark(size: int) -> None:
    data = file_bytes(3) + MARK

    def answer(send: Send) -> None:
        send(b"\r\n$EOF:%b\r\n" % MARK)
        for index in range(0, len(data), size):
            send(data[index : index + size])

    with master(answer) as address:
        assert keys_of(address) == expected(3)


def test_commands_behind_the_mark_do_not_matter() -> None:
    data = file_bytes(3)

    def answer(send: Send) -> None:
        send(b"$EOF:%b\r\n%b%b*1\r\n$4\r\nPING\r\n" % (MARK, data, MARK))

    with master(answer) as address:
        assert keys_of(address) == expected(3)


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        (b"-ERR unknown command 'SYNC'\r\n", "unknown command"),
        (b"-NOMASTERLINK Can't SYNC while not connected with my master\r\n", "NOMASTERLINK"),
        (b"", "the connection was closed"),
        (b"\n\n", "the connection was closed"),
        (b"$-1\r\n", r"\$-1"),
        (b"$EOF:short\r\n", "EOF:short"),
        (b"+CONTINUE\r\n", "CONTINUE"),
    ],
)
def test_refusals(reply: bytes, complaint: str) -> None:
    with (
        master(lambda send: send(reply)) as address,
        pytest.raises(RefusedByServer, match=complaint),
    ):
        sync_source(address)


@pytest.mark.parametrize("head", [b"$999999\r\n", b"$EOF:%b\r\n" % MARK])
def test_a_connection_that_ends_in_the_middle(head: bytes) -> None:
    with (
        master(lambda send: send(head + file_bytes())) as address,
        pytest.raises(TransferFailed, match="closed before the file's end"),
    ):
        sync_source(address)


def test_a_file_that_is_damaged_is_noticed_before_anything_is_done_with_it() -> None:
    data = bytearray(file_bytes())
    data[50] ^= 1
    with (
        master(lambda send: send(b"$%d\r\n%b" % (len(data), data))) as address,
        pytest.raises(TransferFailed, match="the checksum is wrong"),
    ):
        sync_source(address)


def test_nobody_there(unused_port: int) -> None:
    with pytest.raises(TransferFailed, match="refused"):
        sync_source(Address(port=unused_port))
