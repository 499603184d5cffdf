"""Error texts that more than one command uses, byte for byte as Redis words them.

A text that belongs to one command stands beside that command's function.
"""

from __future__ import annotations

from anabranch.errors import CommandError

WRONGTYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"
SEALED = (
    "SEALED The stream has ended (AB.SEAL) and takes no more entries: add to another key, or "
    "delete this one first"
)
NO_SUCH_KEY = "ERR no such key"
NOT_INTEGER = "ERR value is not an integer or out of range"
NOT_POSITIVE = "ERR value is out of range, must be positive"
NOT_SYMMETRIC = (
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
)
NOT_INT32 = "ERR value is out of range, value must between -2147483648 and 2147483647"
SYNTAX = "ERR syntax error"
OUT_OF_MEMORY = "OOM command not allowed when used memory > 'maxmemory'."
LOADING = "LOADING Redis is loading the dataset in memory"
INVALID_ID = "ERR Invalid stream ID specified as stream command argument"
DB_RANGE = "ERR DB index is out of range"


def shown(name: bytes) -> bytes:
    """A key, group or consumer name inside an error text: Redis ends it at a NUL byte."""
    return name.partition(b"\0")[0]


def unknown_zone(name: bytes) -> bytes:
    """The error for the name of a zone that AB.SCHEDULE does not take."""
    return (
        b"ERR this server knows no time zone '%b': use a name of the tz database, like "
        b"Europe/Berlin or UTC, and have the system's tzdata installed" % shown(name)[:64]
    )


def wrong_arity(full_name: str) -> CommandError:
    """``full_name`` is lower case; sub-commands are ``xgroup|create``."""
    return CommandError(f"ERR wrong number of arguments for '{full_name}' command")
