"""Finds the directory that the user means, and checks whether a server uses it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from anabranch.cli.failures import Failed
from anabranch.config.settings import ROWS
from anabranch.errors import ConfigError
from anabranch.oplog.segment import first_position_of
from anabranch.oplog.snapshot import position_of
from anabranch.server.disk import Directory, lock_directory


def locate(path: Path) -> tuple[Directory, str | None]:
    """The directory and name of a file; the name is None for a whole directory.

    A directory without such files, which contains a directory with the default name of
    ``appenddirname``, stands for that one. So users may name the ``dir`` of the server.
    """
    if not path.is_dir():
        return Directory(path.parent), path.name
    directory = Directory(path)
    within = path / ROWS["appenddirname"].default_text
    if not _holds_any(directory) and within.is_dir():
        return Directory(within), None
    return directory, None


def _holds_any(directory: Directory) -> bool:
    return any(
        first_position_of(name) is not None or position_of(name) is not None
        for name in directory.names()
    )


def in_use(directory: Directory) -> bool:
    """Whether a server uses the directory now."""
    try:
        with (directory.path / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def lines_of_failure() -> Iterator[None]:
    """Say what to do when a file of a server cannot be read or written."""
    try:
        yield
    except FileNotFoundError as problem:
        raise Failed(
            f"{problem.filename} has gone. A running server deletes what it does not need any "
            "more: try again"
        ) from None
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as problem:
        raise Failed(
            f"{problem.filename or 'a file'}: {problem.strerror}. Try it as the user the server "
            "runs as, or on another disk"
        ) from None


@contextmanager
def locked(directory: Directory, hint: str = "") -> Iterator[None]:
    """Lock the directory meanwhile; raises :class:`Failed` if a server uses it."""
    try:
        lock = lock_directory(directory.path)
    except ConfigError as problem:
        reason = str(problem).partition(". ")[0]
        raise Failed(f"{reason}. Stop that server first{hint}") from None
    with lock:
        yield
