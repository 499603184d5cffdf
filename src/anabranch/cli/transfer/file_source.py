"""Reads keys from an RDB file, or from anything that delivers the bytes of one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from typing import BinaryIO, cast

from anabranch.cli.progress import Progress
from anabranch.cli.transfer.record import KeyRecord, TransferFailed
from anabranch.rdb.errors import RdbFileError
from anabranch.rdb.file import RdbFile

_CHUNK_BYTES = 1 << 20
_NO_LIMIT = 1 << 62


class FileSource:
    """Reads one stream of bytes, once."""

    unit = "bytes"

    def __init__(
        self,
        name: str,
        chunks: Iterable[bytes],
        total: int | None,
        file: BinaryIO | None = None,
    ) -> None:
        """``total``: the number of bytes, if known; ``file`` is closed with the source."""
        self.done = 0
        self.total = total
        self._file = file
        self.name = name
        self._chunks = chunks
        self._passed_over: dict[str, int] = {}

    def records(self, value_bytes_max: int) -> Iterator[KeyRecord]:
        """The keys in the order of the file; the checksum is verified behind the last one."""
        try:
            file = RdbFile(self.chunks(), value_bytes_max=value_bytes_max)
            for key in file:
                yield KeyRecord(
                    key.db, key.key, key.kind, key.expire_at_ms, key.body, file.version, key.size
                )
        except RdbFileError as problem:
            raise TransferFailed(f"{self.name}: {problem}") from None
        if file.functions:
            self._passed_over["function libraries"] = file.functions
        for module in sorted(file.module_data):
            self._passed_over[f"data of modules ({module})"] = 1

    def passed_over(self) -> dict[str, int]:
        """Functions, and data of modules beside keys."""
        return self._passed_over

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def verify(self) -> None:
        """Read everything only to verify it."""
        try:
            with Progress("checking", self.total, unit=self.unit) as progress:
                for _ in RdbFile(self.chunks(), kinds=(), value_bytes_max=_NO_LIMIT):
                    progress.update(self.done)
        except RdbFileError as problem:
            raise TransferFailed(f"{self.name}: {problem}") from None

    def chunks(self) -> Iterator[bytes]:
        """The chunks, counted."""
        try:
            for chunk in self._chunks:
                self.done += len(chunk)
                yield chunk
        except OSError as problem:
            raise TransferFailed(f"{self.name}: {problem.strerror or problem}") from None


def file_source(name: str) -> FileSource:
    """A file that was verified; or ``-``.

    Standard input cannot be read twice, so damage is found only when some keys were moved already.
    """
    if name == "-":
        stdin = cast(
            "BufferedReader", sys.stdin.buffer
        )  # the bytes of a pipe are read as they arrive
        return FileSource("standard input", _chunks(stdin.read1), None)
    try:
        file = open(name, "rb")  # noqa: SIM115 - the source reads on
    except OSError as problem:
        raise TransferFailed(f"{name}: {problem.strerror}") from None
    return verified(name, file)


def verified(name: str, file: BinaryIO) -> FileSource:
    """A source from a file that was read to its end once; it closes the file."""
    try:
        total = os.fstat(file.fileno()).st_size
        file.seek(0)
        FileSource(name, _chunks(file.read), total).verify()
        file.seek(0)
    except OSError as problem:
        file.close()
        raise TransferFailed(f"{name}: {problem.strerror}") from None
    except BaseException:
        file.close()
        raise
    return FileSource(name, _chunks(file.read), total, file)


def _chunks(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while chunk := read(_CHUNK_BYTES):
        yield chunk
