"""FUNCTION and FCALL: libraries of functions, which are part of the data of this server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from anabranch.commands.scripting.calls import Calls, asks_read_only
from anabranch.commands.scripting.evaluation import check_flags, count_keys, run_as_transaction
from anabranch.commands.scripting.shebang import parse_library
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.engine.script_machine import Registered, ScriptError, ScriptMachine
from anabranch.errors import CommandError
from anabranch.keyspace.libraries import Library
from anabranch.pattern import compile_glob
from anabranch.rdb.errors import PayloadChecksumError, PayloadError
from anabranch.rdb.lengths import Cursor, string_bytes
from anabranch.rdb.payload import RDB_VERSION, frame, unframe
from anabranch.resp.encode import OK, bulk
from anabranch.resp.values import SetReply, Status

_OPCODE: Final = 0xF5
"""The field with the source of a library in a dump, as in RDB files."""


# -- running ----------------------------------------------------------------------------------


def fcall(ctx: Context, args: list[bytes]) -> bytes | None:
    """FCALL and FCALL_RO: function numkeys [key ...] [arg ...]."""
    ctx.server.dispatcher.feed_monitors(ctx.session, args)
    library, name, words = _function(ctx, args[1].lower())
    count = count_keys(args, "ERR Bad number of keys provided")
    flags = frozenset(words)
    check_flags(ctx, flags, is_read_only=asks_read_only(args))
    machine = ctx.server.host.script_machine()
    registered = machine.loaded.get(library)
    if registered is None:
        registered = machine.loaded[library] = _load(machine, library.code)
    if name not in registered:  # a library may register others each time it runs
        raise CommandError("ERR Function not found")
    body = registered[name][0]
    calls = Calls(ctx, machine, name, args, flags)
    return run_as_transaction(ctx, calls, body, args[3 : 3 + count], args[3 + count :])


def _function(ctx: Context, lower: bytes) -> tuple[Library, bytes, list[bytes]]:
    """The library, the name and the flags of the function with this name in lower case."""
    for library in ctx.keyspace.libraries.values():
        for name, _, flags in library.functions:
            if name.lower() == lower:
                return library, name, flags
    raise CommandError("ERR Function not found")


def _load(machine: ScriptMachine, code: bytes) -> Registered:
    """The functions that a library registers. Raises CommandError if it cannot be loaded."""
    try:
        return machine.load_library(parse_library(code).body)
    except ScriptError as problem:
        raise CommandError(problem.text) from None


# -- libraries --------------------------------------------------------------------------------


def function_load(ctx: Context, args: list[bytes]) -> bytes:
    """FUNCTION LOAD [REPLACE] code."""
    if len(args) > 4 or (len(args) == 4 and args[2].lower() != b"replace"):
        raise CommandError(b"ERR Unknown option given: " + texts.shown(args[2]))
    kept = ctx.keyspace.libraries
    name = parse_library(args[-1]).name
    if name in kept and len(args) == 3:
        raise CommandError(b"ERR Library '%b' already exists" % name)
    library, registered = _read(ctx, args[-1])
    _check_names(library, [each for each in kept.values() if each.name != library.name])
    _keep(ctx, library, registered)
    return bulk(library.name)


def _read(ctx: Context, code: bytes) -> tuple[Library, Registered]:
    """The library of a source, which runs."""
    name = parse_library(code).name
    registered = _load(ctx.server.host.script_machine(), code)
    if not registered:
        raise CommandError("ERR No functions registered")
    functions = [(each, about, flags) for each, (_, about, flags) in registered.items()]
    return Library(name, code, functions), registered


def _keep(ctx: Context, library: Library, registered: Registered) -> None:
    """Make a library part of the data, with the state that its run has left."""
    ctx.emit(kinds.SetLibrary(library.name, library.code, library.functions))
    machine = ctx.server.host.script_machine()
    machine.loaded[ctx.keyspace.libraries[library.name]] = registered


def _check_names(library: Library, others: Iterable[Library]) -> None:
    taken = {name.lower() for other in others for name, _, _ in other.functions}
    for name, _, _ in library.functions:
        if name.lower() in taken:
            raise CommandError(b"ERR Function %b already exists" % name)


def function_delete(ctx: Context, args: list[bytes]) -> bytes:
    """FUNCTION DELETE library: drop a library with all its functions."""
    if args[2] not in ctx.keyspace.libraries:
        raise CommandError("ERR Library not found")
    ctx.emit(kinds.DropLibrary(args[2]))
    return OK


def function_flush(ctx: Context, args: list[bytes]) -> bytes:
    """FUNCTION FLUSH [ASYNC | SYNC]."""
    if len(args) > 3 or (len(args) == 3 and args[2].lower() not in (b"async", b"sync")):
        raise CommandError("ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    for name in list(ctx.keyspace.libraries):
        ctx.emit(kinds.DropLibrary(name))
    return OK


def function_list(ctx: Context, args: list[bytes]) -> bytes:
    """FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]."""
    matches = compile_glob(b"*")
    with_code = False
    index = 2
    while index < len(args):
        word = args[index].lower()
        if word == b"libraryname" and index + 1 < len(args):
            index += 1
            matches = compile_glob(args[index])
        elif word == b"libraryname":
            raise CommandError("ERR library name argument was not given")
        elif word == b"withcode":
            with_code = True
        else:
            raise CommandError(b"ERR Unknown argument %b" % args[index])
        index += 1
    found = [each for each in ctx.keyspace.libraries.values() if matches(each.name)]
    return ctx.reply([_described(each, with_code=with_code) for each in found])


def _described(library: Library, *, with_code: bool) -> dict[bytes, object]:
    functions = [
        {
            b"name": name,
            b"description": about or None,
            b"flags": SetReply(map(Status, (flag.decode() for flag in flags))),
        }
        for name, about, flags in library.functions
    ]  # fmt: skip
    fields: dict[bytes, object] = {
        b"library_name": library.name,
        b"engine": b"LUA",
        b"functions": functions,
    }
    if with_code:
        fields[b"library_code"] = library.code
    return fields


def function_stats(ctx: Context, _args: list[bytes]) -> bytes:
    """FUNCTION STATS: the running script, and the counts of libraries and functions."""
    running = ctx.server.dispatcher.running
    shown = None
    if running is not None:
        spent_ns = ctx.clock.ticks_ns() - running.started_ns
        shown = {
            b"name": running.name,
            b"command": running.args,
            b"duration_ms": spent_ns // 1_000_000,
        }
    libraries = ctx.keyspace.libraries.values()
    counts = {
        b"libraries_count": len(libraries),
        b"functions_count": sum(len(each.functions) for each in libraries),
    }
    return ctx.reply({b"running_script": shown, b"engines": {b"LUA": counts}})


# -- dumps ------------------------------------------------------------------------------------


def function_dump(ctx: Context, _args: list[bytes]) -> bytes:
    """FUNCTION DUMP: the sources of all libraries, in Redis's format."""
    body = b"".join(
        bytes([_OPCODE]) + string_bytes(library.code) for library in ctx.keyspace.libraries.values()
    )
    return bulk(frame(body, RDB_VERSION))


