"""SCRIPT: the scripts that EVALSHA finds, and the one that runs."""

from __future__ import annotations

from anabranch.commands.scripting.evaluation import compile_script
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, bulk


def script_load(ctx: Context, args: list[bytes]) -> bytes:
    """SCRIPT LOAD script: keep a script until SCRIPT FLUSH; the reply is its hash."""
    compile_script(ctx, args[2])
    return bulk(ctx.server.scripts.load(args[2]))


def script_exists(ctx: Context, args: list[bytes]) -> bytes:
    """SCRIPT EXISTS sha1 [sha1 ...]."""
    scripts = ctx.server.scripts
    return ctx.reply([int(sha1.lower() in scripts) for sha1 in args[2:]])


def script_flush(ctx: Context, args: list[bytes]) -> bytes:
    """SCRIPT FLUSH [ASYNC | SYNC]."""
    if len(args) > 3 or (len(args) == 3 and args[2].lower() not in (b"async", b"sync")):
        raise CommandError("ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    scripts = ctx.server.scripts
    known = len(scripts)
    scripts.clear()
    if known:  # otherwise there may be no Lua
        ctx.server.host.script_machine().forget()
    return OK


def script_kill(ctx: Context, args: list[bytes]) -> bytes:
    """SCRIPT KILL and FUNCTION KILL."""
    dispatcher = ctx.server.dispatcher
    running = dispatcher.running
    if running is None:
        raise CommandError("NOTBUSY No scripts in execution right now.")
    if running.has_written:
        raise CommandError(
            "UNKILLABLE Sorry the script already executed write commands against the dataset. You "
            "can either wait the script termination or kill the server in a hard way using the "
            "SHUTDOWN NOSAVE command."
        )
    if running.is_function is (args[0].lower() == b"script"):
        raise CommandError(dispatcher.busy_text)
    running.kill()
    return OK
