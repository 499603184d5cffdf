"""Sets: members are added, removed, moved, drawn and compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_, sub
from typing import Any

from anabranch.commands import texts
from anabranch.commands.arguments import natural, symmetric
from anabranch.commands.context import Context
from anabranch.commands.spec import Command, CommandFunction, KeySpec
from anabranch.commands.values import peek_as, read_as, write_as
from anabranch.effects import kinds
from anabranch.errors import CommandError
from anabranch.keyspace.values import SetValue
from anabranch.resp.encode import EMPTY_ARRAY, ONE, ZERO, bulk, integer, null
from anabranch.resp.values import SetReply

__all__ = ["COMMANDS"]


def _members(value: SetValue | None) -> set[bytes]:
    return set() if value is None else value.members


def sadd(ctx: Context, args: list[bytes]) -> bytes:
    """Add members to a set; returns how many were new."""
    known = _members(write_as(ctx, args[1], SetValue))
    fresh = [member for member in dict.fromkeys(args[2:]) if member not in known]
    if fresh:
        ctx.emit(kinds.AddMembers(ctx.db.index, args[1], fresh))
        ctx.changes += len(fresh)
    return integer(len(fresh))


def _remove(ctx: Context, key: bytes, members: list[bytes], event: str = "srem") -> None:
    if members:
        ctx.emit(kinds.RemoveMembers(ctx.db.index, key, members, event))
        ctx.changes += len(members)


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
        if member not in there:
            ctx.emit(kinds.AddMembers(ctx.db.index, target, [member]))
            ctx.changes += 1
    return ONE


def smembers(ctx: Context, args: list[bytes]) -> bytes:
    """All members of a set."""
    return ctx.reply(SetReply(sorted(_members(read_as(ctx, args[1], SetValue)))))


def scard(ctx: Context, args: list[bytes]) -> bytes:
    """How many members a set has."""
    return integer(len(_members(read_as(ctx, args[1], SetValue))))


def sismember(ctx: Context, args: list[bytes]) -> bytes:
    """Whether something is a member of a set."""
    return ONE if args[2] in _members(read_as(ctx, args[1], SetValue)) else ZERO


def smismember(ctx: Context, args: list[bytes]) -> bytes:
    """Which of some are members of a set."""
    known = _members(read_as(ctx, args[1], SetValue))
    return ctx.reply([int(member in known) for member in args[2:]])


def _combined(combine: Callable[[Any, Any], Any]) -> CommandFunction:
    """SINTER, SUNION or SDIFF."""

    def run(ctx: Context, args: list[bytes]) -> bytes:
        sets = [_members(read_as(ctx, key, SetValue)) for key in args[1:]]
        return ctx.reply(SetReply(sorted(reduce(combine, sets))))

    return run


def _drawn(ctx: Context, members: set[bytes], count: int) -> list[bytes]:
    """So many different members by chance."""
    left = sorted(members)
    for at in range(min(count, len(left))):
        other = at + ctx.host.random_below(len(left) - at)
        left[at], left[other] = left[other], left[at]
    return left[:count]


def spop(ctx: Context, args: list[bytes]) -> bytes:
    """Take members out of a set by chance: one, or several."""
    if len(args) > 3:
        raise CommandError(texts.SYNTAX)
    count = None
    if len(args) == 3:
        count = natural(args[2])
    value = write_as(ctx, args[1], SetValue)
    if value is None:
        return null(ctx.resp3) if count is None else ctx.reply(SetReply(()))
    taken = _drawn(ctx, value.members, 1 if count is None else count)
    _remove(ctx, args[1], taken, "spop")
    return bulk(taken[0]) if count is None else ctx.reply(SetReply(taken))


def srandmember(ctx: Context, args: list[bytes]) -> bytes:
    """Members of a set by chance; with a negative count the same may come again."""
    if len(args) > 3:
        raise CommandError(texts.SYNTAX)
    count = None
    if len(args) == 3:
        count = symmetric(args[2])
    value = read_as(ctx, args[1], SetValue)
    if value is None:
        return null(ctx.resp3) if count is None else EMPTY_ARRAY
    if count is None:
        return bulk(_drawn(ctx, value.members, 1)[0])
    if count >= 0:
        return ctx.reply(_drawn(ctx, value.members, count))
    if -count > _REPEATED_MAX:
        raise CommandError("ERR value is out of range")
    members = sorted(value.members)
    return ctx.reply([members[ctx.host.random_below(len(members))] for _ in range(-count)])


def _row(
    name: str,
    function: CommandFunction,
    arity: int,
    syntax: str,
    summary: str,
    *,
    flags: str,
    use: str = "",
    keys: tuple[KeySpec, ...] = (),
    complexity: str = "O(1)",
    since: str = "1.0.0",
    tips: tuple[str, ...] = (),
) -> Command:
    words = flags.split()
    kind = "read" if "readonly" in words else "write"
    speed = "fast" if "fast" in words else "slow"
    return Command(
        name,
        function,
        arity=arity,
        flags=flags,
        categories=f"{kind} set {speed}",
        keys=keys or (KeySpec(use),),
        since=since,
        group="set",
        summary=summary,
        complexity=complexity,
        syntax=syntax,
        tips=tips,
    )


def _combining_row(name: str, combine: Callable[[Any, Any], Any], summary: str) -> Command:
    return _row(
        name,
        _combined(combine),
        -2,
        "key [key ...]",
        summary,
        flags="readonly",
        keys=(KeySpec("RO access", last=-1),),
        complexity="O(N log N), N being the members of all sets.",
        tips=("nondeterministic_output_order",),
    )


_REPEATED_MAX = 1_000_000
_GIVEN = "O(N), N being the members given."
_WALK = "O(N log N), N being the members."

COMMANDS: list[Command] = [
    _row(
        "sadd",
        sadd,
        -3,
        "key member [member ...]",
        "Adds members to a set and counts the new ones.",
        flags="write denyoom fast",
        use="RW insert",
        complexity=_GIVEN,
    ),
    _row(
        "srem",
        srem,
        -3,
        "key member [member ...]",
        "Removes members from a set and counts them.",
        flags="write fast",
        use="RW delete",
        complexity=_GIVEN,
    ),
    _row(
        "smove",
        smove,
        4,
        "source destination member",
        "Moves a member from one set to another.",
        flags="write fast",
        keys=(KeySpec("RW access delete"), KeySpec("RW insert", begin=2)),
    ),
    _row(
        "smembers",
        smembers,
        2,
        "key",
        "Lists the members of a set.",
        flags="readonly",
        use="RO access",
        complexity=_WALK,
        tips=("nondeterministic_output_order",),
    ),
    _row(
        "scard",
        scard,
        2,
        "key",
        "Counts the members of a set.",
        flags="readonly fast",
        use="RO",
    ),
    _row(
        "sismember",
        sismember,
        3,
        "key member",
        "Says whether something is a member of a set.",
        flags="readonly fast",
        use="RO",
    ),
    _row(
        "smismember",
        smismember,
        -3,
        "key member [member ...]",
        "Says which of some are members of a set.",
        flags="readonly fast",
        use="RO access",
        complexity=_GIVEN,
        since="6.2.0",
    ),
    _row(
        "spop",
        spop,
        -2,
        "key [count]",
        "Takes members out of a set by chance.",
        flags="write fast",
        use="RW access delete",
        complexity=_WALK,
        tips=("nondeterministic_output",),
    ),
    _row(
        "srandmember",
        srandmember,
        -2,
        "key [count]",
        "Gives members of a set by chance.",
        flags="readonly",
        use="RO access",
        complexity=_WALK,
        tips=("nondeterministic_output",),
    ),
    _combining_row("sinter", and_, "Gives the members that all of some sets have."),
    _combining_row("sunion", or_, "Gives the members that any of some sets has."),
    _combining_row("sdiff", sub, "Gives the members of a set that no other has."),
]
