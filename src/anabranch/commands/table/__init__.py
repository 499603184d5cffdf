"""The command table: what COMMAND, ACL, the docs and dispatch know of each command, as rows.

A row names its function, arity, flags, keys, syntax and summary; the functions, which decide, stand
in the packages beside this one.
"""

from __future__ import annotations

from anabranch.commands.table import (
    connection,
    extensions,
    generic,
    scripting,
    server,
    streams,
    values,
)
from anabranch.engine.spec import Command

__all__ = ["COMMANDS"]

COMMANDS: list[Command] = [
    *streams.COMMANDS,
    *values.COMMANDS,
    *generic.COMMANDS,
    *connection.COMMANDS,
    *server.COMMANDS,
    *scripting.COMMANDS,
    *extensions.COMMANDS,
]
