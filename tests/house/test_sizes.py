"""How much the plain installation takes on the disk: what `pip install .` brings along."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, requires

import pytest
from packaging.requirements import Requirement

from tests.support.servers import REPOSITORY

DEPENDENCIES_MB_MAX = 52
"""The core, compiled and as sources, takes some 22 more; decision 19 says why it is not less."""


def needed(lines: list[str]) -> set[str]:
    """The names of packages that requirements install here, without extras."""
    found: set[str] = set()
    for each in map(Requirement, lines):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            found |= {each.name} | needed(requires(each.name) or [])
    return found


def megabytes(name: str) -> float:
    """What the files of a package take."""
    places = (file.locate() for file in distribution(name).files or ())
    return sum(place.stat().st_size for place in places if place.is_file()) / 1e6


def test_what_a_plain_installation_needs_is_small() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    try:
        names = needed(settings["project"]["dependencies"])
    except PackageNotFoundError as problem:
        pytest.skip(f"{problem} is not installed: THE SIZE IS NOT MEASURED")
    sizes = {name: round(megabytes(name), 1) for name in sorted(names)}
    assert "uvloop" in sizes
    assert sum(sizes.values()) < DEPENDENCIES_MB_MAX, sizes
    packages = " ".join(sizes)
    assert not re.search("pygments|rich|cffi", packages, re.IGNORECASE), packages
