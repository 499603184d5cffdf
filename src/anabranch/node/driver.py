"""What a process needs of its surroundings: time, work beside it, and its clients.

The server drives a process with an event loop and threads, the simulator with virtual time. All of
the rules are in the process; a driver only carries out what is asked of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from anabranch.oplog.storage import Storage

__all__ = ["Client", "Driver", "Job", "Place", "Timer", "Worker"]


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """It does not happen."""


class Job(Protocol):
    """Work that a worker was given."""

    def done(self) -> bool:
        """Whether it is over."""

    def result(self) -> Any:
        """Wait for it, standing still; raises what it raised."""

    def exception(self) -> BaseException | None:
        """Wait for it, standing still; what it raised."""


class Worker(Protocol):
    """Somebody who does work beside the process, one piece after the other, in their order."""

    def start(self) -> None:
        """Be ready from now on. Raises :class:`OSError` if the system has no thread for it."""

    def submit(
        self, work: Callable[[], object], then: Callable[[Job], object] | None = None
    ) -> Job:
        """Have something done; ``then`` is called in a turn of the process when it is over."""

    def close(self) -> None:
        """Do what is left, and end."""


class Driver(Protocol):
    """Time, and work beside the process."""

    def now_s(self) -> float:
        """A clock that is never set."""

    def call_soon(self, action: Callable[[], object]) -> object:
        """Call something when the present turn is over, before anything else happens."""

    def call_later(self, delay_s: float, action: Callable[[], object]) -> Timer:
        """Call something after a while."""

    def worker(self, name: str) -> Worker:
        """A worker of its own."""


class Place(Protocol):
    """Where a process keeps its data."""

    @property
    def shown(self) -> str:
        """Its name as people should see it."""

    def is_there(self) -> bool:
        """Whether it was ever used."""

    def open(self) -> Storage:
        """Make it if need be, and have it for this process alone.

        Raises :class:`ConfigError` if that is impossible.
        """

    def close(self) -> None:
        """Let others have it."""


class Client(Protocol):
    """The connection of a session: where its replies go."""

    @property
    def waits_for_older(self) -> bool:
        """Whether replies are held."""

    def flush(self) -> None:
        """Write what the session's outbox holds, or have it held."""

    def release(self, parts: list[bytes]) -> None:
        """Write replies that were held, the oldest of them."""

    def cut_off(self) -> None:
        """Disconnect without another word."""
