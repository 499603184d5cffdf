"""The few wishes of commands that reach outside the pure core.

The server gives real ones, tests and the simulator their own. Everything here is decided by the
shell, so that no command imports clocks, files or sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.commands.execution.session import Session
    from anabranch.commands.scripting.machine import Machine
    from anabranch.keyspace.inquiry import Inquiry, Verdict
    from anabranch.keyspace.last_effects import Place
    from anabranch.keyspace.replica import Dot
    from anabranch.metrics.peers import PeerFigures

__all__ = ["Clock", "Host", "LinkFault", "Regions"]


class Clock(Protocol):
    """Time, read by nobody else."""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970."""

    def ticks_ns(self) -> int:
        """A monotonic clock for durations."""


class Persistence(Protocol):
    """What is kept outside memory. Methods raise :class:`CommandError` with the reply."""

    @property
    def is_logging(self) -> bool:
        """Whether every change goes into a log (``appendonly yes``)."""

    def mark(self) -> int:
        """A position in the log behind everything that has happened so far."""

    def synced(self) -> int:
        """Everything with a mark up to this one is on the disk."""

    def save(self) -> None:
        """Write everything now, while all clients wait (SAVE)."""

    def begin_save(self, *, rewrite: bool = False, schedule: bool = False) -> bool:
        """Begin to write everything (BGSAVE, or BGREWRITEAOF): False if it begins later."""

    def reload(self, *, save: bool) -> None:
        """Forget everything and recover it, after saving it if ``save`` (DEBUG RELOAD)."""

    def facts(self) -> dict[str, int | float | str]:
        """Fields of INFO persistence that the core does not know."""


class LinkFault(Protocol):
    """What is done on purpose to the traffic with another region, both ways."""

    paused: bool
    """Nothing gets through."""
    delay_ms: float
    jitter_ms: float
    """At most so much comes on top of the delay, by chance."""
    loss: float
    """How likely a frame is to be lost, and the connection with it; 0 to 1."""
    rate: float
    """Bytes a second; 0 is no limit."""


class Regions(Protocol):
    """The other regions, as this one sees them."""

    def peers(self) -> list[PeerFigures]:
        """Every other region, those removed lately too, by number."""

    def facts(self) -> dict[str, int | float | str]:
        """Figures of this region, by their names in INFO."""

    def feature_levels(self) -> dict[int, int]:
        """What each member understands, this region included, as far as it has told."""

    def holding_back(self, effects: Mapping[int, int]) -> list[int]:
        """The members, maybe this one, whose disks may lack some of these effects."""

    def acknowledged(self, effect: Dot) -> tuple[int, int]:
        """How many other regions have applied an effect of ours, and how many have it on disk."""

    def remove_member(self, region: int, *, force: bool) -> None:
        """Remove a region from the cluster, ``force`` if it cannot be reached: CommandError."""

    def verify(self, region: int, places: list[Place]) -> Verdict:
        """Compare keys (database and name), or all if none are named, with a region.

        CommandError if it cannot be reached. Who waits for the outcome notes it in
        :attr:`Waits.inquiries`.
        """

    def repair(self, region: int, place: Place) -> Inquiry:
        """Take over a key from a region; likewise."""

    def expiries(self) -> Mapping[int, int]:
        """When certificates end, in seconds since 1970, by region, as far as they are known."""

    @property
    def faults(self) -> Mapping[int, LinkFault]:
        """What is done to links, by region; most have none."""

    def fault(self, region: int) -> LinkFault:
        """What is done to the link with a region; call :meth:`faults_changed` after a change."""

    def faults_changed(self) -> None:
        """Let go of what is not held back any more."""


class Host(Protocol):
    """What the process around the core can do for a command."""

    @property
    def persistence(self) -> Persistence:
        """What is kept outside memory."""

    @property
    def regions(self) -> Regions | None:
        """The other regions of an Active-Active cluster; None on a server of its own."""

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes (ACL GENPASS, run IDs)."""

    def random_below(self, bound: int) -> int:
        """A uniform choice (RANDOMKEY)."""

    def script_machine(self) -> Machine:
        """What runs scripts, the same at each call. CommandError if it is not installed."""

    def sleep(self, seconds: float) -> None:
        """Stand still (DEBUG SLEEP)."""

    def log(self, level: str, event: str, **fields: object) -> None:
        """Write an operator's log line."""

    def close(self, session: Session) -> None:
        """Close a connection once its outbox is written."""

    def shutdown(self, *, save: bool | None, now: bool, force: bool) -> None:
        """Begin an orderly stop; ``save`` None means by configuration."""

    def process_info(self) -> dict[str, object]:
        """Facts for INFO: pid, memory, CPU times, versions, paths (see server/process.py)."""

    def give_back_memory(self) -> None:
        """Return to the system what was freed (MEMORY PURGE)."""

    def rewrite_config(self, users: list[list[bytes]]) -> None:
        """Write changed settings back to the configuration file (CONFIG REWRITE)."""

    def read_acl_file(self) -> str:
        """The text of the ``aclfile``."""

    def write_acl_file(self, text: str) -> None:
        """Replace the ``aclfile``."""

    def apply_setting(self, name: str) -> None:
        """A setting with an effect outside the core changed (port, loglevel, maxclients ...)."""
