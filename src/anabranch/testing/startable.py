"""What a server and a cluster have in common: ``with`` statements, and a directory of their own."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final, Self


class Startable(ABC):
    """Started in a ``with`` or ``async with`` statement, closed at its end."""

    @abstractmethod
    def start(self) -> Self:
        """Start, and return when it can be used."""

    @abstractmethod
    def close(self) -> None:
        """Stop, and free what :meth:`start` took."""

    def __enter__(self) -> Self:
        """Start, and return this object."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    async def __aenter__(self) -> Self:
        """Start without blocking the caller's event loop."""
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        """Close without blocking the caller's event loop."""
        await asyncio.to_thread(self.close)


class OwnDirectory:
    """A new directory; `remove` deletes it, or else the end of this object or of the process.

    A process that was forked from the one that made it deletes nothing.
    """

    def __init__(self) -> None:
        """Make it."""
        self.path = Path(tempfile.mkdtemp(prefix="anabranch-"))
        self.remove = weakref.finalize(self, _remove, self.path, os.getpid())


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(path, ignore_errors=True)


# -- what all parts of the kit name, without the server itself --------------------------------


HOST: Final = "127.0.0.1"

Word = bytes | str | int | float


class CommandFailedError(Exception):
    """A command of the test kit got an error as its reply."""
