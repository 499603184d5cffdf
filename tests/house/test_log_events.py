"""Every event that the server logs is documented, and every documented one is logged."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from tests.support.servers import REPOSITORY

SOURCE = REPOSITORY / "src/anabranch"
LEVELS = {"debug", "verbose", "info", "warning", "error"}
PAGES = ("operations.md", "active-active-operating.md")

_LEVEL = re.compile(rf'"(?:{"|".join(sorted(LEVELS))})"')  # parsing takes long
_NAME = re.compile(r"[a-z_]+\.[a-z_]+")
_ROW = re.compile(r"^\| ((?:`[a-z_.]+`(?:, )?)+) \| [a-z, ]+ \|", re.MULTILINE)


def named() -> Iterator[str]:
    """Names of events in calls that begin with a level: ``emit("info", "server.stopped")``."""
    for text in (path.read_text("utf-8") for path in SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(text)) if _LEVEL.search(text) else ():
            if not isinstance(node, ast.Call):
                continue
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            for level, name in pairwise(words):
                if level in LEVELS and isinstance(name, str) and _NAME.fullmatch(name):
                    yield name


def documented() -> Iterator[str]:
    """Names in the tables of events."""
    for page in PAGES:
        for row in _ROW.findall((REPOSITORY / "docs" / page).read_text("utf-8")):
            yield from (name for name in re.findall(r"`([^`]+)`", row) if _NAME.fullmatch(name))


def test_events_and_their_documents_agree() -> None:
    in_code, in_documents = set(named()), set(documented())
    assert len(in_code) > 40
    assert in_code - in_documents == set(), "not documented"
    source = "".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    gone = {name for name in in_documents - in_code if f'"{name}"' not in source}
    assert gone == set(), "not logged any more"
