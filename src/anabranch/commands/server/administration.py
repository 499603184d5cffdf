"""The server as one of several, and odds and ends.

TIME, ROLE, WAIT, WAITAOF, MONITOR, SHUTDOWN, SAVE and REPLICAOF with their kin, MODULE, LOLWUT.
There are no read-only replicas; regions replicate as equals. So other regions acknowledge a WAIT,
and nobody if there are none; the commands that would make this server a replica are refused with a
sentence.
"""

from __future__ import annotations

from typing import NoReturn, cast

from anabranch.engine import texts
from anabranch.engine.arguments import integer, timeout_argument
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.resp.encode import EMPTY_ARRAY, OK
from anabranch.resp.encode import integer as integer_reply
from anabranch.resp.values import Status, Verbatim
from anabranch.version import __version__

_NO_AOF = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
_NO_REPLICAS = (
    "ERR this server has no read-only replicas and cannot be one: "
    "regions replicate as equals (Active-Active)"
)
_NO_SYNC = (
    "ERR this server has no read-only replicas and sends them no RDB file: `anabranch export` "
    "writes its data to an RDB file or copies it to a running Redis"
)


def time(ctx: Context, _args: list[bytes]) -> bytes:
    """TIME: seconds since 1970, and microseconds of the present second."""
    seconds, microseconds = divmod(ctx.clock.now_us(), 1_000_000)
    return ctx.reply([str(seconds), str(microseconds)])


def role(ctx: Context, _args: list[bytes]) -> bytes:
    """ROLE: always ``master``, because regions are equals."""
    return ctx.reply([b"master", 0, []])


# -- waiting for acknowledgements -------------------------------------------------------------


def wait(ctx: Context, args: list[bytes]) -> bytes | None:
    """WAIT numreplicas timeout: replicas are the other regions."""
    replicas = integer(args[1])
    timeout_ms = timeout_argument(args[2])
    effect = _effect(ctx, args[3:])
    applied, _ = _acknowledged(ctx, effect)
    return _wait(
        ctx, [*args[:3], *effect], ctx.reply(applied), timeout_ms, enough=applied >= replicas
    )


def waitaof(ctx: Context, args: list[bytes]) -> bytes | None:
    """WAITAOF numlocal numreplicas timeout."""
    local = integer(args[1])
    if local not in (0, 1):
        raise CommandError("ERR value is out of range, value must between 0 and 1")
    replicas = integer(args[2])
    if replicas < 0:
        raise CommandError("ERR value is out of range, must be positive")
    timeout_ms = timeout_argument(args[3])
    persistence = ctx.server.host.persistence
    if local and not persistence.is_logging:
        raise CommandError(_NO_AOF)
    mark = int(args[4]) if ctx.waiter is not None else persistence.position()
    effect = _effect(ctx, args[5:])
    synced = persistence.is_logging and persistence.synced() >= mark
    _, durable = _acknowledged(ctx, effect)
    return _wait(
        ctx,
        [*args[:4], b"%d" % mark, *effect],
        ctx.reply([int(synced), durable]),
        timeout_ms,
        enough=synced >= local and durable >= replicas,
    )


def _effect(ctx: Context, kept: list[bytes]) -> list[bytes]:
    """The last effect of this connection, which the other regions must have."""
    if ctx.waiter is not None:
        return kept
    return [b"%d" % each for each in ctx.session.written or ()]


def _acknowledged(ctx: Context, effect: list[bytes]) -> tuple[int, int]:
    """How many other regions have applied an effect, and how many have it on disk."""
    regions = ctx.server.host.regions
    if regions is None:
        return 0, 0
    replica_id, number = map(int, effect) if effect else (0, 0)
    return regions.acknowledged((replica_id, number))


def _wait(
    ctx: Context, args: list[bytes], reply: bytes, timeout_ms: int, *, enough: bool
) -> bytes | None:
    """Answer, or wait until more is safe; ``args`` runs again then."""
    if enough or ctx.in_exec:
        return reply
    if ctx.waiter is not None:
        ctx.waiter.timeout_reply = reply
        return None
    ctx.wait_for(ctx.waits.safety, None, args, timeout_ms, reply)
    return None


# -- watching and stopping --------------------------------------------------------------------


def monitor(ctx: Context, _args: list[bytes]) -> bytes:
    """MONITOR: from now on this connection sees every request."""
    if ctx.in_exec:
        raise CommandError("ERR MONITOR isn't allowed for DENY BLOCKING client")
    session = ctx.session
    session.monitoring = True
    session.refresh()
    ctx.server.dispatcher.monitor(session)
    return OK


def shutdown(ctx: Context, args: list[bytes]) -> None:
    """SHUTDOWN [NOSAVE | SAVE] [NOW] [FORCE] [ABORT]: no reply, the connection just ends."""
    words = [arg.lower() for arg in args[1:]]
    known = {b"save", b"nosave", b"now", b"force", b"abort"}
    chosen = set(words)
    if not chosen <= known or {b"save", b"nosave"} <= chosen:
        raise CommandError(texts.SYNTAX)
    if b"abort" in chosen:
        if len(words) > 1:
            raise CommandError(texts.SYNTAX)
        raise CommandError("ERR No shutdown in progress.")
    if ctx.server.dispatcher.running is not None and b"nosave" not in chosen:
        raise CommandError(ctx.server.dispatcher.busy_text)
    save = True if b"save" in chosen else False if b"nosave" in chosen else None
    ctx.server.host.shutdown(save=save, now=b"now" in chosen, force=b"force" in chosen)


# -- replication as Redis does it -------------------------------------------------------------


def replicaof(_ctx: Context, args: list[bytes]) -> bytes:
    """REPLICAOF host port | NO ONE."""
    if [arg.lower() for arg in args[1:]] == [b"no", b"one"]:
        return OK
    raise CommandError(_NO_REPLICAS)


def no_replicas(_ctx: Context, _args: list[bytes]) -> NoReturn:
    """FAILOVER: refused, because there are no replicas."""
    raise CommandError(_NO_REPLICAS)


def no_sync(_ctx: Context, _args: list[bytes]) -> NoReturn:
    """SYNC, PSYNC, REPLCONF: what replicas send, and `redis-cli --rdb`."""
    raise CommandError(_NO_SYNC)


# -- the rest ---------------------------------------------------------------------------------


def module_list(_ctx: Context, _args: list[bytes]) -> bytes:
    """MODULE LIST: there are none."""
    return EMPTY_ARRAY


_RIVER = r"""
      ___            ___
  ___/   \__________/   \______
 /        ____  ___         ___\____
 \_______/    \/   \_______/
  \______         ______     _______
         \_______/      \___/
"""


def lolwut(ctx: Context, _args: list[bytes]) -> bytes:
    """LOLWUT: a river, its anabranches, and the version."""
    return ctx.reply(Verbatim(f"{_RIVER}\nAnabranch ver. {__version__}\n"))


# -- snapshots of everything ----------------------------------------------------------------------


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
    return integer_reply(cast(int, ctx.server.host.persistence.facts()["rdb_last_save_time"]))
