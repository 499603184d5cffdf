"""DEBUG: for test-suites and for looking inside; off unless ``enable-debug-command`` allows it.

RELOAD and LOADAOF take every key through its serialised form and back, in place: data lives in
memory, and what these commands prove is that all of it survives. Knobs of Redis's own internals
are accepted where test-suites turn them, without effect.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from anabranch.commands.generic.dump import payload_of
from anabranch.commands.generic.keys import encoding_of
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.arguments import integer
from anabranch.engine.context import Context
from anabranch.engine.help import wrong_subcommand
from anabranch.errors import CommandError
from anabranch.keyspace.digest import keyspace_digest, value_digest
from anabranch.resp.encode import OK
from anabranch.resp.values import Status

_NOT_ALLOWED = (
    'ERR {} command not allowed. If the enable-debug-command option is set to "local", you '
    "can run it from a local connection, otherwise you need to set this option in the "
    "configuration file, and then restart the server."
)
_SLEEP_MAX_S = 3600.0


def check_allowed(ctx: Context, name: str) -> None:
    """Refuse a command that is for tests, unless ``enable-debug-command`` allows it."""
    allowed = ctx.settings.enable_debug_command
    if allowed == "no" or (allowed == "local" and not ctx.session.is_local):
        raise CommandError(_NOT_ALLOWED.format(name))


def debug(ctx: Context, args: list[bytes]) -> bytes:
    """DEBUG subcommand [...]: for tests; ``enable-debug-command`` says who may use it."""
    check_allowed(ctx, "DEBUG")
    known = _SUBCOMMANDS.get(args[1].lower())
    if known is None or not known[1] <= len(args) <= known[2]:
        raise wrong_subcommand(args)
    if ctx.server.dispatcher.is_loading and args[1].lower() in _OF_DATA:
        raise CommandError(texts.LOADING)
    return known[0](ctx, args)


# -- time -------------------------------------------------------------------------------------


def _sleep(ctx: Context, args: list[bytes]) -> bytes:
    try:
        seconds = float(args[2])
    except ValueError:
        raise CommandError("ERR value is not a valid float") from None
    if not isfinite(seconds) or seconds > _SLEEP_MAX_S:
        raise CommandError("ERR value is out of range")
    ctx.server.host.sleep(max(seconds, 0.0))
    return OK


def _set_active_expire(ctx: Context, args: list[bytes]) -> bytes:
    ctx.server.active_expire = integer(args[2]) != 0
    return OK


# -- looking inside ---------------------------------------------------------------------------


def _object(ctx: Context, args: list[bytes]) -> bytes:
    value = ctx.lookup(args[2])
    if value is None:
        raise CommandError(texts.NO_SUCH_KEY)
    now_s = ctx.now_ms // 1000
    idle_s = max(ctx.now_ms - (value.accessed_ms or ctx.now_ms), 0) // 1000
    return ctx.reply(
        Status(
            f"Value at:0x{id(value):012x} refcount:1 encoding:{encoding_of(value).decode()} "
            f"serializedlength:{len(payload_of(value)) - _FOOTER_BYTES} "
            f"lru:{(now_s - idle_s) % (1 << 24)} lru_seconds_idle:{idle_s}"
        )
    )


_FOOTER_BYTES = 11  # type, version and checksum around the value of a payload


def _digest(ctx: Context, args: list[bytes]) -> bytes:
    exact = len(args) > 2
    if exact and args[2].lower() != b"exact":
        raise wrong_subcommand(args)
    if len(args) > 3:
        return _digests(ctx, args[3:], exact=True)
    return ctx.reply(Status(keyspace_digest(ctx.keyspace, exact=exact).hex()))


def _digest_value(ctx: Context, args: list[bytes]) -> bytes:
    return _digests(ctx, args[2:], exact=False)


def _digests(ctx: Context, keys: list[bytes], *, exact: bool) -> bytes:
    values = [ctx.lookup(key) for key in keys]
    return ctx.reply(
        [
            Status("0" * 40 if value is None else value_digest(value, exact=exact).hex())
            for value in values
        ]
    )


# -- to the disk and back ---------------------------------------------------------------------


def _reload(ctx: Context, args: list[bytes]) -> bytes:
    options = {arg.lower() for arg in args[2:]}
    if not options <= {b"merge", b"noflush", b"nosave"}:
        raise CommandError(texts.SYNTAX)
    _not_in_exec(ctx, "RELOAD")
    ctx.server.host.persistence.reload(save=b"nosave" not in options)
    return OK


def _loadaof(ctx: Context, _args: list[bytes]) -> bytes:
    _not_in_exec(ctx, "LOADAOF")
    persistence = ctx.server.host.persistence
    persistence.reload(save=not persistence.is_logging)
    return OK


def _not_in_exec(ctx: Context, name: str) -> None:
    """After a recovery the data would contain a part of the transaction."""
    if ctx.in_exec:
        raise CommandError(f"ERR DEBUG {name} is not allowed inside a transaction")


# -- making things ----------------------------------------------------------------------------


def _populate(ctx: Context, args: list[bytes]) -> bytes:
    """DEBUG POPULATE count [prefix] [size]: string keys ``prefix:n``; existing ones stay."""
    count = integer(args[2])
    prefix = args[3] if len(args) > 3 else b"key"
    size = integer(args[4]) if len(args) > 4 else 0
    if count < 0 or size < 0:
        raise CommandError("ERR value is out of range, must be positive")
    for number in range(count):
        key = b"%b:%d" % (prefix, number)
        if ctx.lookup(key) is None:
            data = b"value:%d" % number
            if size:
                data = data[:size].ljust(size, b"\0")
            ctx.emit(kinds.SetString(ctx.db.index, key, data), 1)
    return OK


def _log(ctx: Context, args: list[bytes]) -> bytes:
    ctx.server.host.log("warning", "debug.log", message=args[2].decode("utf-8", "backslashreplace"))
    return OK


def _error(_ctx: Context, args: list[bytes]) -> bytes:
    raise CommandError(args[2])


def _accepted(_ctx: Context, _args: list[bytes]) -> bytes:
    return OK


def _help(ctx: Context, _args: list[bytes]) -> bytes:
    lines = ["DEBUG <subcommand> [<argument> ...]. Subcommands are:"]
    for syntax, summary in _HELP:
        lines += [syntax, f"    {summary}"]
    return ctx.reply([Status(line) for line in lines])


_HELP = [
    ("CHANGE-REPL-ID", "Accepted without effect."),
    ("DIGEST", "Tells a digest of all keys; equal data has equal digests."),
    ("DIGEST EXACT [key ...]", "The same with times and inner order, of all or of some keys."),
    ("DIGEST-VALUE key [key ...]", "The same for the values of keys."),
    ("ERROR message", "Answers with this error."),
    ("LOADAOF", "Forgets everything and recovers it from the last snapshot and the log."),
    ("LOG message", "Writes a line to the log."),
    ("OBJECT key", "Tells how a value is kept."),
    ("PAUSE-CRON 0 | 1", "Accepted without effect."),
    ("POPULATE count [prefix] [size]", "Makes string keys."),
    ("QUICKLIST-PACKED-THRESHOLD size", "Accepted without effect."),
    ("RELOAD [MERGE] [NOFLUSH] [NOSAVE]", "Takes a snapshot, forgets everything and recovers it."),
    ("REPLYBUFFER option value", "Accepted without effect."),
    ("SET-ACTIVE-EXPIRE 0 | 1", "Says whether keys expire without being looked at."),
    ("SET-DISABLE-DENY-SCRIPTS 0 | 1", "Accepted without effect."),
    ("SLEEP seconds", "Stops the server for a while."),
]

_MANY = 1 << 31
_SUBCOMMANDS: dict[bytes, tuple[Callable[[Context, list[bytes]], bytes], int, int]] = {
    b"change-repl-id": (_accepted, 2, 2),
    b"digest": (_digest, 2, _MANY),
    b"digest-value": (_digest_value, 3, _MANY),
    b"error": (_error, 3, 3),
    b"help": (_help, 2, 2),
    b"loadaof": (_loadaof, 2, 2),
    b"log": (_log, 3, 3),
    b"object": (_object, 3, 4),
    b"pause-cron": (_accepted, 3, 3),
    b"populate": (_populate, 3, 5),
    b"quicklist-packed-threshold": (_accepted, 3, 3),
    b"reload": (_reload, 2, _MANY),
    b"replybuffer": (_accepted, 4, 4),
    b"set-active-expire": (_set_active_expire, 3, 3),
    b"set-disable-deny-scripts": (_accepted, 3, 3),
    b"sleep": (_sleep, 3, 3),
}
"""Function, fewest and most arguments, both words of the name included."""

_OF_DATA = frozenset([b"digest", b"digest-value", b"loadaof", b"object", b"populate", b"reload"])
"""Subcommands that are refused while the data are being loaded."""
