"""Runs the commands of ``docs/proof.md`` one by one: ``python -m tests.house.proof --only soak``.

Each prints its exit status, its processor time, and its last line. ``--list`` runs nothing. Of the
files that a table names instead of a command, the tests are run. All together take hours.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.house.markdown import code_spans, fences, pages
from tests.support.servers import REPOSITORY

__all__ = ["PAGE", "ProofCommand", "commands"]

PAGE: Final = "docs/proof.md"

_TYPED: Final = re.compile(r"(?:[A-Z_]+=\S+ )*(?:python -m (?!tests\.house\.)|anabranch simulate )")
_TESTS: Final = re.compile(r"tests/[\w/]+(?:/|/test_\w+\.py)$")


class ProofCommand(NamedTuple):
    """A command as one types it in the root of the repository."""

    line: str
    variables: dict[str, str]
    words: list[str]


def commands() -> list[ProofCommand]:
    """All commands of the page, each once, in their order."""
    return [_command(line) for line in dict.fromkeys(_lines())]


def _lines() -> Iterator[str]:
    text = pages()[PAGE]
    for fence in fences(text):
        yield from (" ".join(shlex.split(line, comments=True)) for line in fence.body.splitlines())
    for span in code_spans(text):
        if _TYPED.match(span):
            yield span
        elif _TESTS.match(span):
            yield f"python -m pytest {span}"


def _command(line: str) -> ProofCommand:
    words = line.split()
    variables = {}
    while "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        variables[name] = value
    return ProofCommand(line, variables, words)


def _run(command: ProofCommand) -> bool:
    """Print what becomes of a command; returns whether its exit status is 0."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable if command.words[0] == "python" else "anabranch", *command.words[1:]],
        check=False,
        cwd=REPOSITORY,
        env=os.environ | command.variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    last = ([each for each in done.stdout.splitlines() if each.strip()] or [""])[-1]
    sys.stdout.write(f"{done.returncode:3} {used_s:7.1f} s  {command.line}\n{last}\n")
    sys.stdout.flush()
    return done.returncode == 0


def main() -> int:
    """The program; 1 if a command fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.house.proof", description=__doc__)
    parser.add_argument("--only", default="", help="only commands that contain this")
    parser.add_argument("--list", action="store_true", help="print the commands, run none")
    options = parser.parse_args()
    chosen = [each for each in commands() if options.only in each.line]
    if options.list:
        sys.stdout.write("".join(f"{each.line}\n" for each in chosen))
        return 0
    failed = [each for each in chosen if not _run(each)]
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
