"""Find the directory that is meant, check whether a server uses it, and show progress."""

from __future__ import annotations

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from anabranch.config.settings import ROWS
from anabranch.errors import AnabranchError
from anabranch.oplog.segment import first_position_of
from anabranch.oplog.snapshot import position_of
from anabranch.server.disk import Directory

__all__ = ["Failed", "Progress", "in_use", "lines_of_failure", "locate"]

_SHOWN_AFTER_S: Final = 1.0
_LINE_S: Final = 3.0
_BAR_S: Final = 0.1


class Failed(AnabranchError):
    """The command cannot go on; the text says why, and what to do."""


def locate(path: Path) -> tuple[Directory, str | None]:
    """The directory of a file, and the file's name; None as a name for a whole directory.

    A directory that holds no such files, but one called as ``appenddirname`` is by default, stands
    for that one, so that people may give the server's ``dir``.
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
    """Whether a server has the directory now."""
    try:
        with (directory.path / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def lines_of_failure(ctx: click.Context) -> Iterator[None]:
    """Turn failures into one line and exit code 1."""
    try:
        yield
    except AnabranchError as problem:
        print(f"anabranch: {problem}", file=sys.stderr)
        ctx.exit(1)
    except FileNotFoundError as problem:
        print(
            f"anabranch: {problem.filename} has gone. A running server deletes what it does not "
            "need any more: try again",
            file=sys.stderr,
        )
        ctx.exit(1)
    except BrokenPipeError:
        raise  # click ends quietly
    except OSError as problem:
        print(
            f"anabranch: {problem.filename or 'a file'}: {problem.strerror}. Try it as the user "
            "the server runs as, or on another disk",
            file=sys.stderr,
        )
        ctx.exit(1)


class Progress:
    """How far it is, on standard error, once it has taken a second.

    A bar on a terminal, unless ``quiet`` because what is printed goes there too; lines elsewhere.
    """

    def __init__(self, label: str, total: int, *, quiet: bool = False) -> None:
        self._label = label
        self._total = total
        self._bar: Any = None
        self._shown = 0
        self._is_terminal = sys.stderr.isatty()
        silent = quiet and self._is_terminal
        self._next = float("inf") if silent else time.monotonic() + _SHOWN_AFTER_S

    def update(self, done: int) -> None:
        """So many bytes are done; cheap enough to be called always."""
        now = time.monotonic()
        if now < self._next:
            return
        if not self._is_terminal:
            self._next = now + _LINE_S
            percent = 100 * done // max(self._total, 1)
            print(f"anabranch: {self._label}: {percent} %", file=sys.stderr)
            return
        self._next = now + _BAR_S
        if self._bar is None:
            self._bar = click.progressbar(length=self._total, label=self._label, file=sys.stderr)
            self._bar.__enter__()
        self._bar.update(done - self._shown)
        self._shown = done

    def finish(self) -> None:
        """End the bar's line."""
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None
