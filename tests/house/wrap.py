"""Wraps paragraphs and lists of pages at 100 columns: ``python -m tests.house.wrap [PAGE ...]``.

Tables, code, headings, comments and front matter stay as they are, and so does a word, a code span
or the address of a link that is longer than a line. Lines that fit are not joined, so a page
changes only from a long line to the end of its paragraph.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.house.markdown import pages, path_of

COLUMNS: Final = 100

_FENCE: Final = re.compile(r"\s*(`{3,}|~{3,})")
_ITEM: Final = re.compile(r"(\s*)(?:[-*+]|\d+\.)\s+")
_KEPT: Final = re.compile(r"\s*(?:\||#{1,6} |>|<|\[[^\]]+\]: |!!!|---$|===|\*\*\*$)")
_ATOM: Final = re.compile(r"(?:(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)|\S)+")
_NOT_FIRST: Final = re.compile(r"[-+*]$|\d+[.)]$|#|>|\||=+$|-+$|:|<|~~~|```|\[.*\]:")
"""What would begin something else than a paragraph, if it began a line."""


def wrapped_pages() -> list[str]:
    """Pages that people write: those that programs write have the form of the program."""
    return [
        name
        for name, text in pages().items()
        if not text.startswith("<!-- Made by")
        and not name.startswith("benchmarks/results/")
        and name != "CHANGELOG.md"
    ]


def wrapped(text: str) -> str:
    """The page, with all long lines of its paragraphs and lists broken."""
    return "\n".join(_lines(text.split("\n")))


def _lines(lines: list[str]) -> Iterator[str]:
    fence = ""
    in_list = False
    paragraph: list[str] = []
    front = bool(lines) and lines[0] == "---"
    comment = False
    for number, line in enumerate(lines):
        if front or comment or fence:
            yield line
            front = front and (number == 0 or line != "---")
            comment = comment and "-->" not in line
            if fence and line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        opening = _FENCE.match(line)
        item = _ITEM.match(line)
        code = line.startswith("    ") and not paragraph and not in_list
        comment = line.lstrip().startswith("<!--") and "-->" not in line
        if opening or not line.strip() or code or _KEPT.match(line):
            yield from _broken(paragraph)
            paragraph = []
            yield line
            fence = opening[1] if opening else ""
            in_list = in_list and (not line.strip() or line.startswith(" "))
            continue
        if item or (not paragraph and not line.startswith(" ")):
            yield from _broken(paragraph)
            paragraph = []
            in_list = bool(item)
        paragraph.append(line)
    yield from _broken(paragraph)


def _broken(paragraph: list[str]) -> Iterator[str]:
    """A paragraph or an item, with long lines broken and what is too much in the next line."""
    if any(line.endswith(("  ", "\\")) for line in paragraph):
        yield from paragraph
        return
    rest = ""
    for number, line in enumerate(paragraph):
        indent = _indent(paragraph, number)
        rest = f"{rest} {line.strip()}" if rest else line
        while len(rest) > COLUMNS and (cut := _place(rest)):
            yield rest[:cut].rstrip()
            rest = _continuation(paragraph, indent) + rest[cut:].lstrip()
        if len(rest) <= COLUMNS and number + 1 < len(paragraph) and rest == line:
            yield rest
            rest = ""
    if rest:
        yield rest


def _indent(paragraph: list[str], number: int) -> str:
    line = paragraph[number]
    return line[: len(line) - len(line.lstrip())]


def _continuation(paragraph: list[str], indent: str) -> str:
    """What the next line of this paragraph begins with."""
    item = _ITEM.match(paragraph[0])
    if len(paragraph) > 1:
        return _indent(paragraph, 1)
    return " " * len(item[0]) if item else indent


def _place(line: str) -> int:
    """Where a long line is to be broken: in front of a word; 0 if nowhere."""
    item = _ITEM.match(line)
    start = item.end() if item else len(line) - len(line.lstrip())
    best = 0
    for atom in _ATOM.finditer(line, start):
        at = atom.start()
        if at == start or _NOT_FIRST.match(atom[0]):
            continue
        if at - 1 <= COLUMNS or not best:
            best = at
        if at - 1 > COLUMNS:
            break
    return best


def main(names: list[str]) -> None:
    """Wrap the named pages, or all."""
    for name in names or wrapped_pages():
        path = path_of(name) if name in pages() else Path(name)
        text = path.read_text("utf-8")
        if (new := wrapped(text)) != text:
            path.write_text(new, "utf-8")
            sys.stdout.write(f"{name}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
