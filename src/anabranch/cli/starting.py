"""Starts the server from the words of a command line, without the library that reads the others.

``anabranch serve`` and ``anabranch-server`` come here at once, unless they ask for help or for the
version: then :mod:`anabranch.cli.serve` answers, which describes the command.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from anabranch.cli.interrupts import ended_by_ctrl_c
from anabranch.config.load import CommandLineError, load
from anabranch.errors import ConfigError
from anabranch.oplog.errors import LogError
from anabranch.scripting import new_machine
from anabranch.web import new_web

SERVER: Final = "anabranch-server"
"""The program that takes the arguments of redis-server, and whose version has the same form."""


def asks_for_help(words: Sequence[str]) -> bool:
    """Whether the words after ``serve`` ask for its description."""
    return "--help-all" in words or "--help" in words or list(words) in (["-h"], ["help"])


def asks_for_version(words: Sequence[str]) -> bool:
    """Whether the words after ``serve`` ask for the version."""
    return list(words) in (["-v"], ["--version"])


def start(words: Sequence[str], program: str) -> int:
    """Load the settings, then the server; serve until it is stopped. Returns the exit code."""
    gc.disable()  # until the server has begun: nearly all that is made before that stays
    try:
        return _start(words, program)
    finally:
        gc.enable()


def _start(words: Sequence[str], program: str) -> int:
    try:
        loaded = load(words, os.environ)
    except ConfigError as problem:
        print(f"anabranch: {problem}", file=sys.stderr)
        is_usage = isinstance(problem, CommandLineError) and program != SERVER
        return 2 if is_usage else 1
    try:
        with ended_by_ctrl_c():  # until the server handles the signal itself
            app = import_module("anabranch.server.app")
            wings = import_module("anabranch.server.wings").Wings(new_web, new_machine)
            status: int = app.run_server(loaded, wings)
    except ConfigError as problem:
        print(f"anabranch: {loaded.located(str(problem))}", file=sys.stderr)
        return 1
    except LogError as problem:
        print(f"anabranch: {problem}", file=sys.stderr)
        return 1
    return status
