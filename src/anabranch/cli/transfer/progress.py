"""Progress of a transfer: a bar on a terminal, elsewhere a line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

if TYPE_CHECKING:
    from anabranch.cli.transfer.record import Source

__all__ = ["Progress"]

_LINE_SECONDS = 3.0
_BAR_SECONDS = 0.1


class Progress:
    """Writes to standard error only, so that what is printed at the end can be piped on."""

    def __init__(self, label: str, source: Source) -> None:
        self._label = label
        self._source = source
        self._bar: Any = None
        self._shown = 0
        self._next = time.monotonic() + _LINE_SECONDS
        if source.total and sys.stderr.isatty():
            self._next = 0.0
            self._bar = click.progressbar(length=source.total, label=label, file=sys.stderr)

    def __enter__(self) -> Self:
        """Show the bar."""
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End its line."""
        if self._bar is not None:
            self._advance()
            self._bar.__exit__(kind, problem, trace)

    def update(self) -> None:
        """Called for each key; shows something now and then."""
        now = time.monotonic()
        if now < self._next:
            return
        if self._bar is not None:
            self._next = now + _BAR_SECONDS
            self._advance()
            return
        self._next = now + _LINE_SECONDS
        source = self._source
        of = f" of {source.total:,}" if source.total else ""
        print(f"anabranch: {self._label}: {source.done:,}{of} {source.unit}", file=sys.stderr)

    def _advance(self) -> None:
        self._bar.update(self._source.done - self._shown)
        self._shown = self._source.done
