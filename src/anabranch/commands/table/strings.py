"""The rows of the command table: string commands."""

from __future__ import annotations

from functools import partial

from anabranch.commands.request.spec import Command, CommandFunction, KeySpec
from anabranch.commands.string import numbers, strings

__all__ = ["COMMANDS"]

Row = partial(Command, group="string")


def _row(
    name: str,
    function: CommandFunction,
    arity: int,
    syntax: str,
    summary: str,
    *,
    reads: bool = False,
    fast: bool = True,
    grows: bool = True,
    use: str = "",
    keys: KeySpec | None = None,
    since: str = "1.0.0",
    complexity: str = "O(1)",
    tips: tuple[str, ...] = (),
) -> Command:
    """A row of a command on strings; ``use`` is what its key specification says."""
    kind = "readonly" if reads else "write denyoom" if grows else "write"
    return Row(
        name,
        function,
        arity=arity,
        flags=f"{kind} fast" if fast else kind,
        keys=(keys or KeySpec(use),),
        since=since,
        summary=summary,
        complexity=complexity,
        syntax=syntax,
        tips=tips,
    )


_EXPIRATION = "EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds"
_EACH = "O(N), N being the keys given."
_PAIRS = "key value [key value ...]"


def _numbers_row(
    name: str,
    function: CommandFunction,
    summary: str,
    argument: str = "",
    since: str = "1.0.0",
) -> Command:
    return Row(
        name,
        function,
        arity=3 if argument else 2,
        flags="write denyoom fast",
        keys=(KeySpec("RW access update"),),
        since=since,
        summary=summary,
        syntax=f"key {argument}".strip(),
    )


COMMANDS: list[Command] = [
    # string/strings.py
    Row(
        "set",
        strings.set_string,
        arity=-3,
        flags="write denyoom",
        keys=(KeySpec("RW access update variable_flags"),),
        find_keys=strings.keys_of_set,
        summary="Sets a key to a string and replaces its value.",
        syntax=f"key value [NX | XX] [GET] [{_EXPIRATION} | KEEPTTL]",
    ),
    _row("get", strings.get, 2, "key", "Gives the string of a key.", reads=True, use="RO access"),
    _row(
        "getset",
        strings.getset,
        3,
        "key value",
        "Binds a key to a string and gives the old one.",
        use="RW access update",
    ),
    _row(
        "getdel",
        strings.getdel,
        2,
        "key",
        "Gives the string of a key and deletes the key.",
        grows=False,
        use="RW access delete",
        since="6.2.0",
    ),
    _row(
        "getex",
        strings.getex,
        -2,
        f"key [{_EXPIRATION} | PERSIST]",
        "Gives the string of a key and changes the key's deadline.",
        grows=False,
        keys=KeySpec("RW access update", notes="RW and UPDATE because it changes the TTL"),
        since="6.2.0",
    ),
    _row(
        "setnx", strings.setnx, 3, "key value", "Binds a key that does not exist.", use="OW insert"
    ),
    _row(
        "setex",
        strings.set_for("setex", 1000),
        4,
        "key seconds value",
        "Binds a key to a string for some seconds.",
        fast=False,
        use="OW update",
        since="2.0.0",
    ),
    _row(
        "psetex",
        strings.set_for("psetex", 1),
        4,
        "key milliseconds value",
        "Binds a key to a string for some milliseconds.",
        fast=False,
        use="OW update",
        since="2.6.0",
    ),
    _row(
        "mget",
        strings.mget,
        -2,
        "key [key ...]",
        "Gives the strings of several keys.",
        reads=True,
        keys=KeySpec("RO access", last=-1),
        complexity=_EACH,
        tips=("request_policy:multi_shard",),
    ),
    _row(
        "mset",
        strings.mset,
        -3,
        _PAIRS,
        "Binds several keys.",
        fast=False,
        keys=KeySpec("OW update", last=-1, step=2),
        since="1.0.1",
        complexity=_EACH,
        tips=("request_policy:multi_shard", "response_policy:all_succeeded"),
    ),
    _row(
        "msetnx",
        strings.msetnx,
        -3,
        _PAIRS,
        "Binds several keys if none of them exists.",
        fast=False,
        keys=KeySpec("OW insert", last=-1, step=2),
        since="1.0.1",
        complexity=_EACH,
        tips=("request_policy:multi_shard", "response_policy:agg_min"),
    ),
    _row(
        "strlen",
        strings.strlen,
        2,
        "key",
        "Counts the bytes of a string.",
        reads=True,
        use="RO",
        since="2.2.0",
    ),
    _row(
        "append",
        strings.append,
        3,
        "key value",
        "Puts bytes at the end of a string and gives its length.",
        use="RW insert",
        since="2.0.0",
        complexity="O(N), N being the bytes of the string.",
    ),
    _row(
        "getrange",
        strings.getrange,
        4,
        "key start end",
        "Gives the bytes of a string between two positions.",
        reads=True,
        fast=False,
        use="RO access",
        since="2.4.0",
        complexity="O(N), N being the bytes wanted.",
    ),
    _row(
        "setrange",
        strings.setrange,
        4,
        "key offset value",
        "Puts bytes over a string from a position on and gives its length.",
        fast=False,
        use="RW update",
        since="2.2.0",
        complexity="O(N), N being the bytes of the string.",
    ),
    # string/numbers.py
    _numbers_row("incr", numbers.one(1), "Adds one to the number in a string."),
    _numbers_row("decr", numbers.one(-1), "Subtracts one from the number in a string."),
    _numbers_row("incrby", numbers.incrby, "Adds to the number in a string.", "increment"),
    _numbers_row("decrby", numbers.decrby, "Subtracts from the number in a string.", "decrement"),
    _numbers_row(
        "incrbyfloat",
        numbers.incrbyfloat,
        "Adds to the decimal number in a string.",
        "increment",
        "2.6.0",
    ),
]
