"""A class is read as a whole, with what it inherits: it has few enough methods for that.

The name of a class stands for one idea, wherever in `src` it is read.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.house.classes import class_names, classes_of, methods_of
from tests.support.servers import REPOSITORY

METHODS_MAX: Final = 45
"""Own and inherited methods of one class; ``__init__`` and properties count."""

LARGER: Final = {
    "anabranch.stream.block.Block": 46,
}
"""Those that have more today; no number may grow."""

WINGS: Final = frozenset({"cli", "scripting", "simulator", "spark", "testing", "web"})
"""Packages that no room of the house imports; all others are the core."""

TWICE: Final = {
    "Member": "a region of a cluster and its addresses; `anabranch cluster` also keeps its ports",
    "Server": "a stream server; the one of the test kit runs the other one in a thread",
}
"""Names that several classes have, with the one idea for which they stand."""

TWICE_MAX: Final = 12


def test_no_class_has_too_many_methods() -> None:
    classes = classes_of(REPOSITORY / "src")
    for module, name in classes:
        count = len(methods_of((module, name), classes))
        most = LARGER.get(f"{module}.{name}", METHODS_MAX)
        assert count <= most, f"{module}.{name} has {count} methods: let it have parts"


def test_inherited_methods_count_once(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class A:\n    def f(self): ...\n    def g(self): ...")
    (tmp_path / "two.py").write_text(
        "import one\nfrom one import A\nclass B(A[int], Exception):\n    def g(self): ...\n"
        "    async def h(self): ...\nclass C(one.A): ..."
    )
    classes = classes_of(tmp_path)
    assert methods_of(("two", "B"), classes) == {"f", "g", "h"}
    assert methods_of(("two", "C"), classes) == {"f", "g"}


def test_a_class_name_stands_for_one_idea() -> None:
    places = defaultdict(list)
    for module, name in class_names(REPOSITORY / "src"):
        places[name.lstrip("_")].append(module)
    twice = {name: sorted(modules) for name, modules in places.items() if len(modules) > 1}
    added = {name: modules for name, modules in twice.items() if name not in TWICE}
    assert added == {}, "give one of them a name of its own; one of a wing rather than of the core"
    assert sorted(twice) == sorted(TWICE), "the list has a name that stands once"
    assert len(TWICE) <= TWICE_MAX
    in_core = {
        name: modules
        for name, modules in twice.items()
        if sum(module.split(".")[1] not in WINGS for module in modules) > 1
    }
    assert in_core == {}, "the core has a name once, whatever its idea"


def test_names_of_inner_classes_are_found_as_well(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text("class A:\n    class _B: ...\ndef f():\n    class C: ...")
    assert class_names(tmp_path) == [("one", "A"), ("one", "_B"), ("one", "C")]
