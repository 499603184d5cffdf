"""Lists, as small as tests need them: LPUSH, RPUSH, LPOP, LRANGE, BLPOP."""

from __future__ import annotations

import re
from itertools import islice
from math import ceil

from anabranch.commands import texts
from anabranch.commands.arguments import integer as integer_argument
from anabranch.commands.context import Context
from anabranch.commands.spec import Command, CommandFunction, KeySpec
from anabranch.commands.values import read_as, write_as
from anabranch.effects import kinds
from anabranch.errors import CommandError
from anabranch.keyspace.values import ListValue, Value
from anabranch.resp.encode import EMPTY_ARRAY, bulk, integer, null, null_array

__all__ = ["COMMANDS"]

_TIMEOUT_NOT_FLOAT = "ERR timeout is not a float or out of range"
_TIMEOUT_MAX_MS = (1 << 63) - 1
_DECIMAL = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")


def _push(*, tail: bool) -> CommandFunction:
    """LPUSH or RPUSH."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        key = args[1]
        value = write_as(ctx, key, ListValue)
        before = 0 if value is None else len(value.items)
        items = args[2:]
        ctx.emit(kinds.Push(ctx.db.index, key, items, tail=tail))
        ctx.changes += len(items)
        return integer(before + len(items))

    return run


def lpop(ctx: Context, args: list[bytes]) -> bytes:
    """Take items off the head of a list: one, or an array of several."""
    if len(args) > 3:
        raise texts.wrong_arity("lpop")
    count = None
    if len(args) == 3:
        count = integer_argument(args[2])
        if count < 0:
            raise CommandError("ERR value is out of range, must be positive")
    value = write_as(ctx, args[1], ListValue)
    if value is None:
        return null(ctx.resp3) if count is None else null_array(ctx.resp3)
    if count == 0:
        return EMPTY_ARRAY
    taken = _take(ctx, args[1], value, count or 1)
    return bulk(taken[0]) if count is None else ctx.reply(taken)


def _take(ctx: Context, key: bytes, value: ListValue, count: int) -> list[bytes]:
    taken = list(islice(value.items, count))
    ctx.emit(kinds.Pop(ctx.db.index, key, len(taken)))
    ctx.changes += len(taken)
    return taken


def lrange(ctx: Context, args: list[bytes]) -> bytes:
    """Items between two positions, negative ones counted from the end."""
    start = integer_argument(args[2])
    stop = integer_argument(args[3])
    value = read_as(ctx, args[1], ListValue)
    if value is None:
        return EMPTY_ARRAY
    size = len(value.items)
    first = max(0, start + size if start < 0 else start)
    last = min(size - 1, stop + size if stop < 0 else stop)
    if first > last:
        return EMPTY_ARRAY
    return ctx.reply(list(islice(value.items, first, last + 1)))


def _timeout_ms(raw: bytes) -> int:
    """A timeout in seconds with fractions; 0 waits for ever."""
    if not _DECIMAL.fullmatch(raw):
        raise CommandError(_TIMEOUT_NOT_FLOAT)
    seconds = float(raw)
    if seconds < 0:
        raise CommandError("ERR timeout is negative")
    if seconds * 1000 > _TIMEOUT_MAX_MS:
        raise CommandError("ERR timeout is out of range")
    return ceil(seconds * 1000)


def _is_list(value: Value | None) -> bool:
    return isinstance(value, ListValue)


def blpop(ctx: Context, args: list[bytes]) -> bytes | None:
    """Take the head of the first list that has one, or wait for it."""
    timeout_ms = _timeout_ms(args[-1])
    keys = args[1:-1]
    for key in keys:
        if ctx.waiter is not None and not _is_list(ctx.lookup(key)):
            continue  # what is no list when the wait ends does not concern the waiting
        value = write_as(ctx, key, ListValue)
        if value is not None:
            return ctx.reply([key, *_take(ctx, key, value, 1)])
    nothing = null_array(ctx.resp3)
    if ctx.in_exec:
        return nothing
    deadline_ms = ctx.now_ms + timeout_ms if timeout_ms else 0
    ctx.block(keys, args, deadline_ms, _is_list, nothing)
    return None


def _push_row(name: str, where: str, *, tail: bool) -> Command:
    return Command(
        name,
        _push(tail=tail),
        arity=-3,
        flags="write denyoom fast",
        categories="write list fast",
        keys=(KeySpec("RW insert"),),
        group="list",
        summary=f"Puts items one after the other at the {where} of a list.",
        complexity="O(N), N being the items given.",
        syntax="key element [element ...]",
    )


COMMANDS: list[Command] = [
    _push_row("lpush", "head", tail=False),
    _push_row("rpush", "tail", tail=True),
    Command(
        "lpop",
        lpop,
        arity=-2,
        flags="write fast",
        categories="write list fast",
        keys=(KeySpec("RW access delete"),),
        group="list",
        summary="Takes items off the head of a list.",
        complexity="O(N), N being the items taken.",
        syntax="key [count]",
    ),
    Command(
        "lrange",
        lrange,
        arity=4,
        flags="readonly",
        categories="read list slow",
        keys=(KeySpec("RO access"),),
        group="list",
        summary="Lists the items between two positions of a list.",
        complexity="O(N), N being the items up to the last one wanted.",
        syntax="key start stop",
    ),
    Command(
        "blpop",
        blpop,
        arity=-3,
        flags="write blocking",
        categories="write list slow blocking",
        keys=(KeySpec("RW access delete", last=-2),),
        since="2.0.0",
        group="list",
        summary="Takes the head of the first of some lists that has one, or waits for it.",
        complexity="O(N), N being the keys given.",
        syntax="key [key ...] timeout",
    ),
]
