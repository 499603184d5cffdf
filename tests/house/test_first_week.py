"""`docs/first-week.md`: its files, its changes and its tests are in the code as it says."""

from __future__ import annotations

import re

import pytest

from tests.house.markdown import fences, pages
from tests.support.servers import REPOSITORY

PAGE = pages()["docs/first-week.md"]
_READING = re.compile(r"^## \d\. .+?(?=^## )", re.M | re.S)
_PATH = re.compile(r"`([a-z_]+/[\w/]+\.py)`")
_TEST = re.compile(r"`(test_\w+)`")
READINGS = _READING.findall(PAGE)


def changes() -> list[tuple[str, list[str]]]:
    """The file of each change, and the lines that it takes away."""
    found = []
    for fence in fences(PAGE, "diff"):
        head, *rest = fence.body.splitlines()
        found.append((head.removeprefix("--- "), [x[1:] for x in rest if x.startswith("-")]))
    return found


def test_there_are_five_readings_with_a_change_each() -> None:
    assert [reading[3] for reading in READINGS] == ["1", "2", "3", "4", "5"]
    assert all(reading.count("**Try it.**") == 1 for reading in READINGS)
    assert all("pytest -q tests/" in reading for reading in READINGS)


@pytest.mark.parametrize(("path", "lines"), changes())
def test_a_change_begins_at_lines_of_the_code(path: str, lines: list[str]) -> None:
    text = (REPOSITORY / path).read_text("utf-8")
    assert lines
    assert text.count("\n".join(["", *lines, ""])) == 1, lines


@pytest.mark.parametrize("reading", READINGS, ids=lambda reading: str(reading.splitlines()[0]))
def test_files_and_tests_that_a_reading_names_are_there(reading: str) -> None:
    for path in _PATH.findall(reading):
        places = [REPOSITORY / path, REPOSITORY / "src" / "anabranch" / path]
        assert any(place.is_file() for place in places) or path.endswith("test_xfirst.py"), path
    run = re.findall(r"tests/[\w/]+\.py", reading)
    tests = "".join(
        (REPOSITORY / path).read_text("utf-8") for path in run if (REPOSITORY / path).is_file()
    )
    assert tests
    for name in _TEST.findall(reading):
        assert f"def {name}(" in tests, name
