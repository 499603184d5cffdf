"""Scripts and functions, of which there are none: what clients and test-suites ask nevertheless.

EVALSHA says that it does not know the script; the fallback, EVAL, is an unknown command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.commands.arguments import integer, integer_or_none
from anabranch.commands.help import help_row
from anabranch.commands.spec import Command
from anabranch.errors import CommandError
from anabranch.resp.encode import EMPTY_ARRAY, OK
from anabranch.resp.values import Map

if TYPE_CHECKING:
    from anabranch.commands.context import Context

__all__ = ["COMMANDS"]


def evalsha(_ctx: Context, args: list[bytes]) -> bytes:
    """EVALSHA sha1 numkeys [key ...] [arg ...]."""
    keys = integer(args[2])
    if keys > len(args) - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if keys < 0:
        raise CommandError("ERR Number of keys can't be negative")
    raise CommandError("NOSCRIPT No matching script. Please use EVAL.")


def _keys(args: list[bytes]) -> list[int]:
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


_ALL_SHARDS = ("request_policy:all_shards", "response_policy:all_succeeded")

_SCRIPT = Command(
    "script",
    None,
    arity=-2,
    categories="slow",
    since="2.6.0",
    group="scripting",
    summary="Commands about scripts, of which there are none.",
    complexity="Depends on the sub-command",
    subcommands=[
        Command(
            "exists",
            script_exists,
            arity=-3,
            flags="noscript",
            categories="slow scripting",
            since="2.6.0",
            group="scripting",
            summary="Tells that no script is known.",
            complexity="O(N) where N is the number of scripts asked for",
            syntax="sha1 [sha1 ...]",
            tips=("request_policy:all_shards", "response_policy:agg_logical_and"),
        ),
        Command(
            "flush",
            script_flush,
            arity=-2,
            flags="noscript",
            categories="slow scripting",
            since="2.6.0",
            group="scripting",
            summary="Forgets all scripts: there are none.",
            complexity="O(1)",
            syntax="[ASYNC | SYNC]",
            tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
        ),
        help_row("5.0.0", "slow scripting"),
    ],
)

_FUNCTION = Command(
    "function",
    None,
    arity=-2,
    categories="slow",
    since="7.0.0",
    group="scripting",
    summary="Commands about functions, of which there are none.",
    complexity="Depends on the sub-command",
    subcommands=[
        Command(
            "flush",
            function_flush,
            arity=-2,
            flags="write noscript",
            categories="write slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Deletes all libraries: there are none.",
            complexity="O(1)",
            syntax="[ASYNC | SYNC]",
            tips=_ALL_SHARDS,
        ),
        Command(
            "list",
            function_list,
            arity=-2,
            flags="noscript",
            categories="slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Lists the libraries: none.",
            complexity="O(1)",
            syntax="[LIBRARYNAME library-name-pattern] [WITHCODE]",
            tips=("nondeterministic_output_order",),
        ),
        Command(
            "stats",
            function_stats,
            arity=2,
            flags="noscript allow_busy",
            categories="slow scripting",
            since="7.0.0",
            group="scripting",
            summary="Tells that no function runs and that there is no engine.",
            complexity="O(1)",
            tips=(
                "nondeterministic_output",
                "request_policy:all_shards",
                "response_policy:special",
            ),
        ),
        help_row("7.0.0", "slow scripting"),
    ],
)

COMMANDS: list[Command] = [
    Command(
        "evalsha",
        evalsha,
        arity=-3,
        flags="noscript stale skip_monitor no_mandatory_keys movablekeys script_runner",
        categories="slow scripting",
        key_positions=_keys,
        since="2.6.0",
        group="scripting",
        summary="Answers that the script is not known.",
        complexity="O(1)",
        syntax="sha1 numkeys [key [key ...]] [arg [arg ...]]",
    ),
    _SCRIPT,
    _FUNCTION,
]
