"""What all parts of the kit name, without the server itself."""

from __future__ import annotations

from typing import Final

HOST: Final = "127.0.0.1"

Word = bytes | str | int | float


class CommandFailedError(Exception):
    """A command of the test kit got an error as its reply."""
