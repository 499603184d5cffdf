"""The guides are run from their first block to their last, as a reader would run them.

A block `sh` is typed into a shell, line by line; `anabranch serve` stays in the background. A block
`python` continues the earlier ones of its page. A block `text` is what the block before it prints.
Sessions with redis-cli (`console`) are run by tests/house/test_sessions.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.guides.reader import Reader, same
from tests.house.markdown import Fence, fences, pages

pytestmark = pytest.mark.skipif(
    not any((Path(each) / "redis-cli").exists() for each in os.get_exec_path()),
    reason="redis-cli is not installed: THE GUIDES ARE NOT RUN",
)


def follow(page: str, reader: Reader) -> Iterator[tuple[Fence, str, str]]:
    """Block, what it prints, and what the page says that it prints (or empty)."""
    blocks = [each for each in fences(pages()[page]) if each.language in {"sh", "python", "text"}]
    for block, after in zip(blocks, [*blocks[1:], Fence("sh", "")], strict=True):
        if block.language != "text":
            printed = (
                reader.shell(block.body) if block.language == "sh" else reader.python(block.body)
            )
            yield block, printed, after.body if after.language == "text" else ""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    one = Reader(tmp_path)
    try:
        yield one
    finally:
        one.close()


@pytest.mark.parametrize("page", ["docs/quickstart.md"])
def test_a_guide_with_a_shell_prints_what_it_shows(reader: Reader, page: str) -> None:
    shown_at_all = 0
    for block, printed, shown in follow(page, reader):
        if shown:
            shown_at_all += 1
            assert same(printed) == same(reader.here(shown)), block.body
    assert shown_at_all == len(fences(pages()[page], "text"))


@pytest.mark.parametrize("page", ["docs/consumers.md", "docs/migrating.md", "docs/scripting.md"])
def test_a_guide_in_python_prints_what_it_shows(reader: Reader, page: str) -> None:
    if page == "docs/scripting.md":
        pytest.importorskip("lupa", reason="lupa is not installed: THE GUIDE TO SCRIPTS IS NOT RUN")
    (reader.directory / "data").mkdir()
    reader.serve("anabranch serve --dir data")
    shown_at_all = 0
    for block, printed, shown in follow(page, reader):
        shown_at_all += bool(shown)
        assert printed == shown, block.body
    assert shown_at_all >= 2
