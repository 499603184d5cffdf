"""COMMAND: the command table for clients, made from the rows.

INFO has what clients use for routing and checks, DOCS what people read, GETKEYS the places of keys
in a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from anabranch.engine import texts
from anabranch.engine.acl.selectors import CATEGORIES
from anabranch.engine.context import Context
from anabranch.engine.key_extraction import has_keys, keys_of
from anabranch.engine.spec import Command, KeySpec
from anabranch.errors import CommandError
from anabranch.pattern import compile_glob
from anabranch.resp.encode import array_header, integer, map_header
from anabranch.resp.values import SetReply, Status


def _rows(ctx: Context) -> Iterator[Command]:
    """Commands without their sub-commands."""
    return (each for each in ctx.server.acl.index.by_name.values() if "|" not in each.full_name)


def _named(ctx: Context, names: list[bytes]) -> Iterator[Command | None]:
    """The rows of these names, or all commands if none are given."""
    if not names:
        return _rows(ctx)
    return (ctx.server.acl.index.by_name.get(name.lower()) for name in names)


# -- what clients go by -----------------------------------------------------------------------


def command(ctx: Context, args: list[bytes]) -> bytes:
    """COMMAND: every row of the table, as COMMAND INFO shows it."""
    if len(args) > 1:
        raise CommandError(b"ERR unknown subcommand '%b'. Try COMMAND HELP." % args[1][:128])
    return ctx.reply([_info(each) for each in _rows(ctx)])


def info(ctx: Context, args: list[bytes]) -> bytes:
    """COMMAND INFO [command-name ...]."""
    if len(args) == 2:
        return command(ctx, args[:1])
    by_name = ctx.server.acl.index.by_name
    nothing = ctx.reply(None)
    shown: dict[bytes, bytes] = {}  # each row is encoded once
    for name in set(args[2:]):
        row = by_name.get(name.lower())
        shown[name] = nothing if row is None else ctx.reply(_info(row))
    return array_header(len(args) - 2) + b"".join([shown[name] for name in args[2:]])


def _info(row: Command) -> list[Any]:
    first, last, step = _legacy_range(row.keys)
    subcommands = [_info(each) for each in row.subcommands.values()]
    return [
        row.full_name,
        row.arity,
        SetReply(map(Status, row.flag_words)),
        first,
        last,
        step,
        SetReply([Status(f"@{word}") for word in CATEGORIES if word in row.categories]),
        SetReply(row.tips),
        SetReply(map(_key_spec, row.keys)),
        subcommands or SetReply(),
    ]


def _legacy_range(specs: Iterable[KeySpec]) -> tuple[int, int, int]:
    """First key, last key and step, as far as one range can express them."""
    first = last = step = 0
    for spec in specs:
        if isinstance(spec.begin, int) and not spec.counted:
            first = min(first or spec.begin, spec.begin)
            stop = spec.last if spec.last < 0 else spec.begin + spec.last
            last = stop if stop < 0 else max(last, stop)
            step = spec.step
    return first, last, step


def _key_spec(spec: KeySpec) -> dict[bytes, Any]:
    if isinstance(spec.begin, int):
        begin = _search("index", {b"index": spec.begin})
    else:
        keyword, start = spec.begin
        begin = _search("keyword", {b"keyword": keyword, b"startfrom": start})
    fields: dict[bytes, Any] = {b"notes": spec.notes} if spec.notes else {}
    fields[b"flags"] = SetReply(map(Status, spec.flags.split()))
    fields[b"begin_search"] = begin
    if spec.counted:
        find = _search("keynum", {b"keynumidx": 0, b"firstkey": 1, b"keystep": spec.step})
    else:
        find = _search(
            "range", {b"lastkey": spec.last, b"keystep": spec.step, b"limit": spec.limit}
        )
    fields[b"find_keys"] = find
    return fields


def _search(kind: str, spec: dict[bytes, Any]) -> dict[bytes, Any]:
    return {b"type": kind, b"spec": spec}


def count(ctx: Context, _args: list[bytes]) -> bytes:
    """COMMAND COUNT: how many commands there are, without sub-commands."""
    return integer(sum(1 for _ in _rows(ctx)))


def list_(ctx: Context, args: list[bytes]) -> bytes:
    """COMMAND LIST [FILTERBY <MODULE name | ACLCAT category | PATTERN pattern>]."""
    wanted: Callable[[Command], bool] = _any
    if len(args) > 2:
        if len(args) != 5 or args[2].lower() != b"filterby":
            raise CommandError(texts.SYNTAX)
        wanted = _filter(args[3].lower(), args[4])
    rows = ctx.server.acl.index.by_name.values()
    return ctx.reply([row.full_name for row in rows if wanted(row)])


def _any(_row: Command) -> bool:
    return True


def _filter(kind: bytes, value: bytes) -> Callable[[Command], bool]:
    if kind == b"module":
        return lambda row: False  # there are no modules
    if kind == b"aclcat":
        category = value.lower().decode("latin-1")
        return lambda row: category in CATEGORIES and category in row.categories
    if kind == b"pattern":
        matches = compile_glob(value, ignore_case=True)
        return lambda row: matches(row.full_name.encode())
    raise CommandError(texts.SYNTAX)


# -- keys of a request ------------------------------------------------------------------------


def getkeys(ctx: Context, args: list[bytes]) -> bytes | None:
    """COMMAND GETKEYS command [argument ...]."""
    return ctx.long_reply(args, [key for key, _ in _keys(ctx, args[2:])])


def getkeysandflags(ctx: Context, args: list[bytes]) -> bytes | None:
    """COMMAND GETKEYSANDFLAGS command [argument ...]."""
    keys = _keys(ctx, args[2:])
    # Redis does not know the flag of patterns, which permissions need.
    shown = {
        flags: SetReply([Status(flag) for flag in flags.split() if flag != "pattern"])
        for flags in {flags for _, flags in keys}
    }
    return ctx.long_reply(args, [[key, shown[flags]] for key, flags in keys])


def _keys(ctx: Context, request: list[bytes]) -> list[tuple[bytes, str]]:
    row = ctx.server.dispatcher.command_of(request)
    if row is None:
        raise CommandError("ERR Invalid command specified")
    if not has_keys(row):
        raise CommandError("ERR The command has no key arguments")
    if not row.accepts(len(request)):
        raise CommandError("ERR Invalid number of arguments specified for command")
    keys = keys_of(row, request)
    if not keys and "no_mandatory_keys" not in row.flags:
        raise CommandError("ERR Invalid arguments specified for command")
    return keys


# -- what people read -------------------------------------------------------------------------


def docs(ctx: Context, args: list[bytes]) -> bytes:
    """COMMAND DOCS [command-name ...]; unknown names are left out."""
    rows = [row for row in _named(ctx, args[2:]) if row is not None]
    once = {row.full_name: row for row in rows}
    shown = {name: ctx.reply(name) + ctx.reply(_docs(row)) for name, row in once.items()}
    out = [map_header(len(rows), ctx.resp3), *[shown[row.full_name] for row in rows]]
    return b"".join(out)


def _docs(row: Command) -> dict[bytes, Any]:
    fields: dict[bytes, Any] = {
        b"summary": row.summary,
        b"since": row.since,
        b"group": row.group,
    }
    if row.complexity:
        fields[b"complexity"] = row.complexity
    if row.history:
        fields[b"history"] = SetReply([list(change) for change in row.history])
    if row.syntax:
        fields[b"arguments"] = _arguments(parse_syntax(row.syntax), len(row.keys))
    if row.subcommands:
        fields[b"subcommands"] = {each.full_name: _docs(each) for each in row.subcommands.values()}
    return fields


def _arguments(arguments: Iterable[Argument], key_specs: int) -> list[dict[bytes, Any]]:
    described = []
    key_spec = 0
    for each in arguments:
        fields: dict[bytes, Any] = {b"name": each.name, b"type": each.kind}
        if each.kind not in ("pure-token", "block", "oneof"):
            fields[b"display_text"] = each.name
        if each.kind == "key" and key_specs:
            fields[b"key_spec_index"] = key_spec
            key_spec = min(key_spec + 1, key_specs - 1)
        if each.token:
            fields[b"token"] = each.token
        flags = [
            Status(flag)
            for flag in ("optional", "multiple", "multiple_token")
            if getattr(each, flag)
        ]
        if flags:
            fields[b"flags"] = SetReply(flags)
        if each.parts:
            fields[b"arguments"] = _arguments(each.parts, key_specs)
        described.append(fields)
    return described


# -- rows -------------------------------------------------------------------------------------


# -- the tree of a syntax -------------------------------------------------------------------------
#
# A command's syntax text as the tree of arguments that COMMAND DOCS answers.
#
# The rows describe their arguments in the notation of the manual pages::
#
#     key [NOMKSTREAM] [<MAXLEN | MINID> [= | ~] threshold [LIMIT count]] <* | id>
#     field value [field value ...]
#
# Brackets are optional, angle brackets group, bars separate alternatives; a bracket that ends in
# ``...`` repeats what stands before it. Words in capitals are tokens, and so are signs like ``*``;
# a token takes the names behind it, up to the next token or bracket, or the ``<...>`` right behind
# it. redis-cli makes its hints from the tree.

_LEXEME = re.compile(r"\.\.\.|[\[\]<>|]|[^\s\[\]<>|]+")
_TOKEN = re.compile(r"[A-Z][A-Z0-9_-]*|[^A-Za-z]+")
_SIGNS = {"*": "auto-id", "=": "equal", "~": "approximately", "$": "last-id"}
# fmt: off
_INTEGERS = frozenset({
    "bits", "client-id", "count", "cursor", "db", "destination-db", "entries", "entries-added",
    "entries-read", "frequency", "index", "index1", "index2", "maxcount", "maxsize",
    "milliseconds", "min-idle-time", "ms", "numids", "numkeys", "numlocal", "numreplicas",
    "protover", "seconds", "start-index", "stop", "timeout", "ttl", "version",
})
# fmt: on
_TIMES = frozenset({"unix-time-seconds", "unix-time-milliseconds"})
_KEYS = frozenset({"key", "newkey", "source", "destination"})


class Argument(Struct, frozen=True):
    """One argument, or a group of them, in the words of COMMAND DOCS."""

    name: str
    kind: str  # "key", "string", "integer", "pure-token", "oneof", "block" ...
    token: str = ""
    optional: bool = False
    multiple: bool = False
    multiple_token: bool = False  # the token is repeated too
    parts: tuple[Argument, ...] = field(default=())


def parse_syntax(text: str) -> list[Argument]:
    """The arguments of a syntax text, in order; empty for no text."""
    if not text:
        return []
    options, repeats = _SyntaxReader(_LEXEME.findall(text)).alternatives("")
    assert not repeats, f"what repeats stands in brackets: {text}"
    return options[0] if len(options) == 1 else [_grouped(options)]


class _SyntaxReader:
    def __init__(self, lexemes: list[str]) -> None:
        self._lexemes = lexemes
        self._at = 0

    def _peek(self) -> str:
        return self._lexemes[self._at] if self._at < len(self._lexemes) else ""

    def _skip(self, lexeme: str) -> bool:
        if self._peek() == lexeme:
            self._at += 1
            return True
        return False

    def _sequence(self) -> list[Argument]:
        """Arguments up to a closing bracket, a bar, ``...`` or the end."""
        found: list[Argument] = []
        while self._peek() not in ("", "]", ">", "|", "..."):
            lexeme = self._lexemes[self._at]
            if lexeme == "[":
                self._bracket(found)
            elif lexeme == "<":
                found.append(self._choice())
            else:
                self._at += 1
                if _TOKEN.fullmatch(lexeme):
                    found.append(self._token(lexeme))
                else:
                    found.append(_plain(lexeme))
        return found

    def _choice(self) -> Argument:
        """Read what stands between ``<`` and ``>``."""
        self._at += 1
        return _grouped(self.alternatives(">")[0])

    def alternatives(self, closing: str) -> tuple[list[list[Argument]], bool]:
        """What stands up to the closing bracket or the end, and whether ``...`` ends it."""
        options = [self._sequence()]
        repeats = self._skip("...")
        while self._skip("|"):
            options.append(self._sequence())
            repeats = self._skip("...") or repeats
        closed = self._skip(closing) or not (closing or self._peek())
        assert closed, f"unbalanced syntax: {' '.join(self._lexemes)}"
        return options, repeats

    def _bracket(self, found: list[Argument]) -> None:
        """``[...]``: optional arguments, or the repetition of the last ones found."""
        self._at += 1
        options, repeats = self.alternatives("]")
        again = options[0]
        if repeats and again and found[-len(again) :] == again:
            del found[-len(again) :]
            argument = _block(again)
            found.append(replace(argument, multiple=True, multiple_token=argument.token != ""))
        else:
            argument = _grouped(options)
            found.append(replace(argument, optional=True, multiple=argument.multiple or repeats))

    def _token(self, token: str) -> Argument:
        """A token with the names it takes."""
        if self._peek() == "<":
            return replace(self._choice(), token=token)
        taken: list[Argument] = []
        while True:
            lexeme = self._peek()
            if lexeme == "[" and taken and self._repeats(taken):
                self._bracket(taken)
            elif lexeme in ("", "[", "]", "<", ">", "|", "...") or _TOKEN.fullmatch(lexeme):
                break
            else:
                self._at += 1
                taken.append(_plain(lexeme))
        if not taken:
            return Argument(_SIGNS.get(token, token.lower()), "pure-token", token)
        if len(taken) == 1:
            return replace(taken[0], token=token)
        return Argument(token.lower(), "block", token, parts=tuple(taken))

    def _repeats(self, taken: list[Argument]) -> bool:
        """Whether the bracket that comes repeats the last argument taken."""
        following = self._lexemes[self._at + 1 : self._at + 4]
        return following == [taken[-1].name, "...", "]"]


def _plain(name: str) -> Argument:
    if name in _KEYS:
        kind = "key"
    elif name in _TIMES:
        kind = "unix-time"
    elif name in _INTEGERS:
        kind = "integer"
    elif name == "pattern":
        kind = "pattern"
    else:
        kind = "string"
    return Argument(name, kind)


def _block(arguments: list[Argument]) -> Argument:
    """Arguments that belong together as one."""
    if len(arguments) == 1:
        return arguments[0]
    names = [each.name for each in arguments]
    name = "-".join(names) if len(names) == 2 else f"{names[0]}-options"
    return Argument(name, "block", parts=tuple(arguments))


def _grouped(options: list[list[Argument]]) -> Argument:
    """Alternatives as one argument."""
    choices = [_block(option) for option in options]
    if len(choices) == 1:
        return choices[0]
    name = "-or-".join([each.name for each in choices[:2]])
    return Argument(name, "oneof", parts=tuple(choices))
