"""The build hook: what a compiled core depends on, what the cache keeps, when it is compiled."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import hatch_build
from tests.house.test_compiled_modules import NAMES
from tests.support.servers import REPOSITORY


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources, as the working directory."""
    shutil.copytree(REPOSITORY / "src", tmp_path / "src")
    shutil.copy(REPOSITORY / "constraints.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def changed(path: Path) -> None:
    path.write_text(path.read_text("utf-8") + "\n# changed\n", "utf-8")


def test_a_change_of_what_is_compiled_or_imported_there_asks_for_a_new_build(clone: Path) -> None:
    keys = {hatch_build.key_of(NAMES)}
    for name in ("stream/block.py", "effects/kinds.py", "errors.py"):
        changed(clone / "src/anabranch" / name)
        keys.add(hatch_build.key_of(NAMES))
    changed(clone / "constraints.txt")
    keys.add(hatch_build.key_of(NAMES))
    assert len(keys) == 5


def test_a_change_of_a_wing_finds_the_former_build(clone: Path) -> None:
    key = hatch_build.key_of(NAMES)
    for name in ("spark/source.py", "cli/main.py", "simulator/simulation.py", "testing/server.py"):
        changed(clone / "src/anabranch" / name)
    assert hatch_build.key_of(NAMES) == key


def test_the_level_of_optimization_asks_for_a_new_build(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = hatch_build.key_of(NAMES)
    monkeypatch.setenv("ANABRANCH_COMPILE_LEVEL", "3")
    assert hatch_build.key_of(NAMES) != key


def test_the_cache_keeps_the_builds_used_last(tmp_path: Path) -> None:
    library = tmp_path / "lib"
    library.mkdir()
    (library / "core.so").write_bytes(b"code")
    for number in range(6):
        hatch_build._keep(library, tmp_path / "cache" / f"{number:032d}")
        os.utime(tmp_path / "cache" / f"{number:032d}", (number, number))
    kept = sorted(int(path.name) for path in (tmp_path / "cache").iterdir())
    assert kept == [2, 3, 4, 5]
    assert (tmp_path / f"cache/{5:032d}/anabranch_core/core.so").read_bytes() == b"code"


@pytest.mark.parametrize(
    ("wish", "compiler", "is_wanted"),
    [("", "cc", True), ("", "no-such-compiler", False), ("0", "cc", False), ("1", "none", True)],
)
def test_the_core_is_compiled_where_a_compiler_is(
    wish: str,
    compiler: str,
    is_wanted: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "Python.h").touch()
    (tmp_path / "cc").touch(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("ANABRANCH_COMPILE", wish)
    assert hatch_build._is_wanted() is is_wanted


def test_units_hold_every_source_once_and_are_of_even_size(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    sources = []
    for number in range(100):
        sources.append(tmp_path / f"{number}.c")
        sources[-1].write_bytes(b" " * (100 + 37 * number % 1000))
    units = hatch_build._gathered(sources, tmp_path)
    held = [
        [Path(line.split('"')[1]) for line in unit.read_text("utf-8").splitlines()]
        for unit in units
    ]
    assert sorted(name for names in held for name in names) == sorted(sources)
    sizes = [sum(name.stat().st_size for name in names) for names in held]
    assert max(sizes) < 1.1 * min(sizes)
