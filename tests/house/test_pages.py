"""Pages lead where they say, and say nothing that is true on one machine only."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.house.markdown import anchors, code_spans, links, pages, path_of
from tests.support.servers import REPOSITORY

_ONE_MACHINE = re.compile(r"(?<![\w.~])/(?:home|root|work|Users)/")
_PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*(?:\.(?:py|md|tsv|toml|conf|yaml|json)|/)")
_NAME = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|[a-z]+(?:_[a-z]+)+|[A-Z][a-z]+(?:[A-Z][a-z]+)+"
)
_EXAMPLES = (
    "my.conf",
    "server.crt",
    "server.key",
    "requests.py",
    "test_xfirst.py",
)
"""Files that only exist in an example."""

_VARIABLES = {"ctx": "Context", "dispatcher": "Dispatcher"}
"""What is meant by names that the code gives to instances."""

CODE_PAGES = [
    name
    for name in pages()
    if name in {"ARCHITECTURE.md", "CONTRIBUTING.md"}
    or name.startswith("docs/decisions/")
    or name
    in {
        "docs/first-week.md",
        "docs/limits.md",
        "docs/performance.md",
        "docs/proof.md",
        "docs/testing.md",
    }
]
"""Pages that speak about the code by name."""


@pytest.mark.parametrize("page", pages())
def test_links_resolve(page: str) -> None:
    for target in links(pages()[page]):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (path_of(page).parent / unquote(file)).resolve() if file else path_of(page)
        assert path.exists(), f"{page} links to {target}"
        assert path.is_relative_to(REPOSITORY), f"{page} links out of the repository: {target}"
        if anchor:
            assert anchor in anchors(path.read_text("utf-8")), f"{page} links to {target}"


@pytest.mark.parametrize(
    "page",
    [
        name
        for name in pages()
        if re.fullmatch(r"docs/[^/]+|(?:docker|benchmarks|examples/.*)/README.md", name)
    ],
)
def test_a_page_starts_with_what_the_reader_can_do_after_it(page: str) -> None:
    _, heading, rest = pages()[page].partition("# ")
    assert heading, page
    opening = rest.partition("\n")[2].lstrip()
    assert opening.startswith("After this page you "), f"{page} starts with: {opening[:60]}"


def test_the_overview_of_the_code_stays_short() -> None:
    """What grows there belongs on the page where its reader looks for it."""
    assert (REPOSITORY / "ARCHITECTURE.md").stat().st_size <= 22_000


def test_no_merge_was_left_unfinished() -> None:
    for path in sources("py", "md", "toml", "yaml", "sh", "tsv", "Makefile", "Dockerfile"):
        assert not re.search(r"^(?:<{7}|>{7}) ", path.read_text("utf-8"), re.M), path


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached = set()
    waiting = [REPOSITORY / "README.md"]
    while waiting:
        page = waiting.pop()
        name = str(page.relative_to(REPOSITORY))
        if name in reached or name not in pages():
            continue
        reached.add(name)
        waiting += [
            (page.parent / target.partition("#")[0]).resolve()
            for target in links(pages()[name])
            if not re.match(r"[a-z]+:|#", target)
        ]
    assert reached == set(pages())


def test_nothing_is_said_of_one_machine_only() -> None:
    for path in sources("py", "md", "toml", "yaml", "sh", "tsv", "Makefile", "Dockerfile"):
        if path != Path(__file__):
            assert not _ONE_MACHINE.search(path.read_text("utf-8")), path


@pytest.mark.parametrize("page", CODE_PAGES)
def test_files_that_are_named_exist(page: str) -> None:
    everything = {str(path.relative_to(REPOSITORY)) for path in sources()}
    folders = {str(Path(name).parent) + "/" for name in everything}
    for span in code_spans(pages()[page]):
        if not _PATH.fullmatch(span) or Path(span).name in _EXAMPLES or span.startswith(".."):
            continue
        ending = f"/{span}"
        assert any(
            f"/{name}".endswith(ending) or f"/{name}".startswith(ending)
            for name in everything | folders
        ), f"{page} names {span}"


@pytest.mark.parametrize("page", CODE_PAGES)
def test_names_that_are_used_occur_in_the_code(page: str) -> None:
    everywhere, inside = names_in_the_code()
    for span in code_spans(pages()[page]):
        name = span.partition("(")[0]
        if not _NAME.fullmatch(name) or _PATH.fullmatch(name) or "my_" in name:
            continue
        *owners, last = name.split(".")
        missing = [part for part in (*owners, last) if part not in everywhere]
        assert not missing, f"{page} speaks of {span}"
        owner = _VARIABLES.get(owners[-1], owners[-1]) if owners else ""
        if owner in inside and name not in events():
            assert last in inside[owner], f"{page} speaks of {span}"


@cache
def events() -> frozenset[str]:
    """Dotted names that are text in the code: events of the log."""
    texts = (path.read_text("utf-8") for path in sources("py"))
    return frozenset(name for text in texts for name in re.findall(r'"([a-z_]+\.[a-z_]+)"', text))


@cache
def names_in_the_code() -> tuple[frozenset[str], dict[str, set[str]]]:
    """All words of the code, and what is named inside each class, module and package."""
    words: set[str] = set()
    inside: dict[str, set[str]] = {}
    for path in sources("py", "toml", "Makefile"):
        text = path.read_text("utf-8")
        words.update(re.findall(r"\w+", text))
        if path.suffix == ".py" and path.is_relative_to(REPOSITORY / "src"):
            tree = ast.parse(text)
            defined = _defined(tree)
            inside.setdefault(path.stem, set()).update(defined)
            inside.setdefault(path.parent.stem, set()).update(defined)
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    inside.setdefault(node.name, set()).update(_defined(node))
    return frozenset(words), inside


def _defined(tree: ast.AST) -> set[str]:
    """Functions, classes and variables that are made in a piece of code."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def sources(*endings: str) -> list[Path]:
    """Files of the repository that people write."""
    found = [path for path in REPOSITORY.iterdir() if path.is_file()]
    for folder in ("src", "tests", "docs", "docker", "benchmarks"):
        found += [path for path in (REPOSITORY / folder).rglob("*") if path.is_file()]
    return [
        path
        for path in sorted(found)
        if not any(part.endswith("cache__") or "_cache" in part for part in path.parts)
        and path.suffix not in {".pyc", ".png", ".gz"}
        and (not endings or path.name.endswith(endings))
    ]
