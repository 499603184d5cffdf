"""Blocking list commands, and items that move between lists: BLPOP, BRPOP, LMOVE and others."""

from __future__ import annotations

from math import ceil

from anabranch.commands.generic.values import peek_as, write_as
from anabranch.commands.list.lists import pop_items
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.engine.spec import CommandFunction
from anabranch.errors import CommandError
from anabranch.keyspace.values import ListValue, Value
from anabranch.resp.encode import bulk, null, null_array

_TIMEOUT_NOT_FLOAT = "ERR timeout is not a float or out of range"
_TIMEOUT_MAX_MS = (1 << 63) - 1
_USUAL_DIGITS = 9


_ENDS = {b"LEFT": False, b"RIGHT": True}  # whether it is the tail


def _timeout_ms(raw: bytes) -> int:
    """A timeout in seconds with fractions; 0 waits for ever, and so does what rounds up to 0."""
    if raw.isdigit() and len(raw) <= _USUAL_DIGITS:
        return int(raw) * 1000
    from anabranch.commands.string import long_double  # noqa: PLC0415 - slow, rarely wanted

    seconds = long_double.parse(raw)
    if seconds is None:
        raise CommandError(_TIMEOUT_NOT_FLOAT)
    if seconds * 1000 > _TIMEOUT_MAX_MS:
        raise CommandError("ERR timeout is out of range")
    ms = -1 if seconds < -1 else ceil(long_double.rounded_of(seconds * 1000))
    if ms < 0:
        raise CommandError("ERR timeout is negative")
    return ms


def _is_list(value: Value | None) -> bool:
    return isinstance(value, ListValue)


def _pop_or_wait(*, tail: bool) -> CommandFunction:
    """The function of BLPOP, or of BRPOP, which pops at the tail."""

    def run(ctx: Context, args: list[bytes]) -> bytes | None:
        timeout_ms = _timeout_ms(args[-1])
        keys = args[1:-1]
        for key in keys:
            if ctx.waiter is not None and not _is_list(ctx.lookup(key)):
                continue  # a value of another type does not end the wait
            value = write_as(ctx, key, ListValue)
            if value is not None:
                return ctx.reply([key, *pop_items(ctx, key, value, 1, tail=tail)])
        if ctx.in_exec:
            return null_array(ctx.resp3)
        ctx.block(keys, args, timeout_ms, _is_list, null_array(ctx.resp3))
        return None

    return run


blpop = _pop_or_wait(tail=False)
brpop = _pop_or_wait(tail=True)


def _end(raw: bytes) -> bool:
    tail = _ENDS.get(raw.upper())
    if tail is None:
        raise CommandError(texts.SYNTAX)
    return tail


def _move(
    ctx: Context, source: bytes, target: bytes, *, from_tail: bool, to_tail: bool
) -> bytes | None:
    """Move an item; None if there is no source."""
    value = write_as(ctx, source, ListValue)
    if value is None:
        return None
    peek_as(ctx.lookup(target), ListValue)
    item = value.items[-1 if from_tail else 0]
    db = ctx.db.index
    # In this order a list of one item that is moved onto itself is never empty.
    ctx.emit(kinds.Push(db, target, [item], tail=to_tail))
    ctx.emit(kinds.Pop(db, source, 1, from_tail), 1)
    return bulk(item)


def _mover(*, has_ends: bool, waits: bool) -> CommandFunction:
    """LMOVE or BLMOVE, which waits for an item; RPOPLPUSH or BRPOPLPUSH if the ends are given."""

    def run(ctx: Context, args: list[bytes]) -> bytes | None:
        from_tail, to_tail = (_end(args[3]), _end(args[4])) if has_ends else (True, False)
        timeout_ms = _timeout_ms(args[-1]) if waits else 0
        source = args[1]
        moved = None
        if ctx.waiter is None or _is_list(ctx.lookup(source)):
            moved = _move(ctx, source, args[2], from_tail=from_tail, to_tail=to_tail)
        if moved is not None:
            return moved
        if ctx.in_exec or not waits:
            return null(ctx.resp3)
        ctx.block([source], args, timeout_ms, _is_list, null_array(ctx.resp3))
        return None

    return run


lmove = _mover(has_ends=True, waits=False)
rpoplpush = _mover(has_ends=False, waits=False)
blmove = _mover(has_ends=True, waits=True)
brpoplpush = _mover(has_ends=False, waits=True)
