"""The interface of a machine that runs scripts; :mod:`anabranch.scripting` has one."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, Final, Protocol, TypeVar

from anabranch.errors import AnabranchError
from anabranch.keyspace.libraries import Library
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
