"""The functions of the server that scripts reach: those of ``redis``, and of the libraries.

Replies of commands cross the border as RESP: the sandbox decodes what is not a plain value, under
its own limits of memory and time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from math import copysign, isfinite, isnan
from typing import Any, Final, TypeGuard

from lupa import lua51

from anabranch.commands.scripting.shebang import FLAGS, NAME_RULE, is_name
from anabranch.engine.script_machine import ScriptCalls
from anabranch.errors import CommandError
from anabranch.scripting import bits, chance, packing
from anabranch.scripting.failures import ArgumentError, Failure, LibraryError, number_of
from anabranch.scripting.interruption import Interruption
from anabranch.scripting.world import World
from anabranch.version import REDIS_VERSION

_SMALL_BYTES: Final = 1024
_INTEGER_MAX: Final = 1 << 62
"""Greater whole numbers reach commands in floating point, as in Redis."""

_REPL_ALL: Final = 3


class HostFunctions:
    """The functions of one machine; they act for the script that runs there."""

    def __init__(self, world: World, interruption: Interruption) -> None:
        self._world = world
        self._interruption = interruption
        self._make_room = interruption.make_room
        self._chance = chance.Drand48()
        self.calls: ScriptCalls | None = None
        """Of the script that runs."""

    def by_name(self) -> Mapping[bytes, object]:
        """The functions that ``sandbox.lua`` gets, by name."""
        roomy = self._interruption.roomy

        def library(functions: Mapping[bytes, Callable[..., object]]) -> Mapping[bytes, object]:
            return {name: roomy(self._located(name, each)) for name, each in functions.items()}

        return {
            b"describe": _describe,
            b"tick": self._interruption.tick,
            b"call": self._call,
            b"pcall": self._pcall,
            b"sha1hex": roomy(_sha1hex),
            b"log": self._log,
            b"setresp": self._set_protocol,
            b"acl_check_cmd": self._may_call,
            b"set_repl": roomy(_set_repl),
            b"random": roomy(self._located(b"random", self._chance.random)),
            b"seed": roomy(self._located(b"randomseed", self._chance.seed)),
            b"bit": library(bits.FUNCTIONS),
            b"struct": library(packing.FUNCTIONS),
            b"version": REDIS_VERSION.encode(),
            b"version_number": _version_number(),
        }

    def _located(self, name: bytes, function: Callable[..., object]) -> Callable[..., object]:
        """A function whose errors name the place in the script, as those of Lua do."""

        def call(*args: object) -> object:
            try:
                return function(*args)
            except ArgumentError as problem:
                text = b"bad argument #%d to '%b' (%b)" % (
                    problem.index,
                    name,
                    problem.problem.encode("latin-1"),
                )
            except ValueError as problem:
                text = text_of(problem)
            raise LibraryError(self._world.inside["placed"](text))

        return call

    def _call(self, *args: object) -> object:
        """redis.call(): the reply, or an error raised."""
        reply = self._reply(args)
        if reply[0] == 0x2D:  # "-"
            raise Failure(reply[1:-2])
        return self._decoded(reply)

    def _pcall(self, *args: object) -> object:
        """redis.pcall(): the reply, which may be an error."""
        try:
            reply = self._reply(args)
        except Failure as failure:
            return self._world.table({b"err": failure.text})
        if reply[0] == 0x2D:
            return self._world.table({b"err": reply[1:-2], b"ignore_error_stats_update": True})
        return self._decoded(reply)

    def _reply(self, args: tuple[object, ...]) -> bytes:
        self._make_room()
        if not args:
            raise Failure(b"ERR Please specify at least one argument for this redis lib call")
        assert self.calls is not None
        self._interruption.count_call()
        return self.calls.call([each if type(each) is bytes else _argument(each) for each in args])

    def _decoded(self, reply: bytes) -> object:
        """A reply as a value of Lua."""
        if len(reply) > _SMALL_BYTES:  # a small one fits into what _reply() has found
            self._make_room(len(reply))
        mark = reply[0]
        if mark == 0x24:  # "$"
            if reply[1] == 0x2D:
                return False
            return reply[reply.index(b"\n") + 1 : -2]
        if mark == 0x3A:  # ":"
            return float(reply[1:-2])
        decoded = self._world.inside["decode"](reply, 1)
        return decoded[0] if isinstance(decoded, tuple) else decoded

    def _log(self, *args: object) -> tuple[()]:
        self._make_room()
        if len(args) < 2:
            raise Failure(b"ERR redis.log() requires two arguments or more.")
        try:
            number_of(args, 1)
        except ArgumentError:
            raise Failure(b"ERR First argument must be a number (log level).") from None
        level = _whole(args)
        if not 0 <= level <= 3:
            raise Failure(b"ERR Invalid debug level.")
        words = [_number(each) if _is_number(each) else each for each in args[1:]]
        assert self.calls is not None
        self.calls.log(level, b" ".join(each for each in words if isinstance(each, bytes)))
        return ()

    def _set_protocol(self, *args: object) -> tuple[()]:
        self._make_room()
        if len(args) != 1:
            raise Failure(b"ERR redis.setresp() requires one argument.")
        version = _whole(args)
        if version not in (2, 3):
            raise Failure(b"ERR RESP version must be 2 or 3.")
        assert self.calls is not None
        self.calls.set_protocol(resp3=version == 3)
        self._world.inside["set_protocol"](version)
        return ()

    def _may_call(self, *args: object) -> bool:
        self._make_room()
        if not args:
            raise Failure(
                b"ERR Please specify at least one argument for this redis.acl_check_cmd() call"
            )
        assert self.calls is not None
        try:
            return self.calls.may_call([_argument(each) for each in args])
        except CommandError as problem:
            raise Failure(problem.text) from None


def _version_number() -> int:
    major, minor, patch = map(int, REDIS_VERSION.split("."))
    return major << 16 | minor << 8 | patch


def _describe(problem: object) -> tuple[bytes, bool]:
    """The text of an error of one of our functions, and whether it is an error of Lua."""
    if isinstance(problem, Failure):
        return problem.text, isinstance(problem, LibraryError)
    return b"ERR " + text_of(problem), False


def text_of(problem: object) -> bytes:
    """The text of any other error."""
    if isinstance(problem, MemoryError):
        return b"not enough memory"
    return str(problem).partition("\n")[0].encode("latin-1", "replace")


def _argument(value: object) -> bytes:
    """A value of Lua as an argument of a command, by the rules of Redis."""
    if isinstance(value, bytes):
        return value
    if not _is_number(value):
        raise Failure(b"ERR Lua redis lib command arguments must be strings or integers")
    return _number(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: float) -> bytes:
    if abs(value) <= _INTEGER_MAX and value == int(value):  # so it is no NaN either
        return b"%d" % int(value)
    if isnan(value):
        return b"-nan" if copysign(1, value) < 0 else b"nan"
    return b"%.17g" % value


def _whole(args: tuple[object, ...]) -> int:
    """The first argument as a whole number: 0 for what is no number, -1 for no finite one."""
    try:
        number = number_of(args, 1)
    except ArgumentError:
        return 0
    return int(number) if isfinite(number) else -1


def _sha1hex(*args: object) -> bytes:
    if len(args) != 1:
        raise Failure(b"ERR wrong number of arguments")
    value = args[0]
    text = b"%.14g" % value if _is_number(value) else value
    return hashlib.sha1(text if isinstance(text, bytes) else b"").hexdigest().encode()  # noqa: S324


def _set_repl(*args: object) -> tuple[()]:
    """Effects of scripts always go to the log and to other regions."""
    if len(args) != 1:
        raise Failure(b"ERR redis.set_repl() requires two arguments.")
    if not 0 <= _whole(args) <= _REPL_ALL:
        raise Failure(
            b"ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."
        )
    return ()


def read_registration(args: tuple[object, ...]) -> tuple[bytes, tuple[Any, bytes, list[bytes]]]:
    """What redis.register_function() was called with: name, and function, description, flags."""
    fields: dict[object, object]
    if len(args) == 2:
        fields = {b"function_name": args[0], b"callback": args[1]}
        if lua51.lua_type(args[1]) != "function":
            raise Failure(b"ERR second argument to redis.register_function must be a function")
    elif len(args) == 1:
        if lua51.lua_type(args[0]) != "table":
            raise Failure(
                b"ERR calling redis.register_function with a single argument is only applicable "
                b"to Lua table (representing named arguments)."
            )
        fields = dict(args[0].items())  # type: ignore[attr-defined]
    else:
        raise Failure(b"ERR wrong number of arguments to redis.register_function")
    if not fields.keys() <= {b"function_name", b"callback", b"flags", b"description"}:
        raise Failure(b"ERR unknown argument given to redis.register_function")
    name, about = fields.get(b"function_name"), fields.get(b"description", b"")
    if name is None:
        raise Failure(b"ERR redis.register_function must get a function name argument")
    if not isinstance(name, bytes):
        raise Failure(
            b"ERR function_name argument given to redis.register_function must be a string"
        )
    if not isinstance(about, bytes):
        raise Failure(b"ERR description argument given to redis.register_function must be a string")
    if not is_name(name):
        raise Failure(NAME_RULE.encode())
    callback = fields.get(b"callback")
    if callback is None:
        raise Failure(b"ERR redis.register_function must get a callback argument")
    if lua51.lua_type(callback) != "function":
        raise Failure(b"ERR callback argument given to redis.register_function must be a function")
    flags: list[bytes] = []
    if b"flags" in fields:
        if lua51.lua_type(fields[b"flags"]) != "table":
            raise Failure(
                b"ERR flags argument to redis.register_function must be a table representing "
                b"function flags"
            )
        flags = list(fields[b"flags"].values())  # type: ignore[attr-defined]
    if not set(flags) <= FLAGS:
        raise Failure(b"ERR unknown flag given")
    return name, (callback, about, flags)
