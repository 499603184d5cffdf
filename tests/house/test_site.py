"""The documentation site has every page once, in an order that somebody chose."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house import site
from tests.house.markdown import links, pages


class _Loader(yaml.SafeLoader):
    """Reads the file without making the functions that it names."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def configuration() -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(site.CONFIGURATION.read_text("utf-8"), _Loader)
    return found


def leaves(item: Any) -> Iterator[str]:
    if isinstance(item, str):
        yield item
    elif isinstance(item, dict):
        for inner in item.values():
            yield from leaves(inner)
    else:
        for inner in item:
            yield from leaves(inner)


def test_every_page_is_in_the_navigation_once() -> None:
    named = list(leaves(configuration()["nav"]))
    missing = set(pages()) - set(named)
    assert not missing, f"mkdocs.yml must name {missing} in its nav"
    assert sorted(named) == sorted(pages())


def test_the_site_loads_nothing_from_elsewhere_and_needs_no_plugin() -> None:
    whole = configuration()
    assert whole["theme"]["font"] is False
    assert whole["plugins"] == ["search"]
    for style in whole["extra_css"]:
        assert Path(style) in site.files()


@pytest.mark.parametrize("words", ["upgrade", "backup", "high availability", "exactly once"])
def test_what_people_search_for_is_a_heading(words: str) -> None:
    headings = [
        line.lower()
        for name, text in pages().items()
        if name.startswith("docs/")
        for line in text.splitlines()
        if line.startswith("#")
    ]
    assert any(words in each for each in headings)


def test_collected_pages_keep_their_paths(tmp_path: Path) -> None:
    (tmp_path / "old.md").write_text("")
    site.collect(tmp_path / "pages")
    for name, text in pages().items():
        copy = tmp_path / "pages" / name
        assert copy.read_text("utf-8") == text
        for target in links(text):
            file = target.partition("#")[0]
            if file and ":" not in file:
                assert (copy.parent / file).is_file(), f"{name} links to {target}"
