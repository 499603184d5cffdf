"""COMMAND: the command table for clients, made from the rows.

INFO has what clients use for routing and checks, DOCS what people read, GETKEYS the places of keys
in a request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from anabranch.commands.server.syntax_tree import Argument, parse_syntax
from anabranch.engine import texts
from anabranch.engine.acl.selectors import CATEGORIES
from anabranch.engine.context import Context
from anabranch.engine.key_extraction import has_keys, keys_of
from anabranch.engine.spec import Command, KeySpec
from anabranch.errors import CommandError
from anabranch.pattern import compile_glob
from anabranch.resp.encode import array_header, integer
from anabranch.resp.values import Map, SetReply, Status


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


def _key_spec(spec: KeySpec) -> Map:
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
    return Map(fields)


def _search(kind: str, spec: dict[bytes, Any]) -> Map:
    return Map({b"type": kind, b"spec": Map(spec)})


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


def getkeys(ctx: Context, args: list[bytes]) -> bytes:
    """COMMAND GETKEYS command [argument ...]."""
    return ctx.reply([key for key, _ in _keys(ctx, args[2:])])


def getkeysandflags(ctx: Context, args: list[bytes]) -> bytes:
    """COMMAND GETKEYSANDFLAGS command [argument ...]."""
    return ctx.reply(
        [[key, SetReply(map(Status, flags.split()))] for key, flags in _keys(ctx, args[2:])]
    )


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
    return ctx.reply(
        Map([(row.full_name, _docs(row)) for row in _named(ctx, args[2:]) if row is not None])
    )


def _docs(row: Command) -> Map:
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
        fields[b"subcommands"] = Map(
            [(each.full_name, _docs(each)) for each in row.subcommands.values()]
        )
    return Map(fields)


def _arguments(arguments: Iterable[Argument], key_specs: int) -> list[Map]:
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
            for flag, applies in (
                ("optional", each.optional),
                ("multiple", each.multiple),
                ("multiple_token", each.multiple_token),
            )
            if applies
        ]
        if flags:
            fields[b"flags"] = SetReply(flags)
        if each.parts:
            fields[b"arguments"] = _arguments(each.parts, key_specs)
        described.append(Map(fields))
    return described


# -- rows -------------------------------------------------------------------------------------
