"""The processor time of a thread of another process, to the microsecond.

``/proc/PID/task/TID/schedstat`` is renewed when the thread stops and at ticks of the kernel's
scheduler, 4 ms apart on many systems: too rarely for a stretch of some milliseconds. The counter
``task-clock`` of ``perf`` is read exactly, where the kernel allows it (``perf_event_paranoid``).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Self

_CALLS: Final = {"x86_64": 298, "aarch64": 241}
"""The number of ``perf_event_open`` by machine."""

_SIZE: Final = 112
_SOFTWARE: Final = 1
_TASK_CLOCK: Final = 1


class ThreadClock:
    """Reads the clock of one thread; without the counter by schedstat."""

    def __init__(self, pid: int) -> None:
        """``pid``: the process whose first thread is meant."""
        self._schedstat = Path(f"/proc/{pid}/task/{pid}/schedstat")
        self._counter = _opened(pid)

    @property
    def is_exact(self) -> bool:
        """Whether the kernel allows the counter."""
        return self._counter >= 0

    def ms(self) -> float:
        """Milliseconds since some moment."""
        if self._counter >= 0:
            return int.from_bytes(os.read(self._counter, 8), "little") / 1e6
        return int(self._schedstat.read_text("ascii").split()[0]) / 1e6

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._counter >= 0:
            os.close(self._counter)


@contextmanager
def at_once() -> Iterator[None]:
    """This process runs whenever it can: other work does not count as a wait for the server.

    Without the permission for that (root has it) nothing is different.
    """
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _opened(pid: int) -> int:
    """A file of the counter; -1 where it cannot be had."""
    number = _CALLS.get(platform.machine())
    if number is None:
        return -1
    attributes = struct.pack("=IIQ", _SOFTWARE, _SIZE, _TASK_CLOCK).ljust(_SIZE, b"\0")
    call = ctypes.CDLL(None, use_errno=True).syscall
    found: int = call(number, ctypes.create_string_buffer(attributes, _SIZE), pid, -1, -1, 0)
    return found
