"""What ends a command as Ctrl-C does, and what must not be torn by it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

INTERRUPTED: Final = 130
"""The exit code of a command that was interrupted before it had done its work."""


def end_as_ctrl_c() -> None:
    """From now on SIGTERM and SIGHUP (the terminal was closed) raise :class:`KeyboardInterrupt`."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
            signal.signal(number, signal.default_int_handler)


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """In a block, Ctrl-C ends the process at once and without a word, as SIGTERM does.

    For imports: a :class:`KeyboardInterrupt` in the middle of one shows a traceback, or is lost.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_waiting: int | None = None
"""Where a byte can be read for each interrupt that waits; None outside :func:`undisturbed`."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let SIGINT, SIGTERM and SIGHUP wait for a :func:`pause`, or for the end of the block.

    There they raise :class:`KeyboardInterrupt`. An exception that a signal raises anywhere is lost
    if it meets a destructor, and tears an import. A block within another one is part of it.
    Processes that are started do not inherit this.
    """
    global _waiting
    if _waiting is not None:
        yield
        return
    _waiting, end = os.pipe()
    os.set_blocking(end, False)
    wakeup = signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    for number in before:
        signal.signal(number, _note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakeup)
        os.close(end)
        left, _waiting = _waiting, None
        with open(left, "rb", buffering=0) as notes:
            came = notes.read()
    if came:
        raise KeyboardInterrupt


def _note(_number: int, _frame: object) -> None:
    """Do nothing: Python has written the byte."""


def pause(seconds: float) -> None:
    """Sleep; raises :class:`KeyboardInterrupt` for each interrupt that came."""
    if _waiting is None:
        time.sleep(seconds)
    elif select.select([_waiting], [], [], seconds)[0]:
        os.read(_waiting, 1)
        raise KeyboardInterrupt
