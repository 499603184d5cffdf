"""Where a module can be mutated, and how: pure functions from source to syntax trees.

A *place* is a node of the syntax tree with a change that keeps the program valid. Places are
numbered in the order in which the tree is walked, so a number means the same for equal sources.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult, ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.BitXor: ast.BitOr,
}  # fmt: skip
SPARED: Final = frozenset({"check", "__repr__", "__str__", "statistics"})
"""Functions for people and for tests."""


@dataclass(frozen=True, slots=True)
class Place:
    """One possible mutation: `number` is its place in the module, the rest is for people."""

    module: str
    number: int
    line: int
    function: str
    before: str
    after: str
    is_in_function: bool
    """Not in the body of a class, whose constants exist before a test begins."""
    which: int
    """1 for the first place of its function that reads like this."""
    code: str
    """A digest of its function, without comments."""

    @property
    def name(self) -> str:
        """The same as long as the function does not change: what the list of equivalents uses."""
        which = f" ({self.which})" if self.which > 1 else ""
        return f"{self.module}:{self.function}: {self.before} -> {self.after}{which}"


def places(module: str, source: str) -> list[Place]:
    """All mutations of a module, in the order of their numbers."""
    found = []
    seen: Counter[tuple[str, str, str]] = Counter()
    tree = ast.parse(source)
    codes = {
        name: hashlib.sha256(text.encode()).hexdigest()[:16]
        for name, text in _functions(tree, "").items()
    }
    for number, (function, node) in enumerate(list(_nodes(tree))):
        before, line = _text(node), _line(node)
        _change(node)
        what = (function, before, _text(node))
        seen[what] += 1
        is_inside = not function.rpartition(".")[2].lstrip("_")[:1].isupper()
        found.append(Place(module, number, line, *what, is_inside, seen[what], codes[function]))
    return found


def sampled(everything: Sequence[Place], seed: int) -> list[Place]:
    """All places in an order that a seed gives: a change of the sources moves few of them."""
    return sorted(
        (each for each in everything if each.is_in_function),
        key=lambda place: hashlib.sha256(f"{seed} {place.name}".encode()).digest(),
    )


def mutated(source: str, number: int) -> ast.Module:
    """The tree of a module with the mutation of this number."""
    tree = ast.parse(source)
    _, node = list(_nodes(tree))[number]
    _change(node)
    return ast.fix_missing_locations(tree)


def marked(source: str, numbers: dict[int, str], call: str) -> ast.Module:
    """The tree of a module that calls the builtin `call` with a mark before each place."""
    tree = ast.parse(source)
    targets = [
        (node, numbers[each]) for each, (_, node) in enumerate(_nodes(tree)) if each in numbers
    ]
    for node, mark in targets:
        _mark(tree, node, mark, call)
    return ast.fix_missing_locations(tree)


def _functions(tree: ast.AST, outer: str) -> dict[str, str]:
    """By name the functions and classes of a tree; the parts of a property are one."""
    found: dict[str, str] = {}
    for node in ast.iter_child_nodes(tree):
        name = outer
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = f"{outer}.{node.name}" if outer else node.name
            found[name] = found.get(name, "") + ast.dump(node)
        for inner, text in _functions(node, name).items():
            found[inner] = found.get(inner, "") + text
    return found


def _nodes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    yield from _below(tree, "")


def _below(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """The nodes inside functions that can be changed, with the name of their function."""
    for field, value in ast.iter_fields(node):
        is_signature = field == "args" and not isinstance(value, list)  # not those of a call
        if is_signature or field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST):
                continue
            if isinstance(
                child, (ast.Assert, ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)
            ):
                continue
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                if child.name not in SPARED:
                    inner = f"{function}.{child.name}" if function else child.name
                    yield from _below(child, inner)
                continue
            if function and _can_change(child):
                yield function, child
            yield from _below(child, function)


def _can_change(node: ast.AST) -> bool:
    match node:
        case ast.Compare(ops=[op]):
            return type(op) in COMPARISONS
        case ast.BinOp(left=left, op=op, right=right):
            return type(op) in ARITHMETIC and not _is_text(left) and not _is_text(right)
        case ast.AugAssign(op=op, value=value):
            return type(op) in ARITHMETIC and not _is_text(value)
        case ast.BoolOp():
            return True
        case ast.UnaryOp(op=ast.Not()):
            return True
        case ast.If(test=ast.Name() | ast.Attribute() | ast.Call()):
            return True
        case ast.Constant(value=bool() | int()):
            return True
        case ast.Expr(value=ast.Call()):
            return True
        case ast.Assign(targets=[ast.Attribute()]):
            return True
        case ast.Continue():
            return True
    return False


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    )


def _change(node: ast.AST) -> None:
    """Mutate a node that :func:`_can_change` in place."""
    match node:
        case ast.Compare():
            node.ops = [COMPARISONS[type(node.ops[0])]()]
        case ast.BinOp() | ast.AugAssign():
            node.op = ARITHMETIC[type(node.op)]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            _become(node, ast.Call(ast.Name("bool", ast.Load()), [node.operand], []))
        case ast.If():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant():
            assert isinstance(node.value, int)
            node.value += 1
        case ast.Continue():
            _become(node, ast.Break())
        case _:
            _become(node, ast.Pass())


def _become(node: ast.AST, other: ast.AST) -> None:
    """Turn one node into another without its parent noticing."""
    for field in node._fields:
        delattr(node, field)
    node.__class__ = other.__class__  # type: ignore[assignment]
    for field, value in ast.iter_fields(other):
        setattr(node, field, value)


def _text(node: ast.AST) -> str:
    """What people see of a node: its first line."""
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return ast.unparse(ast.fix_missing_locations(node)).split("\n")[0][:120]


def _line(node: ast.AST) -> int:
    line: int = getattr(node, "lineno", 0)
    return line


def _mark(tree: ast.AST, node: ast.AST, mark: str, call: str) -> None:
    """Call before the statement of a node. Before an ``elif`` this makes ``else: call; if``."""
    path = _path(tree, node)
    at = max(i for i, each in enumerate(path) if isinstance(each, ast.stmt))
    reached = ast.Expr(ast.Call(ast.Name(call, ast.Load()), [ast.Constant(mark)], []))
    for _, value in ast.iter_fields(path[at - 1]):
        if isinstance(value, list) and any(each is path[at] for each in value):
            value.insert(next(i for i, each in enumerate(value) if each is path[at]), reached)
            return
    raise AssertionError("a statement is in no list")


def _path(tree: ast.AST, node: ast.AST) -> list[ast.AST]:
    """From the module to a node, both included."""
    if tree is node:
        return [tree]
    for child in ast.iter_child_nodes(tree):
        below = _path(child, node)
        if below:
            return [tree, *below]
    return []
