"""The exception family: who did what wrongly, and therefore what happens next.

========================  =============================  =========================================
kind                      class                          fate
========================  =============================  =========================================
the client asked wrongly  :class:`CommandError`          error reply, the connection lives
the operator set wrongly  :class:`ConfigError`           refuse to start (or to CONFIG SET)
========================  =============================  =========================================

Anything else that escapes a command is our own mistake; ``region`` turns it into
``ERR internal error`` and logs it.
"""

from __future__ import annotations

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that are not what they should be."""


class AnabranchError(Exception):
    """Base of all errors that the package raises on purpose."""


class CommandError(AnabranchError):
    """A request that cannot be fulfilled; nothing has been changed.

    ``text`` is the reply without the leading ``-``; its first word is the error code clients
    match on (``ERR``, ``WRONGTYPE``, ``NOGROUP`` ...).
    """

    def __init__(self, text: str | bytes) -> None:
        self.text = text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")
        super().__init__(text)

    @property
    def code(self) -> str:
        """The first word of the text, as counted in ``INFO errorstats``."""
        return self.text.split(b" ", 1)[0].decode("latin-1")


class ConfigError(AnabranchError):
    """A setting that is unknown or has a value that is not allowed."""
