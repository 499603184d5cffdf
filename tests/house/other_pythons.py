"""The core of the tests on the other Pythons of this machine: ``make test-pythons``.

Debian's own Python, and any 3.11 or newer that is installed beside the one at hand, in PATH or by
pyenv. Each gets an environment of its own in ``build/pythons``. With ``--list`` it only says which.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
OLDEST = (3, 11)
NEWEST = (3, 14)
"""Newer ones are not tried: libraries have no wheels for what is under way."""

TESTS = ("unit/server", "house/test_pins.py")
OUTERMOST_TESTS = ("unit/effects", "unit/replication", "unit/resp")
"""Of the oldest and the newest alone: what works there works between them."""
OLDEST_TESTS = ("kit", "system/test_serve.py")

_NAME = (
    "import platform, sys; print(platform.python_implementation(), "
    "'.'.join(map(str, sys.version_info[:3])))"
)


def _candidates() -> Iterator[Path]:
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    folders = [Path("/usr/bin"), Path("/usr/local/bin")]
    folders += map(Path, os.environ.get("PATH", "").split(os.pathsep))
    folders += sorted(Path.home().glob(".pyenv/versions/*/bin"))
    for folder in folders:
        for name in names:
            if (folder / name).exists():
                yield folder / name


def pythons() -> dict[str, Path]:
    """The other interpreters that can make an environment, by version such as ``3.12.1``."""
    found: dict[str, Path] = {}
    here = ".".join(map(str, sys.version_info[:3]))
    for path in _candidates():
        done = subprocess.run(
            [path, "-c", f"import ensurepip, venv; {_NAME}"],
            capture_output=True,
            text=True,
            check=False,
        )
        name, _, version = done.stdout.strip().partition(" ")
        if not done.returncode and name == "CPython" and version != here:
            found.setdefault(version, path)
    return found


def prepared(version: str, path: Path) -> bool:
    """Make its environment; whether that succeeds."""
    directory = REPOSITORY / "build" / "pythons" / version
    python = directory / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt"]
    steps = [
        [*pip, "--upgrade", "pip"],
        [*pip, "--build-constraint", "constraints.txt", "--editable", ".", "--group", "quick"],
    ]
    if not python.exists():
        steps.insert(0, [path, "-m", "venv", directory])
    return all(subprocess.run(step, cwd=REPOSITORY, check=False).returncode == 0 for step in steps)


def order(version: str) -> tuple[int, ...]:
    """By which versions are sorted."""
    return tuple(map(int, version.split(".")))


def tried(version: str, path: Path, more: tuple[str, ...]) -> bool:
    """Whether the tests, and these, pass there."""
    python = REPOSITORY / "build" / "pythons" / version / "bin" / "python"
    sys.stdout.write(f"== Python {version} ({path})\n")
    sys.stdout.flush()
    tests = [f"tests/{name}" for name in (*more, *TESTS)]
    command = [python, "-m", "pytest", "-q", *tests, *sys.argv[1:]]
    return subprocess.run(command, cwd=REPOSITORY, check=False).returncode == 0


def main() -> int:
    """Try all of them; the exit code."""
    found = pythons()
    if sys.argv[1:] == ["--list"]:
        sys.stdout.writelines(f"{version} {path}\n" for version, path in found.items())
        return 0
    more: dict[str, tuple[str, ...]] = dict.fromkeys(found, ())
    if found:
        more[max(found, key=order)] = OUTERMOST_TESTS
        more[min(found, key=order)] = OUTERMOST_TESTS + OLDEST_TESTS
    failed = [
        name
        for name, path in found.items()
        if not prepared(name, path) or not tried(name, path, more[name])
    ]
    sys.stdout.write(f"other Pythons: {', '.join(found) or 'none'}; failed: {failed or 'none'}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
