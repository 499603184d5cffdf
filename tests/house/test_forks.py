"""How many lines ask whether there are several regions. A server alone is a region alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import REPOSITORY

FORKS_MAX = 30
"""May only shrink. What only one mode may do belongs into the row of the command, setting or
effect."""

_FORK = re.compile(
    r"\breplica is (not )?None"
    r"|\b(if|and|or|not) (\w+\.)*_?replica\b(?![.(])"
    r"|\bshared is (not )?(None|NOTHING_SHARED)"
    r"|\bisinstance\([^()]*\bShared\w*\)"
    r"|\b(if|and|or|not) (\w+\.)*creations\b(?![.(])"
    r"|\bis_alone\b|\.is_regional\b"
)


def forks(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*.py")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if _FORK.search(line.partition("#")[0]):
                yield f"{path.relative_to(folder)}:{number}: {line.strip()}"


def test_no_line_more_asks_whether_there_are_several_regions() -> None:
    found = list(forks(REPOSITORY / "src"))
    assert len(found) == FORKS_MAX, "\n".join(found)
