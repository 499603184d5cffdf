"""The rows of the command table: list commands."""

from __future__ import annotations

from functools import partial

from anabranch.commands.list import lists, moves
from anabranch.commands.request.spec import Command, CommandFunction, KeySpec

__all__ = ["COMMANDS"]

Row = partial(Command, group="list")


def _row(
    name: str,
    function: CommandFunction,
    arity: int,
    syntax: str,
    summary: str,
    complexity: str,
    *,
    flags: str,
    use: str,
    since: str = "1.0.0",
    history: tuple[tuple[str, str], ...] = (),
) -> Command:
    return Row(
        name,
        function,
        arity=arity,
        flags=flags,
        keys=(KeySpec(use),),
        since=since,
        summary=summary,
        complexity=complexity,
        syntax=syntax,
        history=history,
    )


def _push_row(name: str, where: str, *, tail: bool) -> Command:
    makes = not name.endswith("x")
    what = "a list" if makes else "a list that exists"
    return _row(
        name,
        lists.push(tail=tail, makes=makes),
        -3,
        "key element [element ...]",
        f"Puts items one after the other at the {where} of {what}.",
        "O(N), N being the items given.",
        flags="write denyoom fast",
        use="RW insert",
        since="1.0.0" if makes else "2.2.0",
    )


def _pop_row(name: str, where: str, *, tail: bool) -> Command:
    return _row(
        name,
        lists.pop(name, tail=tail),
        -2,
        "key [count]",
        f"Takes items off the {where} of a list.",
        "O(N), N being the items taken.",
        flags="write fast",
        use="RW access delete",
    )


_WALK = "O(N), N being the items of the list."


def _moves_pop_row(name: str, where: str, *, tail: bool) -> Command:
    return Row(
        name,
        moves.pop_or_wait(tail=tail),
        arity=-3,
        flags="write blocking",
        keys=(KeySpec("RW access delete", last=-2),),
        since="2.0.0",
        summary=f"Takes the {where} of the first of some lists that has one, or waits for it.",
        complexity="O(N), N being the keys given.",
        syntax="key [key ...] timeout",
    )


def _move_row(
    name: str, function: CommandFunction, syntax: str, summary: str, since: str
) -> Command:
    arguments = ["source", "destination", *syntax.split()]
    blocks = name.startswith("b")
    return Row(
        name,
        function,
        arity=1 + len(arguments) - 2 * syntax.count("|"),
        flags="write denyoom blocking" if blocks else "write denyoom",
        keys=(KeySpec("RW access delete"), KeySpec("RW insert", begin=2)),
        since=since,
        summary=summary,
        syntax=" ".join(arguments),
    )


_SIDES = "<LEFT | RIGHT> <LEFT | RIGHT>"
_TAIL_TO_HEAD = "Moves the tail of a list to the head of another"
_MOVES = "Moves an item from one end of a list to an end of another"


COMMANDS: list[Command] = [
    # list/lists.py
    _push_row("lpush", "head", tail=False),
    _push_row("rpush", "tail", tail=True),
    _push_row("lpushx", "head", tail=False),
    _push_row("rpushx", "tail", tail=True),
    _pop_row("lpop", "head", tail=False),
    _pop_row("rpop", "tail", tail=True),
    _row(
        "llen",
        lists.llen,
        2,
        "key",
        "Counts the items of a list.",
        "O(1)",
        flags="readonly fast",
        use="RO",
    ),
    _row(
        "lrange",
        lists.lrange,
        4,
        "key start stop",
        "Lists the items between two positions of a list.",
        "O(N), N being the items up to the last one wanted.",
        flags="readonly",
        use="RO access",
    ),
    _row(
        "lindex",
        lists.lindex,
        3,
        "key index",
        "Gives the item at a position of a list.",
        _WALK,
        flags="readonly",
        use="RO access",
    ),
    _row(
        "lpos",
        lists.lpos,
        -3,
        "key element [RANK rank] [COUNT num-matches] [MAXLEN len]",
        "Finds the positions of equal items in a list.",
        _WALK,
        flags="readonly",
        use="RO access",
        since="6.0.6",
    ),
    _row(
        "lset",
        lists.lset,
        4,
        "key index element",
        "Puts an item in the place of another in a list.",
        _WALK,
        flags="write denyoom",
        use="RW update",
    ),
    _row(
        "linsert",
        lists.linsert,
        5,
        "key <BEFORE | AFTER> pivot element",
        "Puts an item before or after another in a list.",
        _WALK,
        flags="write denyoom",
        use="RW insert",
        since="2.2.0",
    ),
    _row(
        "lrem",
        lists.lrem,
        4,
        "key count element",
        "Takes equal items out of a list.",
        _WALK,
        flags="write",
        use="RW delete",
    ),
    _row(
        "ltrim",
        lists.ltrim,
        4,
        "key start stop",
        "Keeps only the items between two positions of a list.",
        "O(N), N being the items that go.",
        flags="write",
        use="RW delete",
    ),
    # list/moves.py
    _moves_pop_row("blpop", "head", tail=False),
    _moves_pop_row("brpop", "tail", tail=True),
    _move_row("lmove", moves.lmove, _SIDES, f"{_MOVES}.", "6.2.0"),
    _move_row("blmove", moves.blmove, f"{_SIDES} timeout", f"{_MOVES}, or waits for it.", "6.2.0"),
    _move_row("rpoplpush", moves.rpoplpush, "", f"{_TAIL_TO_HEAD}.", "1.2.0"),
    _move_row(
        "brpoplpush",
        moves.brpoplpush,
        "timeout",
        f"{_TAIL_TO_HEAD}, or waits for it.",
        "2.2.0",
    ),
]
