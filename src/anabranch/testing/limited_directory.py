"""The directory of a server under test: the real one, whose files can be full."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from anabranch.oplog.storage import LogFile
from anabranch.server.disk import Directory


class LimitedDirectory(Directory):
    """Every write asks first whether there is space; ``require_space`` raises if there is none."""

    def __init__(self, path: Path, require_space: Callable[[], None]) -> None:
        super().__init__(path)
        self._require_space = require_space

    def create(self, name: str) -> LogFile:
        """A file that can be full."""
        return _LimitedFile(super().create(name), self._require_space)

    def append(self, name: str) -> LogFile:
        """The same of a file that is there."""
        return _LimitedFile(super().append(name), self._require_space)


class _LimitedFile:
    def __init__(self, file: LogFile, require_space: Callable[[], None]) -> None:
        self._file = file
        self._require_space = require_space
        self.sync = file.sync
        self.truncate = file.truncate
        self.is_there = file.is_there
        self.close = file.close

    def write(self, data: bytes) -> None:
        self._require_space()
        self._file.write(data)
