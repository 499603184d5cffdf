"""A program on a terminal of its own: type into it, wait for what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from typing import Self

_CONTROLS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r")
ROWS, COLUMNS = 50, 200
"""Of the terminal, unless the variables LINES and COLUMNS say otherwise."""


class Terminal:
    """The program, what it has shown so far (without colours), and the keys."""

    def __init__(self, command: Sequence[str], **variables: str) -> None:
        """Start the program."""
        self._raw = b""
        self.at = 0  # what lies before was waited for already
        own, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._file = own
        self.process = subprocess.Popen(
            list(command),
            stdin=its,
            stdout=its,
            stderr=its,
            env={**os.environ, "TERM": "xterm", **variables},
            start_new_session=True,
        )
        os.close(its)

    def __enter__(self) -> Self:
        """The terminal."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the program, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._file)

    @property
    def text(self) -> str:
        """All that was shown."""
        return _CONTROLS.sub("", self._raw.decode("utf-8", "replace"))

    @property
    def screen(self) -> str:
        """What a program that draws the whole screen drew before the last time, with colours.

        It is complete; what was drawn last may not be.
        """
        drawn = self._raw.decode("utf-8", "replace").split("\x1b[H")
        return drawn[-2].replace("\r", "")

    def type(self, line: str) -> None:
        """Type a line and press return."""
        self.press(line + "\r")

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._file, keys.encode())

    def interrupt(self) -> None:
        """Control-C, whatever the program made of its keyboard."""
        self.process.send_signal(signal.SIGINT)

    def expect(self, wanted: str, seconds: float = 60.0) -> re.Match[str]:
        """Wait until a regular expression matches what came after the last match."""
        deadline = time.monotonic() + seconds
        while True:
            found = re.compile(wanted).search(self.text, self.at)
            if found is not None:
                self.at = found.end()
                return found
            left = deadline - time.monotonic()
            assert left > 0, f"no {wanted!r} in {self.text[self.at :]!r}"
            self._read(left)

    def end(self, seconds: float = 60.0) -> int:
        """Wait for the program to end by itself; its exit code."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still running: {self.text[-500:]!r}"
            self._read(0.05)
        self._read(0.0)  # what it wrote last
        return self.process.wait()

    def _read(self, seconds: float) -> None:
        ready, _, _ = select.select([self._file], [], [], seconds)
        if ready:
            try:
                self._raw += os.read(self._file, 65536)
            except OSError:  # the other side is gone
                time.sleep(0.01)
