"""Runs tests on mutations, each in a process of its own that ends with it. No file is changed.

First all tests run once, on modules in which calls mark the places of the sample: that tells which
test reaches which place. Then pytest imports and collects everything, and forks for each mutation;
the child replaces the code of one function and runs the tests that reach it. Other children let
the simulator and the exploration look at what survives.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import os
import resource
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import pytest

from tests.mutations.places import Place, marked, mutated, places

REPOSITORY: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = REPOSITORY / "src"
PACKAGES: Final = ("stream", "effects", "region", "replication", "oplog", "node")
COMMANDS: Final = (
    *("auto_groups", "blocking_c", "bulk", "counters", "dead_letters", "dump", "expiry", "gaps"),
    *("held_back", "idempotency", "key", "leases", "memory", "pending", "policies", "producer"),
    *("redelivery", "regional", "regions", "retention", "rows", "scheduled", "sealing", "slices"),
    *("stream", "subscribing", "transaction", "values"),
)
FAST: Final = (
    tuple(f"tests/unit/commands/test_{name}*.py" for name in COMMANDS),
    ("tests/active_active",),
    (*(f"tests/unit/{name}" for name in (*PACKAGES, "keyspace")), "tests/crashes"),
    (
        "tests/fuzzing",
        "tests/unit/rdb/test_stream_codec.py",
        "tests/unit/server/test_block_file.py",
    ),
)
"""Tests without sockets and processes, for a process each; the histories are among them."""

LIBRARIES: Final = ("hypothesis", "redis", "hiredis", "msgspec", "pyzstd", "click", "uvloop")
"""Imported once for all children."""

FIRST_S: Final = 2.0
TESTS_S: Final = 8.0
"""Processor time of the tests of a first try, and of all tests, without a mutation."""

ENDLESS: Final = 10.0
"""So many times the usual processor time, and no end: the mutation has made a loop endless."""

MEMORY_BYTES: Final = 4 << 30
SIMULATE: Final = "anabranch.simulator.faults:simulate"
SEARCH: Final = "anabranch.simulator.exploration.search:Search"
WORLD_NAMED: Final = "anabranch.simulator.exploration.worlds:world_named"
"""What :func:`named` finds once a mutation is there."""

SIMULATED: Final = range(1, 5)
MINUTES: Final = 0.05
"""Runs of the simulator, for what survives the tests."""

EXPLORED: Final = (
    *("claims", "flushes", "full-syncs", "full-syncs-of-tags", "renames", "retries-delivered"),
    *("skipped", "slow-disks"),
)
"""Worlds that are explored, for what survives the simulator: quick ones of all kinds."""

EXPLORED_S: Final = 20
"""More processor time than they take together without a mutation."""

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
        _pytest(trees, [noting], ["-q", *_paths(tests)])
        into.write(json.dumps(noting.reached))
        into.flush()
        return 0

    with tempfile.TemporaryFile("w+") as into:
        _, status = os.waitpid(_child(run, None), 0)
        assert status == 0, f"{tests} cannot be run without a mutation"
        into.seek(0)
        reached: Reached = json.load(into)
    return reached


def _chosen(
    reached: Mapping[str, float], tests_s: float, module: str
) -> tuple[list[str], list[str]]:
    """Those of the file that is named for the module, then the quickest, up to a limit.

    The quickest are of as many files as possible.
    """
    files: dict[str, list[str]] = defaultdict(list)
    for test in sorted(reached, key=reached.__getitem__):
        files[test.partition("::")[0]].append(test)
    own = f"test_{module.rpartition('.')[2]}.py"
    rounds = [
        (-1 if path.endswith(own) else at, reached[test], test)
        for path, tests in files.items()
        for at, test in enumerate(tests)
    ]
    spent = 0.0
    first: list[str] = []
    rest: list[str] = []
    for _, seconds, test in sorted(rounds):
        spent += seconds
        if spent < FIRST_S or not first:
            first.append(test)
        elif spent < tests_s:
            rest.append(test)
    return first, rest


class _Judging:
    """Forks a child for each mutation, when everything has been imported and collected."""

    def __init__(
        self,
        sample: Sequence[Place],
        reached: Reached,
        jobs: int,
        tell: Callable[[Place, str], object],
        *,
        tests_s: float,
        is_control: bool,
        goes_on: Callable[[], bool],
    ) -> None:
        self._tests_s = tests_s
        self._is_control = is_control
        self._goes_on = goes_on
        self._waiting = deque((place, 0) for place in sample)
        self._reached = reached
        self._jobs = jobs
        self._tell = tell

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of the loop that runs all tests."""
        if session.testsfailed:
            raise SystemExit("some tests cannot be collected")
        if _simulate(None) or _explore(None):
            raise SystemExit("something is wrong without a mutation")
        items = {item.nodeid: item for item in session.items}
        gc.freeze()  # or each child would copy what the collector of garbage touches
        running: dict[int, tuple[Place, int]] = {}
        while self._waiting or running:
            while self._waiting and len(running) < self._jobs:
                place, stage = self._waiting.popleft()
                if stage == 0 and not self._goes_on():
                    self._waiting = deque(each for each in self._waiting if each[1])
                    continue
                running[self._begin(place, stage, items, session)] = place, stage
            if not running:
                break
            pid, status = os.wait()
            self._end(*running.pop(pid), is_noticed=status != 0)
        return True

    def _begin(
        self, place: Place, stage: int, items: Mapping[str, pytest.Item], session: pytest.Session
    ) -> int:
        reached = self._reached[place.name]
        mutation = None if self._is_control else place
        if stage == 2:
            limit_s = 20 + ENDLESS * len(SIMULATED)
            return _child(lambda: _simulate(mutation), limit_s)
        if stage == 3:
            return _child(lambda: _explore(mutation), ENDLESS * EXPLORED_S)
        there = {test: reached[test] for test in reached if test in items}
        tests = _chosen(there, self._tests_s, place.module)[stage]
        limit_s = 20 + ENDLESS * sum(reached[each] for each in tests)
        return _child(lambda: _run(mutation, [items[each] for each in tests], session), limit_s)

    def _end(self, place: Place, stage: int, *, is_noticed: bool) -> None:
        if is_noticed:
            self._tell(place, f"killed by {('tests', 'tests', 'simulator', 'exploration')[stage]}")
        elif stage < (1 if self._is_control else 3):
            self._waiting.appendleft((place, stage + 1))
        else:
            self._tell(place, "survived" if self._reached[place.name] else "not reached")


