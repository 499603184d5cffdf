"""Reads keys from an RDB file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from io import BufferedReader
from typing import cast

from anabranch.cli.failures import Failed
from anabranch.cli.progress import Progress
from anabranch.cli.transfer.record import KeyRecord
from anabranch.rdb.errors import RdbFileError
from anabranch.rdb.file import RdbFile

_CHUNK_BYTES = 1 << 20
_NO_LIMIT = 1 << 62


class FileSource:
    """A file that was verified; or standard input, named ``-``.

    Standard input cannot be read twice, so damage is found only when some keys were moved already.
    """

    unit = "bytes"

    def __init__(self, name: str) -> None:
        """Raises :class:`Failed` if the file cannot be read or is damaged."""
        self.done = 0
        self.total: int | None = None
        self._passed_over: dict[str, int] = {}
        self._name = "standard input" if name == "-" else name
        if name == "-":
            self._file = cast("BufferedReader", sys.stdin.buffer)
            return
        try:
            self._file = open(name, "rb")  # noqa: SIM115 - it is read until the source is closed
        except OSError as problem:
            raise self._failed(problem) from None
        try:
            self.total = os.fstat(self._file.fileno()).st_size
            self._file.seek(0)  # fails at once for a pipe
            self._verify()
            self._file.seek(0)
        except OSError as problem:
            self._file.close()
            raise self._failed(problem) from None
        except BaseException:
            self._file.close()
            raise
        self.done = 0

    def _failed(self, problem: OSError) -> Failed:
        return Failed(f"{self._name}: {problem.strerror or problem}")

    def _verify(self) -> None:
        try:
            with Progress("checking", self.total, unit=self.unit) as progress:
                for _ in RdbFile(self._chunks(), kinds=(), value_bytes_max=_NO_LIMIT):
                    progress.update(self.done)
        except RdbFileError as problem:
            raise Failed(f"{self._name}: {problem}") from None

    def records(self, value_bytes_max: int) -> Iterator[KeyRecord]:
        """The keys in the order of the file; the checksum is verified behind the last one."""
        try:
            file = RdbFile(self._chunks(), value_bytes_max=value_bytes_max)
            for key in file:
                yield KeyRecord(
                    key.db, key.key, key.kind, key.expire_at_ms, key.body, file.version, key.size
                )
        except RdbFileError as problem:
            raise Failed(f"{self._name}: {problem}") from None
        except OSError as problem:
            raise self._failed(problem) from None
        if file.functions:
            self._passed_over["function libraries"] = file.functions
        for module in sorted(file.module_data):
            self._passed_over[f"data of modules ({module})"] = 1

    def passed_over(self) -> dict[str, int]:
        """Functions, and data of modules beside keys."""
        return self._passed_over

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self.total is not None:
            self._file.close()

    def _chunks(self) -> Iterator[bytes]:
        """The bytes, counted; those of a pipe as they arrive."""
        while chunk := self._file.read1(_CHUNK_BYTES):
            self.done += len(chunk)
            yield chunk
