"""Removes secrets from requests that MONITOR, the slow log or the log show.

Passwords are hidden always; with ``hide-user-data-from-log`` so is every argument that may be
user data, and only the names of command and sub-command remain.
"""

from __future__ import annotations

from typing import Final

from anabranch.config.settings import ROWS
from anabranch.engine.spec import Command

HIDDEN: Final = b"(redacted)"

_SECRET_SETTINGS: Final = frozenset(
    name.encode() for name, row in ROWS.items() if row.secret and name != "user"
)


def redacted(args: list[bytes]) -> list[bytes]:
    """The request with its passwords hidden; the same list if it has none."""
    name = args[0].lower()
    if name == b"auth":
        return [args[0], *[HIDDEN] * (len(args) - 1)]
    if name == b"hello":
        return _hello(args)
    if len(args) > 2:
        word = args[1].lower()
        if name == b"acl" and word in (b"setuser", b"deluser"):
            return [*args[:2], *[HIDDEN] * (len(args) - 2)]
        if name == b"config" and word == b"set":
            return [
                HIDDEN
                if index % 2 and index > 2 and args[index - 1].lower() in _SECRET_SETTINGS
                else arg
                for index, arg in enumerate(args)
            ]
    return args


def hidden(command: Command, args: list[bytes]) -> list[bytes]:
    """The names of command and sub-command, and only the number of the arguments."""
    names = command.full_name.count("|") + 1
    return [*args[:names], *[HIDDEN] * (len(args) - names)]


def _hello(args: list[bytes]) -> list[bytes]:
    shown = list(args)
    index = 2
    while index < len(args):
        word = args[index].lower()
        if word == b"auth":
            shown[index + 1 : index + 3] = [HIDDEN] * len(args[index + 1 : index + 3])
            index += 3
        else:
            index += 2 if word == b"setname" else 1
    return shown
