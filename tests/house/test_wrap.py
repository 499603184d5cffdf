"""Paragraphs and lists of pages have lines of at most 100 columns."""

from __future__ import annotations

import pytest

from tests.house.markdown import pages
from tests.house.wrap import COLUMNS, wrapped, wrapped_pages


@pytest.mark.parametrize("name", wrapped_pages())
def test_lines_fit(name: str) -> None:
    text = pages()[name]
    assert text == wrapped(text), f"run: python -m tests.house.wrap {name}"


WORDS = " ".join(["word"] * 30)
LONG_SPAN = "`" + " ".join(["code"] * 30) + "`"


@pytest.mark.parametrize(
    "text",
    [
        f"| {WORDS} | {WORDS} |",
        f"# {WORDS}",
        f"```\n{WORDS}\n```",
        f"- an item:\n\n  ```text\n  {WORDS}\n  ```",
        f"text\n\n    {WORDS}",
        f"---\ntitle: {WORDS}\n---\ntext",
        f"<!-- {WORDS}\n{WORDS} -->",
        f"{WORDS[:60]}  \n{WORDS}",
        "short\nlines\nstay",
        LONG_SPAN,
    ],
)
def test_what_is_no_running_text_stays(text: str) -> None:
    assert wrapped(text) == text


@pytest.mark.parametrize("start", ["", "- ", "12. ", "  - "])
def test_a_long_line_is_broken_between_words(start: str) -> None:
    lines = wrapped(f"{start}{WORDS}\n{' ' * len(start)}{WORDS}\n\nend").split("\n")
    assert all(len(line) <= COLUMNS for line in lines)
    assert (
        " ".join(line.strip() for line in lines).strip() == f"{start}{WORDS} {WORDS}  end".strip()
    )
    assert all(line.startswith(" " * len(start)) for line in lines[1:-2])


def test_no_line_begins_with_what_would_be_a_list() -> None:
    text = f"{'x' * 96} 2. or - or # or 3) end {'y' * 80}"
    assert all(line[0] in "xoey" for line in wrapped(text).split("\n"))


def test_a_code_span_stays_in_one_line() -> None:
    text = f"{'x' * 90} `XADD key * field value` {'y' * 80}"
    assert "`XADD key * field value`" in wrapped(text)
