"""Lua 5.1 in this process, by way of lupa: one world for all scripts of a region.

``sandbox.lua`` makes the world and runs scripts in it. It gets functions of this module, which it
hides from scripts. Replies cross the border as RESP bytes: the sandbox makes and reads them, under
its own limits of memory and time.

A script runs on a stack of its own (:mod:`greenlet`). Each 100,000 instructions the sandbox calls
:meth:`LuaMachine._tick`, which leaves that stack for the one of whoever asked for a step. So a
script that takes long is cut into slices like all other work, in one thread.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final, TypeVar

import greenlet
from lupa import lua51

from anabranch.commands.scripting.machine import (
    KILLED,
    Registered,
    ScriptCalls,
    ScriptError,
)
from anabranch.errors import CommandError
from anabranch.scripting import bits, chance, packing
from anabranch.scripting.registration import Failure, read_registration
from anabranch.version import REDIS_VERSION

if TYPE_CHECKING:
    from anabranch.scheduling import Steps

__all__ = ["LuaMachine"]

_T = TypeVar("_T")

COMPILED_MAX: Final = 500
"""Scripts kept compiled."""

INSTRUCTIONS_MAX: Final = 1000
"""Between two looks at the clock; the same number is in ``sandbox.lua``."""

TICK_NS: Final = 500_000
"""A script gives way after this; fewer instructions are done at once if they take longer."""

CALLS: Final = 64
"""Calls of commands between two looks at the clock; they are few instructions and take longer."""

LOAD_NS: Final = 500_000_000
"""All clients wait while a library is loaded; it has to end after this."""

ROOM_BYTES: Final = 1 << 20
"""Left for what this module puts into the world: running out of memory there ends the process."""

FREE_REFERENCES: Final = 10_000
"""Places for tables that scripts hand to our functions, made beforehand for the same reason; no
call has more arguments than Lua's stack of 8,000."""

OUT_OF_MEMORY: Final = b"ERR not enough memory"

_INTEGER_MAX: Final = 1 << 62
"""Greater whole numbers reach commands in floating point, as in Redis."""


