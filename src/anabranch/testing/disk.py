"""The disk of a server under test: the real one, which can be full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable


class Disk:
    """What a test can do to the disk of a server that keeps its data."""

    def __init__(self, on_free: Callable[[], None]) -> None:
        """``on_free`` is called when writes succeed again."""
        self._is_full = False
        self._on_free = on_free

    def full(self) -> None:
        """From now on every write to log and snapshots fails: "No space left on device"."""
        self._is_full = True

    def free(self) -> None:
        """Writes succeed again; what waited is written before this method returns."""
        self._is_full = False
        self._on_free()

    def require_space(self) -> None:
        """Raise what the system raises when the disk is full."""
        if self._is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
