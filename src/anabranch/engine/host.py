"""The interfaces by which commands reach outside the pure core.

The server implements them with real clocks, files and sockets, tests and the simulator with virtual
ones. So no command imports clocks, files or sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from anabranch.engine.script_machine import ScriptMachine
from anabranch.engine.session import Session
from anabranch.keyspace.inquiry import Inquiry, Verdict
from anabranch.keyspace.last_effects import Place
from anabranch.metrics.peers import PeerFigures
from anabranch.stream.shared import Dot


class HostClock(Protocol):
    """The only source of time for the core."""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970."""

    def ticks_ns(self) -> int:
        """A monotonic clock for durations."""

    def cpu_ns(self) -> int:
        """The processor time of this thread."""


class HostPersistence(Protocol):
    """Log and snapshots. Methods raise :class:`CommandError` with the reply."""

    @property
    def is_logging(self) -> bool:
        """Whether every change goes into a log (``appendonly yes``)."""

    def position(self) -> int:
        """The position in the log after all effects so far."""

    def synced(self) -> int:
        """The position up to which the log is on the disk."""

    def save_for(self) -> Inquiry:
        """Begin a snapshot for a client that waits for its end (SAVE)."""

    def begin_save(self, *, rewrite: bool = False, schedule: bool = False) -> bool:
        """Begin a snapshot (BGSAVE, or BGREWRITEAOF); False if it begins later."""

    def reload(self, *, save: bool) -> None:
        """Drop all data and recover it, after a snapshot if ``save`` (DEBUG RELOAD)."""

    def facts(self) -> dict[str, int | float | str]:
        """Fields of INFO persistence that the core does not know."""


class LinkFault(Protocol):
    """The faults applied to the traffic with another region, in both directions."""

    paused: bool
    """Whether nothing is transferred."""
    delay_ms: float
    jitter_ms: float
    """The greatest random addition to the delay."""
    loss: float
    """The probability that a frame, and so the connection, is lost; 0 to 1."""
    rate: float
    """Bytes a second; 0 is no limit."""


class LinkControl(Protocol):
    """The connections with other regions, for operators."""

    def expiries(self) -> Mapping[int, int]:
        """When certificates end, in seconds since 1970, by region, as far as they are known."""

    @property
    def faults(self) -> Mapping[int, LinkFault]:
        """The faults of links, by region; most have none."""

    def fault(self, region: int) -> LinkFault:
        """The fault of the link to a region; call :meth:`faults_changed` after a change."""

    def faults_changed(self) -> None:
        """Send frames that are not delayed any more."""


class HostRegions(Protocol):
    """The other regions, as seen by this one."""

    @property
    def links(self) -> LinkControl:
        """The connections with them."""

    def peers(self) -> list[PeerFigures]:
        """Every other region, recently removed ones included, by number."""

    def facts(self) -> dict[str, int | float | str]:
        """Figures of this region, by their names in INFO."""

    def address(self, region: int) -> str:
        """The gossip address of a member, this region included; empty for other regions."""

    def feature_levels(self) -> dict[int, int]:
        """The feature level of each member, this region included, as far as it is known."""

    def holding_back(self, effects: Mapping[int, int]) -> list[int]:
        """The members, maybe this one, whose disks may lack some of these effects."""

    def acknowledged(self, effect: Dot) -> tuple[int, int]:
        """How many other regions have applied an own effect, and how many have it on disk."""

    def remove_member(self, region: int, *, force: bool) -> None:
        """Remove a region from the cluster, ``force`` if it cannot be reached: CommandError."""

    def verify(self, region: int, places: list[Place]) -> Verdict:
        """Compare keys (database and name), or all if none are named, with a region.

        CommandError if it cannot be reached. :attr:`Waits.inquiries` keeps the connections that
        wait for the result.
        """

    def repair(self, region: int, place: Place) -> Inquiry:
        """Take over a key from a region; errors and waiting as for :meth:`verify`."""


class Host(Protocol):
    """What a command needs of the process around the core."""

    @property
    def persistence(self) -> HostPersistence:
        """Log and snapshots."""

    @property
    def regions(self) -> HostRegions | None:
        """The other regions of an Active-Active cluster; None without regions."""

    def random_bytes(self, count: int) -> bytes:
        """Unpredictable bytes (ACL GENPASS, run IDs)."""

    def random_below(self, bound: int) -> int:
        """A uniform choice (RANDOMKEY)."""

    def next_by_cron(self, line: bytes, zone: bytes, after_ms: int) -> int | None:
        """The first time that a cron line names after a time, both in ms since 1970.

        None if there is none. CommandError for what is no line, or for a zone (UTC,
        Europe/Berlin) that this machine does not know.
        """

    def script_machine(self) -> ScriptMachine:
        """The one machine that runs scripts. CommandError if it is not installed."""

    def sleep(self, seconds: float) -> None:
        """Block the whole process (DEBUG SLEEP)."""

    def log(self, level: str, event: str, **fields: object) -> None:
        """Write an operator's log line."""

    def close(self, session: Session) -> None:
        """Close a connection once its outbox is written."""

    def shutdown(self, *, save: bool | None, now: bool, force: bool) -> None:
        """Begin an orderly stop; ``save`` None means by configuration."""

    def process_info(self) -> dict[str, object]:
        """Facts for INFO: pid, memory, CPU times, versions, paths (see server/process.py)."""

    def give_back_memory(self) -> None:
        """Return freed memory to the system (MEMORY PURGE)."""

    def rewrite_config(self, users: list[list[bytes]]) -> None:
        """Write changed settings back to the configuration file (CONFIG REWRITE)."""

    def read_acl_file(self) -> str:
        """The text of the ``aclfile``."""

    def write_acl_file(self, text: str) -> None:
        """Replace the ``aclfile`` by a text; CommandError if that fails."""

    def apply_setting(self, name: str) -> None:
        """A setting with an effect outside the core changed (port, loglevel, maxclients ...)."""
