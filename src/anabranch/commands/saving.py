"""SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF: snapshots of everything.

A snapshot and the log behind it are what a start reads. BGSAVE and BGREWRITEAOF therefore do the
same: the log before the snapshot is superfluous afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from anabranch.commands import texts
from anabranch.commands.spec import Command
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, integer
from anabranch.resp.values import Status

if TYPE_CHECKING:
    from anabranch.commands.context import Context

__all__ = ["COMMANDS"]


def save(ctx: Context, _args: list[bytes]) -> bytes:
    """SAVE: everybody waits."""
    ctx.host.persistence.save()
    return OK


def bgsave(ctx: Context, args: list[bytes]) -> bytes:
    """BGSAVE [SCHEDULE]."""
    schedule = len(args) == 2 and args[1].lower() == b"schedule"
    if len(args) > 1 and not schedule:
        raise CommandError(texts.SYNTAX)
    started = ctx.host.persistence.begin_save(schedule=schedule)
    return ctx.reply(Status(f"Background saving {'started' if started else 'scheduled'}"))


def bgrewriteaof(ctx: Context, _args: list[bytes]) -> bytes:
    """BGREWRITEAOF."""
    started = ctx.host.persistence.begin_save(rewrite=True)
    how = "started" if started else "scheduled"
    return ctx.reply(Status(f"Background append only file rewriting {how}"))


def lastsave(ctx: Context, _args: list[bytes]) -> bytes:
    """LASTSAVE: when the newest snapshot was taken, or the server was started, in Unix time."""
    return integer(cast(int, ctx.host.persistence.facts()["rdb_last_save_time"]))


COMMANDS: list[Command] = [
    Command(
        "save",
        save,
        arity=1,
        flags="admin noscript no_async_loading no_multi",
        categories="admin slow dangerous",
        since="1.0.0",
        group="server",
        summary="Takes a snapshot while all clients wait.",
        complexity="O(N), N being all there is.",
    ),
    Command(
        "bgsave",
        bgsave,
        arity=-1,
        flags="admin noscript no_async_loading",
        categories="admin slow dangerous",
        since="1.0.0",
        group="server",
        summary="Takes a snapshot in the background.",
        complexity="O(N), N being all there is.",
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
        summary="Takes a snapshot in the background and drops the log before it.",
        complexity="O(1)",
    ),
]
