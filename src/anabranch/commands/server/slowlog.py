"""SLOWLOG: reading and emptying the log of slow requests (``metrics/slowlog.py``)."""

from __future__ import annotations

from itertools import islice

from anabranch.engine.arguments import integer_or_none
from anabranch.engine.context import Context
from anabranch.engine.help import wrong_subcommand
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, integer

_COUNT_DEFAULT = 10


def get(ctx: Context, args: list[bytes]) -> bytes:
    """SLOWLOG GET [count]; -1 asks for all."""
    if len(args) > 3:
        raise wrong_subcommand(args)
    count = integer_or_none(args[2]) if len(args) == 3 else _COUNT_DEFAULT
    if count is None or count < -1:
        raise CommandError("ERR count should be greater than or equal to -1")
    entries = ctx.server.slowlog.entries
    shown = islice(entries, len(entries) if count == -1 else min(count, len(entries)))
    return ctx.reply([list(entry) for entry in shown])


def length(ctx: Context, _args: list[bytes]) -> bytes:
    """SLOWLOG LEN: the count of slow requests that are kept."""
    return integer(len(ctx.server.slowlog.entries))


def reset(ctx: Context, _args: list[bytes]) -> bytes:
    """SLOWLOG RESET: forget all slow requests."""
    ctx.server.slowlog.reset()
    return OK
