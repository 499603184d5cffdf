"""Checks of consumer groups: deliveries, acknowledgements, and pending entries.

I-10 to I-13, and I-29, of :mod:`anabranch.simulator.checks`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from anabranch.simulator import looking
from anabranch.simulator.formulas import Shown
from anabranch.simulator.machine import Process
from anabranch.simulator.record import Dot, RunRecord, Violation
from anabranch.simulator.workload import Workload, parsed_entries, parsed_id
from anabranch.stream import by_number
from anabranch.stream.entry_id import MAX_ID, MIN_ID
from anabranch.stream.groups.group import Group
from anabranch.stream.ranges import Ranges
from anabranch.stream.stream import Stream


@dataclass
class _Delivered:
    """The entries that a region has delivered in a group."""

    under: dict[Dot, set[Dot]] = field(default_factory=dict)
    """By entry, the creations of the group when the entry was delivered."""
    jumped: bool = False
    """Whether entries were skipped on purpose."""


class GroupChecks:
    """Records what regions deliver, and checks the groups."""

    def __init__(self, record: RunRecord, work: Workload) -> None:
        self._record = record
        self._work = work
        self.delivered: defaultdict[tuple[int, bytes, bytes], _Delivered] = defaultdict(_Delivered)
        """By region, key and group."""

    def check(
        self,
        number: int,
        stream: Stream,
        name: bytes,
        group: Group,
        entries: list[looking.Entry],
    ) -> None:
        """Check a group of region ``number``, whose stream has these entries."""
        where = f"group {name!r} of region {number}"
        due = sum(_is_due(group, entry) for entry in entries)
        lag = sum(group.progress.exact_lag(stream.logs).values())
        if lag != due:
            raise Violation(12, f"{where} has lag {lag}, and {due} entries are to be delivered")
        held = Counter(
            (replica_id, entry.entry_id)
            for consumer in group.consumers.values()
            for replica_id, pending in consumer.pending.items()
            for entry in pending.between(MIN_ID, MAX_ID)
        )
        pending = Counter(
            (replica_id, entry_id)
            for replica_id, each in group.pending.lists.items()
            for entry_id, entry in each.entries.items()
            if entry.consumer is not None
        )
        if held != pending:
            raise Violation(13, f"{where}: consumers hold {held}, pending is {pending}")
        for replica_id, each in group.pending.lists.items():
            done = looking.acknowledged(group, replica_id).without(
                group.shared.hidden.get(replica_id)
            )
            wrong = [entry.number for entry in each.entries.values() if entry.number in done]
            log = stream.logs.get(replica_id)  # what is deleted stays pending as in Redis
            wrong = [] if log is None else by_number.live_among(log, sorted(wrong))
            if wrong:
                raise Violation(
                    13, f"{where}: {wrong} of {replica_id} are acknowledged and pending"
                )

    def remembered(self) -> list[object]:
        """What was delivered so far, and under which creations."""
        return [
            (where, each.jumped, sorted((dot, sorted(some)) for dot, some in each.under.items()))
            for where, each in sorted(self.delivered.items())
        ]

    # -- commands -----------------------------------------------------------------------------

    def read(self, process: Process, words: list[bytes], key: bytes, stream: Stream | None) -> Any:
        """Run XREADGROUP, and record what it delivers."""
        name = words[2]
        by_id: defaultdict[tuple[int, bytes], list[Dot]] = defaultdict(list)
        creations: set[Dot] = set()
        if stream is not None and words[-1] == b">":
            for entry in looking.entries(stream):
                by_id[entry.entry_id, entry.token].append(entry.dot)
            group = stream.groups.get(name)
            if group is not None:
                creations = set(group.shared.creations)
        reply = process.do(words)
        if isinstance(reply, Exception) or not reply or words[-1] != b">":
            return reply
        delivered = self.delivered[process.machine.number, key, name]
        for each in parsed_entries(reply[0][1]):
            for dot in by_id[each]:
                delivered.under.setdefault(dot, set()).update(creations)
                if b"NOACK" in words:
                    self._record.acknowledged_under[key, name, dot] |= creations
        if b"NOACK" in words:
            dots = [dot for each in parsed_entries(reply[0][1]) for dot in by_id[each]]
            self._check_told(process, key, dots)
        return reply

    def acknowledge(
        self, process: Process, words: list[bytes], key: bytes, stream: Stream | None
    ) -> Any:
        """Run XACK, XACKDEL, or XNACK that gives up, and record what it acknowledges."""
        name = words[2]
        at = words.index(b"IDS") + 2 if b"IDS" in words else 3
        group = None if stream is None else stream.groups.get(name)
        dots: list[Dot] = []
        creations: set[Dot] = set()
        if group is not None:
            creations = set(group.shared.creations)
            dots = [
                (replica_id, entry.number)
                for entry_id in {parsed_id(each) for each in words[at:]}
                for replica_id, entry in group.pending.with_id(entry_id)
            ]
        before = self._record.reached["acknowledgement that travels"]
        reply = process.do(words)
        process.durability.commit()
        if dots:
            for dot in dots:
                self._record.acknowledged_under[key, name, dot] |= creations
            if self._record.reached["acknowledgement that travels"] == before:
                self._record.reached["acknowledgement held back"] += 1
        self._check_told(process, key, dots)
        return reply

    @staticmethod
    def gives_up(words: Sequence[bytes], stream: Stream | None) -> bool:
        """Whether a command gives entries up, which acknowledges them."""
        if stream is None or words[0] != b"XNACK" or words[3] != b"FATAL":
            return False
        group = stream.groups.get(words[2])
        policed = None if group is None else group.policed
        return policed is not None and policed.policy.deliveries_max > 0

    def untold(self, process: Process, key: bytes, some: Sequence[Dot] | None = None) -> str:
        """What is done in a group with ``acks all``, and other regions are not told; or nothing.

        Of ``some`` entries, or of all. If the region itself has told of it, what others do with
        that follows from equal data.
        """
        stream = self._work.stream(process, key)
        for name, group in () if stream is None else looking.groups(stream):
            if stream is None or group.policed is None or not group.policed.policy.acks_all:
                continue
            for entry in looking.entries(stream):
                if (
                    (some is None or entry.dot in some)
                    and group.has_processed(*entry.dot)
                    and not group.shared.is_acknowledged(*entry.dot)
                ):
                    where = f"region {process.machine.number}"
                    return f"{entry.dot} in {name!r} of {key!r} is done in {where} and not told"
        return ""

    def unmoved(self, process: Process, key: bytes) -> str:
        """Whether a group has still to be handed over, or its home waits for that; or nothing."""
        stream, region = self._work.stream(process, key), process.replica.region
        for name, group in () if stream is None else looking.groups(stream):
            present = group.present_home
            waits = present is not None and present.region == region and group.is_away(region)
            if waits or group.due_hand_over(region) is not None:
                return f"{name!r} of {key!r} has still to move, says region {region}"
        return ""

    def _check_told(self, process: Process, key: bytes, dots: Sequence[Dot]) -> None:
        """Check that other regions are told of these entries at once, where that is due."""
        if found := self.untold(process, key, dots):
            raise Violation(11, found)

    def jumped(self, process: Process, key: bytes, name: bytes) -> None:
        """Entries were skipped on purpose."""
        self.delivered[process.machine.number, key, name].jumped = True

    def moved(self, process: Process, key: bytes, name: bytes) -> None:
        """A group has come here with its stream: take over what was acknowledged in the source."""
        self.jumped(process, key, name)  # what is pending was delivered elsewhere
        shown = self._record.history.shown((0, key), process.replica.vector)
        for entry in shown.entries:
            if name in shown.groups and shown.is_acknowledged(name, entry):
                self._record.acknowledged_under[key, name, entry.dot] |= shown.creations[name]

    # -- the end ------------------------------------------------------------------------------

    def check_acknowledgements(self, key: bytes, shown: Shown) -> None:
        """Check that each acknowledged entry was acknowledged by a client, for a live creation.

        For a conflict of idempotent IDs, the removed entry may have been acknowledged instead.
        """
        for group, creations in shown.groups.items():
            alive = {fact.dot for fact in creations}
            for entry in shown.done(group):
                went = self._record.history.stands_for.get(((0, key), entry.dot), [])
                covering = [
                    self._record.acknowledged_under.get((key, group, dot), set())
                    for dot in [entry.dot, *went]
                ]
                if alive.isdisjoint(set().union(*covering)):
                    raise Violation(
                        11, f"{entry.dot} in {group!r} of {key!r} counts as acknowledged"
                    )

    def check_nothing_missed(self, process: Process, key: bytes, name: bytes) -> None:
        """Check a group that was read to its end."""
        stream = self._work.stream(process, key)
        group = None if stream is None else stream.groups.get(name)
        if stream is None or group is None:
            return
        group = stream.groups.get(name)
        if group is None or group.is_away(process.replica.region):
            return
        delivered = self.delivered[process.machine.number, key, name]
        rows = process.inspect([b"XINFO", b"GROUPS", key])
        for row in rows:
            figures = dict(zip(row[::2], row[1::2], strict=True))
            # Entries that were deleted unread, behind the last one read, do not count as read.
            if figures[b"name"] == name and (
                figures[b"lag"] != 0 or figures[b"entries-read"] > stream.entries_added
            ):
                raise Violation(12, f"{name!r} of {key!r} was read to its end and shows {figures}")
        shown = self._record.history.shown((0, key), process.replica.vector)
        if delivered.jumped or name not in shown.groups:
            return
        for entry in shown.entries:
            under = delivered.under.get(entry.dot, set())
            if (
                shown.delivers(name, entry)
                and not shown.is_acknowledged(name, entry)
                and not _is_held(group, entry.dot)
                and not under & {created.dot for created in shown.groups[name]}
            ):
                raise Violation(
                    10,
                    f"{entry.dot} was never delivered to {name!r} of {key!r} in region "
                    f"{process.machine.number}",
                )


def check_homes(checks: Sequence[GroupChecks], streams: Sequence[Mapping[bytes, Stream]]) -> None:
    """Check that each entry of a group with a home was delivered in one region.

    What was delivered in several, as a region took the group, is exactly what their AB.HOME SHOW
    reports. All regions have all effects; there is one home.
    """
    for key, name in {place[1:] for each in checks for place in each.delivered}:
        here = [each[key] for each in streams if key in each]
        groups = [each.groups[name] for each in here if name in each.groups]
        homes = {group.present_home for group in groups}
        if homes == {None} or not groups:
            continue
        if len(homes) > 1:
            raise Violation(29, f"{name!r} of {key!r} has homes {homes}")
        where = Counter(
            dot
            for each in checks
            for (_, *place), some in each.delivered.items()
            if place == [key, name]
            for dot in some.under
        )
        live = looking.entries(here[0])
        twice = {entry.entry_id for entry in live if where[entry.dot] > 1}
        alive = {entry.entry_id for entry in live}
        known = [group.home for group in groups if group.home is not None]
        told = {entry_id for home in known for entry_id in home.repeated}
        is_taken = any(home.begun.forced or home.closed.forced for home in known)
        if twice != told & alive or (twice and not is_taken):
            raise Violation(
                29,
                f"{sorted(twice)} in {name!r} of {key!r} were delivered in several regions, and "
                f"{sorted(told)} are reported",
            )


def _is_held(group: Group, dot: Dot) -> bool:
    """Whether an entry is pending here: with a home another region may have delivered it."""
    replica_id, number = dot
    pending = group.pending.lists.get(replica_id)
    is_held = pending is not None and bool(pending.numbered(Ranges([(number - 1, number)])))
    return is_held and group.present_home is not None


def _is_due(group: Group, entry: looking.Entry) -> bool:
    """Whether a group would still deliver an entry."""
    replica_id, number = entry.dot
    if number in group.shared.delivered.get(replica_id, ()):
        return False
    hidden = number in group.shared.hidden.get(replica_id, ())
    if not hidden and number in looking.acknowledged(group, replica_id):
        return False
    return replica_id in group.shared.rewound or any(
        number > context.get(replica_id, 0) if start is None else entry.entry_id > start
        for context, start, _ in group.shared.creations.values()
    )
