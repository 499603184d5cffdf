"""Functions are not supported: this answers what clients and test suites ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.errors import CommandError
from anabranch.resp.encode import EMPTY_ARRAY, OK
from anabranch.resp.values import Map

if TYPE_CHECKING:
    from anabranch.commands.execution.context import Context

__all__ = [
    "function_flush",
    "function_list",
    "function_stats",
]


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
