"""The two programs: they run a command, and turn failures into exit codes.

0 is success, 1 failure, 2 wrong usage, 130 Ctrl-C. ``-h`` is the host, as in redis-cli; as the last
word it asks for help, as there.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper

from anabranch.cli.interrupts import ended_by_ctrl_c


def main() -> None:
    """Entry point of ``anabranch``."""
    words = sys.argv[1:]
    served = words[1:] if words[:1] == ["serve"] else None
    _run("anabranch.cli.group", "anabranch", served)


def server_main() -> None:
    """Entry point of ``anabranch-server``, which accepts the arguments of ``redis-server``."""
    is_completed = "_ANABRANCH_SERVER_COMPLETE" in os.environ  # a shell asks for words
    _run("anabranch.cli.serve", "anabranch-server", None if is_completed else sys.argv[1:])


def _run(module: str, program: str, served: list[str] | None) -> None:
    """Run a command of ``click``, or start the server with the words ``served``."""
    if isinstance(sys.stdout, TextIOWrapper):  # in a locale of few characters
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            if served is not None:
                with ended_by_ctrl_c():
                    starting = import_module("anabranch.cli.starting")
                if not (starting.asks_for_help(served) or starting.asks_for_version(served)):
                    raise SystemExit(starting.start(served, program))
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
