"""Just enough Markdown: pages, fences, code spans, links, anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.support.servers import REPOSITORY

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_INDENTED = re.compile(r"(?<=\n\n)(?:    [^\n]*\n)+")


@dataclass(frozen=True, slots=True)
class Fence:
    """A block between lines of backticks."""

    language: str
    body: str


@cache
def pages() -> dict[str, str]:
    """Path inside the repository, and text, of every page."""
    found = [
        *REPOSITORY.glob("*.md"),
        *(REPOSITORY / "docs").rglob("*.md"),
        *(REPOSITORY / "docker").glob("*.md"),
        *(REPOSITORY / "benchmarks").rglob("*.md"),
        *(REPOSITORY / "examples").rglob("*.md"),
    ]
    return {str(path.relative_to(REPOSITORY)): path.read_text("utf-8") for path in sorted(found)}


def fences(text: str, language: str | None = None) -> list[Fence]:
    """The blocks of a page, or those in one language."""
    found = [Fence(each["info"].strip(), each["body"]) for each in _FENCE.finditer(text)]
    return [each for each in found if language in (None, each.language)]


def code_spans(text: str) -> Iterator[str]:
    """What stands between backticks in running text."""
    for match in _SPAN.finditer(_without_blocks(text)):
        yield " ".join(match[2].split())


def links(text: str) -> Iterator[str]:
    """Targets of links and pictures."""
    for match in _LINK.finditer(_SPAN.sub("", _without_blocks(text))):
        yield match[1]


def anchors(text: str) -> set[str]:
    """What a link to a heading of the page may name, as forges make it of the heading."""
    seen: dict[str, int] = {}
    for match in _HEADING.finditer(_FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match[1]).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        count = seen.get(slug, 0)
        seen[slug] = count + 1
        if count:
            seen[f"{slug}-{count}"] = 1
    return set(seen)


def _without_blocks(text: str) -> str:
    return _INDENTED.sub("", _FENCE.sub("", text))


def path_of(page: str) -> Path:
    """Where a page lies."""
    return REPOSITORY / page
