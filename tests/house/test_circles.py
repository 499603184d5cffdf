"""No import circle, and the layers that ARCHITECTURE.md shows."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.house.circles import circles, imports_of
from tests.support.servers import REPOSITORY


def test_no_modules_import_each_other() -> None:
    """Who reads one module of a circle has to know all of them."""
    found = [sorted(circle) for circle in circles(imports_of(REPOSITORY / "src"))]
    assert found == [], f"these modules import each other: {found}"


def test_the_layers_on_the_page_are_those_that_are_checked() -> None:
    file = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    layers = file["tool"]["importlinter"]["contracts"][0]["layers"]
    page = (REPOSITORY / "ARCHITECTURE.md").read_text("utf-8")
    assert "```\n" + "\n".join(layers).replace("|", "│") + "\n```\n" in page


def test_circles_are_found_through_packages_types_and_functions(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, "utf-8")

    write("top/__init__.py", "")
    write("top/one.py", "if TYPE_CHECKING:\n    from top.two import name")
    write("top/two.py", "def call():\n    from . import three")
    write("top/three.py", "import top.one\nimport top.outside")
    write("top/outside.py", "import top.one")
    write("top/above.py", "from top import one, two")
    assert circles(imports_of(tmp_path)) == [{"top.one", "top.two", "top.three", "top.outside"}]
    write("top/outside.py", "")
    write("top/two.py", "")
    assert circles(imports_of(tmp_path)) == []
