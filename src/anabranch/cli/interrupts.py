"""What ends a command as Ctrl-C does, and what must not be torn by it."""

from __future__ import annotations

import signal
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


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let an interrupt wait for the end of a block; processes do not inherit this."""
    caught: list[int] = []
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    for number in before:
        signal.signal(number, lambda number, _: caught.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt
