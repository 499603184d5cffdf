"""CONFIG GET, SET, RESETSTAT, REWRITE: settings while the server runs.

``config/runtime.py`` knows the rules; here are the replies, and what a changed setting brings
about inside the core (``apply``). What it brings about outside (ports, logs, limits of the
process) is a wish to the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress

from anabranch.config.kinds import Directive
from anabranch.config.runtime import NAMES, Refused, change
from anabranch.engine import texts
from anabranch.engine.acl.rules import AclRegistry
from anabranch.engine.channels import event_flags
from anabranch.engine.context import Context
from anabranch.errors import CommandError, ConfigError
from anabranch.pattern import compile_glob
from anabranch.resp.encode import OK

_has_signs = re.compile(rb"[*?\[]").search
_ROWS: dict[bytes, Directive] = {name.encode(): row for name, row in NAMES.items()}


# -- what a setting brings about ----------------------------------------------------------------


def _requirepass(ctx: Context) -> None:
    ctx.server.acl.set_default_password(ctx.settings.requirepass)


def _acl_defaults(ctx: Context) -> None:
    ctx.server.acl.all_channels = ctx.settings.acl_pubsub_default == "allchannels"


def _notify(ctx: Context) -> None:
    # Letters of newer classes (arrays, hash fields) are valid; streams have no such events.
    letters = ctx.settings.notify_keyspace_events.translate(_NO_EVENTS_HERE)
    ctx.server.events.flags = event_flags(letters) or 0


_NO_EVENTS_HERE = str.maketrans("", "", "aSTIV")


def _slowlog(ctx: Context) -> None:
    slowlog = ctx.server.slowlog
    slowlog.set_threshold_us(ctx.settings.slowlog_log_slower_than)
    slowlog.max_len = ctx.settings.slowlog_max_len
    slowlog.max_args = ctx.settings.slowlog_max_argc


def _latency(ctx: Context) -> None:
    ctx.server.latency.set_threshold_ms(ctx.settings.latency_monitor_threshold)


def _memory(ctx: Context) -> None:
    guards = ctx.server.dispatcher.guarded_by
    if ctx.settings.maxmemory:
        guards.add("maxmemory")
    else:
        guards.discard("maxmemory")


def _block_cache(ctx: Context) -> None:
    settings = ctx.settings
    ctx.keyspace.block_cache.configure(
        settings.stream_compression_cache, settings.stream_compression_level
    )


_EFFECTS: dict[str, Callable[[Context], None]] = {
    "requirepass": _requirepass,
    "acl-pubsub-default": _acl_defaults,
    "notify-keyspace-events": _notify,
    "slowlog-log-slower-than": _slowlog,
    "slowlog-max-len": _slowlog,
    "slowlog-max-argc": _slowlog,
    "latency-monitor-threshold": _latency,
    "maxmemory": _memory,
    "stream-node-max-entries": Context.read_node_limits,
    "stream-node-max-bytes": Context.read_node_limits,
    "stream-compression-cache": _block_cache,
    "stream-compression-level": _block_cache,
}


def apply(ctx: Context, name: str) -> None:
    """Apply a changed setting, in the core and outside; ConfigError if that is impossible."""
    effect = _EFFECTS.get(name)
    if effect is not None:
        effect(ctx)
    ctx.server.host.apply_setting(name)


def apply_all(ctx: Context) -> None:
    """Apply all settings of a start in the core, except the password, which ACL has."""
    for name, effect in _EFFECTS.items():
        if name != "requirepass":
            effect(ctx)


# -- commands -----------------------------------------------------------------------------------


def config_get(ctx: Context, args: list[bytes]) -> bytes:
    """CONFIG GET pattern [pattern ...]."""
    settings = ctx.settings
    shown: dict[bytes, tuple[bytes, Directive]] = {}  # lower-case name -> as typed
    for pattern in args[2:]:
        row = _ROWS.get(pattern.lower())
        if row is not None:
            shown.setdefault(pattern.lower(), (pattern, row))
            continue
        if _has_signs(pattern) is None:
            continue
        matches = compile_glob(pattern, ignore_case=True)
        for name, row in _ROWS.items():
            if matches(name):
                shown.setdefault(name, (name, row))
    return ctx.reply({name: settings.text(row.name) for name, row in shown.values()})


def config_set(ctx: Context, args: list[bytes]) -> bytes:
    """CONFIG SET name value [name value ...]: all or none."""
    if len(args) % 2:
        raise CommandError(texts.SYNTAX)
    words = [arg.decode("utf-8", "surrogateescape") for arg in args[2:]]
    pairs = list(zip(words[::2], words[1::2], strict=True))
    names = {name.lower() for name, _ in pairs}
    if ctx.in_exec and "appendonly" in names:
        # The log would begin or end within the transaction.
        raise _failed("appendonly", "not allowed inside a transaction")
    if ctx.server.dispatcher.is_loading and names & {"appendonly", "gossip-bind"}:
        raise CommandError(texts.LOADING)
    settings = ctx.settings
    try:
        before = change(settings, pairs, protected_allowed=_may_change_protected(ctx))
    except Refused as refusal:
        if not refusal.known:
            raise CommandError(
                f"ERR Unknown option or number of arguments for CONFIG SET - '{refusal.name}'"
            ) from None
        raise _failed(refusal.name, refusal.reason) from None
    done: list[str] = []
    for name in before:
        done.append(name)
        try:
            apply(ctx, name)
        except ConfigError as problem:
            for other, value in before.items():
                setattr(settings, other.replace("-", "_"), value)
            for other in done:
                with suppress(ConfigError):  # a file may have changed: the old contents stay
                    apply(ctx, other)
            raise _failed(name, str(problem)) from None
    return OK


def _failed(name: str, reason: str) -> CommandError:
    return CommandError(f"ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}")


def _may_change_protected(ctx: Context) -> bool:
    allowed = ctx.settings.enable_protected_configs
    return allowed == "yes" or (allowed == "local" and ctx.session.is_local)


def config_resetstat(ctx: Context, args: list[bytes]) -> bytes:
    """CONFIG RESETSTAT: set the statistics of INFO to zero."""
    ctx.stats.reset()
    for entry in ctx.server.dispatcher.all_entries():
        entry.reset()
    return OK


def config_rewrite(ctx: Context, args: list[bytes]) -> bytes:
    """CONFIG REWRITE: write the present settings into the file of the start."""
    try:
        ctx.server.host.rewrite_config([] if ctx.settings.aclfile else _user_lines(ctx))
    except ConfigError as problem:
        raise CommandError(f"ERR {problem}") from None
    return OK


def _user_lines(ctx: Context) -> list[list[bytes]]:
    """Users in the form of the file; without the default user if ``requirepass`` describes it."""
    implied = AclRegistry(ctx.settings.requirepass, ()).lines()
    return [line.split(b" ") for line in ctx.server.acl.lines() if line not in implied]
