"""Runs tests on mutations, each in a process of its own that ends with it.

The parent has imported the libraries but nothing of the server. A child installs a finder for
modules that gives one of them another syntax tree, and then runs pytest on the tests that reach the
mutation. No file is changed.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import pytest

from tests.mutations.places import Place, marked, mutated, places

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = REPOSITORY / "src"
PACKAGES: Final = ("stream", "effects", "region", "replication", "oplog", "node")
COMMANDS: Final = ("bulk", "counters", "dump", "expiry", "idempotency", "regional", "stream")
FAST: Final = (
    tuple(f"tests/unit/commands/test_{name}*.py" for name in COMMANDS),
    ("tests/active_active",),
    (*(f"tests/unit/{name}" for name in (*PACKAGES, "keyspace")), "tests/crashes"),
)
"""Tests without sockets and processes, for a process each; the histories are among them."""

LIBRARIES: Final = ("hypothesis", "redis", "hiredis", "msgspec", "zstandard", "click", "uvloop")
"""Imported once for all children."""

FIRST_S: Final = 2.0
THEN_S: Final = 12.0
"""Processor time that the tests of a first and a second try take without a mutation."""

ENDLESS: Final = 10.0
"""So many times the usual processor time, and no end: the mutation has made a loop endless."""

MEMORY_BYTES: Final = 4 << 30
SIMULATED: Final = range(1, 7)
MINUTES: Final = 0.05
_CALL: Final = "__anabranch_reached__"

Tree = Callable[[str], ast.Module]
"""From the source of a module to what is compiled."""

Reached = dict[str, dict[str, float]]
"""For each mark the tests that reach it, with their processor time in seconds."""


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles a module from another tree, and leaves the cache of compiled files alone."""

    def __init__(self, name: str, path: str, tree: Tree) -> None:
        super().__init__(name, path)
        self._tree = tree

    def get_code(self, fullname: str) -> CodeType:
        """Compile the changed tree; line numbers are those of the file."""
        path = self.get_filename(fullname)
        tree = self._tree(Path(path).read_text("utf-8"))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, trees: Mapping[str, Tree]) -> None:
        self._trees = trees

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module whose tree is changed."""
        tree = self._trees.get(fullname)
        if tree is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.origin is not None
        return importlib.util.spec_from_file_location(
            fullname, spec.origin, loader=_Loader(fullname, spec.origin, tree)
        )


class _Noting:
    """Notes which marks each test reaches, and how much processor time it takes."""

    def __init__(self) -> None:
        self.marks: set[str] = set()
        self.reached: Reached = defaultdict(dict)
        self._failed: set[str] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """Around each test."""
        self.marks.clear()
        before = time.process_time()
        result = yield
        took = time.process_time() - before
        if item.nodeid not in self._failed:
            for mark in self.marks:
                self.reached[mark][item.nodeid] = took
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails without a mutation proves nothing about one."""
        if report.failed:
            self._failed.add(report.nodeid)


def import_libraries() -> None:
    """Import what tests need, but nothing of the server."""
    for name in LIBRARIES:
        importlib.import_module(name)


def all_places() -> list[Place]:
    """Every possible mutation of the packages."""
    found = []
    for package in PACKAGES:
        for path in sorted((SOURCES / "anabranch" / package).rglob("*.py")):
            module = ".".join(path.relative_to(SOURCES).with_suffix("").parts)
            found += places(module.removesuffix(".__init__"), path.read_text("utf-8"))
    return found


def note_tests(sample: Sequence[Place], tests: Sequence[str]) -> Reached:
    """Run tests once, without mutations: which of the sample does each test reach?"""
    numbers: dict[str, dict[int, str]] = defaultdict(dict)
    for place in sample:
        numbers[place.module][place.number] = place.name

    def run() -> int:
        noting = _Noting()
        setattr(builtins, _CALL, noting.marks.add)
        trees = {
            module: lambda source, each=each: marked(source, each, _CALL)
            for module, each in numbers.items()
        }
        found = [str(path) for pattern in tests for path in sorted(REPOSITORY.glob(pattern))]
        _pytest(trees, [noting], ["-q", *found])
        into.write(json.dumps(noting.reached))
        into.flush()
        return 0

    with tempfile.TemporaryFile("w+") as into:
        assert _in_child(run, None) == 0, f"{tests} fail without a mutation"
        into.seek(0)
        reached: Reached = json.load(into)
    return reached


def verdict(place: Place, reached: Mapping[str, float]) -> str:
    """``killed by tests``, ``killed by the simulator``, ``survived``, or ``not reached``."""
    first, rest = _chosen(reached)
    for tests in (first, rest):
        if tests and _is_noticed(place, tests, sum(reached[each] for each in tests)):
            return "killed by tests"
    limit = 20 + ENDLESS * len(SIMULATED)
    if _in_child(lambda: _simulate(place), limit) != 0:
        return "killed by the simulator"
    return "survived" if reached else "not reached"


def _chosen(reached: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """The quickest tests, of as many files as possible; then others, up to a limit."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(reached, key=reached.__getitem__):
        files[test.partition("::")[0]].append(test)
    rounds = [
        (at, reached[test], test) for tests in files.values() for at, test in enumerate(tests)
    ]
    spent = 0.0
    first: list[str] = []
    rest: list[str] = []
    for _, seconds, test in sorted(rounds):
        spent += seconds
        if spent < FIRST_S or not first:
            first.append(test)
        elif spent < FIRST_S + THEN_S:
            rest.append(test)
    return first, rest


def _is_noticed(place: Place, tests: Sequence[str], usual_s: float) -> bool:
    def run() -> int:
        return _pytest(_trees(place), [], ["-x", "-qq", *tests])

    return _in_child(run, 20 + ENDLESS * usual_s) != 0


def _simulate(place: Place) -> int:
    sys.meta_path.insert(0, _Finder(_trees(place)))
    simulate = importlib.import_module("anabranch.simulator.runs").simulate
    return int(any(simulate(seed, minutes=MINUTES).problem is not None for seed in SIMULATED))


def _trees(place: Place) -> dict[str, Tree]:
    return {place.module: lambda source: mutated(source, place.number)}


def _pytest(trees: Mapping[str, Tree], plugins: list[Any], arguments: Sequence[str]) -> int:
    sys.meta_path.insert(0, _Finder(trees))
    fixed = ["-p", "no:cacheprovider", "-p", "no:anabranch", "-p", "no:xdist"]
    fixed += ["--assert=plain", "--timeout=300"]  # pytest would put its own finder before ours
    return int(pytest.main([*fixed, *arguments], plugins))


def _in_child(run: Callable[[], int], limit_s: float | None) -> int:
    """What a child returns; not 0 as well if it dies, or needs more processor time than this."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 70
    try:
        if limit_s is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 5))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        status = run()
    finally:
        os._exit(status)
