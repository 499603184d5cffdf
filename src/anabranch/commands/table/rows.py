"""Rows of the command table as text: how a block of lines becomes a :class:`Command`.

A block is one command. Its first line has the name (of a sub-command with its container:
``xgroup|create``), the arity, the function as ``module.name`` (``-`` for a container), the version
of Redis that brought it, and the flags. The module is one of the package of the family. Most are
imported when a function of theirs is called for the first time, which takes some milliseconds: an
idle server does without them, and starts sooner.

Indented lines follow: first the syntax of the arguments, then lines with a label, in any order and
each at most once, but for ``history``::

    xgroup|setid -5 group.set_id 5.0.0 write
        key group <id | $> [ENTRIESREAD entries-read]
        does: Sets the last-delivered ID of a consumer group.
        keys: @2 RW update
        history: 7.0.0 Added ENTRIESREAD.

======== ==========================================================================================
does     what the command does, in one sentence or two
cost     its complexity; O(1) without the line, and "-" if it has none
keys     where keys are, and what becomes of them, as COMMAND INFO describes it; see below.
         Without the line a reading command whose syntax begins with a key reads that one
flags    flags that the first line has no room for
find     a function that finds the keys of a request, where ``keys`` is too coarse
acl      ACL categories in place of the one of the family; a container has none
group    the family in COMMAND DOCS, if it is not the one of the file
tips     the tips of COMMAND INFO
history  a version of Redis, and what it changed
help     of a container: the version that brought its HELP, and the ACL categories of that
======== ==========================================================================================

``keys`` is ``[@place] flags [(note)]``; several are separated by semicolons. A place is an index of
an argument, 1 by default. ``1..-2`` has keys up to the last argument but one, ``1..-1/2`` every
second argument, ``STREAMS+1..-1`` begins after a keyword that is searched from the first argument
on and takes all that follow, ``STREAMS+1..-1%2`` half of them, ``2#`` has at argument 2 the number
of keys that follow.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

from anabranch.engine.help import help_row
from anabranch.engine.spec import Command, KeySpec

_LABELS: Final = frozenset("does cost flags keys find acl group tips history help".split())
_LABEL: Final = re.compile(r"([a-z]+): (.*)")
_KEYS: Final = re.compile(
    r"(?:@(?:(?P<word>[A-Z]+)\+)?(?P<begin>\d+)(?P<counted>#)?(?:\.\.(?P<last>-\d+))?"
    r"(?:/(?P<step>\d+))?(?:%(?P<limit>\d+))? )?(?P<flags>[\w ]+?)(?: \((?P<notes>.*)\))?"
)


class Deferred:
    """A function of a module that is imported by the first call."""

    __slots__ = ("_found", "_module", "_name")

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name
        self._found: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        """What the function returns for these arguments."""
        return (self._found or self.load())(*args)

    def load(self) -> Callable[..., Any]:
        """The function itself. Raises ``ImportError`` or ``AttributeError`` for a wrong row."""
        found: Callable[..., Any] = getattr(import_module(self._module), self._name)
        self._found = found
        return found


def _blocks(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Give the first line of each command, and its further lines as (label, words).

    The label of the syntax is empty. A line without a label goes on with the one before it.
    """
    head, lines = "", list[tuple[str, str]]()
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            if head:
                yield head, lines
            head, lines = line, []
        elif match := _LABEL.fullmatch(line.strip()):
            label, words = match.groups()
            if label not in _LABELS or (label != "history" and label in dict(lines)):
                raise ValueError(f"unknown or repeated label in the row of {head!r}: {line!r}")
            lines.append((label, words))
        elif lines:
            label, words = lines[-1]
            lines[-1] = label, f"{words} {line.strip()}"
        else:
            lines.append(("", line.strip()))
    yield head, lines


def _key_specs(text: str) -> list[KeySpec]:
    """Read what the label ``keys`` says."""
    found = []
    for part in text.split("; "):
        match = _KEYS.fullmatch(part)
        if match is None:
            raise ValueError(f"not the place and flags of a key: {part!r}")
        begin = int(match["begin"] or 1)
        found.append(
            KeySpec(
                match["flags"],
                begin=(match["word"], begin) if match["word"] else begin,
                last=int(match["last"] or 0),
                step=int(match["step"] or 1),
                limit=int(match["limit"] or 0),
                counted=match["counted"] is not None,
                notes=match["notes"] or "",
            )
        )
    return found


def _usual_keys(name: str, flags: Sequence[str], syntax: str) -> str:
    """What ``keys`` would say of a command that has no such line; nothing if it has no key."""
    if "readonly" not in flags or not syntax.startswith("key"):
        return ""
    last = "..-1" if syntax == "key [key ...]" else ""
    return f"@{name.count('|') + 1}{last} RO access"


def _command(
    head: str,
    lines: list[tuple[str, str]],
    function_of: Callable[[str], Any],
    group: str,
    subcommands: Sequence[Command],
) -> Command:
    name, arity, function, since, *flags = head.split()
    said = dict(lines)
    syntax = said.get("", "")
    keys = said.get("keys", _usual_keys(name, flags, syntax))
    cost = said.get("cost", "Depends on the sub-command" if subcommands else "O(1)")
    history = [words.partition(" ") for label, words in lines if label == "history"]
    return Command(
        name.rpartition("|")[2],
        None if function == "-" else function_of(function),
        arity=int(arity),
        flag_words=[*flags, *said.get("flags", "").split()],
        own_categories=said.get("acl", "" if subcommands else None),
        keys=tuple(_key_specs(keys)) if keys else (),
        find_keys=function_of(said["find"]) if "find" in said else None,
        since=since,
        group=said.get("group", group),
        summary=said["does"],
        complexity="" if cost == "-" else cost,
        syntax=syntax,
        tips=tuple(said.get("tips", "").split()),
        history=tuple([(version, change) for version, _, change in history]),
        subcommands={sub.name.encode(): sub for sub in subcommands},
    )


def rows(group: str, package: str, text: str, *, is_hot: bool = False) -> list[Command]:
    """Make the commands of a family from their rows; the modules of ``package`` have the functions.

    Those of a family that ``is_hot`` are imported now, and called without a detour. Raises
    ``ValueError`` or ``KeyError`` for a row that says something else, and then ``ImportError`` or
    ``AttributeError`` for a function that does not exist.
    """

    def function_of(name: str) -> Any:
        module, _, attribute = name.partition(".")
        found = Deferred(f"{package}.{module}", attribute)
        return found.load() if is_hot else found

    blocks = list(_blocks(text))
    names = {head.split()[0] for head, _ in blocks}
    if homeless := {name for name in names if "|" in name and name.split("|")[0] not in names}:
        raise ValueError(f"sub-commands without a container: {sorted(homeless)}")
    commands = []
    for head, lines in blocks:
        name = head.split()[0]
        if "|" in name:
            continue
        below = [
            _command(sub_head, sub_lines, function_of, group, ())
            for sub_head, sub_lines in blocks
            if sub_head.startswith(f"{name}|")
        ]
        for label, words in lines:
            if label == "help":
                since, _, categories = words.partition(" ")
                below.append(help_row(since, categories))
        commands.append(_command(head, lines, function_of, group, below))
    return commands
