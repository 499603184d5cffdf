"""A server whose system calls fail, are cut short or end it, and whose clock is set, by command.

The real server runs with ``faulty_calls.c`` preloaded. Both share a page of memory, so a fault
begins and ends at once, and at an exact call.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Mapping, Sequence
from enum import IntFlag
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.servers import REPOSITORY, AnabranchServer

SOURCE: Final = Path(__file__).with_name("faulty_calls.c")
FOREVER: Final = -1
_NOTHING, _FAIL, _SHORTEN, _SIGNAL = range(4)
_FIELDS: Final = ("calls", "action", "argument", "skip", "times", "clock_ns", "seen")
"""Of the page: which calls are concerned, what is done to them and with what argument, how many
pass before that, how often it happens, what is added to the clock, how many calls there were."""


class Call(IntFlag):
    """The calls that concern files of the log and snapshots."""

    WRITE = 1
    SYNC = 2
    RENAME = 4
    UNLINK = 8
    CREATE = 16
    TRUNCATE = 32


ALL: Final = Call(63)


@cache
def library() -> Path:
    """Compile it once; skip the test without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler: NO FAILING CALLS ARE TRIED")
    built = REPOSITORY / "build" / f"calls-{os.getpid()}.so"
    built.parent.mkdir(exist_ok=True)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return built


class FaultyServer(AnabranchServer):
    """Between two faults it is a server like any other."""

    def __init__(self, directory: Path, extra: Sequence[str] = ()) -> None:
        super().__init__(directory, extra)
        path = directory / "calls"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def environment(self) -> Mapping[str, str]:
        preloaded = {
            "LD_PRELOAD": str(library()),
            "ANABRANCH_TEST_CALLS": str(self.directory / "calls"),
        }
        return {**super().environment(), **preloaded}

    def fail(self, calls: Call, code: int, *, skip: int = 0, times: int = FOREVER) -> None:
        """Calls raise the error of this number, after `skip` that do not."""
        self._do(calls, _FAIL, code, skip, times)

    def shorten_writes(self) -> None:
        """Each write takes half of what it is given."""
        self._do(Call.WRITE, _SHORTEN, 0, 0, FOREVER)

    def signal_at(self, calls: Call, number: int, *, skip: int = 0) -> None:
        """The process gets a signal as it makes a call, before anything is done."""
        self._do(calls, _SIGNAL, number, skip, 1)

    def end_faults(self) -> None:
        """All calls do what they should."""
        self._do(ALL, _NOTHING, 0, 0, 0)

    def set_clock(self, ahead_s: float) -> None:
        """Set the wall clock of this process, counted from that of the machine."""
        self._set("clock_ns", int(ahead_s * 1_000_000_000))

    @property
    def seen(self) -> int:
        """How many calls there have been since the last change."""
        value: int = struct.unpack_from("=q", self._page, 8 * _FIELDS.index("seen"))[0]
        return value

    def _do(self, calls: Call, action: int, argument: int, skip: int, times: int) -> None:
        self._set("calls", 0)  # nothing happens while the page is changed
        values = {"action": action, "argument": argument, "skip": skip, "times": times, "seen": 0}
        for name, value in {**values, "calls": int(calls)}.items():
            self._set(name, value)

    def _set(self, field: str, value: int) -> None:
        struct.pack_into("=q", self._page, 8 * _FIELDS.index(field), value)
