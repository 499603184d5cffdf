"""Lua 5.1 in this process, by way of lupa: one world for all scripts of a region.

``sandbox.lua`` runs scripts. Its answers are replies in RESP.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from lupa import lua51

from anabranch.engine.script_machine import Registered, ScriptCalls, ScriptError, sha1_of
from anabranch.keyspace.libraries import Library
from anabranch.scheduling import Steps
from anabranch.scripting.failures import Failure
from anabranch.scripting.functions import HostFunctions, read_registration, text_of
from anabranch.scripting.interruption import OUT_OF_MEMORY, Interruption
from anabranch.scripting.world import ROOM_BYTES, World

_T = TypeVar("_T")

COMPILED_MAX: Final = 500
"""Scripts kept compiled."""


class LuaMachine:
    """Runs scripts in LuaJIT or Lua, one at a time, within a limit of memory."""

    def __init__(self, memory_bytes: int) -> None:
        """``memory_bytes`` is what all of its scripts may take together."""
        self._memory_bytes = memory_bytes
        self._world = World(memory_bytes)
        self._interruption = Interruption(self._world)
        self._functions = HostFunctions(self._world, self._interruption)
        self._world.fill(self._functions.by_name())
        self.loaded: WeakKeyDictionary[Library, Registered] = WeakKeyDictionary()
        self._compiled: OrderedDict[tuple[bytes, bytes], Any] = OrderedDict()
        self._flushes = 0  # of scripts, when one ran last

    @property
    def used_bytes(self) -> int:
        """The memory that compiled scripts and their values take."""
        return self._world.used_bytes

    def compile(self, source: bytes, name: bytes) -> Any:
        """The argument of :meth:`run`; ``name`` is for error texts. Raises :class:`ScriptError`."""
        key = name, sha1_of(source)  # not the source, which would then stay as long
        known = self._compiled.get(key)
        if known is not None:
            self._compiled.move_to_end(key)
            return known
        if len(source) > self._memory_bytes // 16:
            raise ScriptError(b"script too large")
        world = self._world
        world.limit(2 * self._memory_bytes)
        try:
            made = world.inside["compile"](source, name)
        except lua51.LuaError as problem:  # out of memory
            raise ScriptError(text_of(problem)) from None
        finally:
            world.limit(None)
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
        """The reply of a script, or of a function of a library. Raises :class:`ScriptError`."""
        world = self._world
        size = sum(map(len, keys)) + sum(map(len, argv)) + 64 * (len(keys) + len(argv))
        if world.used_bytes + size + 2 * ROOM_BYTES > self._memory_bytes:
            raise ScriptError(b"ERR " + OUT_OF_MEMORY)
        if not is_function and calls.flushes != self._flushes:
            self._flushes = calls.flushes
            world.inside["reset"]()
        self._functions.calls = calls
        self._interruption.begin()
        inside = world.inside["call" if is_function else "run"]
        words = world.table(keys), world.table(argv)
        world.limit(self._memory_bytes)
        try:
            answer = inside(script, *words, resp3)
        except lua51.LuaError as problem:  # the sandbox itself had no memory left
            raise ScriptError(b"ERR " + text_of(problem)) from None
        finally:
            self._functions.calls = None
            world.limit(None)
            self._clean_up()
        if isinstance(answer, tuple):
            _, text, source, line = answer
            raise ScriptError(text, source, line)
        reply: bytes = answer
        return reply

    def load_library(self, body: bytes) -> Registered:
        """Run the code of a library without its first line.

        Raises :class:`ScriptError` with the whole text of the reply.
        """
        try:
            chunk = self.compile(body, b"@user_function")
        except ScriptError as problem:
            raise ScriptError(b"ERR Error compiling function: " + problem.text) from None
        registered: Registered = {}

        def register(*args: object) -> None:
            self._interruption.make_room()
            name, function = read_registration(args)
            if name in registered:
                raise Failure(b"ERR Function already exists in the library")
            registered[name] = function

        world = self._world
        self._interruption.begin_loading()
        world.limit(self._memory_bytes)
        try:
            outcome = world.inside["load_library"](chunk, register)
        except lua51.LuaError as failure:
            outcome = (b"ERR " + text_of(failure), None, None)
        finally:
            world.limit(None)
            self._clean_up()
        if outcome is not None:
            raise ScriptError(b"ERR Error registering functions: " + outcome[0])
        return registered

    def _clean_up(self) -> None:
        """Leave room for the next script. Lua does not collect just because memory is short."""
        world = self._world
        if world.used_bytes > self._memory_bytes // 2:
            collect = world.inside["collect"]
            collect()
            if world.used_bytes > self._memory_bytes // 2:
                self._compiled.clear()
                collect()
            if world.used_bytes > self._memory_bytes // 2:
                self.loaded.clear()
                collect()

    def collect(self) -> None:
        """Free what scripts have left behind; no script may be under way."""
        self._world.inside["collect"]()

    def forget(self) -> None:
        """Forget what was compiled, and free its memory; no script may be under way."""
        self._compiled.clear()
        self.collect()

    def steps(self, work: Callable[[], _T]) -> Steps[_T]:
        """Call ``work`` in steps: scripts that take long yield in between.

        Only what is called so can be interrupted. Closing the generator kills the script.
        """
        return self._interruption.steps(work)

    def kill(self) -> None:
        """End the running script with an error at its next step."""
        self._interruption.kill()

    def close(self) -> None:
        """Free its memory. It cannot be used any more; no script may be under way."""
        self._interruption.close()
        self._compiled.clear()
        self.loaded.clear()
        self._world.close()
