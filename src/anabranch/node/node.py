"""One process as a whole: a region, its log, its snapshots and its part in a cluster.

The server, the simulator or a test drives a :class:`Node` and owns sockets, threads and clocks. It
passes requests (:meth:`Region.execute`), reports the end of a turn (:meth:`Node.end_turn`) and that
time has passed (:meth:`Node.tick`), and implements :class:`Driver` and, for replies,
:class:`ReplyWriter`. All rules of a process are in this package, so all drivers run the same rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.commands.table import COMMANDS
from anabranch.node.persistence import Persistence
from anabranch.region.region import Region

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.config.settings import Settings
    from anabranch.engine.host import Host, HostClock
    from anabranch.engine.spec import Command
    from anabranch.node.driver import Driver, ProcessDirectory, Timer
    from anabranch.node.exchange import Exchange


class Node:
    """A region with its log, its snapshots and its part in a cluster."""

    def __init__(
        self,
        settings: Settings,
        clock: HostClock,
        host: Host,
        driver: Driver,
        place: ProcessDirectory,
        commands: Sequence[Command] = COMMANDS,
    ) -> None:
        """``commands`` are those that it knows."""
        self.region = Region(settings, clock, host, commands)
        self.persistence = Persistence(self.region, driver, place)
        self.durability = self.persistence.durability
        self.durability.on_answers = self.end_turn
        self.persistence.snapshots.on_over = self._answer_inquiries
        self._replies = self.durability.replies
        self._waiters = self.region.keyspace.waiters
        self._driver = driver
        self._flushes_later = False  # sessions are left for a later slice
        self._timer: Timer | None = None
        self._timer_ms: int | None = None  # the time to which the timer is set

    def take_part(self, exchange: Exchange) -> None:
        """Take part in a cluster; call this before :meth:`Persistence.start`."""
        self.persistence.exchange = exchange
        exchange.local.on_answers = self.flush_pending

    # -- turns --------------------------------------------------------------------------------

    def end_turn(self) -> None:
        """Call this after requests of a connection: other sessions may have got replies."""
        if self.region.channels.pending:
            self.flush_pending()
        if not self._replies.is_ending:
            self._replies.end_turn()
        if self._waiters.next_timer_ms() != self._timer_ms:
            self.rearm()

    def run_turn(self) -> None:
        """Run another turn for work that did not fit into earlier ones."""
        if self._replies.is_ending:  # clients that were served at once do not wait for that work
            self.durability.commit()
        self.region.scheduler.run_turn()
        self.end_turn()
        # Before the sockets are read again: a client that has sent its last byte gets its replies.
        self.durability.commit()

    def _answer_inquiries(self) -> None:
        """Answer the clients that wait for the end of a snapshot."""
        self.region.waking.answer_inquiries()
        self.flush_pending()

    def flush_pending(self) -> None:
        """Write what sessions got from requests of others, until the slice of time is over."""
        if self._flushes_later and self.region.scheduler.is_over():
            return
        if self._flush_some():
            self.region.scheduler.schedule(self._flush_some, first=True)

    def _flush_some(self) -> bool:
        """Write until the slice is over; returns whether sessions are left."""
        pending = self.region.channels.pending
        is_over = self.region.scheduler.is_over
        self._flushes_later = False
        while pending:
            # A list, because a dictionary keeps the places of what was removed: the search for
            # its first session steps over all of them.
            for session in list(pending):
                if session not in pending:
                    continue
                del pending[session]
                connection = session.connection
                if connection is not None:
                    if connection.has_more and not session.stalled:
                        connection.go_on_later()
                    connection.flush()
                if pending and is_over():
                    self._flushes_later = True
                    return True
        return False

    # -- time ---------------------------------------------------------------------------------

    def tick(self) -> None:
        """Background work, ``hz`` times a second."""
        self._let_time_pass()
        self.persistence.tick()
        self.rearm()

    def on_timer(self) -> None:
        """The timer of :meth:`rearm` has fired: do what is due, and set the timer again."""
        self.stop_timer()
        self._let_time_pass()
        self.rearm()

    def _let_time_pass(self) -> None:
        scheduler = self.region.scheduler
        began_ns = scheduler.begin()
        self.region.tick()
        self.flush_pending()
        scheduler.end(began_ns)
        self.durability.end_turn()

    def rearm(self) -> None:
        """Set the timer to the next deadline of a blocked command."""
        self.stop_timer()
        self._timer_ms = due_ms = self._waiters.next_timer_ms()
        if due_ms is not None:
            delay_ms = max(due_ms - self.region.clock.now_us() // 1000, 0)
            self._timer = self._driver.call_later(delay_ms / 1000 + 0.0005, self.on_timer)

    def stop_timer(self) -> None:
        """Stop the timer of blocked commands."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_ms = None

    # -- the end ------------------------------------------------------------------------------

    def stop(self) -> bool:
        """End the exchange and deliver all replies; returns whether all effects are on the disk.

        Where they are not, :meth:`sync_all` tries again when the clients are gone.
        """
        self.stop_timer()
        if self.persistence.exchange is not None:
            self.persistence.exchange.stop()
        while self._flush_some():
            pass
        return self._trouble_with_syncing() is None

    def sync_all(self) -> None:
        """Write and sync everything, or log why not: no reply has reported the rest."""
        trouble = self._trouble_with_syncing()
        if trouble is not None:
            self.region.host.log("error", "oplog.unwritten_at_stop", reason=trouble.strerror)

    def _trouble_with_syncing(self) -> OSError | None:
        """Write and sync everything; what prevents that."""
        if self.persistence.is_loading:
            return None  # nothing was changed
        try:
            self.durability.sync_all()
        except OSError as problem:
            return problem
        if self.persistence.exchange is not None:
            self.persistence.exchange.local.notes.note_end()
        return None
