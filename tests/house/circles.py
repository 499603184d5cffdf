"""Import circles: sets of modules each of which needs, by way of the others, itself.

Every import counts, those for types only and those within functions too: who reads one module of a
circle has to know all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["circles", "imports_of"]


def imports_of(root: Path) -> dict[str, set[str]]:
    """What each module below a folder imports of the modules there."""
    paths = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: set(_imported(name, path, paths)) - {name} for name, path in paths.items()}


def _imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = parents[: len(parents) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for each in node.names:
                full = f"{base}.{each.name}"
                if full in known:
                    yield full
                elif base in known:
                    yield base


def circles(imports: Mapping[str, set[str]]) -> list[set[str]]:
    """The strongly connected components of two modules or more (Tarjan), the largest first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []
    for start in imports:
        if start in index:
            continue
        path = [(start, iter(imports[start]))]
        while path:
            module, rest = path[-1]
            if module not in index:
                index[module] = low[module] = len(index)
                stack.append(module)
            for other in rest:
                if other not in index:
                    path.append((other, iter(imports[other])))
                    break
                if other in stack:
                    low[module] = min(low[module], index[other])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[module])
                if low[module] == index[module]:
                    at = stack.index(module)
                    circle = set(stack[at:])
                    del stack[at:]
                    if len(circle) > 1:
                        found.append(circle)
    return sorted(found, key=len, reverse=True)
