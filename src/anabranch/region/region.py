"""A region: keyspace, sessions and command table behind a few calls.

    region.execute(session, requests)    runs requests; replies go to ``session.outbox``
    region.tick()                        time has passed: timeouts, expiry, background slices
    region.channels.pending              other sessions that have got something to write
    region.scheduler.run_turn()          continues work that did not fit into one turn
    region.merging.apply(batches)        applies effects of other regions

The driver (the server, a test, the simulator) owns sockets and time. Nothing in here waits or does
I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.engine import texts
from anabranch.engine.context import Context
from anabranch.engine.dispatch import RequestRefused
from anabranch.engine.host import Host, HostClock
from anabranch.engine.queueing import left
from anabranch.engine.script_machine import Scripts
from anabranch.engine.served_command import ServedCommand
from anabranch.engine.services import Services
from anabranch.engine.session import Session
from anabranch.engine.spec import Command, CommandFunction
from anabranch.errors import CommandError
from anabranch.keyspace.keyspace import Keyspace
from anabranch.region.exclusive import Exclusive
from anabranch.region.maintenance import Maintenance
from anabranch.region.merging import Merging
from anabranch.region.slicing import SlicedRequest
from anabranch.region.state import RegionState
from anabranch.region.tiering import Tiering
from anabranch.region.waking import Waking
from anabranch.resp.encode import QUEUED
from anabranch.scheduling import NOT_BEGUN, Steps

QUICK_NS: Final = 5_000
"""After a request that took less time the deadline is not checked: one piece of a pipeline
(``PIECE_BYTES`` in :mod:`anabranch.server.connection`) has some milliseconds of them at most."""

BACKLOG_PIECE: Final = 512
"""Requests taken from a backlog at a time."""


class Region(RegionState):
    """One region: its data, its sessions and the rules for them."""

    def __init__(
        self,
        settings: Settings,
        clock: HostClock,
        host: Host,
        commands: Sequence[Command],
    ) -> None:
        """``commands`` are the commands that the region knows."""
        super().__init__(settings, clock, host, commands)
        self.tiering = Tiering(self)
        self.dispatcher.make_room = self.tiering.make_room
        self.waking = Waking(self)
        self.services = Services(
            host=host,
            acl=self.acl,
            dispatcher=self.dispatcher,
            channels=self.channels,
            events=self.events,
            sessions=self.sessions,
            slowlog=self.slowlog,
            latency=self.latency,
            rates=self.rates,
            blocked=self.waking,
            runner=self,
            scripts=Scripts(),
            leases=self.leases,
            holdings=self.holdings,
        )
        self.context = Context(
            self.effects, settings, self.stats, clock, self.services, self.nobody
        )
        self.merging = Merging(self, self.waking, self.tiering)
        self.holdings.measured = {
            **self._measured(),
            "full-sync": self.merging.incoming_bytes,
        }
        self._maintenance = Maintenance(
            self, self.waking, self.merging, self.tiering, self.sweep_later
        )
        self._next_session_id = 1
        self._before: list[Callable[[kinds.Effect], None]] = []  # snapshots in progress
        self.scheduler.on_drive = self._sweep_from_now_on
        self.keyspace.waiters.carry_out = self.scheduler.carry_out

    # -- sessions -----------------------------------------------------------------------------

    def open_session(self, address: str, local: str) -> Session:
        """A new connection; authenticated at once when the default user needs no password."""
        session = Session(
            self._next_session_id, self.acl.initial_user(), address, local, self.holdings
        )
        self._next_session_id += 1
        session.created_ms = session.last_ms = self.clock.now_us() // 1000
        self.sessions[session.id] = session
        self.stats.connections_received += 1
        return session

    def close_session(self, session: Session) -> None:
        """The connection has ended: drop what it had, very much of it in later turns."""
        self.sessions.pop(session.id, None)
        session.closing = True  # what it still listens to is not sent any more
        self.waking.remove(session)
        if session.sliced is not None:
            session.sliced.cancel()
        session.set_names(b"", b"", b"")
        session.backlog.clear()
        session.outbox.clear()
        self.context.leave(session)
        self.channels.pending.pop(session, None)
        self.scheduler.carry_out(self.channels.leave_all(session))
        if session.watched or session.transaction is not None:
            self.scheduler.carry_out(left(self.keyspace, session))
        self.leases.left(session.id, self.clock.now_us() // 1000)
        self.dispatcher.stop_monitoring(session)
        self.dispatcher.postponed.pop(session, None)

    # -- requests -----------------------------------------------------------------------------

    def execute(self, session: Session, requests: Sequence[list[bytes]]) -> None:
        """Run requests in order; replies are appended to ``session.outbox``.

        Execution stops at a request that blocks or that a pause delays, and when the caller's slice
        of time is over. The other requests then stay in the backlog.
        """
        if session.backlog or session.waiter is not None or session.stalled or session.delayed:
            session.backlog.extend(requests)
            return
        now_ms = self.clock.now_us() // 1000
        session.last_ms = now_ms
        self._run(session, requests, now_ms)

    def _run(self, session: Session, requests: Sequence[list[bytes]], now_ms: int) -> None:
        """The hot loop: names looked up once, one clock reading a request."""
        ctx = self.context
        ctx.enter(session, now_ms)
        dispatcher = self.dispatcher
        entries = dispatcher.entries
        guards = dispatcher.guarded_by
        ready = self.keyspace.ready
        noted_ns = min(self.slowlog.threshold_ns, self.latency.threshold_ns)
        looked_at_ns = min(noted_ns, QUICK_NS)
        waking = self.waking
        ticks = self.clock.ticks_ns
        out = session.outbox
        entry: ServedCommand | None = None
        name: bytes | None = None  # pipelines repeat a command: its row is looked up once
        low = high = 0
        total_ns = 0  # of the entry's calls since it was looked up
        bucket = alike = 0  # where the histogram counts the latest call, and how many are to count
        gated = True  # whether the gates may have changed since the last request
        function: CommandFunction | None = None
        histogram = [0]
        is_done = False
        rest = iter(requests)
        started = self.cpu.begin(ticks())
        deadline = self.scheduler.deadline_ns
        if deadline == NOT_BEGUN:
            deadline = self.scheduler.begin_at(started)
        for args in rest:
            try:
                if args[0] != name or not low <= len(args) <= high:
                    name = None
                    if entry is not None:
                        entry.total_ns += total_ns
                        histogram[bucket] += alike
                        total_ns = alike = 0
                    entry = entries.get(args[0])
                    if entry is None or not entry.low <= len(args) <= entry.high:
                        entry = self._resolve(args)
                    else:
                        name, low, high = args[0], entry.low, entry.high
                    function = entry.function
                    histogram = entry.histogram
                    gated = not entry.is_tame or bool(guards) or not session.plain
                if gated and (guards or not session.plain):
                    reply = dispatcher.guarded(ctx, entry, args)  # type: ignore[arg-type]
                    if reply is QUEUED:  # EXEC will call it, and account for that
                        self.say(session, entry, reply)
                        started = ticks()
                        if started >= deadline:
                            break
                        continue
                else:
                    reply = function(ctx, args)  # type: ignore[misc]
            except RequestRefused as refusal:
                self.say(session, entry, dispatcher.failed(refusal))
                started = ticks()
                if started >= deadline:
                    break
                continue
            except CommandError as failure:
                entry.failed += 1  # type: ignore[union-attr]
                reply = dispatcher.failed(failure)
            except Exception as mistake:  # a bug of ours: answer, log, live on
                reply = self.mistake(entry, args, mistake)
            ended = ticks()
            spent = ended - started
            started = ended
            if name is None:  # not a plain name: it may be CONFIG SET, which changes them
                noted_ns = min(self.slowlog.threshold_ns, self.latency.threshold_ns)
                looked_at_ns = min(noted_ns, QUICK_NS)
            if reply is not None:
                if gated and not session.plain:
                    self.say(session, entry, reply)
                else:
                    out.append(reply)
            elif not self.can_go_on(session):
                break
            total_ns += spent
            taken = spent.bit_length()
            if taken == bucket:  # as a rule: the list is looked at once for many calls
                alike += 1
            else:
                histogram[bucket] += alike
                bucket, alike = taken, 1
            if spent >= looked_at_ns:
                if spent >= noted_ns:
                    self.slow(session, entry, args, spent)  # type: ignore[arg-type]
                if ended >= deadline and not ready:
                    break
            if ready:
                if not waking.is_under_way:
                    waking.serve()
                if waking.is_under_way:
                    waking.after(session)
                    break
                ctx.enter(session, now_ms)
                started = ticks()
            if gated and session.closing:
                break
        else:
            is_done = True
        if not is_done and not session.closing:
            session.backlog.extend(rest)
        if entry is not None:
            entry.total_ns += total_ns
            histogram[bucket] += alike
            session.last_command = entry.full_name
        count = len(requests) - len(session.backlog)
        session.commands += count
        self.stats.commands_processed += count

    def _resolve(self, args: list[bytes]) -> ServedCommand:
        """Find the entry of an unusual request: sub-command, mixed case, unknown, wrong arity."""
        try:
            return self.dispatcher.resolve(args)
        except CommandError as refusal:
            entry = self.dispatcher.find(args)
            raise self.dispatcher.refused(self.context.session, entry, refusal) from None

    def is_over(self) -> bool:
        """Whether the present slice of time is over."""
        return self.scheduler.is_over()

    def begin_slices(
        self, session: Session, args: list[bytes], steps: Steps[list[bytes]]
    ) -> list[bytes] | None:
        """Run a command in slices of time; the reply if the first slice was enough."""
        return SlicedRequest(self, self.waking, session, args, steps).begin()

    def begin_exclusive(
        self, session: Session, args: list[bytes], steps: Steps[bytes]
    ) -> bytes | None:
        """Run a transaction in slices while nothing else runs; the reply if one was enough."""
        return Exclusive(self, self.waking, session, args, steps).begin()

    def abandon_exclusive(self) -> None:
        """Give up a transaction that takes long, if one is under way, as the server ends.

        Its effects are lost. What it has changed in memory must not be used any more.
        """
        if self.give_up is not None:
            self.give_up()

    # -- going on -----------------------------------------------------------------------------

    def can_go_on(self, session: Session) -> bool:
        """Whether the next request of a connection may run now."""
        return (
            session.waiter is None
            and session.sliced is None
            and not session.stalled
            and not session.delayed
            and session not in self.dispatcher.postponed
        )

    def resume(self, session: Session) -> None:
        """Run the backlog, after a command that blocked, was paused or had used up its slice."""
        if session.sliced is not None:
            session.sliced.resume()
        elif session.backlog and self.can_go_on(session):
            self._run_some(session)
            while session.backlog and self.can_go_on(session) and not self.scheduler.is_over():
                self._run_some(session)

    def _run_some(self, session: Session) -> None:
        """Run requests of a backlog; those that did not run go back to its beginning."""
        behind, session.backlog = session.backlog, deque()
        some = [behind.popleft() for _ in range(min(len(behind), BACKLOG_PIECE))]
        self._run(session, some, self.clock.now_us() // 1000)
        if behind and not session.closing:
            behind.extendleft(reversed(session.backlog))
            session.backlog = behind

    # -- changes, and what they make safe -----------------------------------------------------

    def watch_changes(self, before: Callable[[kinds.Effect], None]) -> None:
        """Call ``before`` with every effect before it is applied, until :meth:`unwatch_changes`."""
        self._before.append(before)
        self._set_before()

    def unwatch_changes(self, before: Callable[[kinds.Effect], None]) -> None:
        """End :meth:`watch_changes`; no effect if it was not called."""
        if before in self._before:
            self._before.remove(before)
            self._set_before()

    def _sweep_from_now_on(self) -> None:
        """The scheduler has a driver, so there will be slices of time to free large values in."""
        self.keyspace.deferred_free.call = self.sweep_later

    def sweep_later(self) -> None:
        """Free deleted values in later slices; not during a snapshot.

        A snapshot may still have to read values that were deleted since it began.
        """
        if len(self.keyspace.deferred_free):
            self.scheduler.schedule(self._sweep)

    def _sweep(self) -> bool:
        free = self.keyspace.deferred_free
        return free.sweep(self.scheduler.is_over, frees=not self._before)

    def begin_loading(self) -> None:
        """The data are being recovered: refuse what would read or change them."""
        self.dispatcher.guarded_by.add("loading")
        self.effects.before = _refuse_while_loading

    def end_loading(self) -> None:
        """The data are complete: answer all commands again."""
        self.dispatcher.guarded_by.discard("loading")
        self._set_before()

    def _set_before(self) -> None:
        self.sweep_later()
        hooks = self._before
        if len(hooks) < 2:
            self.effects.before = hooks[0] if hooks else None
        else:
            self.effects.before = self._observe_all

    def _observe_all(self, effect: kinds.Effect) -> None:
        for before in self._before:
            before(effect)

    def replace_contents(self, keyspace: Keyspace) -> None:
        """Replace all keys by those of another keyspace; clients and waiters stay."""
        for database, other in zip(self.keyspace.databases, keyspace.databases, strict=True):
            database.exchange(other)
            database.last_positions.move_to(database.incarnations, self.keyspace.deferred_free)
            database.following.renew(database.order)
            for key in database.waiters:
                database.review(key)
                database.signal(key)
        incarnations = self.keyspace.incarnations
        incarnations.next = max(incarnations.next, keyspace.incarnations.next)
        self.keyspace.libraries = keyspace.libraries
        self.keyspace.account.exchange(keyspace.account)

    # -- time ---------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time has passed: end waits that are over, expire keys, do a slice of background work.

        The next call ends the waits that did not fit into the slice.
        """
        if self.scheduler.is_exclusive or self.dispatcher.is_loading:
            return
        now_ms = self.clock.now_us() // 1000
        if not self.waking.end_waits(now_ms):
            self._maintenance.run(now_ms)
        if self.keyspace.ready:
            self.waking.serve()

    def sample_rates(self, now_ms: int) -> None:
        """Take a sample for the instantaneous figures of INFO; called several times a second."""
        self.rates.sample(now_ms, self.stats)


def _refuse_while_loading(_effect: kinds.Effect) -> None:
    raise CommandError(texts.LOADING)
