"""What the modules that `make wheel` compiles must not contain, because mypyc changes its meaning.

The interpreter would run it as everybody expects, so no other test finds it before the compiled
form is tested (`make test-compiled`).
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import REPOSITORY

TARGETS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
NAMES: list[str] = TARGETS["build"]["targets"]["wheel"]["hooks"]["custom"]["modules"]

EAGER = frozenset(
    "Ranges SortedList all any dict extend frozenset fromkeys join list max min next set sorted "
    "sum tuple update".split()
)
"""What takes all items of its argument at once; for ``next`` mypyc writes a loop."""


def source(name: str) -> Path:
    return REPOSITORY / "src" / Path(*name.split(".")).with_suffix(".py")


def trees() -> Iterator[tuple[str, ast.Module]]:
    for name in NAMES:
        yield name, ast.parse(source(name).read_text("utf-8"))


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_each_is_listed_once_in_order_and_exists() -> None:
    assert sorted(set(NAMES)) == NAMES
    assert [name for name in NAMES if not source(name).is_file()] == []


def test_generator_expressions_are_consumed_at_once() -> None:
    """mypyc makes a list of a generator expression: what is to be lazy is a function with yield."""
    lazy = []
    for name, tree in trees():
        consumed = {
            argument
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and last_name(call.func) in EAGER
            for argument in call.args
        } | {loop.iter for loop in ast.walk(tree) if isinstance(loop, ast.comprehension)}
        lazy += [
            f"{name}:{each.lineno}"
            for each in ast.walk(tree)
            if isinstance(each, ast.GeneratorExp) and each not in consumed
        ]
    assert lazy == []


def test_attributes_that_are_read_from_a_class_are_declared_as_such() -> None:
    """Without ClassVar mypyc makes an attribute of each object, which the class does not have."""
    code = "\n".join(path.read_text("utf-8") for path in (REPOSITORY / "src").rglob("*.py"))
    undeclared = []
    for name, tree in trees():
        for kind in ast.walk(tree):
            if not isinstance(kind, ast.ClassDef) or kind.decorator_list:
                continue
            if any(last_name(base).endswith("Enum") for base in kind.bases):
                continue
            for each in kind.body:
                targets = each.targets if isinstance(each, ast.Assign) else []
                undeclared += [
                    f"{name}:{each.lineno}"
                    for target in targets
                    if re.search(rf"\b{kind.name}\.{last_name(target)}\b", code)
                ]
    assert undeclared == []


def test_no_bound_of_a_slice_is_an_assignment() -> None:
    """In ``data[low : (low := high)]`` mypyc reads ``low`` after the assignment: it is empty."""
    assigned = [
        f"{name}:{each.lineno}"
        for name, tree in trees()
        for bounds in ast.walk(tree)
        if isinstance(bounds, ast.Slice)
        for each in ast.walk(bounds)
        if isinstance(each, ast.NamedExpr)
    ]
    assert assigned == []


def test_exceptions_of_different_types_have_different_names() -> None:
    """In ``except A as it`` and later ``except B as it`` mypyc expects an A both times."""
    shared = []
    for name, tree in trees():
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            kinds: dict[str, str] = {}
            for each in ast.walk(function):
                if isinstance(each, ast.ExceptHandler) and each.name and each.type:
                    kind = ast.unparse(each.type)
                    if kinds.setdefault(each.name, kind) != kind:
                        shared.append(f"{name}:{each.lineno}")
    assert shared == []
