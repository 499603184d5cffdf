"""The rows of the command table: set commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import and_, or_, sub
from typing import Any

from anabranch.commands.request.spec import Command, CommandFunction, KeySpec
from anabranch.commands.set import sets

__all__ = ["COMMANDS"]

Row = partial(Command, group="set")


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
    return Row(
        name,
        function,
        arity=arity,
        flags=flags,
        keys=keys or (KeySpec(use),),
        since=since,
        summary=summary,
        complexity=complexity,
        syntax=syntax,
        tips=tips,
    )


def _combining_row(name: str, combine: Callable[[Any, Any], Any], summary: str) -> Command:
    return _row(
        name,
        sets.combined(combine),
        -2,
        "key [key ...]",
        summary,
        flags="readonly",
        keys=(KeySpec("RO access", last=-1),),
        complexity="O(N log N), N being the members of all sets.",
        tips=("nondeterministic_output_order",),
    )


_GIVEN = "O(N), N being the members given."
_WALK = "O(N log N), N being the members."


COMMANDS: list[Command] = [
    _row(
        "sadd",
        sets.sadd,
        -3,
        "key member [member ...]",
        "Adds members to a set and counts the new ones.",
        flags="write denyoom fast",
        use="RW insert",
        complexity=_GIVEN,
    ),
    _row(
        "srem",
        sets.srem,
        -3,
        "key member [member ...]",
        "Removes members from a set and counts them.",
        flags="write fast",
        use="RW delete",
        complexity=_GIVEN,
    ),
    _row(
        "smove",
        sets.smove,
        4,
        "source destination member",
        "Moves a member from one set to another.",
        flags="write fast",
        keys=(KeySpec("RW access delete"), KeySpec("RW insert", begin=2)),
    ),
    _row(
        "smembers",
        sets.smembers,
        2,
        "key",
        "Lists the members of a set.",
        flags="readonly",
        use="RO access",
        complexity=_WALK,
        tips=("nondeterministic_output_order",),
    ),
    _row(
        "sscan",
        sets.sscan,
        -3,
        "key cursor [MATCH pattern] [COUNT count]",
        "Lists the members of a set, all on one page.",
        flags="readonly",
        use="RO access",
        complexity=_WALK,
        since="2.8.0",
        tips=("nondeterministic_output",),
    ),
    _row(
        "scard",
        sets.scard,
        2,
        "key",
        "Counts the members of a set.",
        flags="readonly fast",
        use="RO",
    ),
    _row(
        "sismember",
        sets.sismember,
        3,
        "key member",
        "Says whether something is a member of a set.",
        flags="readonly fast",
        use="RO",
    ),
    _row(
        "smismember",
        sets.smismember,
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
        sets.spop,
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
        sets.srandmember,
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
