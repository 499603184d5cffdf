"""SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF.

Data lives in memory: there is nothing to write to. Tools and test-suites send these commands as a
matter of course, so they are answered as usual, but each tells the operator in the log that
nothing was made durable, and INFO and LASTSAVE do not pretend that something was saved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.commands import texts
from anabranch.commands.spec import Command
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, integer
from anabranch.resp.values import Status

if TYPE_CHECKING:
    from anabranch.commands.context import Context

__all__ = ["COMMANDS"]


def save(ctx: Context, args: list[bytes]) -> bytes:
    """SAVE."""
    _nothing_saved(ctx, args)
    return OK


def bgsave(ctx: Context, args: list[bytes]) -> bytes:
    """BGSAVE [SCHEDULE]."""
    if len(args) > 1 and (len(args) > 2 or args[1].lower() != b"schedule"):
        raise CommandError(texts.SYNTAX)
    _nothing_saved(ctx, args)
    return ctx.reply(Status("Background saving started"))


def bgrewriteaof(ctx: Context, args: list[bytes]) -> bytes:
    """BGREWRITEAOF."""
    _nothing_saved(ctx, args)
    return ctx.reply(Status("Background append only file rewriting started"))


def _nothing_saved(ctx: Context, args: list[bytes]) -> None:
    ctx.host.log(
        "warning",
        "save.memory_only",
        command=args[0].decode("latin-1").lower(),
        client=ctx.session.address,
    )


def lastsave(ctx: Context, _args: list[bytes]) -> bytes:
    """LASTSAVE: the start of the server, as nothing was saved since."""
    return integer(ctx.stats.started_ms // 1000)


COMMANDS: list[Command] = [
    Command(
        "save",
        save,
        arity=1,
        flags="admin noscript no_async_loading no_multi",
        categories="admin slow dangerous",
        since="1.0.0",
        group="server",
        summary="Accepted for compatibility: data lives in memory.",
        complexity="O(1)",
    ),
    Command(
        "bgsave",
        bgsave,
        arity=-1,
        flags="admin noscript no_async_loading",
        categories="admin slow dangerous",
        since="1.0.0",
        group="server",
        summary="Accepted for compatibility: data lives in memory.",
        complexity="O(1)",
        syntax="[SCHEDULE]",
        history=(("3.2.2", "Takes SCHEDULE."),),
    ),
    Command(
        "lastsave",
        lastsave,
        arity=1,
        flags="loading stale fast",
        categories="admin fast dangerous",
        since="1.0.0",
        group="server",
        summary="Tells the Unix time of the last save.",
        complexity="O(1)",
        tips=("nondeterministic_output",),
    ),
    Command(
        "bgrewriteaof",
        bgrewriteaof,
        arity=1,
        flags="admin noscript no_async_loading",
        categories="admin slow dangerous",
        since="1.0.0",
        group="server",
        summary="Accepted for compatibility: data lives in memory.",
        complexity="O(1)",
    ),
]
