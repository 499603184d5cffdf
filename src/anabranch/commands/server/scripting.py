"""Scripts and functions, of which there are none: what clients and test-suites ask nevertheless.

EVALSHA says that it does not know the script; the fallback, EVAL, is an unknown command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.commands.request.arguments import integer, integer_or_none
from anabranch.errors import CommandError
from anabranch.resp.encode import EMPTY_ARRAY, OK
from anabranch.resp.values import Map

if TYPE_CHECKING:
    from anabranch.commands.execution.context import Context

__all__ = [
    "evalsha",
    "function_flush",
    "function_list",
    "function_stats",
    "keys",
    "script_exists",
    "script_flush",
]


def evalsha(_ctx: Context, args: list[bytes]) -> bytes:
    """EVALSHA sha1 numkeys [key ...] [arg ...]."""
    keys = integer(args[2])
    if keys > len(args) - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if keys < 0:
        raise CommandError("ERR Number of keys can't be negative")
    raise CommandError("NOSCRIPT No matching script. Please use EVAL.")


def keys(args: list[bytes]) -> list[int]:
    """Where the keys of EVALSHA stand."""
    count = integer_or_none(args[2]) or 0
    return list(range(3, min(3 + count, len(args))))


def script_exists(ctx: Context, args: list[bytes]) -> bytes:
    """SCRIPT EXISTS sha1 [sha1 ...]."""
    return ctx.reply([0] * (len(args) - 2))


def script_flush(_ctx: Context, args: list[bytes]) -> bytes:
    """SCRIPT FLUSH [ASYNC | SYNC]."""
    if len(args) > 3 or (len(args) == 3 and args[2].lower() not in (b"async", b"sync")):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    return OK


def function_flush(_ctx: Context, args: list[bytes]) -> bytes:
    """FUNCTION FLUSH [ASYNC | SYNC]."""
    if len(args) > 3 or (len(args) == 3 and args[2].lower() not in (b"async", b"sync")):
        raise CommandError("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    return OK


def function_list(_ctx: Context, args: list[bytes]) -> bytes:
    """FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]."""
    index = 2
    while index < len(args):
        word = args[index].lower()
        if word == b"libraryname" and index + 1 < len(args):
            index += 1
        elif word == b"libraryname":
            raise CommandError("ERR library name argument was not given")
        elif word != b"withcode":
            raise CommandError(b"ERR Unknown argument %b" % args[index])
        index += 1
    return EMPTY_ARRAY


def function_stats(ctx: Context, _args: list[bytes]) -> bytes:
    """FUNCTION STATS."""
    return ctx.reply(Map({b"running_script": None, b"engines": Map({})}))
