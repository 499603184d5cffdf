"""Sets: members are added, removed, moved, drawn and compared."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import reduce
from operator import and_, or_, sub
from typing import Any

from anabranch.commands.generic.values import peek_as, read_as, write_as
from anabranch.effects import kinds
from anabranch.engine import scanning, texts
from anabranch.engine.arguments import natural, symmetric
from anabranch.engine.context import Context
from anabranch.engine.spec import CommandFunction
from anabranch.errors import CommandError
from anabranch.keyspace.values import DrawOrder, SetValue, in_order
from anabranch.resp.encode import EMPTY_ARRAY, ONE, ZERO, bulk, integer, null
from anabranch.resp.values import SetReply


def _members(value: SetValue | None) -> Set[bytes]:
    return frozenset() if value is None else value.members


def sadd(ctx: Context, args: list[bytes]) -> bytes:
    """Add members to a set; returns how many were new."""
    known = _members(write_as(ctx, args[1], SetValue))
    members = list(dict.fromkeys(args[2:]))
    fresh = [member for member in members if member not in known]
    _add(ctx, args[1], members, fresh)
    return integer(len(fresh))


def _add(ctx: Context, key: bytes, members: list[bytes], fresh: list[bytes]) -> None:
    """Add members, of which some are new."""
    if ctx.effects.mode.renews_members:
        ctx.emit(kinds.AddMembers(ctx.db.index, key, members))
    elif fresh:
        ctx.emit(kinds.AddMembers(ctx.db.index, key, fresh))
    ctx.changes += len(fresh)


def _remove(ctx: Context, key: bytes, members: list[bytes], event: str = "srem") -> None:
    if members:
        ctx.emit(kinds.RemoveMembers(ctx.db.index, key, members, event), len(members))


def srem(ctx: Context, args: list[bytes]) -> bytes:
    """Remove members from a set; returns how many were there."""
    known = _members(write_as(ctx, args[1], SetValue))
    gone = [member for member in dict.fromkeys(args[2:]) if member in known]
    _remove(ctx, args[1], gone)
    return integer(len(gone))


def smove(ctx: Context, args: list[bytes]) -> bytes:
    """Move a member from one set to another."""
    source, target, member = args[1:]
    value = ctx.lookup(source)
    if value is None:
        return ZERO
    known = _members(peek_as(value, SetValue))
    there = _members(peek_as(ctx.lookup(target), SetValue))
    if member not in known:
        return ZERO
    if source != target:
        _remove(ctx, source, [member])
        _add(ctx, target, [member], [] if member in there else [member])
    return ONE


def smembers(ctx: Context, args: list[bytes]) -> bytes | None:
    """SMEMBERS key: all members; an empty set if the key is missing."""
    return ctx.long_reply(args, SetReply(in_order(_members(read_as(ctx, args[1], SetValue)))))


def sscan(ctx: Context, args: list[bytes]) -> bytes:
    """An iteration over the members of a set: one page, as in Redis for a set that is small."""
    scanning.cursor(args[2])
    value = read_as(ctx, args[1], SetValue)
    found: list[bytes] = []
    if value is not None:
        matches = scanning.scan_options(args[3:], over_keys=False).matches
        members = value.members
        found = in_order(members if matches is None else list(filter(matches, members)))
    return ctx.reply([b"0", found])


def scard(ctx: Context, args: list[bytes]) -> bytes:
    """How many members a set has."""
    return integer(len(_members(read_as(ctx, args[1], SetValue))))


def sismember(ctx: Context, args: list[bytes]) -> bytes:
    """Whether something is a member of a set."""
    return ONE if args[2] in _members(read_as(ctx, args[1], SetValue)) else ZERO


def smismember(ctx: Context, args: list[bytes]) -> bytes | None:
    """Which of several are members of a set."""
    known = _members(read_as(ctx, args[1], SetValue))
    return ctx.long_reply(args, [int(member in known) for member in args[2:]])


def _combined(combine: Callable[[Any, Any], Any]) -> CommandFunction:
    """The function of SINTER, SUNION or SDIFF; the first set is on the left of ``combine``."""

    def run(ctx: Context, args: list[bytes]) -> bytes | None:
        sets = [_members(read_as(ctx, key, SetValue)) for key in args[1:]]
        return ctx.long_reply(args, SetReply(in_order(reduce(combine, sets))))

    return run


sinter = _combined(and_)
sunion = _combined(or_)
sdiff = _combined(sub)


def _drawn(ctx: Context, value: SetValue, count: int) -> list[bytes]:
    """Choose ``count`` different members at random, each with equal chance."""
    random_below = ctx.server.host.random_below
    if count * 2 < len(value.members):
        order = _order(ctx, value)
        found: dict[bytes, None] = {}
        while len(found) < count:
            found[order.draw(random_below)] = None
        return list(found)
    left = in_order(value.members)
    for at in range(min(count, len(left))):
        other = at + random_below(len(left) - at)
        left[at], left[other] = left[other], left[at]
    return left[:count]


def _order(ctx: Context, value: SetValue) -> DrawOrder:
    if value.order is None:
        value.order = DrawOrder(value.members)
        if not value.is_due:
            ctx.keyspace.account.changed(value)
    return value.order


def spop(ctx: Context, args: list[bytes]) -> bytes:
    """Remove random members of a set: one, or several."""
    if len(args) > 3:
        raise CommandError(texts.SYNTAX)
    count = None
    if len(args) == 3:
        count = natural(args[2])
    value = write_as(ctx, args[1], SetValue)
    if value is None:
        return null(ctx.resp3) if count is None else ctx.reply(SetReply(()))
    taken = _drawn(ctx, value, 1 if count is None else count)
    _remove(ctx, args[1], taken, "spop")
    return bulk(taken[0]) if count is None else ctx.reply(SetReply(taken))


def srandmember(ctx: Context, args: list[bytes]) -> bytes:
    """Random members of a set; with a negative count a member may occur again."""
    if len(args) > 3:
        raise CommandError(texts.SYNTAX)
    count = None
    if len(args) == 3:
        count = symmetric(args[2])
    value = read_as(ctx, args[1], SetValue)
    if value is None:
        return null(ctx.resp3) if count is None else EMPTY_ARRAY
    if count is None:
        return bulk(_drawn(ctx, value, 1)[0])
    if count >= 0:
        return ctx.reply(_drawn(ctx, value, count))
    if -count > _REPEATED_MAX:
        raise CommandError("ERR value is out of range")
    order = _order(ctx, value)
    return ctx.reply([order.draw(ctx.server.host.random_below) for _ in range(-count)])


_REPEATED_MAX = 1_000_000
