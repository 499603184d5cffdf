"""The classes of the project: where their names are defined, and how many methods they have."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["ClassName", "Definition", "class_names", "classes_of", "methods_of"]

ClassName = tuple[str, str]
"""Module and name."""


class Definition(NamedTuple):
    """A class: its bases, as far as they are classes of ours, and its own methods."""

    bases: list[ClassName]
    methods: set[str]


def classes_of(root: Path) -> dict[ClassName, Definition]:
    """All classes at the top of the modules below a folder."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        module = _module(path, root)
        tree = ast.parse(path.read_text("utf-8"))
        origins = {
            each.asname or each.name: (node.module, each.name)
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for each in node.names
        }
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).partition("[")[0] for base in node.bases]
                found[module, node.name] = Definition(
                    [_origin(base, module, origins) for base in bases],
                    {each.name for each in node.body if isinstance(each, _FUNCTIONS)},
                )
    return found


def class_names(root: Path) -> list[ClassName]:
    """Every class below a folder, those inside of classes and functions included."""
    return [
        (_module(path, root), node.name)
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _origin(base: str, module: str, origins: Mapping[str, ClassName]) -> ClassName:
    """Where a base is defined that may be written with its module, such as ``frames.Row``."""
    above, _, name = base.rpartition(".")
    if above:
        return ".".join(origins.get(above, (above,))), name
    return origins.get(name, (module, name))


def methods_of(name: ClassName, classes: Mapping[ClassName, Definition]) -> set[str]:
    """The own and inherited methods of a class; those of classes of others do not count."""
    if name not in classes:
        return set()
    bases, methods = classes[name]
    return methods.union(*(methods_of(base, classes) for base in bases))
