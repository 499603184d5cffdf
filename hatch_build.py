"""Compiles the hot modules of the server with mypyc, if ``ANABRANCH_COMPILE=1`` asks for it.

Hatchling runs this for each wheel. The modules are listed in ``pyproject.toml``, at
``tool.hatch.build.targets.wheel.hooks.custom``. Without ``ANABRANCH_COMPILE`` the wheel has no
machine code and runs everywhere; an editable installation never has any.

``ANABRANCH_COMPILE_LEVEL`` is the level of optimization of the C compiler, 0 to 3. The default is
3; 0 takes half the time and is enough for tests.
"""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCES = Path("src")
_LIBRARY = "anabranch_core"
"""The name of the shared library of all compiled modules, in front of ``__mypyc``."""


def _is_wanted() -> bool:
    return os.environ.get("ANABRANCH_COMPILE", "0") == "1"


class CompiledCore(BuildHookInterface[Any]):
    """The build hook: adds compiled modules to the wheel, beside their sources."""

    def dependencies(self) -> list[str]:
        """What the build environment needs: mypyc reads the types of the libraries as well."""
        if not _is_wanted():
            return []
        return [*self.metadata.core.dependencies, *self.config["dependencies-to-compile"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name what was compiled."""
        if not _is_wanted() or version == "editable":
            return
        target = Path(self.root, "build", "compiled-core")
        shutil.rmtree(target, ignore_errors=True)
        with chdir(self.root):
            built = _compile(self.config["modules"], target)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in built:
            build_data["force_include"][str(path)] = str(path.relative_to(target / "lib"))


def _compile(modules: list[str], target: Path) -> list[Path]:
    """Compile modules of ``src``; returns the files, in the folders of their packages."""
    from mypyc.build import mypycify  # noqa: PLC0415  # only installed if asked for
    from setuptools import Distribution  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    extensions = mypycify(
        [str(_SOURCES.joinpath(*name.split(".")).with_suffix(".py")) for name in modules],
        opt_level=os.environ.get("ANABRANCH_COMPILE_LEVEL", "3"),
        debug_level="0",
        multi_file=True,
        group_name=_LIBRARY,
        target_dir=str(target / "c"),
    )
    distribution = Distribution({"name": _LIBRARY, "ext_modules": extensions})
    command = build_ext(distribution)
    command.build_lib = str(target / "lib")
    command.build_temp = str(target / "objects")
    command.ensure_finalized()
    command.build_extensions = lambda: _build_side_by_side(command)
    command.run()
    return [Path(path) for path in command.get_outputs()]


def _build_side_by_side(command: Any) -> None:
    """Build the extensions, with as many C compilers at a time as there are cores."""
    compile_in_turn = command.compiler.compile

    def compile_all(sources: list[str], *args: Any, **options: Any) -> list[str]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = pool.map(lambda one: compile_in_turn([one], *args, **options), sources)
            return [name for names in made for name in names]

    command.compiler.compile = compile_all
    type(command).build_extensions(command)
