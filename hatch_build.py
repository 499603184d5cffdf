"""Compiles the hot modules of the server with mypyc, where a C compiler is at hand.

Hatchling runs this for each wheel, so ``pip install .`` gives the compiled server. The modules are
listed in ``pyproject.toml``, at ``tool.hatch.build.targets.wheel.hooks.custom``. An editable
installation is never compiled. Environment variables:

``ANABRANCH_COMPILE``
    1 fails if the modules cannot be compiled, 0 does not compile. Unset, the wheel is compiled if a
    C compiler and the headers of Python are there, and interpreted otherwise.
``ANABRANCH_COMPILE_LEVEL``
    The level of optimization of the C compiler, 0 to 3. The default is 1: docs/performance.md has
    the measurements. 0 takes half the time and is enough for tests.
``ANABRANCH_BUILD_CACHE``
    A directory that keeps what was compiled, by its sources, so that the next build of the same
    sources takes no time. The default is ``anabranch`` in the user's directory of caches. Empty
    keeps nothing.
"""

from __future__ import annotations

import ast
import hashlib
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SOURCES = Path("src")
_LIBRARY = "anabranch_core"
"""The name of the shared library of all compiled modules, in front of ``__mypyc``."""
_UNITS = 12
"""How many files of C the modules are gathered in. One for each module would read the same headers
140 times; fewer would leave a core idle at the end, and show less progress."""
_COMPILER_OPTIONS = [
    "-Wno-error",
    "-fvisibility=hidden",
    "-fno-asynchronous-unwind-tables",
    "-ffunction-sections",
]
"""Only Python calls the library from outside, by pointers. So no name of a function is exported:
calls go straight to the function, and the tables of names and of unwinding are not loaded."""
_LINKER_OPTIONS = ["-Wl,--gc-sections"]
"""Leave out functions that nothing calls."""
_KEPT = 4
"""How many builds the cache keeps: those used last."""

MISSING_COMPILER = (
    "a C compiler and the headers of Python are not here, so Anabranch is installed in its "
    "interpreted form, which takes two to three times as much processor time. For the compiled "
    "form install them (Debian, Ubuntu: apt-get install gcc libc6-dev python3-dev) and install "
    "Anabranch again."
)


def _say(text: str) -> None:
    """Show progress. pip keeps what a build prints to itself, so a terminal is asked as well."""
    line = f"anabranch: {text}\n"
    sys.stdout.write(line)
    sys.stdout.flush()
    if not sys.stdout.isatty():
        with suppress(OSError), open("/dev/tty", "w", encoding="utf-8") as terminal:
            terminal.write(f"\r\x1b[K{line}")


def has_compiler() -> bool:
    """Whether the C compiler that made this Python, and its headers, are on this machine."""
    words = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(words[0]) is not None and headers.is_file()


def _is_wanted() -> bool:
    wish = os.environ.get("ANABRANCH_COMPILE", "")
    return wish == "1" or (wish != "0" and has_compiler())


