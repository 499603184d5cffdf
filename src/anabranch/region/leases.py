"""Background work for the policies of groups: what is released, and who is removed, when it is due.

:class:`anabranch.engine.leases.Leases` knows when to look at a consumer or a group. What is found
then depends on facts alone: holders, pending entries, policies. A look releases a limited number
of entries; a place of which more is due is looked at again.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace, held_back, told_by
from anabranch.effects.apply_homes import asking, hand_over_of, leaving
from anabranch.engine.leases import LeasePlace
from anabranch.engine.releasing import LEASE, release
from anabranch.stream.groups.home import HomeEpoch
from anabranch.stream.groups.policy import TIME
from anabranch.stream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from anabranch.engine.leases import Hold
    from anabranch.keyspace.database import Database
    from anabranch.region.state import RegionState
    from anabranch.region.waking import Waking
    from anabranch.stream.groups.pending_entry import PendingEntry
    from anabranch.stream.groups.pending_list import Consumer
    from anabranch.stream.groups.policy import GroupPolicy, Policed

_ENTRIES: Final = 40
"""Entries that are released in one step: half a millisecond."""

_SORTED: Final = 500
"""Entries that are sorted by age in one step: half a millisecond."""

_CONSUMERS: Final = 200
"""Groups and consumers that are expected in one step: half a millisecond."""

_Where = tuple[int, bytes, bytes]
"""Database, key and name of a group."""


class _HandingOver:
    """A group to hand over for an epoch, in pieces, once the log is on the disk up to a position.

    It begins anew if more has become pending meanwhile.
    """

    __slots__ = ("home", "place", "position", "stamp", "steps")

    def __init__(self, place: GroupPlace, home: HomeEpoch, position: int) -> None:
        self.place = place
        self.home = home
        self.position = position
        self.stamp = -1
        self.steps: Iterator[list[kinds.Effect]] = iter(())

    def is_due(self, ours: int) -> bool:
        """Whether this region still has to hand over, or is asked to once more."""
        group = self.place.group
        due = group.due_hand_over(ours)
        if due is None and group.home is not None and group.is_away(ours):
            due = group.home.closed
        return due == self.home

    def next_piece(self) -> list[kinds.Effect] | None:
        """The effects of the next piece; None: all is done."""
        pending = self.place.group.pending
        if self.stamp != pending.stamp:
            self.stamp = pending.stamp
            self.steps = self._pieces()
        return next(self.steps, None)

    def _pieces(self) -> Iterator[list[kinds.Effect]]:
        """All that was acknowledged, then what is pending."""
        policed = self.place.group.policed
        assert policed is not None
        policed.told.clear()
        is_left = True
        while is_left:
            ranges, is_left = held_back(self.place)
            yield list(told_by(self.place, ranges))
        for effect in hand_over_of(self.place, self.home):
            yield [effect]


class Leasing:
    """Looks at what is due by the leases and the ``consumer-ttl`` of groups."""

    def __init__(self, region: RegionState, waking: Waking) -> None:
        self._region = region
        self._go_on = waking.work(self._some)
        # Once a turn: another region applies a turn as a whole, which takes longer than to tell.
        self._go_on_handing = waking.work(self._hand_over)
        self._handing: dict[_Where, _HandingOver] = {}
        """Groups of which this region stops, or has stopped, to be the home."""
        self._expecting: Iterator[None] | None = None
        """The key whose groups got policies, and whose consumers are not all expected yet."""

    def begin_if_due(self, now_ms: int) -> None:
        """Do what is due, a slice now and the rest later."""
        region = self._region
        is_due = region.leases.deadlines.first_due(now_ms) is not None
        is_due = is_due or bool(region.context.server.redrives)
        is_due = is_due or any(each.policies.bound for each in region.keyspace.databases)
        is_due = is_due or self._expecting is not None
        if is_due and self._go_on():
            region.scheduler.schedule(self._go_on)
        if self._handing and self._go_on_handing():
            region.scheduler.schedule(self._go_on_handing, first=True)

    def _some(self, now_ms: int) -> bool:
        is_over = self._region.scheduler.is_over
        while self._expect_some():
            if is_over():
                return True
        deadlines = self._region.leases.deadlines
        while (place := deadlines.first_due(now_ms)) is not None:
            self._look(place, now_ms)
            if is_over():
                return True
        context, redrives = self._region.context, self._region.context.server.redrives
        for where, go_on in list(redrives.items()):
            context.db = self._region.keyspace.databases[where[0]]
            del redrives[where]
            if go_on(context):
                redrives[where] = go_on  # behind the others
            if is_over():
                return True
        return False

    def _expect(self, database: Database, key: bytes) -> Iterator[None]:
        """The groups of a key got policies: their consumers must show themselves, in steps."""
        region = self._region
        database.signal(key)  # readers that wait may get what they could not get before
        value = database.values.get(key)
        if type(value) is not Stream:
            return
        left = _CONSUMERS
        for name in list(value.groups):
            group = value.groups.get(name)
            if group is None or database.values.get(key) is not value:
                continue
            left -= 1
            policy = None if group.policed is None else group.policed.policy
            if policy is not None:
                self._begin(GroupPlace(database.index, key, name, value, group), policy)
            if policy is not None and not group.is_away(region.keyspace.replica.region):
                place = LeasePlace(database.index, key, name, False)
                for consumer in list(group.consumers.values()) if policy.watches else ():
                    if consumer.pending_count or policy.consumer_ttl_ms:
                        whom = place._replace(is_consumer=True, consumer=consumer.name)
                        region.leases.expect(whom, policy, region.context.now_ms)
                    left -= 1
                    if left <= 0:
                        yield
                        left = _CONSUMERS
            if left <= 0:
                yield
                left = _CONSUMERS

    def _begin(self, place: GroupPlace, policy: GroupPolicy) -> None:
        """A group got a policy: tell other regions of it, and look at the group."""
        region = self._region
        if policy.acks_all:
            self._tell(place)
        if policy.home:
            self._mind_home(place)
        is_away = place.group.is_away(region.keyspace.replica.region)
        if (policy.watches or policy.backoff) and not is_away:
            where = LeasePlace(place.db, place.key, place.name, False)
            region.leases.look(where, region.context.now_ms)

    def _expect_some(self) -> bool:
        """Expect some consumers of groups that got policies; returns whether there may be more."""
        while self._expecting is None:
            databases = self._region.keyspace.databases
            database = next((each for each in databases if each.policies.bound), None)
            if database is None:
                return False
            key, _ = database.policies.bound.popitem()  # the first lies behind all removed ones
            self._expecting = self._expect(database, key)
        if next(self._expecting, self) is self:
            self._expecting = None
        return True

    def _tell(self, place: GroupPlace) -> None:
        """Tell other regions what was acknowledged before ``acks all`` was set, piece by piece."""
        ranges, is_left = held_back(place)
        for effect in told_by(place, ranges):
            self._region.effects.emit(effect)
        if is_left:
            self._region.keyspace.databases[place.db].policies.bound[place.key] = None

    def _mind_home(self, place: GroupPlace) -> None:
        """Answer who asks for the home of a group; ask for what is missing; begin to hand over."""
        group, replica = place.group, self._region.keyspace.replica
        home, present, ours = group.home, group.present_home, replica.region
        where = place.db, place.key, place.name
        for asks, asked in () if home is None else list(home.asked.items()):
            assert home is not None
            if home.must_wait(asked, ours):
                continue  # this region can answer when it has begun
            del home.asked[asks]
            if asked == present and present.region == ours and not group.is_away(ours):
                if asks in replica.members:
                    self._region.effects.emit(leaving(place, HomeEpoch(asked.number + 1, asks)))
            elif asked.region == asks and asked in (home.closed, self._handed_over(place)):
                before = self._handing.get(where)
                position = 0 if before is None else before.position
                self._handing[where] = _HandingOver(place, asked, position)
        if home is not None and home.is_incomplete and present is not None:
            home.is_incomplete = False
            if present.region == ours and (group.is_away(ours) or home.watch is not None):
                self._region.effects.emit(asking(place, present, ours))
        due = group.due_hand_over(ours)
        if due is not None and self._handed_over(place) != due:
            persistence = self._region.context.server.host.persistence
            self._handing[where] = _HandingOver(place, due, persistence.position())

    def _handed_over(self, place: GroupPlace) -> HomeEpoch | None:
        """The epoch for which a group is being handed over."""
        handing = self._handing.get((place.db, place.key, place.name))
        return None if handing is None or handing.place.group is not place.group else handing.home

    def _hand_over(self, _now_ms: int) -> bool:
        """Hand over groups until the slice is over; returns whether more is left."""
        while self._hand_over_pieces():
            if self._region.scheduler.is_over():
                return True
        return False

    def _hand_over_pieces(self) -> bool:
        """Hand over the groups of which it is on the disk that this region is not their home.

        One piece of each; returns whether more is left.
        """
        region = self._region
        persistence, ours = region.context.server.host.persistence, region.keyspace.replica.region
        is_left = False
        for where, handing in list(self._handing.items()):
            if persistence.is_logging and persistence.synced() < handing.position:
                continue
            db, key, name = where
            value = region.keyspace.databases[db].values.get(key)
            group = value.groups.get(name) if type(value) is Stream else None
            if group is None or group is not handing.place.group:
                del self._handing[where]
                continue
            piece = handing.next_piece() if handing.is_due(ours) else None
            if piece is None:
                del self._handing[where]
                self._mind_home(handing.place)
                continue
            for effect in piece:
                region.effects.emit(effect)
            is_left = True
        return is_left

    def _look(self, place: LeasePlace, now_ms: int) -> None:
        """Look at one place; afterwards it is due later, or not at all, or again at once."""
        leases = self._region.leases
        value = self._region.keyspace.databases[place.db].values.get(place.key)
        stream = value if type(value) is Stream else None
        group = None if stream is None else stream.groups.get(place.group)
        ours = self._region.keyspace.replica.region
        if stream is None or group is None or group.policed is None or group.is_away(ours):
            leases.drop(place)
            return
        whose = GroupPlace(place.db, place.key, place.group, stream, group)
        if not place.is_consumer:
            self._look_at_group(place, whose, group.policed, now_ms)
            return
        consumer, hold = group.consumers.get(place.consumer), leases.holds.get(place)
        if consumer is None or hold is None:
            leases.drop(place)
        else:
            self._look_at_consumer(place, whose, consumer, hold, now_ms)

    def _look_at_group(
        self, place: LeasePlace, whose: GroupPlace, policed: Policed, now_ms: int
    ) -> None:
        """Release the entries whose own time is over; wake readers for those whose delay is."""
        leases, pending = self._region.leases, whose.group.pending
        leases.deadlines.pop(place, None)
        if policed.policy.lease.mode == TIME and not pending.sort_some(_SORTED):
            leases.look(place, now_ms)
        elif policed.policy.lease.mode == TIME:
            due: list[PendingEntry] = []
            for delivery_ms, _, entry in islice(pending.oldest_first(), _ENTRIES):
                end_ms = delivery_ms + policed.policy.lease.ms
                leases.look(place, end_ms)  # of the last one: again at once, if there may be more
                if end_ms > now_ms:
                    break
                due.append(entry)
            self._release(whose, due, TIME)
        if policed.policy.backoff:
            if not policed.delay_some(pending):
                leases.look(place, now_ms)
            if policed.ripen(pending.released, now_ms, 0):  # readers look for more themselves
                self._region.keyspace.databases[place.db].signal(place.key)
            if (next_ms := policed.next_due_ms()) is not None:
                leases.look(place, max(next_ms, now_ms + bool(policed.ripe)))

    def _look_at_consumer(
        self, place: LeasePlace, whose: GroupPlace, consumer: Consumer, hold: Hold, now_ms: int
    ) -> None:
        """Release the entries of a consumer without a sign of life, or remove the consumer."""
        leases, policed = self._region.leases, whose.group.policed
        assert policed is not None
        policy = policed.policy
        lease_end = hold.lease_end_ms(policy)
        life_end = hold.life_end_ms(policy, consumer.seen_ms)
        is_gone = life_end is not None and life_end <= now_ms
        if consumer.pending_count:
            is_over = lease_end is not None and lease_end <= now_ms
            if is_gone or is_over:
                some = consumer.first(_ENTRIES)
                self._release(whose, some, policy.lease.mode if is_over else "consumer-ttl")
                return  # and look again
        elif is_gone:
            effect = kinds.DeleteConsumer(place.db, place.key, place.group, place.consumer)
            self._region.effects.emit(effect)
            self._region.stats.policy_removed_consumers += 1
            leases.drop(place)
            return
        later = [each for each in (lease_end, life_end) if each is not None and each > now_ms]
        if later:
            leases.deadlines[place] = min(later)
        else:
            leases.drop(place)

    def _release(self, whose: GroupPlace, entries: Iterable[PendingEntry], policy: str) -> None:
        """Release entries as XNACK FAIL does, because of a policy, one of :data:`RELEASES`."""
        pending = whose.group.pending
        rows = [
            (each.entry_id, pending.region_of(each), 0, each.delivery_count) for each in entries
        ]
        self._region.stats.policy_released_by[policy] += len(rows)
        release(self._region.context, whose, rows, LEASE)
