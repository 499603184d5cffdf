"""Writes keys into an RDB file, which gets its name when it is complete and on the disk."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from anabranch.cli.failures import Failed
from anabranch.cli.transfer.record import Item, TransferOptions
from anabranch.cli.transfer.summary import Summary
from anabranch.rdb.file import RdbWriter
from anabranch.version import __version__

_NO_LIMIT = 1 << 62


class FileTarget:
    """Use it in a ``with`` statement: an unfinished file is removed at the end."""

    value_bytes_max = _NO_LIMIT

    def __init__(
        self, path: str, summary: Summary, options: TransferOptions, rdb_version: int
    ) -> None:
        """Raises :class:`Failed` if the file exists and must not be replaced."""
        self.rdb_version = rdb_version
        self._path = Path(path)
        self._unfinished = self._path.with_name(f"{self._path.name}.{os.getpid()}.part")
        self._summary = summary
        self._dry_run = options.dry_run
        self._finished = False
        if not options.replace and self._path.exists():
            raise Failed(f"{path} exists; --replace overwrites it")

    def __enter__(self) -> Self:
        """Begin the file, under another name."""
        try:
            # A new file, readable as the umask allows: Redis may run as another user.
            self._file = open(os.devnull if self._dry_run else self._unfinished, "wb")
        except OSError as problem:
            raise self._failed(problem) from None
        aux = {
            b"anabranch-ver": __version__.encode(),
            b"redis-bits": b"64",
            b"ctime": b"%d" % time.time(),
        }
        self._writer = RdbWriter(self._file.write, self.rdb_version, aux)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove what was not finished."""
        self._file.close()
        if not self._finished:
            self._summary.withdraw()
        if not self._dry_run:
            self._unfinished.unlink(missing_ok=True)

    @property
    def incomplete(self) -> str:
        """The text of the failure that leaves no file."""
        return f"{self._path} was not written, for it would not be complete"

    def put(self, item: Item) -> None:
        """Write a key; raises :class:`Failed` if the disk does not take it."""
        try:
            self._writer.write(item.db, item.key, item.expire_at_ms, item.body)
        except OSError as problem:
            raise self._failed(problem) from None
        self._summary.arrived(item)

    def finish(self, *, complete: bool) -> None:
        """Give the file its name, if it is complete."""
        if not complete:
            raise Failed(self.incomplete)
        try:
            self._writer.end()
            self._file.flush()
            if not self._dry_run:
                self._put_in_place()
        except OSError as problem:
            raise self._failed(problem) from None
        self._finished = True

    def _put_in_place(self) -> None:
        """First the file is synced, then renamed, then the directory is synced."""
        os.fsync(self._file.fileno())
        self._unfinished.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _failed(self, problem: OSError) -> Failed:
        return Failed(f"{self._path}: {problem.strerror or problem}")
