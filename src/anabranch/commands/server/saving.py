"""SAVE, BGSAVE, LASTSAVE, BGREWRITEAOF: snapshots of everything.

A snapshot and the log after it are what a start reads. BGSAVE and BGREWRITEAOF therefore do the
same: the log before the snapshot is superfluous afterwards.
"""

from __future__ import annotations

from typing import cast

from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, integer
from anabranch.resp.values import Status


def save(ctx: Context, args: list[bytes]) -> bytes | None:
    """SAVE: this client waits for the snapshot, others are served meanwhile."""
    done = ctx.outcome(args, ctx.server.host.persistence.save_for)
    return None if done is None else OK


def bgsave(ctx: Context, args: list[bytes]) -> bytes:
    """BGSAVE [SCHEDULE]: begin a snapshot, or let it follow the one that runs."""
    schedule = len(args) == 2 and args[1].lower() == b"schedule"
    if len(args) > 1 and not schedule:
        raise CommandError(texts.SYNTAX)
    started = ctx.server.host.persistence.begin_save(schedule=schedule)
    return ctx.reply(Status(f"Background saving {'started' if started else 'scheduled'}"))


def bgrewriteaof(ctx: Context, _args: list[bytes]) -> bytes:
    """BGREWRITEAOF: begin a snapshot, after which older parts of the log can go."""
    started = ctx.server.host.persistence.begin_save(rewrite=True)
    how = "started" if started else "scheduled"
    return ctx.reply(Status(f"Background append only file rewriting {how}"))


def lastsave(ctx: Context, _args: list[bytes]) -> bytes:
    """LASTSAVE: the time of the newest snapshot, or of the start, in Unix time."""
    return integer(cast(int, ctx.server.host.persistence.facts()["rdb_last_save_time"]))
