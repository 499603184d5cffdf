"""Clients in other languages: programs with many named checks, each of which prints one line."""

from __future__ import annotations

import re
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

__all__ = ["assert_every_check_passes", "names_of_checks"]

SECONDS = 120
_CHECK = re.compile(r'^\s*check\("([^"]+)"', re.MULTILINE)


def names_of_checks(source: Path) -> list[str]:
    """The names of the checks that a source file has, in order."""
    return _CHECK.findall(source.read_text("utf-8"))


def assert_every_check_passes(
    source: Path,
    command: list[str],
    directory: Path,
    fail_over: Callable[[], object] | None = None,
) -> None:
    """Run the program that was made of this source: it prints ``ok: NAME`` for each check.

    A check that prints ``fail over`` goes on when that has been done.
    """
    names = names_of_checks(source)
    assert names
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
        )
        limit = threading.Timer(SECONDS, process.kill)
        limit.start()
        assert process.stdin is not None
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            if line == "fail over\n" and fail_over is not None:
                fail_over()
                process.stdin.write("done\n")
                process.stdin.flush()
            else:
                lines.append(line.rstrip("\n"))
        process.communicate()
        limit.cancel()
        complaints.seek(0)
        said = "\n".join([*lines, complaints.read()])
    assert lines == [f"ok: {name}" for name in names], said
    assert process.returncode == 0, said
