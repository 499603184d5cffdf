"""Progress of a command on standard error, so that its output can be piped on."""

from __future__ import annotations

import sys
import time
from typing import Any, Final, Self

import click

from anabranch.cli.interrupts import end_as_ctrl_c

_SHOWN_AFTER_S: Final = 1.0
_LINE_S: Final = 3.0
_BAR_S: Final = 0.1


class Progress:
    """A bar on a terminal, elsewhere a line every few seconds; use it in a ``with`` statement.

    Nothing is shown during the first second, but the bar of what is counted in a ``unit``.
    """

    def __init__(
        self, label: str, total: int | None, *, unit: str = "", quiet: bool = False
    ) -> None:
        """Lines show percentages, or counts if there is a ``unit``.

        ``quiet``: the output goes to the same terminal, so there is no bar.
        """
        self.total = total
        """May be set later; without it there is no bar."""
        self._label = label
        self._unit = unit
        self._bar: Any = None
        self._done = 0
        self._shown = 0
        self._on_terminal = sys.stderr.isatty()
        self._next = time.monotonic() + _SHOWN_AFTER_S
        if self._on_terminal and (quiet or unit):
            self._next = float("inf") if quiet else 0.0

    def __enter__(self) -> Self:
        """Begin: nothing is shown before the first line."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the line of the bar, if there is one."""
        if self._bar is not None:
            self._bar.update(self._done - self._shown)
            self._bar.__exit__(None, None, None)

    def update(self, done: int) -> None:
        """Set the progress; cheap enough to be called always."""
        self._done = done
        now = time.monotonic()
        if now < self._next:
            return
        if not (self._on_terminal and self.total):
            self._next = now + _LINE_S
            print(f"anabranch: {self._label}: {self._figure(done)}", file=sys.stderr)
            return
        self._next = now + _BAR_S
        if self._bar is None:
            end_as_ctrl_c()  # so that the cursor, which the bar hides, comes back
            self._bar = click.progressbar(length=self.total, label=self._label, file=sys.stderr)
            self._bar.__enter__()
        self._bar.update(done - self._shown)
        self._shown = done

    def _figure(self, done: int) -> str:
        if self._unit:
            of = f" of {self.total:,}" if self.total else ""
            return f"{done:,}{of} {self._unit}"
        return f"{100 * done // max(self.total or 0, 1)} %"
