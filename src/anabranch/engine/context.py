"""The argument of every command function: session, keyspace, time, and ways to act.

There is one context per region, set to the session of each request. Commands read state through the
``lookup`` family, which hides keys past their deadline, and change it through ``emit`` only
(:meth:`anabranch.effects.applier.Applier.emit`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from anabranch.config.settings import Settings
from anabranch.effects.applier import Applier
from anabranch.effects.kinds import Effect
from anabranch.engine import texts
from anabranch.engine.host import HostClock
from anabranch.engine.id_rules import IdRules, RegionalIdRules
from anabranch.engine.services import Services
from anabranch.engine.session import Session
from anabranch.errors import CommandError
from anabranch.keyspace.database import Database
from anabranch.keyspace.inquiry import Inquiry
from anabranch.keyspace.replica import Replica
from anabranch.keyspace.values import Value
from anabranch.keyspace.waiter import Condition, Waiter
from anabranch.metrics.stats import Stats
from anabranch.resp.encode import OK, encode
from anabranch.scheduling import Steps, in_one_go
from anabranch.stream.entry_id import SEQ_BITS
from anabranch.stream.stream import Stream

_I = TypeVar("_I", bound="Inquiry")
_T = TypeVar("_T")

_VALUES_AT_ONCE = 1000
"""Values of a reply that are encoded in one step: under a millisecond if they are short."""

_ROWS_AT_ONCE = 100
"""Rows that are made and encoded in one step."""

_COUNTED_MAX = 1000
_COUNTING_NS_MAX = 3_000_000


class Context:
    """Everything a command may see and do."""

    def __init__(
        self,
        effects: Applier,
        settings: Settings,
        stats: Stats,
        clock: HostClock,
        server: Services,
        nobody: Session,
    ) -> None:
        """``nobody`` is the session before the first request."""
        self.effects = effects
        self.keyspace = effects.keyspace
        self.settings = settings
        self.stats = stats
        self.clock = clock
        self.server = server
        self.waits = Waits()
        self.ids = IdRules(stats)
        if self.replica.is_regional:
            self.ids = RegionalIdRules(self.replica, settings, stats)
        self._nobody = nobody
        self.session = nobody
        self.db: Database
        self.read_node_limits()
        self.now_ms = 0  # frozen for the whole command, and for a whole EXEC
        self.in_exec = False
        self.in_script = False
        self.waiter: Waiter | None = None  # set while a blocked command runs again
        self.changes = 0  # since the last snapshot

    @property
    def resp3(self) -> bool:
        """Whether the connection speaks RESP3."""
        return self.session.resp3

    @property
    def replica(self) -> Replica:
        """The knowledge of this region of all regions."""
        return self.keyspace.replica

    def enter(self, session: Session, now_ms: int) -> None:
        """Point the context at a connection."""
        self.session = self.effects.author = session
        self.db = self.keyspace.databases[session.db]
        if now_ms != self.now_ms:
            self.set_time(now_ms)

    def read_node_limits(self) -> None:
        """Hold the settings that say when a node of a stream is full: each XADD needs them."""
        self.node_entries_max = self.settings.stream_node_max_entries
        self.node_bytes_max = self.settings.stream_node_max_bytes

    def leave(self, session: Session) -> None:
        """The connection has ended: do not keep its session until the next request."""
        if self.session is session:
            self.session = self.effects.author = self._nobody

    def set_time(self, now_ms: int) -> None:
        """Set the time for the following commands."""
        self.now_ms = self.effects.now_ms = now_ms
        self.ids.now_ms = now_ms
        self.ids.first = now_ms << SEQ_BITS
        self.ids.begin()

    # -- reading ------------------------------------------------------------------------------

    def lookup(self, key: bytes) -> Value | None:
        """The value of a key of the selected database; a key past its deadline is removed."""
        db = self.db
        if db.deadlines and key in db.deadlines:
            self.effects.expire_if_due(db, key, self.now_ms)
        return db.values.get(key)

    def use(self, key: bytes) -> Value | None:
        """The value of a key for a writing command; its access time is set in any case."""
        db = self.db
        if db.deadlines and key in db.deadlines:
            self.effects.expire_if_due(db, key, self.now_ms)
        value = db.values.get(key)
        if value is not None and not self.session.no_touch:
            value.accessed_ms = self.now_ms
        return value

    def lookup_all(self, keys: Sequence[bytes]) -> list[Value | None]:
        """The values of many keys; see :meth:`lookup`."""
        if self.db.deadlines:
            return [self.lookup(key) for key in keys]
        return list(map(self.db.values.get, keys))

    def lookup_in(self, db: Database, key: bytes) -> Value | None:
        """The value of a key of any database; a key past its deadline is removed."""
        self.effects.expire_if_due(db, key, self.now_ms)
        return db.values.get(key)

    def read(self, key: bytes) -> Value | None:
        """A look-up that counts in keyspace_hits / keyspace_misses (read commands)."""
        value = self.lookup(key)
        if value is None:
            self.miss(key)
        else:
            self.stats.keyspace_hits += 1
            if not self.session.no_touch:
                value.accessed_ms = self.now_ms
        return value

    def read_all(self, keys: Sequence[bytes], *, as_use: bool = True) -> list[Value | None]:
        """The values of many keys, counted as by :meth:`read`; ``as_use`` sets access times."""
        values = self.lookup_all(keys)
        stats = self.stats
        missing = values.count(None)
        stats.keyspace_hits += len(values) - missing
        stats.keyspace_misses += missing
        if missing and self.server.events.flags:
            for key, value in zip(keys, values, strict=True):
                if value is None:
                    self.server.events.miss(self.db.index, key)
        if as_use and not self.session.no_touch:
            for value in values:
                if value is not None:
                    value.accessed_ms = self.now_ms
        return values

    def miss(self, key: bytes) -> None:
        """Count that a read command did not find its key."""
        self.stats.keyspace_misses += 1
        self.server.events.miss(self.db.index, key)

    def stream(self, key: bytes) -> Stream | None:
        """The stream of a key for a writing command, None when missing."""
        db = self.db
        value = db.values.get(key)
        if db.deadlines or type(value) is not Stream:
            value = self.use(key)
            if value is not None and type(value) is not Stream:
                raise CommandError(texts.WRONGTYPE)
            return value
        if not self.session.no_touch:  # the usual case of :meth:`use`, written out
            value.accessed_ms = self.now_ms
        return value

    def read_stream(self, key: bytes) -> Stream | None:
        """The stream of a key for a reading command, None when missing."""
        db = self.db
        value = db.values.get(key)
        if db.deadlines or type(value) is not Stream:
            value = self.read(key)
            if value is not None and type(value) is not Stream:
                raise CommandError(texts.WRONGTYPE)
            return value
        self.stats.keyspace_hits += 1  # the usual case of :meth:`read`, written out
        if not self.session.no_touch:
            value.accessed_ms = self.now_ms
        return value

    # -- acting -------------------------------------------------------------------------------

    def emit(self, effect: Effect, changes: int = 0) -> None:
        """Apply a change, record it, and publish its keyspace events.

        ``changes`` is how much it adds to what INFO calls rdb_changes_since_last_save.
        """
        self.effects.emit(effect)
        self.changes += changes

    def create_stream(self, key: bytes) -> Stream:
        """Bind a key of the selected database that does not exist to a new empty stream."""
        return self.effects.create_stream(self.db, key)

    def deadline_ms(self, timeout_ms: int) -> int:
        """When a wait ends that begins now and takes so long; 0 for one of 0 ms, which lasts."""
        if not timeout_ms:
            return 0
        # The present time was rounded down, and no wait may end too early.
        return self.now_ms + timeout_ms + (self.clock.now_us() > self.now_ms * 1000)

    def block(
        self,
        keys: Sequence[bytes],
        args: list[bytes],
        timeout_ms: int,
        wants: Condition | list[int],
        timeout_reply: bytes,
        *,
        fails_without_key: bool = False,
        recheck_ms: int = 0,
        request: object = None,
    ) -> None:
        """Make the connection wait for keys; the command function then returns None.

        A wait of 0 ms never ends by itself.
        ``wants`` is a condition, or for each key the ID after which a stream must have an entry.
        ``args`` is what runs again when a key is signalled (``$`` already resolved), ``request``
        the same in parsed form, for the command. A command that runs again and calls this once
        more keeps its place and its deadline.
        """
        waiters = self.keyspace.waiters
        waiter = self.waiter
        if waiter is not None:
            if recheck_ms and not self.now_ms < waiter.recheck_ms < recheck_ms:
                waiters.recheck_at(waiter, recheck_ms)  # the earlier one may be for another key
            return
        deadline_ms = self.deadline_ms(timeout_ms)
        session = self.session
        if isinstance(wants, list):
            lowest: dict[bytes, int] = {}
            for at in range(len(keys)):  # machine code needs no tuple for it
                key, last_id = keys[at], wants[at]
                lowest[key] = min(last_id, lowest.get(key, last_id))
            waiter = Waiter(
                session, args, self.db.index, list(lowest.keys()), deadline_ms, timeout_reply
            )
            waiter.behind = list(lowest.values())
        else:
            distinct = list(keys if len(keys) == len(set(keys)) else dict.fromkeys(keys))
            waiter = Waiter(session, args, self.db.index, distinct, deadline_ms, timeout_reply)
            waiter.wants = wants
        waiter.fails_without_key = fails_without_key
        waiter.recheck_ms = recheck_ms
        waiter.request = request
        session.waiter = waiter
        waiters.enqueue(waiter)

    def wait_for(
        self,
        conditions: dict[Waiter, Any],
        condition: Any,
        args: list[bytes],
        timeout_ms: int,
        timeout_reply: bytes,
    ) -> None:
        """Make the connection wait for something beside keys, in one of the tables of ``waits``."""
        self.block([], args, timeout_ms, _never, timeout_reply)
        if self.session.waiter is not None:
            self.session.waiter.wait_for(conditions, condition)

    def outcome(self, args: list[bytes], begin: Callable[[], _I]) -> _I | None:
        """The result of an inquiry; None as long as the connection has to wait for it.

        CommandError with its problem if the inquiry has failed.
        """
        if self.waiter is None:
            inquiry = begin()
            if not inquiry.is_done:
                self.wait_for(self.waits.inquiries, inquiry, args, 0, OK)
                return None
        else:
            inquiry = cast(_I, self.waits.inquiries[self.waiter])  # begun by this command
            if not inquiry.is_done:
                return None
        if inquiry.problem:
            raise CommandError(inquiry.problem)
        return inquiry

    def in_slices(self, args: list[bytes], steps: Steps[list[bytes]]) -> bytes | None:
        """Run long work in slices, while others are served; the command returns what this returns.

        The generator yields after each short step and returns the reply. Its own connection waits.
        If it returns no piece, it has prepared something: the command runs again, or goes on now if
        this returns an empty reply.
        See :mod:`anabranch.region.slicing`.
        """
        if self.in_exec or self.waiter is not None:
            parts: list[bytes] | None = in_one_go(steps)
        else:
            parts = self.server.runner.begin_slices(self.session, args, steps)
        return None if parts is None else b"".join(parts)

    def exclusively(self, args: list[bytes], steps: Steps[bytes]) -> bytes | None:
        """Run a transaction that may take long; the command returns what this returns.

        See :mod:`anabranch.region.exclusive`.
        """
        return self.server.runner.begin_exclusive(self.session, args, steps)

    def count_memory(self) -> None:
        """Measure changed values, before a command shows the memory in use."""
        self.keyspace.account.measure_changed(_COUNTED_MAX, self.clock.ticks_ns, _COUNTING_NS_MAX)
        self.server.holdings.measure()

    def long_reply(self, args: list[bytes], values: list[Any]) -> bytes | None:
        """The reply for an array or a set of any length; a command returns it, None included.

        Many values are encoded in slices, so they must not change any more.
        """
        if len(values) <= _VALUES_AT_ONCE:
            return self.reply(values)
        return self.in_slices(args, _encoded(values, self.resp3))

    def require(self, key: bytes, value: Value) -> None:
        """Raise CommandError unless a key still has this value, in a later slice of a request."""
        if self.db.values.get(key) is not value:
            raise CommandError(texts.NO_SUCH_KEY)

    def long_rows(self, args: list[bytes], rows: Iterable[Any]) -> bytes | None:
        """The reply for an array whose rows are made and encoded in slices.

        A command returns it, None included. The rows are of different moments.
        """
        return self.in_slices(args, _encoded_rows(rows, self.resp3))

    def reply(self, value: Any) -> bytes:
        """Any reply value in the connection's protocol."""
        return encode(value, self.session.resp3)


def existing(value: _T | None) -> _T:
    """What was looked up; CommandError if there is no such key."""
    if value is None:
        raise CommandError(texts.NO_SUCH_KEY)
    return value


def _never(_value: Value | None) -> bool:
    """A change of a key does not end the wait."""
    return False


def _encoded(values: list[Any], resp3: bool) -> Steps[list[bytes]]:
    head = encode(type(values)(), resp3)  # of an array, or of a set
    parts = [b"%b%d\r\n" % (head[:1], len(values))]
    for at in range(0, len(values), _VALUES_AT_ONCE):
        some = values[at : at + _VALUES_AT_ONCE]
        parts.append(b"".join([encode(each, resp3) for each in some]))
        yield
    return parts


def _encoded_rows(rows: Iterable[Any], resp3: bool) -> Steps[list[bytes]]:
    parts: list[bytes] = []
    for row in rows:
        if parts and not len(parts) % _ROWS_AT_ONCE:
            yield
        parts.append(encode(row, resp3))
    return [b"*%d\r\n" % len(parts), *parts]


class Waits:
    """The waiters, by their condition; a waiter is removed when its wait ends."""

    def __init__(self) -> None:
        # until more of the log is on the disk, here or in other regions, or applied there
        self.safety: dict[Waiter, None] = {}
        # until an inquiry in another region, or a snapshot, is done
        self.inquiries: dict[Waiter, Inquiry] = {}
        # until the own version vector covers theirs
        self.vectors: dict[Waiter, Mapping[int, int]] = {}
