"""EVAL, EVALSHA and their read-only forms run a script as one transaction; SCRIPT keeps scripts."""

from __future__ import annotations

from anabranch.commands.scripting.calls import Calls, asks_read_only
from anabranch.commands.scripting.shebang import Shebang, parse_script
from anabranch.engine import texts
from anabranch.engine.arguments import integer
from anabranch.engine.context import Context
from anabranch.engine.script_machine import ScriptError, ScriptMachine, sha1_of
from anabranch.errors import CommandError
from anabranch.resp.encode import OK, bulk

_NOSCRIPT = "NOSCRIPT No matching script. Please use EVAL."
_SOURCE = b"@user_script"
_SHA1_LENGTH = 40


def evaluate(ctx: Context, args: list[bytes]) -> bytes | None:
    """EVAL and EVAL_RO: script numkeys [key ...] [arg ...]."""
    ctx.server.dispatcher.feed_monitors(ctx.session, args)  # before what it calls
    count = count_keys(args)
    source = args[1]
    sha1 = sha1_of(source)
    script = compile_script(ctx, source)
    ctx.server.scripts.cache(sha1, source)
    return _run(ctx, args, sha1, script, count)


def evaluate_by_hash(ctx: Context, args: list[bytes]) -> bytes | None:
    """EVALSHA and EVALSHA_RO: sha1 numkeys [key ...] [arg ...]."""
    ctx.server.dispatcher.feed_monitors(ctx.session, args)
    if len(args[1]) != _SHA1_LENGTH:
        raise CommandError(_NOSCRIPT)
    count = count_keys(args)
    sha1 = args[1].lower()
    source = ctx.server.scripts.get(sha1)
    if source is None:
        raise CommandError(_NOSCRIPT)
    return _run(ctx, args, sha1, compile_script(ctx, source), count)


def count_keys(args: list[bytes], no_number: str = texts.NOT_INTEGER) -> int:
    """The count of keys of a request, in its third word; ``no_number`` is the error for others."""
    count = integer(args[2], no_number)
    if count > len(args) - 3:
        raise CommandError("ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError("ERR Number of keys can't be negative")
    return count


def compile_script(ctx: Context, source: bytes) -> tuple[Shebang, ScriptMachine, object]:
    """The flags of a script, and its compiled form. Raises CommandError if it is invalid."""
    shebang = parse_script(source)
    machine = ctx.server.host.script_machine()
    try:
        return shebang, machine, machine.compile(shebang.body, _SOURCE)
    except ScriptError as problem:
        raise CommandError(b"ERR Error compiling script (new function): " + problem.text) from None


def _run(
    ctx: Context,
    args: list[bytes],
    sha1: bytes,
    script: tuple[Shebang, ScriptMachine, object],
    count: int,
) -> bytes | None:
    shebang, machine, compiled = script
    if shebang.is_declared:
        check_flags(ctx, shebang.flags, is_read_only=asks_read_only(args))
    calls = Calls(ctx, machine, sha1, args, shebang.flags)
    return run_as_transaction(ctx, calls, compiled, args[3 : 3 + count], args[3 + count :])


def check_flags(ctx: Context, flags: frozenset[bytes], *, is_read_only: bool) -> None:
    """Raise the reason if a script or function with these flags may not run."""
    if b"no-writes" in flags:
        return
    if is_read_only:
        raise CommandError("ERR Can not execute a script with write flag using *_ro command.")
    dispatcher = ctx.server.dispatcher
    if dispatcher.write_refusal is not None:
        raise CommandError(dispatcher.write_refusal)
    if b"allow-oom" not in flags and dispatcher.memory_exceeded():
        raise CommandError(texts.OUT_OF_MEMORY)


def run_as_transaction(
    ctx: Context,
    calls: Calls,
    script: object,
    keys: list[bytes],
    argv: list[bytes],
) -> bytes | None:
    """Run a compiled script; returns its reply."""
    caller = ctx.session
    machine = calls.machine
    dispatcher = ctx.server.dispatcher

    def work() -> bytes:
        was_in_exec, ctx.in_exec, ctx.in_script = ctx.in_exec, True, True
        dispatcher.running = calls
        try:
            return machine.run(
                script, keys, argv, calls, resp3=caller.resp3, is_function=calls.is_function
            )
        except ScriptError as problem:
            raise CommandError(_error_text(problem, calls.name)) from None
        finally:
            dispatcher.running = None
            ctx.in_exec, ctx.in_script = was_in_exec, False
            ctx.enter(caller, ctx.now_ms)
            if calls.session.written is not None:
                caller.wrote(*calls.session.written)

    if ctx.in_exec:  # EXEC runs so that it can be interrupted
        return work()
    return ctx.exclusively(calls.args, machine.steps(work))


def _error_text(problem: ScriptError, name: bytes) -> bytes:
    if problem.source is None or problem.line is None:
        return b"%b script: %b" % (problem.text, name)
    return b"%b script: %b, on %b:%d." % (problem.text, name, problem.source, problem.line)


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