def function_restore(ctx: Context, args: list[bytes]) -> bytes:
    """FUNCTION RESTORE dump [FLUSH | APPEND | REPLACE]: all of its libraries, or none."""
    policy = args[3].lower() if len(args) > 3 else b"append"
    if len(args) > 4 or policy not in (b"flush", b"append", b"replace"):
        raise CommandError(
            "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE."
        )
    libraries = [_read(ctx, code) for code in _codes(args[2])]
    kept = {} if policy == b"flush" else dict(ctx.keyspace.libraries)
    for library, _ in libraries:
        if library.name in kept and policy != b"replace":
            raise CommandError(b"ERR Library %b already exists" % library.name)
        kept.pop(library.name, None)
        _check_names(library, kept.values())
        kept[library.name] = library
    if policy == b"flush":
        for name in list(ctx.keyspace.libraries):
            ctx.emit(kinds.DropLibrary(name))
    for library, registered in libraries:
        _keep(ctx, library, registered)
    return OK


def _codes(dump: bytes) -> list[bytes]:
    """The source of each library in a dump; CommandError if the dump is damaged."""
    try:
        body, _ = unframe(dump)
        cursor = Cursor(body)
        codes = []
        while cursor.remaining:
            if cursor.byte() != _OPCODE:
                raise CommandError("ERR given type is not a function")
            codes.append(cursor.string())
    except PayloadChecksumError:
        raise CommandError("ERR DUMP payload version or checksum are wrong") from None
    except PayloadError:
        raise CommandError("ERR failed loading functions payload") from None
    return codes
