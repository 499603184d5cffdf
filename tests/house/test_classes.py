"""A class is read as a whole, with what it inherits: it has few enough methods for that."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.house.classes import classes_of, methods_of
from tests.support.servers import REPOSITORY

METHODS_MAX: Final = 45
"""Own and inherited methods of one class; ``__init__`` and properties count."""

LARGER: Final = {
    "anabranch.stream.block.Block": 46,
}
"""Those that have more today; no number may grow."""


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
