"""What a terminal shows: colours, tables that fit into its width, and a screen of their own.

Off a terminal all of it is plain text.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

_GAP: Final = "  "
_NARROWEST: Final = 8
"""Cells below which no column is made narrower: the terminal folds the lines then."""


def is_terminal() -> bool:
    """Whether the output goes to a terminal."""
    return sys.stdout.isatty()


def obeys() -> bool:
    """Whether the output goes to a terminal that can place text and clear its screen."""
    return is_terminal() and os.environ.get("TERM") not in {"dumb", "unknown"}


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)


def columns() -> int:
    """The width of the terminal in cells."""
    return shutil.get_terminal_size().columns


def styled(
    text: str, colour: str | int | None = None, *, bold: bool = False, dim: bool = False
) -> str:
    """Text with a colour as :func:`click.style` names it; unchanged where colours are not wanted.

    They are not wanted off a terminal, on a dumb one, and with ``NO_COLOR`` in the environment.
    """
    if not obeys() or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=colour, bold=bold or None, dim=dim or None)


def cells(text: str) -> int:
    """How many cells of a terminal a text takes: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in text
    )


def age(ms: float | None) -> str:
    """``0.4 s``, ``12 s``, ``3 min``, ``5 h``; a dash if it is not known."""
    if ms is None:
        return "-"
    seconds = ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def shown(text: str | bytes) -> str:
    """Text of others, without what controls a terminal or breaks a line."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    return [line for row in rows for line, _ in _folded(row, widths)]


def wrapped(text: str, indent: int = 0) -> str:
    """Prose in lines that fit into the terminal; in one line elsewhere."""
    margin = " " * indent
    if not is_terminal():
        return margin + text
    width = max(columns(), indent + 20)
    return textwrap.fill(
        text, width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    )


def folded_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], colours: Sequence[str | int | None] = ()
) -> list[str]:
    """The lines of a table as wide as the terminal at most: wide columns are folded.

    ``colours`` has the colour of the first cell of each row.
    """
    widest = columns()
    wide = [min(max(map(cells, column)), widest) for column in zip(headings, *rows, strict=True)]
    while sum(wide) + len(_GAP) * (len(wide) - 1) > widest and max(wide) > _NARROWEST:
        wide[wide.index(max(wide))] -= 1
    lines = [styled(line, bold=True) for line, _ in _folded(headings, wide)]
    for number, row in enumerate(rows):
        colour = colours[number] if colours else None
        for line, first in _folded(row, wide):
            lines.append(styled(line[:first], colour) + line[first:] if colour else line)
    return lines


def _folded(row: Sequence[str], wide: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The lines of a row, and how many characters of each are of the first cell."""
    parts = [_pieces(text, width) for text, width in zip(row, wide, strict=True)]
    for level in range(max(map(len, parts))):
        texts = [pieces[level] if level < len(pieces) else "" for pieces in parts]
        padded = [
            text + " " * (width - cells(text)) for text, width in zip(texts, wide, strict=True)
        ]
        yield _GAP.join(padded).rstrip(), len(texts[0])


def _pieces(text: str, width: int) -> list[str]:
    pieces = [""]
    free = width
    for each in text:
        size = cells(each)
        if size > free:
            pieces.append("")
            free = width
        pieces[-1] += each
        free -= size
    return pieces


@contextmanager
def screen() -> Iterator[None]:
    """A screen of its own for :func:`show`; afterwards the terminal is as it was."""
    print("\x1b[?1049h\x1b[?25l", end="", flush=True)
    try:
        yield
    finally:
        print("\x1b[?25h\x1b[?1049l", end="", flush=True)


def show(lines: Sequence[str]) -> None:
    """Replace what the screen shows; lines below its end are left out."""
    fitting = lines[: shutil.get_terminal_size().lines]
    print(
        "\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in fitting) + "\x1b[J", end="", flush=True
    )
