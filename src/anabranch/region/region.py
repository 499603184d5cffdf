"""A region: keyspace, sessions and command table behind a handful of calls.

    region.execute(session, requests)    requests in, replies in ``session.outbox``
    region.tick()                        time passes: timeouts, expiry, background slices
    region.take_pending()                other sessions that got something to write

Whoever drives it (the server, a test, the simulator) owns sockets and time. Nothing in here
waits or does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anabranch.commands.acl_rules import AclRegistry
from anabranch.commands.channels import Channels
from anabranch.commands.context import Context
from anabranch.commands.dispatch import Dispatcher, Entry
from anabranch.commands.session import Session
from anabranch.commands.table import COMMANDS
from anabranch.errors import CommandError
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.waiters import Waiter
from anabranch.metrics.slowlog import SlowLog
from anabranch.metrics.stats import Stats
from anabranch.region import maintenance

if TYPE_CHECKING:
    from anabranch.commands.host import Clock, Host
    from anabranch.config.settings import Settings

__all__ = ["Region"]


class Region:
    """One region's replica: the pure whole."""

    def __init__(self, settings: Settings, clock: Clock, host: Host) -> None:
        self.settings = settings
        self.clock = clock
        self.host = host
        self.keyspace = Keyspace(settings.databases)
        self.stats = Stats()
        self.stats.started_ms = clock.now_us() // 1000
        self.acl = AclRegistry(settings.requirepass)
        self.channels = Channels()
        self.sessions: dict[int, Session] = {}
        self.context = Context(
            keyspace=self.keyspace,
            settings=settings,
            acl=self.acl,
            channels=self.channels,
            stats=self.stats,
            clock=clock,
            host=host,
            sessions=self.sessions,
        )
        self.dispatcher = Dispatcher(COMMANDS, self.context)
        self.slowlog = SlowLog()
        self.context.region = self
        self.active_expire = True  # DEBUG SET-ACTIVE-EXPIRE
        self.producers_due_ms = 0  # next sweep of old idempotent IDs
        self._next_session_id = 1

    # -- sessions -----------------------------------------------------------------------------

    def open_session(self, address: str, local: str) -> Session:
        """A new connection; authenticated at once when the default user needs no password."""
        session = Session(self._next_session_id, self.acl.initial_user(), address, local)
        self._next_session_id += 1
        session.created_ms = session.last_ms = self.clock.now_us() // 1000
        self.sessions[session.id] = session
        self.stats.connections_received += 1
        return session

    def close_session(self, session: Session) -> None:
        """The connection is gone: forget what it waits for, watches and listens to."""
        self.sessions.pop(session.id, None)
        if session.waiter is not None:
            self.keyspace.waiters.remove(session.waiter)
            session.waiter = None
        for index, key in session.watched:
            watchers = self.keyspace.databases[index].watchers
            if key in watchers:
                watchers[key].discard(session)
                if not watchers[key]:
                    del watchers[key]
        session.watched.clear()
        self.channels.forget(session)
        self.dispatcher.monitors.pop(session, None)
        self.dispatcher.postponed.pop(session, None)
        if not self.dispatcher.monitors:
            self.dispatcher.guarded_by.discard("monitor")

    def take_pending(self) -> list[Session]:
        """Sessions other than the caller's that have something to write."""
        pending = list(self.channels.pending)
        self.channels.pending.clear()
        return pending

    # -- requests -----------------------------------------------------------------------------

    def execute(self, session: Session, requests: Sequence[list[bytes]]) -> None:
        """Run requests in order; replies are appended to ``session.outbox``.

        A request that blocks, or that a pause holds back, leaves the rest in the backlog.
        """
        if session.waiter is not None or session.backlog:
            session.backlog.extend(requests)
            return
        now_ms = self.clock.now_us() // 1000
        session.last_ms = now_ms
        self._run(session, requests, now_ms)

    def _run(self, session: Session, requests: Iterable[list[bytes]], now_ms: int) -> None:
        ctx = self.context
        ctx.enter(session, now_ms)
        dispatcher = self.dispatcher
        entries = dispatcher.entries
        guards = dispatcher.guarded_by
        ready = self.keyspace.ready
        slower_than_ns = self.slowlog.threshold_ns
        ticks = self.clock.ticks_ns
        out = session.outbox
        count = 0
        started = ticks()
        requests = iter(requests)
        for args in requests:
            count += 1
            entry = entries.get(args[0])
            try:
                if entry is None or entry.subcommands or not entry.low <= len(args) <= entry.high:
                    entry = self._resolve(session, args)
                if guards or not session.plain:
                    reply = dispatcher.guarded(entry, args)
                else:
                    reply = entry.function(ctx, args)  # type: ignore[misc]
            except CommandError as refusal:
                reply = self._refused(session, entry, refusal)
            except Exception as mistake:  # a bug of ours: answer, log, live on
                reply = self._mistake(entry, args, mistake)
            ended = ticks()
            if reply is not None:
                if session.reply_mode == "on" and not session.reply_skip:
                    out.append(reply)
                elif session.reply_skip:
                    self._skipped(session, entry)
            elif session.waiter is not None or session in dispatcher.postponed:
                session.last_command = entry.command.full_name if entry else ""
                session.backlog.extend(requests)
                break
            if entry is not None:
                spent = ended - started
                entry.total_ns += spent
                entry.histogram[spent.bit_length()] += 1
                if spent >= slower_than_ns:
                    self._slow(session, entry, args, spent)
                    slower_than_ns = self.slowlog.threshold_ns
            started = ended
            if ready:
                self.serve_ready(now_ms)
                ctx.enter(session, now_ms)
                started = ticks()
            if session.closing:
                break
        if entry is not None:
            session.last_command = entry.command.full_name
        session.commands += count
        self.stats.commands_processed += count

    def _resolve(self, session: Session, args: list[bytes]) -> Entry:
        """The slow way to an entry: sub-commands, mixed case, unknown names, wrong arity."""
        try:
            return self.dispatcher.resolve(args)
        except CommandError as refusal:
            entry = self.dispatcher.find(args)
            if entry is not None:
                entry.rejected += 1
            self.dispatcher.poison(session, refusal)
            raise

    def _refused(self, session: Session, entry: Entry | None, refusal: CommandError) -> bytes:
        if entry is not None:
            entry.failed += 1
        return self.dispatcher.failed(refusal)

    def _mistake(self, entry: Entry | None, args: list[bytes], mistake: Exception) -> bytes:
        name = entry.command.full_name if entry is not None else "?"
        self.host.log("error", "command.internal_error", command=name, error=repr(mistake), exc=mistake)
        if entry is not None:
            entry.failed += 1
        return self.dispatcher.failed(CommandError("ERR internal error"))

    def _skipped(self, session: Session, entry: Entry | None) -> None:
        """CLIENT REPLY SKIP silences itself and the one request after it."""
        if entry is None or entry.command.full_name != "client|reply":
            session.reply_skip = False
            session.refresh()

    def _slow(self, session: Session, entry: Entry, args: list[bytes], spent_ns: int) -> None:
        if not entry.command.skips_slowlog:
            self.slowlog.add(
                self.context.now_ms // 1000, spent_ns // 1000, args, session.address, session.name
            )

    # -- blocked commands ---------------------------------------------------------------------

    def serve_ready(self, now_ms: int) -> None:
        """Run again what waits for keys that changed, until nothing changes any more."""
        ready = self.keyspace.ready
        while ready:
            keys = list(ready)
            ready.clear()
            for index, key in keys:
                database = self.keyspace.databases[index]
                for waiter in list(database.waiters.get(key, ())):
                    if waiter in self.keyspace.waiters.active:
                        self.context.enter(waiter.session, now_ms)
                        if waiter.wants(self.context.lookup_in(database, key)):
                            self._retry(waiter, now_ms)

    def _retry(self, waiter: Waiter, now_ms: int) -> None:
        """Run a blocked command again: it answers, fails, or keeps its place."""
        session = waiter.session
        ctx = self.context
        ctx.enter(session, now_ms)
        ctx.waiter = waiter
        entry = self.dispatcher.find(waiter.args)
        assert entry is not None
        assert entry.function is not None
        reply: bytes | None
        started = self.clock.ticks_ns()
        try:
            reply = entry.function(ctx, waiter.args)
        except CommandError as refusal:
            reply = self._refused(session, entry, refusal)
        except Exception as mistake:
            reply = self._mistake(entry, waiter.args, mistake)
        finally:
            ctx.waiter = None
        if reply is not None:
            spent = self.clock.ticks_ns() - started
            entry.total_ns += spent
            entry.histogram[spent.bit_length()] += 1
            self.release(waiter, reply)

    def release(self, waiter: Waiter, reply: bytes) -> None:
        """End a wait with a reply; what the client sent meanwhile runs at the end of the turn."""
        session = waiter.session
        self.keyspace.waiters.remove(waiter)
        session.waiter = None
        if session.reply_mode == "on":
            session.outbox.append(reply)
        self.channels.pending[session] = None

    def resume(self, session: Session) -> None:
        """Run what a connection sent while it was blocked or paused."""
        if session.backlog and session.waiter is None and session not in self.dispatcher.postponed:
            requests = list(session.backlog)
            session.backlog.clear()
            self._run(session, requests, self.clock.now_us() // 1000)

    def unpause(self) -> None:
        """End a CLIENT PAUSE: run what it held back."""
        dispatcher = self.dispatcher
        dispatcher.pause_until_ms = 0
        dispatcher.guarded_by.discard("pause")
        postponed = list(dispatcher.postponed)
        dispatcher.postponed.clear()
        for session in postponed:
            self.channels.pending[session] = None

    # -- time ---------------------------------------------------------------------------------

    def tick(self) -> None:
        """Time passed: end waits that are over, expire keys, do a slice of background work."""
        now_ms = self.clock.now_us() // 1000
        for waiter in self.keyspace.waiters.due(now_ms):
            if waiter.deadline_ms and waiter.deadline_ms <= now_ms:
                entry = self.dispatcher.find(waiter.args)
                if entry is not None:
                    entry.histogram[0] += 1
                self.release(waiter, waiter.timeout_reply)
            else:
                self._retry(waiter, now_ms)
        maintenance.run(self, now_ms)
        if self.keyspace.ready:
            self.serve_ready(now_ms)

    def next_timer_ms(self) -> int | None:
        """When :meth:`tick` should run next for a blocked command, None when for none."""
        return self.keyspace.waiters.next_timer_ms()
