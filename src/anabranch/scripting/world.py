"""The Lua runtime with the sandbox inside, and how much memory it may take.

The limit of the runtime holds only while Lua runs: an allocation that fails then is an error of
Lua. An allocation that fails while a value of Python is copied into the runtime ends the process.
So there is no limit during a copy, and :class:`Interruption` checks first that there is room.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from lupa import lua51

ROOM_BYTES: Final = 1 << 20
"""Left for what is copied into the runtime while a script runs."""

FREE_REFERENCES: Final = 10_000
"""Places for tables that scripts hand to our functions, made beforehand for the same reason; no
call has more arguments than Lua's stack of 8,000."""

_NO_LIMIT: Final = 1 << 40

_UNSHARED: Final = 3
"""References to a runtime that no other code uses: a variable, an argument, and the one that keeps
it."""

_PARTS: Final = ("errors", "interruption", "libraries", "redis", "replies")
"""The files from which ``sandbox.lua`` builds the environment of scripts."""


class World:
    """One runtime. Call :meth:`fill` before anything else, and :meth:`close` at the end.

    Without :meth:`close` it stays until the process ends. The collector of cycles must never free
    a runtime: lupa would use what is freed already.
    """

    def __init__(self, memory_bytes: int) -> None:
        """``memory_bytes`` is the most memory of all scripts together."""
        self.memory_bytes = memory_bytes
        self.runtime: Any = lua51.LuaRuntime(
            encoding=None,
            source_encoding="latin-1",
            unpack_returned_tuples=True,
            register_eval=False,
            register_builtins=False,
            attribute_handlers=(_no_attribute, _no_attribute),
            max_memory=0,  # see limit()
        )
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.runtime))
        self.inside: dict[str, Any] = {}
        """The functions of the sandbox by name."""
        self.table: Any = self.runtime.table_from
        """A table of Lua with the contents of a list or a mapping."""
        self.limit(None)

    def fill(self, functions: Mapping[bytes, object]) -> None:
        """Make the sandbox; mappings become tables of Lua."""
        runtime, table = self.runtime, self.table
        references = [runtime.table() for _ in range(FREE_REFERENCES)]
        del references
        loadstring = runtime.eval("loadstring")

        def source(name: str) -> Any:
            return loadstring(
                files("anabranch.scripting").joinpath(name + ".lua").read_bytes(),
                # Where an error of one of these happened is of no use to a script.
                b"=" + (b"sandbox" if name in _PARTS else name.encode()),
            )

        given = {
            name: table(value) if isinstance(value, Mapping) else value
            for name, value in functions.items()
        }
        given[b"parts"] = table({name.encode(): source(name) for name in _PARTS})
        given[b"cjson"], given[b"cmsgpack"] = source("cjson"), source("cmsgpack")
        inside = source("sandbox")(table(given))
        self.inside = {name.decode(): function for name, function in inside.items()}

    @property
    def used_bytes(self) -> int:
        """The memory that the runtime uses."""
        used: int = self.runtime.get_memory_used()
        return used

    def limit(self, memory_bytes: int | None) -> None:
        """Set the most memory of the runtime; None: no limit, while no script runs."""
        self.runtime.set_max_memory(memory_bytes or _NO_LIMIT)

    def close(self) -> None:
        """Free the runtime. If an object of the runtime is still in use, the runtime stays."""
        self.runtime.eval("pcall")(_no_attribute)  # lupa keeps the last error, and frames with it
        self.inside["collect"]()  # this frees errors that scripts have caught
        self.inside.clear()
        runtime, self.runtime, self.table = self.runtime, None, None
        if sys.getrefcount(runtime) == _UNSHARED:
            ctypes.pythonapi.Py_DecRef(ctypes.py_object(runtime))
        del runtime  # lupa keeps this frame


def _no_attribute(*_: object) -> None:
    """Scripts have no Python objects; if one had, it could do nothing with it."""
    raise AttributeError
