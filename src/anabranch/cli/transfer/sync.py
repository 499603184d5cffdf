"""A full synchronisation: the server sends its RDB file as to a new replica.

After ``SYNC`` come empty lines while the server prepares, then ``$`` and the file's size, or
``$EOF:`` and forty bytes, which are repeated after the file if its size is not known yet.

The file is first received into a temporary file: restoring is slower than sending, and a server
that has to wait keeps a child process and its memory meanwhile.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from tempfile import TemporaryFile, gettempdir
from typing import BinaryIO

from anabranch.cli.address import Address, RefusedByServer, ask
from anabranch.cli.progress import Progress
from anabranch.cli.remedies import message
from anabranch.cli.transfer.file_source import FileSource, verified
from anabranch.cli.transfer.record import TransferFailed

_CHUNK_BYTES = 1 << 18
_MARK = "$EOF:"
_MARK_BYTES = 40
_LINE_BYTES_MAX = 4096


def sync_source(address: Address) -> FileSource:
    """The file as a source; raises :class:`RefusedByServer` if the server refuses to send it."""
    print(f"anabranch: asking {address} for a full synchronisation", file=sys.stderr)
    try:
        with address.open() as sock:
            head = _head(sock)
            coming = _coming(sock, head, str(address))
            return _received(coming)
    except OSError as problem:
        raise TransferFailed(f"{address}: {message(problem, address)}") from None


def _head(sock: socket.socket) -> str:
    """Request the file, and wait for the line before it."""
    with sock.makefile("rb", buffering=0) as replies:
        # A file of unknown size is accepted, and no commands are wanted after it. Servers that do
        # not know these words ignore them.
        for words in (("capa", "eof"), ("rdb-only", "1")):
            ask(sock, replies, ["REPLCONF", *words])
        head = ask(sock, replies, ["SYNC"])
        while not head:
            line = replies.readline(_LINE_BYTES_MAX)
            if not line:
                raise RefusedByServer("the connection was closed")
            head = line.decode("utf-8", "replace").strip()
        return head


def _coming(sock: socket.socket, head: str, name: str) -> FileSource:
    if head.startswith(_MARK):
        mark = head.removeprefix(_MARK).encode()
        if len(mark) == _MARK_BYTES:
            return FileSource(name, _until_mark(sock, mark), None)
    elif head[:1] == "$" and head[1:].isascii() and head[1:].isdigit():
        return FileSource(name, _sized(sock, int(head[1:])), int(head[1:]))
    raise RefusedByServer(head.removeprefix("-"))


def _received(coming: FileSource) -> FileSource:
    file = TemporaryFile(prefix="anabranch-")  # noqa: SIM115 - the source reads on
    try:
        with Progress("receiving", coming.total, unit=coming.unit) as progress:
            for chunk in coming.chunks():
                _store(chunk, file)
                progress.update(coming.done)
    except BaseException:
        file.close()
        raise
    return verified(coming.name, file)


def _store(chunk: bytes, file: BinaryIO) -> None:
    try:
        file.write(chunk)
    except OSError as problem:
        raise TransferFailed(f"{gettempdir()}: {problem.strerror}") from None


def _sized(sock: socket.socket, size: int) -> Iterator[bytes]:
    while size:
        chunk = sock.recv(min(size, _CHUNK_BYTES))
        if not chunk:
            raise OSError("the connection was closed before the file's end")
        size -= len(chunk)
        yield chunk


def _until_mark(sock: socket.socket, mark: bytes) -> Iterator[bytes]:
    """Holds back as many bytes as the mark has, for they may be its beginning."""
    held = b""
    while (end := held.find(mark)) < 0:
        if len(held) > _MARK_BYTES:
            yield held[:-_MARK_BYTES]
            held = held[-_MARK_BYTES:]
        chunk = sock.recv(_CHUNK_BYTES)
        if not chunk:
            raise OSError("the connection was closed before the file's end")
        held += chunk
    yield held[:end]