class CompiledCore(BuildHookInterface[Any]):
    """The build hook: adds compiled modules to the wheel, beside their sources."""

    def dependencies(self) -> list[str]:
        """What the build environment needs: mypyc reads the types of the libraries as well."""
        if not _is_wanted() or self._cached() is not None:
            return []
        return [*self.metadata.core.dependencies, *self.config["dependencies-to-compile"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and name what was compiled."""
        if version == "editable":
            return
        if not _is_wanted():
            if os.environ.get("ANABRANCH_COMPILE") != "0":
                _say(MISSING_COMPILER)
            return
        library = self._cached() or self._compiled()
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for path in sorted(library.rglob("*")):
            if path.is_file():
                build_data["force_include"][str(path)] = str(path.relative_to(library))

    def _cached(self) -> Path | None:
        """Find what an earlier build compiled from the same sources."""
        place = self._place()
        if place is None or not (place / _LIBRARY).is_dir():
            return None
        with suppress(OSError):
            os.utime(place)
        return place / _LIBRARY

    def _place(self) -> Path | None:
        """Name the directory of the cache for these sources, this Python and this machine."""
        kept = os.environ.get("ANABRANCH_BUILD_CACHE")
        if kept == "":
            return None
        if kept is None:
            caches = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
            kept = str(Path(caches, "anabranch"))
        with chdir(self.root):
            return Path(kept, key_of(self.config["modules"]))

    def _compiled(self) -> Path:
        """Compile, and keep the result in the cache if there is one."""
        place = self._place()
        target = Path(self.root, "build", "compiled-core")
        shutil.rmtree(target, ignore_errors=True)
        with chdir(self.root):
            _compile(self.config["modules"], target)
        library = target / "lib"
        if place is not None:
            with suppress(OSError):  # without room or permission the next build compiles again
                _keep(library, place)
        return library


def key_of(modules: list[str]) -> str:
    """Name a build: by the sources that the compiled code depends on, and by what compiles it."""
    digest = hashlib.sha256()
    for path in [*sorted(_reached(modules)), Path("constraints.txt"), Path(__file__)]:
        if path.is_file():
            digest.update(path.read_bytes())
    for fact in (
        *modules,
        sys.version,
        platform.platform(),
        sysconfig.get_config_var("EXT_SUFFIX"),
        os.environ.get("CC"),
        os.environ.get("CFLAGS"),
        os.environ.get("ANABRANCH_COMPILE_LEVEL"),
    ):
        digest.update(repr(fact).encode())
    return digest.hexdigest()[:32]


def _reached(modules: list[str]) -> set[Path]:
    """Find the files of modules and of all that they import, directly or not."""
    found = set[Path]()
    waiting = list(modules)
    while waiting:
        stem = _SOURCES.joinpath(*waiting.pop().split("."))
        for path in (stem.with_suffix(".py"), stem / "__init__.py"):
            if path.is_file() and path not in found:
                found.add(path)
                waiting += _imports(path)
    return found


def _imports(path: Path) -> Iterator[str]:
    """Name what a file may import; some names are no modules."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _keep(library: Path, place: Path) -> None:
    """Put a build into the cache as a whole, and remove the builds used longest ago."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
        shutil.copytree(library, Path(unfinished, _LIBRARY))
        Path(unfinished).rename(place)
        Path(unfinished).mkdir()
    builds = [path for path in place.parent.iterdir() if len(path.name) == len(place.name)]
    for old in sorted(builds, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _compile(modules: list[str], target: Path) -> None:
    """Compile modules of ``src`` into ``target/lib``, in the folders of their packages."""
    from mypyc.build import mypycify  # noqa: PLC0415  # only installed if asked for
    from setuptools import Distribution  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    began = time.monotonic()
    _say(f"compiling {len(modules)} modules; a minute or two on two cores. Reading their types")
    extensions = mypycify(
        [str(_SOURCES.joinpath(*name.split(".")).with_suffix(".py")) for name in modules],
        opt_level=os.environ.get("ANABRANCH_COMPILE_LEVEL", "1"),
        debug_level="0",
        multi_file=True,
        group_name=_LIBRARY,
        target_dir=str(target / "c"),
    )
    command = build_ext(Distribution({"name": _LIBRARY, "ext_modules": extensions}))
    command.build_lib = str(target / "lib")
    command.build_temp = str(target / "objects")
    command.ensure_finalized()
    command.build_extensions = lambda: _build_side_by_side(command, target, began)
    command.run()
    _say(f"compiled in {time.monotonic() - began:.0f} s")


def _build_side_by_side(command: Any, target: Path, began: float) -> None:
    """Run as many C compilers at a time as there are cores; the largest pieces first.

    One extension is the library with all the code. The others, one for each module, only find
    their module in it.
    """
    (library,) = (each for each in command.extensions if len(each.sources) > 1)
    finders = [each for each in command.extensions if each is not library]

    def compile_unit(unit: Path) -> list[str]:
        objects: list[str] = command.compiler.compile(
            [str(unit)],
            output_dir=command.build_temp,
            include_dirs=library.include_dirs,
            extra_postargs=[*library.extra_compile_args, *_COMPILER_OPTIONS],
        )
        return objects

    def build_finders() -> list[str]:
        for each in finders[len(finders) // 2 :]:
            command.build_extension(each)
        return []

    def build_other_finders() -> list[str]:
        for each in finders[: len(finders) // 2]:
            command.build_extension(each)
        return []

    units = _gathered([Path(name) for name in library.sources], target)
    jobs: list[Callable[[], list[str]]] = [lambda unit=unit: compile_unit(unit) for unit in units]  # type: ignore[misc]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = [pool.submit(job) for job in [*jobs, build_finders, build_other_finders]]
        for count, done in enumerate(as_completed(running), 1):
            library.extra_objects += done.result()
            _say(f"{count} of {len(running)} pieces compiled, {time.monotonic() - began:.0f} s")
    library.sources = []
    library.extra_link_args += _LINKER_OPTIONS
    command.build_extension(library)


def _gathered(sources: list[Path], target: Path) -> list[Path]:
    """Write files of C that include the sources, of about even size; the largest come first."""
    bins: list[tuple[int, list[Path]]] = [(0, []) for _ in range(_UNITS)]
    for source in sorted(sources, key=lambda path: path.stat().st_size, reverse=True):
        bins.sort(key=lambda each: each[0])
        size, names = bins[0]
        bins[0] = (size + source.stat().st_size, [*names, source])
    units = []
    for number, (_, names) in enumerate(sorted(bins, key=lambda each: each[0], reverse=True)):
        unit = target / "c" / f"unit{number}.c"
        unit.write_text("".join(f'#include "{name.resolve()}"\n' for name in names), "utf-8")
        units.append(unit)
    return units
