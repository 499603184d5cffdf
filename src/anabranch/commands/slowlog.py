"""SLOWLOG: reading and emptying the log of slow requests (``metrics/slowlog.py``)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from anabranch.commands.arguments import integer_or_none
from anabranch.commands.help import help_row, wrong_subcommand
from anabranch.commands.spec import Command
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, integer

if TYPE_CHECKING:
    from anabranch.commands.context import Context

__all__ = ["COMMANDS"]

_COUNT_DEFAULT = 10


def get(ctx: Context, args: list[bytes]) -> bytes:
    """SLOWLOG GET [count]; -1 asks for all."""
    if len(args) > 3:
        raise wrong_subcommand(args)
    count = integer_or_none(args[2]) if len(args) == 3 else _COUNT_DEFAULT
    if count is None or count < -1:
        raise CommandError("ERR count should be greater than or equal to -1")
    entries = ctx.region.slowlog.entries
    shown = islice(entries, len(entries) if count == -1 else min(count, len(entries)))
    return ctx.reply([list(entry) for entry in shown])


def length(ctx: Context, _args: list[bytes]) -> bytes:
    """SLOWLOG LEN."""
    return integer(len(ctx.region.slowlog.entries))


def reset(ctx: Context, _args: list[bytes]) -> bytes:
    """SLOWLOG RESET."""
    ctx.region.slowlog.reset()
    return OK


_FLAGS = "admin loading stale"
_CATEGORIES = "admin slow dangerous"

COMMANDS: list[Command] = [
    Command(
        "slowlog",
        None,
        arity=-2,
        categories="slow",
        since="2.2.12",
        group="server",
        summary="Commands about the slow log.",
        complexity="Depends on the sub-command",
        subcommands=[
            Command(
                "get",
                get,
                arity=-2,
                flags=_FLAGS,
                categories=_CATEGORIES,
                since="2.2.12",
                group="server",
                summary="Lists the latest slow requests, 10 unless told, -1 for all.",
                complexity="O(N) where N is the number of entries listed",
                syntax="[count]",
                tips=("request_policy:all_nodes", "nondeterministic_output"),
                history=(("4.0.0", "Entries name the client and its address."),),
            ),
            Command(
                "len",
                length,
                arity=2,
                flags=_FLAGS,
                categories=_CATEGORIES,
                since="2.2.12",
                group="server",
                summary="Counts the entries of the slow log.",
                complexity="O(1)",
                tips=(
                    "request_policy:all_nodes",
                    "response_policy:agg_sum",
                    "nondeterministic_output",
                ),
            ),
            Command(
                "reset",
                reset,
                arity=2,
                flags=_FLAGS,
                categories=_CATEGORIES,
                since="2.2.12",
                group="server",
                summary="Empties the slow log.",
                complexity="O(N) where N is the number of entries",
                tips=("request_policy:all_nodes", "response_policy:all_succeeded"),
            ),
            help_row("6.2.0"),
        ],
    )
]
