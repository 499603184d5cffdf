"""Databases as a whole: KEYS, SCAN, DBSIZE, RANDOMKEY, SWAPDB, FLUSHDB, FLUSHALL.

Keys past their deadline do not exist for any of them, whether they have been removed or not.
"""

from __future__ import annotations

from anabranch.effects import kinds
from anabranch.engine import scanning, texts
from anabranch.engine.arguments import int32
from anabranch.engine.context import Context
from anabranch.errors import CommandError
from anabranch.pattern import compile_glob
from anabranch.resp.encode import OK, bulk, integer, null
from anabranch.scheduling import Steps

_REAPED_MAX = 1000
"""Keys past their deadline that DBSIZE removes before it counts; more wait for the background."""

_DRAWS = 100
"""Keys that RANDOMKEY draws in one step; those that do not exist any more do not count."""


def keys(ctx: Context, args: list[bytes]) -> bytes:
    """All keys that match a pattern."""
    db = ctx.db
    pattern = args[1]
    found = list(db.values)
    if pattern != b"*":
        matches = compile_glob(pattern)
        found = [key for key in found if matches(key)]
    deadlines = db.deadlines
    if deadlines.first_due(ctx.now_ms) is not None:
        now_ms = ctx.now_ms
        found = [key for key in found if deadlines.get(key, now_ms + 1) > now_ms]
    return ctx.reply(found)


def scan(ctx: Context, args: list[bytes]) -> bytes | None:
    """One page of an iteration over all keys."""
    cursor = scanning.cursor(args[1])
    options = scanning.scan_options(args[2:], over_keys=True)
    if not ctx.db.order.is_settled:
        return ctx.in_slices(args, _settled_page(ctx, cursor, options))
    return _page(ctx, cursor, options)


def _settled_page(ctx: Context, cursor: int, options: scanning.ScanOptions) -> Steps[list[bytes]]:
    """The page when the order has followed what was changed before; a later change may be missing.

    So others who change keys all the time do not keep the client waiting.
    """
    order = ctx.db.order
    changes = order.changes
    while not order.is_settled_upto(changes):
        order.settle()
        yield
    return [_page(ctx, cursor, options)]


def _page(ctx: Context, cursor: int, options: scanning.ScanOptions) -> bytes:
    count, matches, type_name = options
    cursor, candidates = ctx.db.order.page(cursor, count)
    found = []
    for key in candidates:
        if matches is not None and not matches(key):
            continue
        value = ctx.lookup(key)
        if value is not None and (type_name is None or value.type_name == type_name):
            found.append(key)
    return ctx.reply([b"%d" % cursor, found])


def dbsize(ctx: Context, args: list[bytes]) -> bytes:
    """The number of keys of the selected database."""
    db = ctx.db
    for _ in range(_REAPED_MAX):
        key = db.deadlines.first_due(ctx.now_ms)
        if key is None or ctx.lookup(key) is not None:
            break
    return integer(len(db.values))


def randomkey(ctx: Context, args: list[bytes]) -> bytes | None:
    """Some key of the selected database."""
    return ctx.in_slices(args, _random_key(ctx))


def _random_key(ctx: Context) -> Steps[list[bytes]]:
    while ctx.db.values:
        order = ctx.db.order
        for _ in range(_DRAWS):
            key = order.any_key(ctx.server.host.random_below)
            if key is None:
                break
            if ctx.lookup(key) is not None:  # otherwise it was past its deadline and is removed now
                return [bulk(key)]
        order.settle()
        yield
    return [null(ctx.resp3)]


def swapdb(ctx: Context, args: list[bytes]) -> bytes:
    """Exchange the contents of two databases."""
    first = int32(args[1], "ERR invalid first DB index")
    second = int32(args[2], "ERR invalid second DB index")
    count = len(ctx.keyspace.databases)
    if not (0 <= first < count and 0 <= second < count):
        raise CommandError(texts.DB_RANGE)
    if first != second:
        ctx.emit(kinds.Swap(first, second))
    ctx.changes += 1
    return OK


def flushdb(ctx: Context, args: list[bytes]) -> bytes:
    """Remove all keys of the selected database."""
    _check_flush_mode(args)
    ctx.changes += len(ctx.db.values)
    ctx.emit(kinds.Flush(ctx.db.index))
    return OK


def flushall(ctx: Context, args: list[bytes]) -> bytes:
    """Remove all keys of all databases."""
    _check_flush_mode(args)
    ctx.changes += sum(len(db.values) for db in ctx.keyspace.databases)
    ctx.emit(kinds.Flush(None))
    return OK


def _check_flush_mode(args: list[bytes]) -> None:
    # Both words are accepted and mean the same: memory is freed before the reply.
    if len(args) > 2 or (len(args) == 2 and args[1].upper() not in (b"ASYNC", b"SYNC")):
        raise CommandError(texts.SYNTAX)
