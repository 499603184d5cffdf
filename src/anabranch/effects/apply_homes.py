"""Applies effects on the homes of consumer groups (:mod:`anabranch.stream.groups.home`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace
from anabranch.effects.streams import known_stream
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica, region_of
from anabranch.stream import by_number
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.group import Group
from anabranch.stream.groups.home import GroupHome, HomeEpoch, TakeWatch
from anabranch.stream.groups.pending_entry import PendingEntry
from anabranch.stream.groups.pending_list import Consumer
from anabranch.stream.groups.progress import Logs
from anabranch.stream.ranges import Ranges
from anabranch.stream.region_log import RegionLog
from anabranch.stream.shared import Dot

HANDED_ENTRIES: Final = 200
"""Pending entries that are handed over at once: a millisecond in each region."""

_Row = tuple[int, int, int, int, int, int]


def hand_over_of(place: GroupPlace, home: HomeEpoch) -> Iterator[kinds.HandOver]:
    """The effects by which a region hands over what is pending in it, and says whose home is next.

    What it has acknowledged must be told before. Each may be a turn of its own: the next one is
    made of what is pending then. Nothing must become pending meanwhile.
    """
    group = place.group
    known = _home_of(group)
    moves = known.moves(home)
    done = group.shared.acknowledged_of
    for number, (entries, is_last) in enumerate(_pieces(place)):
        fresh: list[_Row] = []
        others: list[_Row] = []
        owners: dict[bytes, tuple[int, Consumer]] = {}
        for replica_id, entry in entries:
            owner = 0
            if entry.consumer is not None:
                consumer = group.consumers[entry.consumer.name]
                owner, _ = owners.setdefault(consumer.name, (len(owners) + 1, consumer))
            is_adopted = entry.number in known.adopted.get(replica_id, ())
            row = (entry.delivery_ms, entry.delivery_count)
            some = others if is_adopted else fresh
            some.append((entry.entry_id, replica_id, entry.number, owner, *row))
        if is_last:
            for each in group.consumers.values():
                owners.setdefault(each.name, (0, each))
        yield kinds.HandOver(
            place.db,
            place.key,
            place.name,
            list(group.shared.creations),
            home.number,
            home.region,
            home.forced,
            [(each.name, each.seen_ms, each.active_ms + 1) for _, each in owners.values()],
            fresh + others,
            len(fresh),
            list(known.twice) if is_last else [],
            moves,
            not is_last,
            number,
            [(each, n) for _, each, n, *_ in fresh + others if _is_in(done(each), n)],
        )


def _is_in(sets: Iterable[Ranges], number: int) -> bool:
    return any(number in some for some in sets)


def _pieces(place: GroupPlace) -> Iterator[tuple[list[tuple[int, PendingEntry]], bool]]:
    """What is pending and has a number, some entries at a time, and whether these are the last."""
    piece: list[tuple[int, PendingEntry]] = []
    for replica_id, pending in list(place.group.pending.lists.items()):
        start = MIN_ID if replica_id in place.stream.logs else MAX_ID + 1
        while start <= MAX_ID:
            some, upto = pending.some_between(start, MAX_ID, HANDED_ENTRIES)
            piece += [(replica_id, each) for each in some if each.number]
            start = upto + 1
            if len(piece) >= HANDED_ENTRIES:
                yield piece, False
                piece = []
    yield piece, True


def taken_by(place: GroupPlace, home: HomeEpoch) -> kinds.HandOver:
    """The effect by which a region takes a group: it hands nothing over to itself."""
    where = place.db, place.key, place.name
    creations = list(place.group.shared.creations)
    return kinds.HandOver(*where, creations, home.number, home.region, True, [], [], 0, [], False)


def leaving(place: GroupPlace, home: HomeEpoch) -> kinds.LeaveHome:
    """The effect by which the home stops, and will hand over for an epoch."""
    return kinds.LeaveHome(place.db, place.key, place.name, home.number, home.region)


def asking(place: GroupPlace, home: HomeEpoch, asks: int) -> kinds.AskHome:
    """The effect by which a region asks those that may hand over for an epoch."""
    return kinds.AskHome(place.db, place.key, place.name, *home, asks)


def _home_of(group: Group) -> GroupHome:
    if group.home is None:
        group.home = GroupHome()
    return group.home


def _group_in(keyspace: Keyspace, effect: kinds.GroupEffect) -> GroupPlace | None:
    """The group of an effect, if it is there; readers and the region look at it afterwards."""
    stream = known_stream(keyspace, effect.db, effect.key)
    group = None if stream is None else stream.groups.get(effect.group)
    if stream is None or group is None:
        return None
    database = keyspace.databases[effect.db]
    database.signal(effect.key)
    database.policies.bound[effect.key] = None
    return GroupPlace(effect.db, effect.key, effect.group, stream, group)


def leave_home(keyspace: Keyspace, effect: kinds.LeaveHome) -> None:
    """This region stops to deliver a group."""
    place = _group_in(keyspace, effect)
    if place is not None:
        _home_of(place.group).leaving = HomeEpoch(effect.number, effect.region)


def ask_home(keyspace: Keyspace, effect: kinds.AskHome) -> None:
    """A region asks for a hand-over; the region that can answer does so afterwards."""
    place = _group_in(keyspace, effect)
    if place is not None and effect.asks != keyspace.replica.region:
        asked = HomeEpoch(effect.number, effect.home, effect.forced)
        _home_of(place.group).asked[effect.asks] = asked


def hand_over(keyspace: Keyspace, effect: kinds.HandOver) -> None:
    """A region hands a group over, or takes it."""
    place = _group_in(keyspace, effect)
    if place is None:
        return
    group, replica = place.group, keyspace.replica
    alive = [dot for dot in effect.creations if dot in group.shared.creations]
    if not alive:
        return
    sender, ours = region_of(replica.replica_id), replica.region
    home, epoch = _home_of(group), HomeEpoch(effect.number, effect.region, effect.forced)
    before = home.current(effect.region)
    home.raise_to(alive, epoch)
    if sender == ours:
        if epoch.region != ours:
            home.pass_on(_numbers_of(effect.rows))
            for dot in effect.reopened:  # the next home will acknowledge them once more
                group.shared.hide(*dot)
            if not effect.more:
                home.hand_over(epoch, moves=effect.moves)
        elif before < epoch:
            home.take(epoch)
        return
    if sender == epoch.region:  # it takes the group, and does not hand over
        return
    watch = home.watch if home.watch is not None and epoch >= home.watch.home else None
    is_target = epoch.region == ours
    is_first = epoch.number > 0 and home.begun < epoch
    if watch is not None or is_target:
        both = [*effect.twice]
        rows = list(filter(_was_handed_out, effect.rows))
        if is_target and not is_first:
            both += _pending_here(place, rows)
        if watch is not None:
            fresh = filter(_was_handed_out, effect.rows[: effect.fresh])
            both += watch.passed_among(_numbers_of(fresh))
        _note_repeated(place, home, both, watch, rows)
    if is_target:
        _adopt(place, effect, is_first=is_first)
    is_whole = home.is_next(sender, effect.piece, more=effect.more)
    if effect.more:
        return
    if not is_whole:
        home.is_incomplete = True
        return
    if is_target and effect.moves and epoch == home.current(ours):
        home.begun = max(home.begun, epoch)
    if watch is not None:
        watch.closed.add(sender)
        if watch.closed >= replica.members.keys() - {ours}:
            home.watch = None


def _pending_here(place: GroupPlace, rows: Iterable[_Row]) -> list[Dot]:
    """What is pending in the other region, and was delivered in this one, and is pending here."""
    group = place.group
    assert group.home is not None
    both: list[Dot] = []
    for replica_id, numbers in _numbers_of(rows).items():
        pending = group.pending.lists.get(replica_id)
        adopted = group.home.adopted.get(replica_id, ())
        both += [
            (replica_id, entry.number)
            for entry in ([] if pending is None else pending.numbered(Ranges.of_numbers(numbers)))
            if entry.number not in adopted and entry.was_handed_out
        ]
    return both


def _note_repeated(
    place: GroupPlace,
    home: GroupHome,
    both: Iterable[Dot],
    watch: TakeWatch | None,
    rows: Iterable[_Row],
) -> None:
    """Note entries that ``both`` regions have delivered, and those of the rows that were taken."""
    logs = place.stream.logs
    for replica_id, number in both:
        found = by_number.find(logs[replica_id], number) if replica_id in logs else None
        if found is not None:
            home.repeated[found[0].ids[found[1]]] = None
    for replica_id, numbers in _numbers_of(rows).items():
        if watch is not None and replica_id in logs:
            pairs = [(number - 1, number) for number in numbers]
            home.repeated.update(watch.repeated(replica_id, logs[replica_id], pairs))


def note_acknowledged(
    group: Group,
    home: GroupHome,
    logs: Logs,
    ranges: Iterable[tuple[int, int, int]],
    replica: Replica,
) -> None:
    """A region acknowledges; one of two may not have heard yet that the group was taken."""
    sender = region_of(replica.replica_id)
    for replica_id, low, high in ranges:
        log, watch = logs.get(replica_id), home.watch
        if log is None:
            continue
        if sender == replica.region:
            if watch is not None:
                for number, _ in watch.among(replica_id, log, [(low, high)]):
                    watch.told.setdefault((replica_id, number), replica.dot)
            continue
        if watch is not None and sender not in watch.closed:
            home.repeated.update(watch.repeated(replica_id, log, [(low, high)], replica.knows))
        pending = group.pending.lists.get(replica_id)
        if pending is not None and not home.has_handed_over:
            adopted = home.adopted.get(replica_id, ())
            for entry in pending.numbered(Ranges([(low, high)])):
                if entry.number not in adopted and entry.was_handed_out:
                    home.twice.append((replica_id, entry.number))
                    if by_number.find(log, entry.number) is not None:
                        home.repeated[entry.entry_id] = None


def _was_handed_out(row: _Row) -> bool:
    """Whether a consumer has got an entry of a hand-over (:class:`PendingEntry`)."""
    return row[3] > 0 or row[5] > 0


def _numbers_of(rows: Iterable[_Row]) -> dict[int, list[int]]:
    numbers: dict[int, list[int]] = {}
    for row in rows:
        numbers.setdefault(row[1], []).append(row[2])
    return numbers


def _adopt(place: GroupPlace, effect: kinds.HandOver, *, is_first: bool) -> None:
    """What was pending in another region is pending here from now on.

    ``is_first``: it begins here, so what had been delivered here at an earlier time is pending
    again. Otherwise this region knows better what became of the entries that it has delivered.
    """
    group, stream, home = place.group, place.stream, _home_of(place.group)
    reopened = set(effect.reopened)
    owners: list[Consumer | None] = [None]
    for name, seen_ms, was_active in effect.consumers:
        owners.append(group.consumers.setdefault(name, Consumer(name, seen_ms, was_active - 1)))
    fresh: dict[int, list[int]] = {}
    for entry_id, replica_id, number, owner, delivery_ms, count in effect.rows:
        log = stream.logs.get(replica_id)
        if log is None or by_number.find(log, number) is None:
            continue
        is_done = _is_in(group.shared.acknowledged_of(replica_id), number)
        if is_done and (replica_id, number) not in reopened:
            continue
        delivered = group.shared.delivered.get(replica_id)
        is_known = delivered is not None and number in delivered
        pending = group.pending.lists[replica_id].get(entry_id)
        may_come = is_done if pending is None else not pending.was_handed_out
        if is_known and not is_first and not may_come:
            continue
        entry = group.pending.assign(replica_id, entry_id, owners[owner], delivery_ms, count)
        entry.number = number
        home.has_handed_over = False
        home.adopted.setdefault(replica_id, Ranges()).add(number - 1, number)
        if not is_known:
            fresh.setdefault(replica_id, []).append(number)
    for replica_id, numbers in fresh.items():
        numbers.sort()
        _deliver_elsewhere(group, replica_id, stream.logs[replica_id], numbers)


def _deliver_elsewhere(group: Group, replica_id: int, log: RegionLog, numbers: list[int]) -> None:
    """Entries count as delivered here; no run of them contains what must still be delivered."""
    newest = by_number.id_upto(log, numbers[-1])
    group.progress.hand_out(log, replica_id, newest, numbers, None)
    left: list[int] = []
    for low, high in group.shared.gaps(replica_id, log):
        if low >= numbers[-1]:
            break
        for block, first, stop in by_number.spans(log, low, min(high, numbers[-1])):
            left += block.numbers_of(first, stop)
    group.runs.adopt_numbers(replica_id, numbers, Ranges.of_numbers(left))
