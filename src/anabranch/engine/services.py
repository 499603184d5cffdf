"""The services of a server for administrative commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from msgspec import Struct, field

from anabranch.engine.acl.rules import AclRegistry
from anabranch.engine.channels import Channels, KeyspaceEvents
from anabranch.engine.dispatch import Dispatcher
from anabranch.engine.host import Host
from anabranch.engine.leases import Leases
from anabranch.engine.script_machine import Scripts
from anabranch.engine.served_command import ServedCommand
from anabranch.engine.session import Session
from anabranch.keyspace.waiter import Waiter
from anabranch.metrics.holdings import Holdings
from anabranch.metrics.latency import LatencyMonitor
from anabranch.metrics.slowlog import SlowLog
from anabranch.metrics.stats import Rates
from anabranch.scheduling import Steps


class Blocked(Protocol):
    """What commands may do with the commands that wait."""

    def time_out(self, waiter: Waiter) -> None:
        """End a wait as if its time was over."""

    def end_wait(self, waiter: Waiter, reply: bytes) -> None:
        """End a wait with a reply, which may be an error."""

    def unsubscribe(self, session: Session) -> None:
        """End the subscription of a connection to entries, if it has one."""

    def look_again(self, waiter: Waiter) -> None:
        """Run a waiting command again in a later turn."""

    def unpause(self) -> None:
        """End a CLIENT PAUSE: run what it held back."""


class Runner(Protocol):
    """What commands may ask of the region that runs them."""

    def is_over(self) -> bool:
        """Whether the present slice of time is over."""

    def begin_slices(
        self, session: Session, args: list[bytes], steps: Steps[list[bytes]]
    ) -> list[bytes] | None:
        """Do what fits into the slice that the connection has; the reply, or None if more is left.

        The rest is done, and answered, later. Raises what the command raises.
        """

    def begin_exclusive(
        self, session: Session, args: list[bytes], steps: Steps[bytes]
    ) -> bytes | None:
        """Run a transaction: until its end no other client sees or changes anything.

        The reply, or None if more is left; that is answered later. Raises what the command raises.
        """

    def mistake(self, entry: ServedCommand | None, args: list[bytes], mistake: Exception) -> bytes:
        """Log that a command failed by a mistake of this program; returns the error reply."""

    def slow(
        self, session: Session, entry: ServedCommand, args: list[bytes], spent_ns: int
    ) -> None:
        """Put a request into the slow log and the latency monitor if it took long."""


class Services(Struct):
    """What administrative commands use of the server beside the data."""

    host: Host
    acl: AclRegistry
    dispatcher: Dispatcher
    channels: Channels
    events: KeyspaceEvents
    sessions: dict[int, Session]
    """Every connection by its client ID."""
    slowlog: SlowLog
    latency: LatencyMonitor
    rates: Rates
    blocked: Blocked
    runner: Runner
    scripts: Scripts
    """The scripts that EVALSHA finds."""
    leases: Leases
    """Which connections hold pending entries, where policies ask for that."""
    holdings: Holdings
    """What is held beside keys and values."""
    redrives: dict[tuple[int, bytes], Callable[..., bool]] = field(default_factory=dict)
    """By database and key: gives back what a rate allows until now, with a context; returns whether
    more is left."""
    active_expire: bool = True
    """Whether keys past their deadline are looked for (DEBUG SET-ACTIVE-EXPIRE)."""