class LuaMachine:
    """See :class:`anabranch.commands.scripting.machine.Machine`."""

    def __init__(self, memory_bytes: int) -> None:
        """``memory_bytes`` is what all of its scripts may take together."""
        self._memory_bytes = memory_bytes
        self._chance = chance.Drand48()
        self._calls: ScriptCalls | None = None  # of the script that runs
        self._worker: greenlet.greenlet | None = None  # the stack that the script runs on
        self._kill: bytes | None = None  # the error by which the script has to end
        self._calls_left = CALLS
        self._libraries: dict[bytes, Registered] = {}
        self._load_until_ns = 0  # when a library must have been loaded; 0 while none is
        self._instructions = INSTRUCTIONS_MAX
        self._ticked_ns = self._switched_ns = 0
        self._compiled: OrderedDict[bytes, Any] = OrderedDict()
        self._runtime: Any = None
        self._inside: Any = None
        self._start()

    def _start(self) -> None:
        """Make the world."""
        runtime = lua51.LuaRuntime(
            encoding=None,
            source_encoding="latin-1",
            unpack_returned_tuples=True,
            register_eval=False,
            register_builtins=False,
            attribute_handlers=(_no_attribute, _no_attribute),
            max_memory=0,  # see _limit
        )
        runtime.set_max_memory(1 << 40)
        references = [runtime.table() for _ in range(FREE_REFERENCES)]
        del references
        loadstring = runtime.eval("loadstring")

        def source(name: str) -> Any:
            return loadstring(
                files("anabranch.scripting").joinpath(name + ".lua").read_bytes(),
                f"={name}".encode(),
            )

        def library(library: Mapping[bytes, Callable[..., object]]) -> Any:
            return runtime.table_from({name: self._roomy(each) for name, each in library.items()})

        functions = {
            b"describe": _describe,
            b"tick": self._tick,
            b"call": self._call,
            b"pcall": self._pcall,
            b"sha1hex": self._roomy(_sha1hex),
            b"log": self._log,
            b"setresp": self._set_protocol,
            b"acl_check_cmd": self._may_call,
            b"set_repl": self._roomy(_set_repl),
            b"chance": self._chance.next,
            b"seed": self._roomy(self._chance.seed),
            b"bit": library(bits.FUNCTIONS),
            b"struct": library(packing.FUNCTIONS),
            b"cjson": source("cjson"),
            b"cmsgpack": source("cmsgpack"),
            b"version": REDIS_VERSION.encode(),
            b"version_number": _version_number(),
        }
        self._inside = source("sandbox")(runtime.table_from(functions))
        self._runtime = runtime

    # -- what commands ask for ----------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """What the world takes."""
        used: int = self._runtime.get_memory_used()
        return used

    def compile(self, source: bytes, name: bytes) -> Any:
        """See :class:`Machine`."""
        key = name + b"\n" + source
        known = self._compiled.get(key)
        if known is not None:
            self._compiled.move_to_end(key)
            return known
        if len(source) > self._memory_bytes // 16:
            raise ScriptError(b"script too large")
        self._limit(2 * self._memory_bytes)
        try:
            made = self._inside[b"compile"](source, name)
        except lua51.LuaError as problem:  # out of memory
            raise ScriptError(_text(problem)) from None
        finally:
            self._limit(None)
        if isinstance(made, tuple):
            raise ScriptError(made[1])
        self._compiled[key] = made
        if len(self._compiled) > COMPILED_MAX:
            self._compiled.popitem(last=False)
        return made

    def run(
        self,
        script: Any,
        keys: list[bytes],
        argv: list[bytes],
        calls: ScriptCalls,
        *,
        resp3: bool,
        is_function: bool = False,
    ) -> bytes:
        """See :class:`Machine`."""
        size = sum(map(len, keys)) + sum(map(len, argv)) + 64 * (len(keys) + len(argv))
        if self.used_bytes + size + 2 * ROOM_BYTES > self._memory_bytes:
            raise ScriptError(OUT_OF_MEMORY)
        self._calls = calls
        self._kill = None
        self._instructions = INSTRUCTIONS_MAX
        self._ticked_ns = self._switched_ns = perf_counter_ns()
        table = self._runtime.table_from
        inside = self._inside[b"call" if is_function else b"run"]
        words = table(keys), table(argv)
        self._limit(self._memory_bytes)
        try:
            answer = inside(script, *words, resp3)
        except lua51.LuaError as problem:  # the sandbox itself had no memory left
            raise ScriptError(b"ERR " + _text(problem)) from None
        finally:
            self._calls = None
            self._limit(None)
            self._clean_up()
        if isinstance(answer, tuple):
            _, text, source, line = answer
            raise ScriptError(text, source, line)
        reply: bytes = answer
        return reply

    def load_library(self, code: bytes, body: bytes) -> Registered:
        """See :class:`Machine`."""
        known = self._libraries.get(code)
        if known is not None:
            return known
        try:
            chunk = self.compile(body, b"@user_function")
        except ScriptError as problem:
            raise ScriptError(b"ERR Error compiling function: " + problem.text) from None
        registered: Registered = {}

        def register(*args: object) -> None:
            self._make_room()
            name, function = read_registration(args)
            if name in registered:
                raise Failure(b"ERR Function already exists in the library")
            registered[name] = function

        self._kill = None
        self._instructions = INSTRUCTIONS_MAX
        self._ticked_ns = perf_counter_ns()
        self._load_until_ns = self._ticked_ns + LOAD_NS
        self._limit(self._memory_bytes)
        try:
            outcome = self._inside[b"load_library"](chunk, register)
        except lua51.LuaError as failure:
            outcome = (b"ERR " + _text(failure), None, None)
        finally:
            self._load_until_ns = 0
            self._limit(None)
        if outcome is not None:
            raise ScriptError(b"ERR Error registering functions: " + outcome[0])
        self._libraries[code] = registered
        return registered

    def _limit(self, memory_bytes: int | None) -> None:
        """How much the world may take from now on; None is no limit, for what we do ourselves."""
        self._runtime.set_max_memory(memory_bytes or 1 << 40)

    def _make_room(self, size: int = 0) -> None:
        """See to it that what a function of ours returns, of this size, fits into the world.

        If it does not, the script ends, as it must not come here again.
        """
        used = self.used_bytes
        if used + size + ROOM_BYTES > self._memory_bytes:
            self._limit(used + 2 * ROOM_BYTES)
            if self._kill is None:
                self._kill = OUT_OF_MEMORY
                self._inside[b"stop"]()
            raise Failure(OUT_OF_MEMORY)

    def _roomy(self, function: Callable[..., object]) -> Callable[..., object]:
        """The same function, which first looks whether there is room for what it returns."""

        def call(*args: object) -> object:
            self._make_room(sum(8 * len(each) for each in args if isinstance(each, bytes)))
            return function(*args)

        return call

    def _clean_up(self) -> None:
        """Leave room for the next script. Lua does not collect just because memory is short."""
        if self.used_bytes > self._memory_bytes // 2:
            self._inside[b"collect"]()
            if self.used_bytes > self._memory_bytes // 2:
                self._compiled.clear()
                self._libraries.clear()
                self._inside[b"collect"]()

    def steps(self, work: Callable[[], _T]) -> Steps[_T]:
        """See :class:`Machine`."""
        worker = self._worker = greenlet.greenlet(work)
        try:
            result = worker.switch()
            while not worker.dead:
                yield
                worker.parent = greenlet.getcurrent()
                result = worker.switch()
        finally:
            with suppress(greenlet.error):  # the thread of the script has ended
                while not worker.dead:
                    self._kill = KILLED
                    worker.switch()
            self._worker = None
        done: _T = result
        return done

    def kill(self) -> None:
        """See :class:`Machine`."""
        self._kill = KILLED

    # -- what scripts ask for -----------------------------------------------------------------

    def _tick(self) -> tuple[bytes | None, int | None]:
        """Let others have a turn, after so many instructions.

        The error by which the script ends if it must, and the number of instructions before the
        next call. One instruction may take long, if it is about a long string.
        """
        if self._kill is not None:
            self._limit(self.used_bytes + ROOM_BYTES)
            return self._kill, None
        now = perf_counter_ns()
        if 0 < self._load_until_ns < now:
            self._kill = b"FUNCTION LOAD timeout"
            return self._kill, None
        spent_ns = now - self._ticked_ns
        instructions = self._instructions
        if spent_ns > TICK_NS:
            self._instructions = max(instructions * TICK_NS // spent_ns, 1)
        elif instructions < INSTRUCTIONS_MAX:
            self._instructions = min(2 * instructions, INSTRUCTIONS_MAX)
        if now - self._switched_ns > TICK_NS:
            worker = self._worker
            if worker is not None and greenlet.getcurrent() is worker:
                worker.parent.switch()
            self._switched_ns = now = perf_counter_ns()
        self._ticked_ns = now
        changed = None if instructions == self._instructions else self._instructions
        return self._kill, changed

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
            reply = b"-%b\r\n" % failure.text
        if reply[0] == 0x2D:
            return self._runtime.table_from(
                {b"err": reply[1:-2], b"ignore_error_stats_update": True}
            )
        return self._decoded(reply)

    def _reply(self, args: tuple[object, ...]) -> bytes:
        self._make_room()
        if not args:
            raise Failure(b"ERR Please specify at least one argument for this redis lib call")
        assert self._calls is not None
        self._calls_left -= 1
        if not self._calls_left:
            self._calls_left = CALLS
            stop, _ = self._tick()
            if stop is not None:
                self._inside[b"stop"]()
                raise Failure(stop)
        return self._calls.call([_argument(each) for each in args])

    def _decoded(self, reply: bytes) -> object:
        """A reply as a value of Lua."""
        self._make_room(len(reply))
        mark = reply[0]
        if mark == 0x24:  # "$"
            if reply[1] == 0x2D:
                return False
            return reply[reply.index(b"\n") + 1 : -2]
        if mark == 0x3A:  # ":"
            return float(reply[1:-2])
        decoded = self._inside[b"decode"](reply, 1)
        return decoded[0] if isinstance(decoded, tuple) else decoded

    def _log(self, *args: object) -> None:
        self._make_room()
        if len(args) < 2:
            raise Failure(b"ERR redis.log() requires two arguments or more.")
        level = args[0]
        if not isinstance(level, int | float):
            raise Failure(b"ERR First argument must be a number (log level).")
        if not 0 <= level <= 3:
            raise Failure(b"ERR Invalid debug level.")
        words = [_number(each) if isinstance(each, int | float) else each for each in args[1:]]
        assert self._calls is not None
        self._calls.log(int(level), b" ".join(each for each in words if isinstance(each, bytes)))

    def _set_protocol(self, *args: object) -> None:
        self._make_room()
        if len(args) != 1:
            raise Failure(b"ERR redis.setresp() requires one argument.")
        if args[0] not in (2, 3):
            raise Failure(b"ERR RESP version must be 2 or 3.")
        assert self._calls is not None
        self._calls.set_protocol(resp3=args[0] == 3)
        self._inside[b"set_protocol"](args[0])

    def _may_call(self, *args: object) -> bool:
        self._make_room()
        if not args:
            raise Failure(
                b"ERR Please specify at least one argument for this redis.acl_check_cmd() call"
            )
        assert self._calls is not None
        try:
            return self._calls.may_call([_argument(each) for each in args])
        except CommandError as problem:
            raise Failure(problem.text) from None


def _version_number() -> int:
    major, minor, patch = map(int, REDIS_VERSION.split("."))
    return major << 16 | minor << 8 | patch


def _no_attribute(*_: object) -> None:
    """Scripts have no Python objects; if one had, it could do nothing with it."""
    raise AttributeError


def _describe(problem: object) -> bytes:
    """The text of an error of one of our functions."""
    if isinstance(problem, Failure):
        return problem.text
    return b"ERR " + _text(problem)


def _text(problem: object) -> bytes:
    if isinstance(problem, MemoryError):
        return b"not enough memory"
    return str(problem).partition("\n")[0].encode("latin-1", "replace")


def _argument(value: object) -> bytes:
    """An argument of a command as Redis makes it of a value of Lua."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Failure(b"ERR Lua redis lib command arguments must be strings or integers")
    return _number(value)


def _number(value: float) -> bytes:
    if abs(value) <= _INTEGER_MAX and value == int(value):  # so it is no NaN either
        return b"%d" % int(value)
    return b"%.17g" % value


def _sha1hex(*args: object) -> bytes:
    if len(args) != 1:
        raise Failure(b"ERR wrong number of arguments")
    value = args[0]
    text = b"%.14g" % value if isinstance(value, int | float) else value
    return hashlib.sha1(text if isinstance(text, bytes) else b"").hexdigest().encode()  # noqa: S324


def _set_repl(*args: object) -> None:
    """Effects of scripts always go to the log and to other regions."""
    if len(args) != 1:
        raise Failure(b"ERR redis.set_repl() requires two arguments.")
