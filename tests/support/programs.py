"""Clients in other languages: programs with many named checks, each of which prints one line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

__all__ = ["assert_every_check_passes", "names_of_checks"]

SECONDS = 120
_CHECK = re.compile(r'^\s*check\("([^"]+)"', re.MULTILINE)


def names_of_checks(source: Path) -> list[str]:
    """The names of the checks that a source file has, in order."""
    return _CHECK.findall(source.read_text("utf-8"))


def assert_every_check_passes(source: Path, command: list[str], directory: Path) -> None:
    """Run the program that was made of this source: it prints ``ok: NAME`` for each check."""
    names = names_of_checks(source)
    assert names
    done = subprocess.run(
        command, cwd=directory, check=False, capture_output=True, text=True, timeout=SECONDS
    )
    said = f"{done.stdout}\n{done.stderr}"
    assert done.stdout.splitlines() == [f"ok: {name}" for name in names], said
    assert done.returncode == 0, said
