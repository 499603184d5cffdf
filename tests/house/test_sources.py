"""What every file of the code owes its reader, and a few tables that must be whole."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.commands.table import COMMANDS
from anabranch.commands.table.rows import Deferred
from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS
from tests.support.servers import REPOSITORY

MODULES = [
    path
    for folder in ("src/anabranch", "tests", "benchmarks")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
]
_DOCSTRING = re.compile(r'(?:#.*\n|\n)*r?"""\S')
_MENTION = re.compile(r"\b(?:docs|tests|benchmarks)/[\w./-]+\.(?:py|md)\b")


def test_every_module_says_what_it_is() -> None:
    texts = {path: path.read_text("utf-8") for path in MODULES}
    assert [path for path, text in texts.items() if text and not _DOCSTRING.match(text)] == []


# Functions of more than 60 lines, and how many each has. A row may shrink or go; none may grow or
# be added: what needs more is a function of its own.
LONG_FUNCTIONS = {
    "region/region.py:Region._run": 111,
}


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definitions(node: ast.AST, name: str) -> Iterator[tuple[str, Definition]]:
    """Give each class and function below `node`, with its name as "file:Class.function"."""
    for child in ast.iter_child_nodes(node):
        inner = name
        if isinstance(child, Definition):
            inner = f"{name}{'' if name.endswith(':') else '.'}{child.name}"
            yield inner, child
        yield from definitions(child, inner)


def defined(root: Path) -> Iterator[tuple[str, Definition]]:
    """Give every class and function of the files below a folder."""
    for path in sorted(root.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        yield from definitions(tree, f"{path.relative_to(root)}:")


def test_no_function_above_60_lines_is_added_and_none_grows() -> None:
    found = {
        name: (node.end_lineno or node.lineno) - node.lineno + 1
        for name, node in defined(REPOSITORY / "src" / "anabranch")
        if not isinstance(node, ast.ClassDef)
    }
    assert {name: n for name, n in found.items() if n > LONG_FUNCTIONS.get(name, 60)} == {}


# Functions of more than 6 parameters, and how many each has, without self. A row may shrink or go;
# none may grow or be added: what belongs together is a small class.
WIDE_FUNCTIONS = {
    "commands/stream/readgroup.py:_history": 7,
    "effects/applier.py:Applier.add": 7,
    "effects/apply_stream.py:append_entry": 8,
    "engine/context.py:Context.block": 8,
    "engine/dispatch.py:Dispatcher.__init__": 7,
    "oplog/batch.py:batch_pieces": 7,
    "spark/reading/by_region.py:read_by_region": 8,
    "stream/groups/group.py:Group.hand_out": 8,
}


def width(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters a function has, without self."""
    given = node.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    rest = [each for each in (given.vararg, given.kwarg) if each is not None]
    return sum(each.arg not in {"self", "cls"} for each in [*named, *rest])


def test_no_function_with_more_than_6_parameters_is_added_and_none_grows() -> None:
    found = {
        name: width(node)
        for name, node in defined(REPOSITORY / "src" / "anabranch")
        if not isinstance(node, ast.ClassDef)
    }
    assert {name: n for name, n in found.items() if n > WIDE_FUNCTIONS.get(name, 6)} == {}


def test_no_docstring_sends_the_reader_elsewhere_before_it_says_anything() -> None:
    found = [
        name
        for name, node in defined(REPOSITORY / "src")
        if (ast.get_docstring(node) or "").startswith("See ")
    ]
    assert found == []


FORKS_MAX = 3
"""Places that ask whether they are compiled: the parser of requests, and what reports it."""


def test_there_is_one_spelling_for_both_forms() -> None:
    asking = [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for path in sorted((REPOSITORY / "src").rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"(?<!import )\bIS_COMPILED\b(?!,|: Final)", line)
    ]
    assert len(asking) <= FORKS_MAX, asking


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks"])
def test_files_that_the_code_mentions_exist(folder: str) -> None:
    gone = [
        f"{path.relative_to(REPOSITORY)}: {mention}"
        for path in (REPOSITORY / folder).rglob("*.py")
        if path != Path(__file__)
        for mention in _MENTION.findall(path.read_text("utf-8"))
        if not (REPOSITORY / mention).exists()
    ]
    assert gone == []


def effect_kinds() -> list[type[kinds.Effect]]:
    return [
        value
        for value in vars(kinds).values()
        if isinstance(value, type)
        and issubclass(value, kinds.Effect)
        and value not in (kinds.Effect, kinds.KeyEffect, kinds.GroupEffect)
    ]


def test_every_effect_kind_has_a_number_of_its_own_and_an_apply_function() -> None:
    assert set(EFFECTS) == set(effect_kinds())
    tags = Counter(kind.__struct_config__.tag for kind in effect_kinds())
    assert [tag for tag, count in tags.items() if count > 1] == []
    assert all(kind.__doc__ for kind in effect_kinds())


def test_functions_of_commands_take_a_context_and_the_request() -> None:
    """A row's type cannot name the context: here it is seen that functions agree."""
    for row in COMMANDS:
        for each in (row, *row.subcommands.values()):
            function = each.function
            if isinstance(function, Deferred):
                function = function.load()  # it exists: nothing else looks before the first call
            if function is not None:
                hints = [*inspect.get_annotations(function).items()]
                assert [kind for name, kind in hints if name != "return"] == [
                    "Context",
                    "list[bytes]",
                ], each.full_name