def judge(
    sample: Sequence[Place],
    reached: Reached,
    jobs: int,
    tell: Callable[[Place, str], object],
    tests: Sequence[Sequence[str]],
    *,
    tests_s: float = TESTS_S,
    is_control: bool = False,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Tell of each what killed it, or that it ``survived`` or was ``not reached``.

    As a control nothing is mutated, so everything must survive its tests; the simulator and the
    exploration run once, before them. Once ``goes_on`` returns false no further one is begun.
    """
    found = [path for part in tests for path in _paths(part)]
    judging = _Judging(
        sample, reached, jobs, tell, tests_s=tests_s, is_control=is_control, goes_on=goes_on
    )
    if _pytest({}, [judging], ["-qq", *found]):
        raise SystemExit("the mutations were not judged: see above")


def _run(place: Place | None, items: list[pytest.Item], session: pytest.Session) -> int:
    """These tests, until one fails."""
    if not items:
        return 0
    _mutate(place)
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return 1
    return 0


def named(what: str) -> Any:
    """An object of a module of the server, which this module must not import."""
    module, _, name = what.partition(":")
    return getattr(importlib.import_module(module), name)


def _simulate(place: Place | None) -> int:
    simulate = named(SIMULATE)
    _mutate(place)
    return int(any(simulate(seed, minutes=MINUTES).problem is not None for seed in SIMULATED))


def _explore(place: Place | None) -> int:
    search = named(SEARCH)
    world = named(WORLD_NAMED)
    _mutate(place)
    return int(any(search(world(name)).run().problem is not None for name in EXPLORED))


def _mutate(place: Place | None) -> None:
    """Give the function that has the place, and all who know it, the mutated code."""
    if place is None:  # a control
        return
    module = importlib.import_module(place.module)
    assert module.__file__ is not None
    tree = mutated(Path(module.__file__).read_text("utf-8"), place.number)
    owner: Any = module
    for name in place.function.split("."):
        found = inspect.getattr_static(owner, name)
        if inspect.isclass(found):
            owner = found
            continue
        function = _function(found, place.line)
        code = _same(compile(tree, module.__file__, "exec"), function.__code__)
        if code.co_freevars == function.__code__.co_freevars:
            function.__code__ = code
        else:  # without super() there is no __class__
            cells = dict(
                zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            )
            closure = tuple(cells[each] for each in code.co_freevars)
            changed = FunctionType(code, function.__globals__, name, function.__defaults__, closure)
            changed.__kwdefaults__ = function.__kwdefaults__
            setattr(owner, name, changed)
        return


def _function(found: Any, line: int) -> FunctionType:
    """The function behind a property, a static method or a cache; of several the one at a line."""
    if isinstance(found, property):
        parts = [each for each in (found.fget, found.fset) if each is not None]
        return max(
            (part for part in parts if part.__code__.co_firstlineno <= line),
            key=lambda part: part.__code__.co_firstlineno,
        )
    while not isinstance(found, FunctionType):
        found = found.__wrapped__ if hasattr(found, "__wrapped__") else found.__func__
    return inspect.unwrap(found)  # type: ignore[return-value]


def _same(code: CodeType, wanted: CodeType) -> CodeType:
    """The code object at the place of another one, in a module that was compiled again."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if (each.co_qualname, each.co_firstlineno) == (
                wanted.co_qualname, wanted.co_firstlineno,
            ):  # fmt: skip
                return each
            with suppress(LookupError):
                return _same(each, wanted)
    raise LookupError(wanted.co_qualname)


def _pytest(trees: Mapping[str, Tree], plugins: list[Any], arguments: Sequence[str]) -> int:
    if trees:
        sys.meta_path.insert(0, _Finder(trees))
    fixed = ["-p", "no:cacheprovider", "-p", "no:anabranch", "-p", "no:xdist"]
    fixed += ["--assert=plain", "--timeout=300"]  # pytest would put its own finder before ours
    return int(pytest.main([*fixed, *arguments], plugins))


def _paths(patterns: Sequence[str]) -> list[str]:
    return [str(path) for pattern in patterns for path in sorted(REPOSITORY.glob(pattern))]


def _child(run: Callable[[], int], limit_s: float | None) -> int:
    """Its process ID. Its status is not 0 as well if it dies or needs more processor time."""
    pid = os.fork()
    if pid:
        return pid
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
