"""Numbers in strings: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT."""

from __future__ import annotations

from anabranch.commands.generic.values import write_as
from anabranch.effects import kinds
from anabranch.engine.arguments import integer as integer_argument
from anabranch.engine.context import Context
from anabranch.engine.spec import CommandFunction
from anabranch.errors import CommandError
from anabranch.keyspace.values import StringValue
from anabranch.resp.encode import bulk, integer

_MIN = -(1 << 63)
_MAX = (1 << 63) - 1
_OVERFLOW = "ERR increment or decrement would overflow"
_NOT_FLOAT = "ERR value is not a valid float"
_INFINITE = "ERR increment would produce NaN or Infinity"


def _store(ctx: Context, key: bytes, data: bytes, event: str) -> None:
    effect = kinds.SetString(ctx.db.index, key, data, keeps_deadline=True, event=event)
    ctx.emit(effect, 1)


def _count(ctx: Context, key: bytes, step: int) -> bytes:
    """Add to the number that a key holds as text; a missing key counts from 0."""
    value = write_as(ctx, key, StringValue)
    number = step + (0 if value is None else integer_argument(value.data))
    if not _MIN <= number <= _MAX:
        raise CommandError(_OVERFLOW)
    _store(ctx, key, b"%d" % number, "incrby")
    return integer(number)


def _one(step: int) -> CommandFunction:
    """The function of INCR or DECR, which adds ``step``."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        return _count(ctx, args[1], step)

    return run


incr = _one(1)
decr = _one(-1)


def incrby(ctx: Context, args: list[bytes]) -> bytes:
    """Add to the number of a key."""
    return _count(ctx, args[1], integer_argument(args[2]))


def decrby(ctx: Context, args: list[bytes]) -> bytes:
    """Subtract from the number of a key."""
    step = integer_argument(args[2])
    if step == _MIN:
        raise CommandError("ERR decrement would overflow")
    return _count(ctx, args[1], -step)


def incrbyfloat(ctx: Context, args: list[bytes]) -> bytes:
    """Add to the decimal number of a key; returns it as text."""
    from anabranch.commands.string import long_double  # noqa: PLC0415 - slow, rarely wanted

    value = write_as(ctx, args[1], StringValue)
    try:
        old = long_double.parse(b"0" if value is None else value.data)
        step = long_double.parse(args[2])
        if old is None or step is None:
            raise CommandError(_NOT_FLOAT)
        data = long_double.shown(long_double.total(old, step))
    except OverflowError:
        raise CommandError(_INFINITE) from None
    _store(ctx, args[1], data, "incrbyfloat")
    return bulk(data)
