"""Deadlines of keys: the EXPIRE and TTL families, PERSIST."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.commands.generic.keys import peek
from anabranch.effects import kinds
from anabranch.engine.arguments import integer as integer_argument
from anabranch.engine.context import Context
from anabranch.engine.spec import CommandFunction
from anabranch.errors import CommandError
from anabranch.resp.encode import ONE, ZERO, integer

_MS_MAX = (1 << 63) - 1
_MS_MIN = -(1 << 63)
_CONDITIONS = frozenset((b"NX", b"XX", b"GT", b"LT"))
_NEVER = b":-1\r\n"
_MISSING = b":-2\r\n"


def absolute_ms(amount: int, *, per_unit: int, base_ms: int, command: str) -> int:
    """A time in seconds (``per_unit`` 1000) or milliseconds after ``base_ms``, as wall-clock ms.

    A value that does not fit into a signed 64-bit integer at any step is refused.
    """
    at_ms = amount * per_unit
    if not _MS_MIN <= at_ms <= _MS_MAX - base_ms:
        raise CommandError(f"ERR invalid expire time in '{command}' command")
    return at_ms + base_ms


def _conditions(words: list[bytes]) -> set[bytes]:
    given = set()
    for raw in words:
        word = raw.upper()
        if word not in _CONDITIONS:
            raise CommandError(b"ERR Unsupported option " + raw)
        given.add(word)
    if b"NX" in given and len(given) > 1:
        raise CommandError("ERR NX and XX, GT or LT options at the same time are not compatible")
    if b"GT" in given and b"LT" in given:
        raise CommandError("ERR GT and LT options at the same time are not compatible")
    return given


def _allowed(conditions: set[bytes], at_ms: int, current_ms: int | None) -> bool:
    """Whether the conditions let a deadline replace the current one; none is like infinity."""
    if current_ms is None:
        return not conditions & {b"XX", b"GT"}
    return not (
        b"NX" in conditions
        or (b"GT" in conditions and at_ms <= current_ms)
        or (b"LT" in conditions and at_ms >= current_ms)
    )


def _expiring(name: str, *, per_unit: int, relative: bool) -> CommandFunction:
    """EXPIRE, PEXPIRE, EXPIREAT or PEXPIREAT."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        key = args[1]
        conditions = _conditions(args[3:])
        at_ms = absolute_ms(
            integer_argument(args[2]),
            per_unit=per_unit,
            base_ms=ctx.now_ms if relative else 0,
            command=name,
        )
        if ctx.use(key) is None:
            return ZERO
        if conditions and not _allowed(conditions, at_ms, ctx.db.deadlines.get(key)):
            return ZERO
        if at_ms <= ctx.now_ms:
            ctx.emit(kinds.Delete(ctx.db.index, key, False))
        else:
            ctx.emit(kinds.Expire(ctx.db.index, key, at_ms))
        ctx.changes += 1
        return ONE

    return run


expire = _expiring("expire", per_unit=1000, relative=True)
pexpire = _expiring("pexpire", per_unit=1, relative=True)
expireat = _expiring("expireat", per_unit=1000, relative=False)
pexpireat = _expiring("pexpireat", per_unit=1, relative=False)


def _telling(answer: Callable[[Context, int], int]) -> CommandFunction:
    """TTL, PTTL, EXPIRETIME or PEXPIRETIME: the reply about a deadline."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        if peek(ctx, args[1]) is None:
            return _MISSING
        deadline = ctx.db.deadlines.get(args[1])
        return _NEVER if deadline is None else integer(answer(ctx, deadline))

    return run


def left_ms(ctx: Context, deadline: int) -> int:
    """The milliseconds until a deadline."""
    return max(0, deadline - ctx.now_ms)


def in_seconds(ms: int) -> int:
    """Milliseconds as whole seconds, rounded."""
    return (ms + 500) // 1000


ttl = _telling(lambda ctx, deadline: in_seconds(left_ms(ctx, deadline)))
pttl = _telling(left_ms)
expiretime = _telling(lambda _, deadline: in_seconds(deadline))
pexpiretime = _telling(lambda _, deadline: deadline)


def persist(ctx: Context, args: list[bytes]) -> bytes:
    """Remove the deadline of a key."""
    key = args[1]
    if ctx.use(key) is None or key not in ctx.db.deadlines:
        return ZERO
    ctx.emit(kinds.Expire(ctx.db.index, key, None), 1)
    return ONE
