"""The interfaces that a process needs: time, workers, a data directory, and clients.

The server drives a process with an event loop and threads, the simulator with virtual time. All
rules are in the process; a driver only carries out what the process asks for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from anabranch.engine.host import LinkControl
from anabranch.oplog.storage import Storage


class Timer(Protocol):
    """A call that was scheduled for later."""

    def cancel(self) -> None:
        """Do not call; no effect afterwards."""


class WorkFuture(Protocol):
    """A piece of work of a worker."""

    def done(self) -> bool:
        """Whether the work has ended."""

    def result(self) -> Any:
        """Block until the work has ended, and return its result; raises what it raised."""

    def exception(self) -> BaseException | None:
        """Block until the work has ended, and return what it raised; None if nothing."""


class Worker(Protocol):
    """Does work in parallel to the process, one piece after the other in the given order."""

    def start(self) -> None:
        """Become ready. Raises :class:`OSError` if the system cannot start a thread."""

    def submit(
        self, work: Callable[[], object], then: Callable[[WorkFuture], object] | None = None
    ) -> WorkFuture:
        """Do ``work``; when it has ended, ``then`` is called in a turn of the process."""

    def close(self) -> None:
        """Finish all work, then end."""


class Driver(Protocol):
    """Gives a process time, timers and workers."""

    def now_s(self) -> float:
        """A monotonic clock, in seconds."""

    def call_soon(self, action: Callable[[], object]) -> object:
        """Call ``action`` when the present turn is over, before anything else happens."""

    def call_later(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """Call ``action`` after a delay."""

    def worker(self, name: str) -> Worker:
        """Make a new worker; the name is shown in lists of threads."""


class ProcessDirectory(Protocol):
    """The data directory of a process."""

    @property
    def shown(self) -> str:
        """The name of the directory in messages for operators."""

    def is_there(self) -> bool:
        """Whether the directory was used before."""

    def open(self) -> Storage:
        """Create the directory if necessary, and lock it for this process.

        Raises :class:`ConfigError` if that is impossible.
        """

    def close(self) -> None:
        """Unlock the directory; another process may use it now."""


class ReplyWriter(Protocol):
    """The connection of a session, which writes its replies."""

    @property
    def waits_for_older(self) -> bool:
        """Whether replies of the session are held until the log is safe."""

    @property
    def unsent_bytes(self) -> int:
        """The bytes of replies that were taken from the outbox, and that the socket has not."""

    def flush(self) -> None:
        """Write the outbox of the session, or pass it to :class:`HeldReplies`."""

    def release(self, parts: list[bytes]) -> None:
        """Write the oldest held replies."""

    def cut_off(self) -> None:
        """Disconnect without writing anything more."""


class LinkDriver(LinkControl, Protocol):
    """The sockets and certificates of a process for the links with other regions."""

    def check_certificates(self) -> None:
        """Some time has passed: use certificates that have replaced earlier ones."""

    def shut_down(self) -> None:
        """Close all links and the port. Called once, after the last farewell."""

    def facts(self) -> dict[str, int | float | str]:
        """Figures of the certificates for INFO."""
