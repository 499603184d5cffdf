"""The server as one of several, and odds and ends.

TIME, ROLE, WAIT, WAITAOF, MONITOR, SHUTDOWN, REPLICAOF and its kin, MODULE, LOLWUT.
There are no read-only replicas; regions replicate as equals. So other regions acknowledge a WAIT,
and nobody if there are none; the commands that would make this server a replica are refused with a
sentence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from anabranch.commands import texts
from anabranch.commands.arguments import integer
from anabranch.commands.help import help_row
from anabranch.commands.spec import Command
from anabranch.errors import CommandError
from anabranch.resp.encode import EMPTY_ARRAY, OK
from anabranch.resp.values import Verbatim
from anabranch.version import __version__

if TYPE_CHECKING:
    from anabranch.commands.context import Context
    from anabranch.keyspace.values import Value

__all__ = ["COMMANDS"]

_NOT_TIMEOUT = "ERR timeout is not an integer or out of range"
_NO_AOF = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled."
_NO_REPLICAS = (
    "ERR this server has no read-only replicas and is nobody's: "
    "regions replicate as equals (Active-Active)"
)


def time(ctx: Context, _args: list[bytes]) -> bytes:
    """TIME."""
    seconds, microseconds = divmod(ctx.clock.now_us(), 1_000_000)
    return ctx.reply([str(seconds), str(microseconds)])


def role(ctx: Context, _args: list[bytes]) -> bytes:
    """ROLE."""
    return ctx.reply([b"master", 0, []])


# -- waiting for acknowledgements -------------------------------------------------------------


def wait(ctx: Context, args: list[bytes]) -> bytes | None:
    """WAIT numreplicas timeout: replicas are the other regions."""
    replicas = integer(args[1])
    timeout_ms = _timeout(args[2])
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
    timeout_ms = _timeout(args[3])
    persistence = ctx.host.persistence
    if local and not persistence.is_logging:
        raise CommandError(_NO_AOF)
    mark = int(args[4]) if ctx.waiter is not None else persistence.mark()
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


def _timeout(raw: bytes) -> int:
    timeout_ms = integer(raw, _NOT_TIMEOUT)
    if timeout_ms < 0:
        raise CommandError("ERR timeout is negative")
    return timeout_ms


def _effect(ctx: Context, kept: list[bytes]) -> list[bytes]:
    """What others must have: what this connection had written last when the command came."""
    if ctx.waiter is not None:
        return kept
    return [b"%d" % each for each in ctx.session.written or ()]


def _acknowledged(ctx: Context, effect: list[bytes]) -> tuple[int, int]:
    """How many other regions have applied it, and have it on disk; all have what is nothing."""
    regions = ctx.host.regions
    if regions is None:
        return 0, 0
    origin, number = map(int, effect) if effect else (0, 0)
    return regions.acknowledged((origin, number))


def _wait(
    ctx: Context, args: list[bytes], reply: bytes, timeout_ms: int, *, enough: bool
) -> bytes | None:
    """Answer, or wait until more is safe; ``args`` is what runs again then."""
    if enough or ctx.in_exec:
        return reply
    if ctx.waiter is not None:
        ctx.waiter.timeout_reply = reply
        return None
    deadline_ms = ctx.now_ms + timeout_ms if timeout_ms else 0
    ctx.block([], args, deadline_ms, _never, reply)
    assert ctx.session.waiter is not None
    ctx.safety_waiters[ctx.session.waiter] = None
    return None


def _never(_value: Value | None) -> bool:
    """No key ends the wait."""
    return False


# -- watching and stopping --------------------------------------------------------------------


def monitor(ctx: Context, _args: list[bytes]) -> bytes:
    """MONITOR: from now on this connection sees every request."""
    if ctx.in_exec:
        raise CommandError("ERR MONITOR isn't allowed for DENY BLOCKING client")
    session = ctx.session
    session.monitoring = True
    session.refresh()
    ctx.dispatcher.monitors[session] = None
    ctx.dispatcher.guarded_by.add("monitor")
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
    save = True if b"save" in chosen else False if b"nosave" in chosen else None
    ctx.host.shutdown(save=save, now=b"now" in chosen, force=b"force" in chosen)


# -- replication as Redis does it -------------------------------------------------------------


def replicaof(_ctx: Context, args: list[bytes]) -> bytes:
    """REPLICAOF host port | NO ONE."""
    if [arg.lower() for arg in args[1:]] == [b"no", b"one"]:
        return OK
    raise CommandError(_NO_REPLICAS)


def no_replicas(_ctx: Context, _args: list[bytes]) -> NoReturn:
    """PSYNC, SYNC, REPLCONF, FAILOVER."""
    raise CommandError(_NO_REPLICAS)


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


_REPLICATION_FLAGS = "admin noscript stale no_async_loading"
_DANGEROUS = "admin slow dangerous"
_ACKNOWLEDGEMENT_TIPS = ("request_policy:all_shards", "response_policy:agg_min")

COMMANDS: list[Command] = [
    Command(
        "time",
        time,
        arity=1,
        flags="loading stale fast",
        categories="fast",
        since="2.6.0",
        group="server",
        summary="Tells the server's time in seconds and microseconds.",
        complexity="O(1)",
        tips=("nondeterministic_output",),
    ),
    Command(
        "role",
        role,
        arity=1,
        flags="noscript loading stale fast",
        categories="admin fast dangerous",
        since="2.8.12",
        group="server",
        summary="Tells the role of the server, which is always master.",
        complexity="O(1)",
    ),
    Command(
        "wait",
        wait,
        arity=3,
        flags="blocking",
        categories="slow blocking connection",
        since="3.0.0",
        group="generic",
        summary="Waits until other regions have applied what this connection has written.",
        complexity="O(1)",
        syntax="numreplicas timeout",
        tips=_ACKNOWLEDGEMENT_TIPS,
    ),
    Command(
        "waitaof",
        waitaof,
        arity=4,
        flags="blocking",
        categories="slow blocking connection",
        since="7.2.0",
        group="generic",
        summary="Waits until earlier writes are in the log on disk, here or in other regions.",
        complexity="O(1)",
        syntax="numlocal numreplicas timeout",
        tips=_ACKNOWLEDGEMENT_TIPS,
    ),
    Command(
        "monitor",
        monitor,
        arity=1,
        flags="admin noscript loading stale",
        categories=_DANGEROUS,
        since="1.0.0",
        group="server",
        summary="Shows every request of every connection from now on.",
    ),
    Command(
        "shutdown",
        shutdown,
        arity=-1,
        flags="admin noscript loading stale no_multi allow_busy",
        categories=_DANGEROUS,
        since="1.0.0",
        group="server",
        summary="Stops the server.",
        complexity="O(N) where N is the size of what is saved",
        syntax="[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
        history=(("7.0.0", "Takes NOW, FORCE and ABORT."),),
    ),
    Command(
        "replicaof",
        replicaof,
        arity=3,
        flags=_REPLICATION_FLAGS,
        categories=_DANGEROUS,
        since="5.0.0",
        group="server",
        summary="Accepts NO ONE, which is the case already; refuses all else.",
        complexity="O(1)",
        syntax="host port | NO ONE",
    ),
    Command(
        "slaveof",
        replicaof,
        arity=3,
        flags=_REPLICATION_FLAGS,
        categories=_DANGEROUS,
        since="1.0.0",
        group="server",
        summary="The old name of REPLICAOF.",
        complexity="O(1)",
        syntax="host port | NO ONE",
    ),
    Command(
        "psync",
        no_replicas,
        arity=-3,
        flags="admin noscript no_async_loading no_multi",
        categories=_DANGEROUS,
        since="2.8.0",
        group="server",
        summary="Refused: there are no read-only replicas.",
        syntax="replicationid offset",
    ),
    Command(
        "sync",
        no_replicas,
        arity=1,
        flags="admin noscript no_async_loading no_multi",
        categories=_DANGEROUS,
        since="1.0.0",
        group="server",
        summary="Refused: there are no read-only replicas.",
    ),
    Command(
        "replconf",
        no_replicas,
        arity=-1,
        flags="admin noscript loading stale allow_busy",
        categories=_DANGEROUS,
        since="3.0.0",
        group="server",
        summary="Refused: there are no read-only replicas.",
        complexity="O(1)",
    ),
    Command(
        "failover",
        no_replicas,
        arity=-1,
        flags="admin noscript stale",
        categories=_DANGEROUS,
        since="6.2.0",
        group="server",
        summary="Refused: there are no read-only replicas.",
        complexity="O(1)",
        syntax="[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]",
    ),
    Command(
        "module",
        None,
        arity=-2,
        categories="slow",
        since="4.0.0",
        group="server",
        summary="Commands about modules, of which there are none.",
        complexity="Depends on the sub-command",
        subcommands=[
            Command(
                "list",
                module_list,
                arity=2,
                flags="admin noscript",
                categories=_DANGEROUS,
                since="4.0.0",
                group="server",
                summary="Lists the loaded modules: none.",
                complexity="O(1)",
                tips=("nondeterministic_output_order",),
            ),
            help_row("5.0.0"),
        ],
    ),
    Command(
        "lolwut",
        lolwut,
        arity=-1,
        flags="readonly fast",
        categories="read fast",
        since="5.0.0",
        group="server",
        summary="Draws something and names the version.",
        complexity="O(1)",
        syntax="[VERSION version]",
    ),
]
