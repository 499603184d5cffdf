"""A row of the command table: name, arguments, flags and complexity of a command.

``COMMAND``, ACL rules, arity checks, key extraction, the docs and the tests are all made from
these rows. Adding a command means writing a function and a row in one family file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
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


@dataclass(eq=False, slots=True)
class Command:
    """One command or sub-command: what its row says, and what follows from that."""

    name: str
    """In lower case; of a sub-command its own word."""
    function: CommandFunction | None
    """None for most containers of sub-commands."""
    _: KW_ONLY
    arity: int
    """The count of words, name included; negative: at least so many."""
    flag_words: Sequence[str] = ()
    """In the order of COMMAND INFO (``write denyoom fast``)."""
    own_categories: str | None = None
    """ACL categories in place of the one of the group, separated by blanks."""
    keys: Sequence[KeySpec] = ()
    find_keys: Callable[[list[bytes]], list[tuple[int, str]]] | None = None
    """Finds the keys of a request, where the specifications are too coarse."""
    since: str = "1.0.0"
    """The version of Redis that brought it."""
    group: str = "generic"
    summary: str = ""
    complexity: str = "O(1)"
    syntax: str = ""
    tips: Sequence[str] = ()
    history: Sequence[tuple[str, str]] = ()
    """Versions of Redis, and what each changed."""
    subcommands: dict[bytes, Command] = field(default_factory=dict)
    """By their words."""

    full_name: str = field(init=False)
    """With the container of a sub-command: ``xgroup|create``."""
    flags: frozenset[str] = field(init=False)
    categories: frozenset[str] = field(init=False)
    """ACL categories: those that the flags imply, and the one of the group or the own ones."""
    is_write: bool = field(init=False)
    is_denyoom: bool = field(init=False)
    is_noauth: bool = field(init=False)
    skips_monitor: bool = field(init=False)
    skips_slowlog: bool = field(init=False)

    def __post_init__(self) -> None:
        """Derive the further attributes, and attach the sub-commands."""
        self.full_name = self.name
        self.flags = frozenset(self.flag_words)
        further = self.own_categories
        if further is None:
            further = _GROUP_CATEGORY.get(self.group, "")
        self.categories = frozenset(_implied(self.flags, further) + further.split())
        for sub in self.subcommands.values():
            sub.full_name = f"{self.name}|{sub.name}"
        self.is_write = "write" in self.flags
        self.is_denyoom = "denyoom" in self.flags
        self.is_noauth = "no_auth" in self.flags
        self.skips_monitor = bool(self.flags & {"skip_monitor", "admin"})
        self.skips_slowlog = "skip_slowlog" in self.flags

    @property
    def is_container(self) -> bool:
        """Whether a second word must be one of its sub-commands (XGROUP, and not AB.SCHEDULE)."""
        return bool(self.subcommands) and (self.function is None or self.arity == -1)

    def accepts(self, count: int) -> bool:
        """Whether a request of ``count`` words, name included, fits the arity."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity
