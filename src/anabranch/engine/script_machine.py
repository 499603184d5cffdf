"""The interface of a machine that runs scripts; :mod:`anabranch.scripting` has one."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, Final, Protocol, TypeVar

from anabranch.errors import AnabranchError
from anabranch.keyspace.libraries import Library
from anabranch.metrics.holdings import NAME_BYTES
from anabranch.scheduling import Steps

_T = TypeVar("_T")

KILLED: Final = b"Script killed by user with SCRIPT KILL..."
"""The error that ends a killed script."""


class ScriptError(AnabranchError):
    """A script cannot be compiled, or has failed: the text, and the place in a source."""

    def __init__(self, text: bytes, source: bytes | None = None, line: float | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.source = source
        self.line = line


Registered = dict[bytes, tuple[Any, bytes, list[bytes]]]
"""By name: the argument of :meth:`ScriptMachine.run`, description and flags of a function."""


class ScriptCalls(Protocol):
    """What a running script can use."""

    flushes: int
    """The count of SCRIPT FLUSH: what scripts have set in a library holds until the next one."""

    def call(self, args: list[bytes]) -> bytes:
        """Run a command: its reply as RESP, which may be an error."""

    def may_call(self, args: list[bytes]) -> bool:
        """Whether the user may run a command. CommandError if there is none."""

    def log(self, level: int, text: bytes) -> None:
        """Write a line into the server's log; levels 0 to 3 are debug to warning."""

    def set_protocol(self, *, resp3: bool) -> None:
        """Encode later replies in RESP3, or in RESP2."""


class ScriptMachine(Protocol):
    """Runs scripts one at a time, within a limit of memory."""

    @property
    def used_bytes(self) -> int:
        """The memory that the machine takes, in bytes."""

    def compile(self, source: bytes, name: bytes) -> Any:
        """The argument of :meth:`run`; ``name`` is for error texts. Raises :class:`ScriptError`."""

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

    @property
    def loaded(self) -> MutableMapping[Library, Registered]:
        """The functions of libraries, with their state, as long as the libraries are kept.

        When memory is short it forgets all.
        """

    def load_library(self, body: bytes) -> Registered:
        """Run the code of a library without its first line.

        Raises :class:`ScriptError` with the whole text of the reply.
        """

    def collect(self) -> None:
        """Free what scripts have left behind; no script may be under way."""

    def forget(self) -> None:
        """Forget what was compiled, and free its memory; no script may be under way."""

    def steps(self, work: Callable[[], _T]) -> Steps[_T]:
        """Call ``work`` in steps: scripts that take long yield in between.

        Only what is called so can be interrupted. Closing the generator kills the script.
        """

    def kill(self) -> None:
        """End the running script with an error at its next step."""

    def close(self) -> None:
        """Free its memory. It cannot be used any more; no script may be under way."""


# -- scripts by the hash of their source; they are not part of the data ---------------------------

EVALUATED_MAX: Final = 500
"""The most scripts that were only evaluated; those of SCRIPT LOAD are kept until SCRIPT FLUSH."""

_SCRIPT_BYTES: Final = 2 * NAME_BYTES + 40 + 150
"""What a script takes beside its source: its hash, and a place in a table with an order."""


def sha1_of(source: bytes) -> bytes:
    """The hash by which EVALSHA names a script."""
    return hashlib.sha1(source, usedforsecurity=False).hexdigest().encode()


class Scripts:
    """Sources of scripts by their hashes."""

    def __init__(self) -> None:
        self._loaded: dict[bytes, bytes] = {}
        self._evaluated: OrderedDict[bytes, bytes] = OrderedDict()
        self.flushes = 0
        """How often they have been forgotten."""
        self.used_bytes = 0
        """The memory of the sources."""

    def __len__(self) -> int:
        """How many scripts there are of both kinds."""
        return len(self._loaded) + len(self._evaluated)

    def __contains__(self, sha1: bytes) -> bool:
        """Whether EVALSHA finds a script."""
        return sha1 in self._loaded or sha1 in self._evaluated

    def get(self, sha1: bytes) -> bytes | None:
        """The source; None if it is not known."""
        source = self._loaded.get(sha1)
        if source is None:
            source = self._evaluated.get(sha1)
            if source is not None:
                self._evaluated.move_to_end(sha1)
        return source

    def load(self, source: bytes) -> bytes:
        """Keep a script until :meth:`clear`; its hash."""
        sha1 = sha1_of(source)
        if self._evaluated.pop(sha1, None) is None and sha1 not in self._loaded:
            self.used_bytes += _SCRIPT_BYTES + len(source)
        self._loaded[sha1] = source
        return sha1

    def cache(self, sha1: bytes, source: bytes) -> None:
        """Keep an evaluated script; drops the one that was not evaluated for the longest time."""
        if sha1 not in self._loaded:
            if sha1 not in self._evaluated:
                self.used_bytes += _SCRIPT_BYTES + len(source)
            self._evaluated[sha1] = source
            self._evaluated.move_to_end(sha1)
            if len(self._evaluated) > EVALUATED_MAX:
                _, dropped = self._evaluated.popitem(last=False)
                self.used_bytes -= _SCRIPT_BYTES + len(dropped)

    def clear(self) -> None:
        """Forget all scripts, as SCRIPT FLUSH does."""
        self._loaded.clear()
        self._evaluated.clear()
        self.flushes += 1
        self.used_bytes = 0
