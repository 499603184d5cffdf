"""A row of the command table: name, arguments, flags and complexity of a command.

``COMMAND``, ACL rules, arity checks, key extraction, the docs and the tests are all made from
these rows. Adding a command means writing a function and a row in one family file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec import Struct

CommandFunction = Callable[[Any, list[bytes]], "bytes | None"]
"""Gets the context (:mod:`anabranch.engine.context`) and the whole request, name first;
gives the reply's bytes. The context has sessions, and sessions have rows: a row cannot name it.

None means: no reply now (the command blocked, or the client asked for silence).
"""


class KeySpec(Struct, frozen=True):
    """Where a command's keys stand, as COMMAND INFO describes it.

    ``begin`` is an argument index, or ``(word, start)`` to search a keyword from ``start`` on
    (negative: from the end). ``last``/``step``/``limit`` follow Redis's range rule: ``last`` is
    relative to the first key, negative from the end; ``limit`` 2 means half of what is left. If the
    keys are ``counted``, their number stands at ``begin``, and they follow it.
    """

    flags: str
    begin: int | tuple[str, int] = 1
    last: int = 0
    step: int = 1
    limit: int = 0
    counted: bool = False
    notes: str = ""


_GROUP_CATEGORY: Final = {
    "connection": "connection",
    "generic": "keyspace",
    "list": "list",
    "scripting": "scripting",
    "set": "set",
    "stream": "stream",
    "string": "string",
    "transactions": "transaction",
}
"""The ACL category of the commands of a group."""


def _implied(flags: frozenset[str], categories: str) -> list[str]:
    """The ACL categories that follow from flags, by the rules of Redis."""
    found = ["fast" if "fast" in flags else "slow"]
    found += flags & {"write", "admin", "pubsub", "blocking"}
    if "admin" in flags:
        found.append("dangerous")
    if "readonly" in flags and categories != "scripting":
        found.append("read")
    return found


class Command:
    """One command or sub-command.

    ``arity`` counts the name; negative is a minimum. ``flags`` are blank-separated words as COMMAND
    INFO lists them (``write denyoom fast``). The ACL categories are those that the flags imply and
    the one of the group; ``categories`` replaces the latter. Without ``complexity`` it is O(1).
    """

    def __init__(
        self,
        name: str,
        function: CommandFunction | None,
        *,
        arity: int,
        flags: str = "",
        categories: str | None = None,
        keys: Sequence[KeySpec] = (),
        find_keys: Callable[[list[bytes]], list[tuple[int, str]]] | None = None,
        since: str = "1.0.0",
        group: str = "generic",
        summary: str = "",
        complexity: str | None = None,
        syntax: str = "",
        tips: Sequence[str] = (),
        history: Sequence[tuple[str, str]] = (),
        subcommands: Sequence[Command] = (),
    ) -> None:
        self.name = name  # lower case; a sub-command's own word
        self.full_name = name  # "xgroup|create" once attached to its container
        self.function = function
        self.arity = arity
        self.flag_words = flags.split()
        self.flags = frozenset(self.flag_words)
        further = _GROUP_CATEGORY.get(group, "") if categories is None else categories
        self.categories = frozenset(_implied(self.flags, further) + further.split())
        self.keys = tuple(keys)
        self.find_keys = find_keys  # in place of the specifications, where these are too coarse
        self.since = since
        self.group = group
        self.summary = summary
        if complexity is None:
            complexity = "Depends on the sub-command" if subcommands else "O(1)"
        self.complexity = complexity
        self.syntax = syntax
        self.tips = tuple(tips)
        self.history = tuple(history)
        self.subcommands: dict[bytes, Command] = {}
        for sub in subcommands:
            sub.full_name = f"{name}|{sub.name}"
            self.subcommands[sub.name.encode()] = sub
        self.is_write = "write" in self.flags
        self.is_denyoom = "denyoom" in self.flags
        self.is_noauth = "no_auth" in self.flags
        self.skips_monitor = bool(self.flags & {"skip_monitor", "admin"})
        self.skips_slowlog = "skip_slowlog" in self.flags

    def accepts(self, count: int) -> bool:
        """Whether a request of ``count`` arguments, name included, fits the arity."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity
