"""Background work in bounded slices.

Keys past their deadline, idempotent IDs and ledger records past their age, blocks to compress, the
end of a CLIENT PAUSE: ``run`` is called ``hz`` times a second, and each call does at most one slice
of each kind. What takes longer goes on in later turns. No client waits long for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from anabranch.effects import kinds
from anabranch.keyspace.database import Database
from anabranch.region.compressing import Compressing
from anabranch.region.leases import Leasing
from anabranch.region.merging import Merging
from anabranch.region.state import RegionState
from anabranch.region.tiering import Tiering
from anabranch.region.waking import Waking
from anabranch.stream.retention import plan_retention
from anabranch.stream.stream import Stream

PRODUCER_KEYS_MAX = 1000
"""Keys examined for old idempotent IDs per slice; up to ten thousand keys take a second."""

PRODUCERS_AT_ONCE = 100
"""Producers examined in one step: some ten microseconds, a millisecond if all have old IDs."""

RECORDS_MAX = 1000
"""Ledger records of a stream dropped per slice."""

RECORDS_BYTES_MAX = 1 << 20
"""Bytes of the names of their producers, which are in one effect; the first may have more."""

ABSORBED_MAX = 100
"""Keys with new effects that are taken over in one step: some hundred microseconds."""

COUNTED_MAX = 2000
"""Values whose memory is measured per slice."""

COUNTING_NS_MAX = 3_000_000
"""Measuring stops after this."""


class Maintenance:
    """The background work of one region and how far it has come."""

    def __init__(
        self,
        region: RegionState,
        waking: Waking,
        merging: Merging,
        tiering: Tiering,
        sweep_later: Callable[[], None],
    ) -> None:
        self._region = region
        self._waking = waking
        self._merging = merging
        self._tiering = tiering
        self._sweep_later = sweep_later
        self._compressing = Compressing(region)
        self._leasing = Leasing(region, waking)
        self._due_entries = DueEntries(region, waking)
        self._retaining = Retaining(region, waking)
        self._ran_ms = 0  # the clock at the last run
        self._producers_due_ms = 0  # when the next round over all keys begins
        self._producers_database = 0
        self._producers_cursor = 0
        self._forgetting: Iterator[None] | None = None  # the steps for the keys examined last

    def run(self, now_ms: int) -> None:
        """Do one slice of each kind of work."""
        region = self._region
        region.context.set_time(now_ms)
        if now_ms < self._ran_ms:  # the clock was set back: what is due has no meaning any more
            self._producers_due_ms = 0
            self._compressing.rest_no_longer()
        self._ran_ms = now_ms
        if region.dispatcher.pause_until_ms and region.dispatcher.pause_until_ms <= now_ms:
            self._waking.unpause()
        if self._expire_keys():
            region.scheduler.schedule(self._expire_keys)
        if now_ms >= self._producers_due_ms and self._forgetting is None:
            self._examine_keys(now_ms)
            self._forget_producers()
        if self._forgetting is not None:  # after an error, too: the queue does not have it any more
            region.scheduler.schedule(self._forget_producers)
        if self._absorb():
            region.scheduler.schedule(self._absorb)
        if self._rebind_policies():
            region.scheduler.schedule(self._rebind_policies)
        self._leasing.begin_if_due(now_ms)
        self._due_entries.begin_if_due(now_ms)
        region.keyspace.forget_positions(now_ms, self._retention_ms())
        self._merging.maintain()
        self._sweep_later()
        self._compressing.begin_if_due(now_ms)
        self._tiering.begin_if_due()
        region.keyspace.account.measure_changed(COUNTED_MAX, region.clock.ticks_ns, COUNTING_NS_MAX)
        self._retaining.begin_if_due(now_ms)  # measuring has found the streams that have changed

    def _expire_keys(self) -> bool:
        """Remove due keys until the slice of time is over; returns whether some are left.

        A :data:`anabranch.scheduling.Work`: a million keys may come due in one millisecond.
        """
        if self._region.scheduler.is_exclusive:
            return True
        is_left = self._region.services.active_expire and self._expire_some()
        if self._region.keyspace.ready:
            self._waking.serve()
        return is_left

    def _expire_some(self) -> bool:
        region = self._region
        now_ms = region.clock.now_us() // 1000
        region.context.set_time(now_ms)
        is_over = region.scheduler.is_over
        for database in region.keyspace.databases:
            while (key := database.deadlines.first_due(now_ms)) is not None:
                region.effects.expire_if_due(database, key, now_ms)
                if is_over():
                    return True
        return False

    def _rebind_policies(self) -> bool:
        """Tell groups of their policies until the slice is over; returns whether some are left.

        A :data:`anabranch.scheduling.Work`: a pattern may match a million keys.
        """
        region = self._region
        for database in region.keyspace.databases:
            while database.policies.go_on():
                if region.scheduler.is_over():
                    return True
        return False

    def _absorb(self) -> bool:
        """Take over last effects on keys until the slice is over; returns whether some are left.

        A :data:`anabranch.scheduling.Work`: nobody else does it while no other region is there.
        """
        last_effects = self._region.keyspace.replica.last_effects
        while last_effects.absorb(ABSORBED_MAX):
            if self._region.scheduler.is_over():
                return True
        return False

    def _examine_keys(self, now_ms: int) -> None:
        """Examine a page of keys; pause for a second after the last page of the last database."""
        left = PRODUCER_KEYS_MAX
        found: list[tuple[Database, bytes, Stream]] = []
        databases = self._region.keyspace.databases
        unused_ms = self._unused_ms(now_ms)
        while left > 0:
            database = databases[self._producers_database]
            self._producers_cursor, keys = database.order.page(self._producers_cursor, left)
            left -= len(keys) + 1
            for key in keys:
                value = database.values.get(key)
                if type(value) is not Stream:
                    continue
                if value.producers.tracked:
                    found.append((database, key, value))
                if value.ledger.records and unused_ms:
                    pids = _some(value.ledger.unused_since(unused_ms))
                    if pids:
                        self._region.effects.emit(kinds.DropRecords(database.index, key, pids))
            if not self._producers_cursor:
                self._producers_database += 1
                if self._producers_database == len(databases):
                    self._producers_database = 0
                    self._producers_due_ms = now_ms + 1000
                    break
        self._forgetting = self._forgetting_steps(found)

    def _forget_producers(self) -> bool:
        """Forget old idempotent IDs until the slice is over; returns whether some are left.

        A :data:`anabranch.scheduling.Work`: a stream may have a million producers.
        """
        region = self._region
        if region.scheduler.is_exclusive:
            return True
        region.context.set_time(region.clock.now_us() // 1000)
        assert self._forgetting is not None
        for _ in self._forgetting:
            if region.scheduler.is_over():
                return True
        self._forgetting = None
        return False

    def _forgetting_steps(self, found: list[tuple[Database, bytes, Stream]]) -> Iterator[None]:
        """Forget the old idempotent IDs of some streams, of some producers in each step."""
        region = self._region
        for database, key, stream in found:
            pids = iter(list(stream.producers.tables))
            while some := list(islice(pids, PRODUCERS_AT_ONCE)):
                if database.values.get(key) is not stream:  # removed since the last step
                    break
                for pid in some:
                    if count := stream.producers.expired(pid, region.context.now_ms):
                        region.effects.emit(kinds.ForgetProducers(database.index, key, pid, count))
                yield

    def _unused_ms(self, now_ms: int) -> int:
        """Ledger records that were last used before this time are dropped; 0 drops none.

        Each region drops them by its own clock; dropping a record twice does no harm. A region
        whose clock is known to be wrong drops none.
        """
        retention_ms = self._retention_ms()
        return max(now_ms - retention_ms, 0) if retention_ms else 0

    def _retention_ms(self) -> int:
        """How long unused records and the ends of deleted streams are kept; 0: for ever."""
        if self._region.context.ids.refusal:
            return 0
        return self._region.settings.ledger_retention * 1000


def _some(pids: Iterator[bytes]) -> list[bytes]:
    """The first producers, as many as one effect names."""
    found: list[bytes] = []
    left = RECORDS_BYTES_MAX
    for pid in islice(pids, RECORDS_MAX):
        left -= len(pid)
        if found and left < 0:
            break
        found.append(pid)
    return found


# -- policies of streams --------------------------------------------------------------------------
#
# Background work for the policies of streams: what is too old, or too much, is removed.
#
# ``Policies.retention`` of a database says when to look at which key: after a change
# (:meth:`anabranch.stream.retained.Retained.look`), or when entries come of age. What is removed
# then depends on facts alone. A look removes a limited number of nodes; a stream of which more is
# to be removed is looked at again.


class Retaining:
    """Looks at the streams that are due."""

    def __init__(self, region: RegionState, waking: Waking) -> None:
        self._region = region
        self._go_on = waking.work(self._some)

    def begin_if_due(self, now_ms: int) -> None:
        """Do what is due, a slice now and the rest later.

        A region whose clock is known to be wrong removes nothing.
        """
        region = self._region
        if region.context.ids.refusal:
            return
        databases = region.keyspace.databases
        is_due = any(each.policies.retention.first_due(now_ms) is not None for each in databases)
        if is_due and self._go_on():
            region.scheduler.schedule(self._go_on)

    def _some(self, now_ms: int) -> bool:
        for database in self._region.keyspace.databases:
            deadlines = database.policies.retention
            while (key := deadlines.first_due(now_ms)) is not None:
                self._look(database, key, now_ms)
                if self._region.scheduler.is_over():
                    return True
        return False

    def _look(self, database: Database, key: bytes, now_ms: int) -> None:
        """Look at one stream; afterwards it is due later, or after a change, or again at once."""
        deadlines = database.policies.retention
        deadlines.pop(key, None)
        stream = database.values.get(key)
        if type(stream) is not Stream or stream.retained is None:
            return
        plan = plan_retention(stream, stream.retained, now_ms)
        before = stream.length
        region = self._region
        if plan.below:
            region.effects.emit(kinds.Trim(database.index, key, plan.below))
        removed = before - stream.length
        region.stats.policy_trimmed += removed
        region.context.changes += removed
        if removed:
            deadlines[key] = now_ms
        elif plan.next_ms:
            deadlines[key] = plan.next_ms


# -- scheduled entries ----------------------------------------------------------------------------
#
# Background work for scheduled entries: what is due is added, by one region.
#
# That is the region that has scheduled the entry. When it is removed from the cluster, or was not
# heard of for ``schedule-takeover``, the region with the lowest number of those that are there
# takes its place. Two regions that cannot see each other may both add an entry: one of both goes
# when they hear of each other (:meth:`anabranch.keyspace.timetables.Timetables.added`).

_ENTRIES: Final = 30
"""Entries that are added in one step: a third of a millisecond."""

_THERE_MS: Final = 10_000
"""A region that was heard of within this time is there: rows come every second."""


class DueEntries:
    """Adds what is due."""

    def __init__(self, region: RegionState, waking: Waking) -> None:
        self._region = region
        self._go_on = waking.work(self._some)

    def begin_if_due(self, now_ms: int) -> None:
        """Do what is due, a slice now and the rest later."""
        if next(self._due(now_ms), None) is not None and self._go_on():
            self._region.scheduler.schedule(self._go_on)

    def _due(self, now_ms: int) -> Iterator[tuple[Database, bytes, int]]:
        """Keys with entries that are due, and the region that has scheduled these."""
        for database in self._region.keyspace.databases:
            for owner, deadlines in list(database.timetables.due.items()):
                if deadlines.first_due(now_ms) is not None and self._acts_for(owner, now_ms):
                    while (key := deadlines.first_due(now_ms)) is not None:
                        yield database, key, owner

    def _acts_for(self, owner: int, now_ms: int) -> bool:
        """Whether this region adds what that one has scheduled."""
        region = self._region
        replica, regions = region.keyspace.replica, region.host.regions
        if owner == replica.region:
            return True
        if regions is None or replica.region not in replica.members:
            return False
        silent_ms = {  # unless it was heard of, since the start of this process
            peer.region: now_ms - region.stats.started_ms
            if peer.row_age_ms is None
            else peer.row_age_ms
            for peer in regions.peers()
        }
        limit_ms = region.settings.schedule_takeover * 1000
        if owner in replica.members and not 0 < limit_ms <= silent_ms.get(owner, 0):
            return False
        there = [
            each
            for each in replica.members
            if each not in (owner, replica.region) and silent_ms.get(each, 0) < _THERE_MS
        ]
        return replica.region < min(there, default=replica.region + 1)

    def _some(self, now_ms: int) -> bool:
        region = self._region
        if region.context.ids.refusal or region.dispatcher.memory_exceeded():
            return False
        from anabranch.engine.scheduled import add_due  # noqa: PLC0415 - most servers need none

        for database, key, owner in self._due(now_ms):
            add_due(region.context, database, key, owner, _ENTRIES)
            if region.scheduler.is_over():
                return True
        return False
