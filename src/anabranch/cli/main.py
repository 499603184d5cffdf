"""The two programs: they run a command, and turn failures into exit codes.

0 is success, 1 failure, 2 wrong usage. ``-h`` is the host, as in redis-cli; as the last word it
asks for help, as there.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper

from anabranch.cli.interrupts import ended_by_ctrl_c


def main() -> None:
    """Entry point of ``anabranch``."""
    _run("anabranch.cli.group", "anabranch")


def server_main() -> None:
    """Entry point of ``anabranch-server``, which accepts the arguments of ``redis-server``."""
    _run("anabranch.cli.serve", "anabranch-server")


def _run(module: str, program: str) -> None:
    if isinstance(sys.stdout, TextIOWrapper):  # in a locale of few characters
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            with ended_by_ctrl_c():
                command = import_module(module).command
            words = sys.argv[1:]
            if words[-1:] == ["-h"]:
                words[-1] = "--help"
            command(words, prog_name=program)
        finally:
            if sys.stdout:  # None if it was closed
                sys.stdout.flush()  # here it can be told that it fails
    except OSError as problem:
        if not isinstance(problem, BrokenPipeError):  # the reader of the output has ended
            print(f"anabranch: {problem}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what is still to be written
        raise SystemExit(1) from None
