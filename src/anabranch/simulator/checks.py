"""The invariants, checked from outside after every step and at the end.

==== ==============================================================================================
I-1  regions that have applied the same effects have the same data in every key, and their digests
     agree: no region ever reports a difference, and at rest all keys are compared
I-2  the data of a region is what the formulas compute from the effects that it has applied
I-3  a write that was confirmed is never lost, except where ``appendfsync`` says so
I-4  an entry that is gone from a region does not come back there
I-7  in strict mode no two entries of a key have one ID
I-8  a new ID is above all IDs that its region has seen in the key
I-9  within a replica ID's log numbers and IDs ascend
I-10 after a group was read to its end, every entry was delivered there, acknowledged, or skipped
     there on purpose
I-11 an entry that counts as acknowledged was acknowledged by a client, under a live creation; with
     ``acks all`` every acknowledged entry counts as such
I-12 a group's lag is the number of entries that further reads would return
I-13 the pending entries of a group are those of its consumers, and none is acknowledged, except
     deleted ones
I-14 a restart restores all data, local data included
I-15 a snapshot with the log after it gives the same data as the log alone
I-16 of two entries that regions accepted for one idempotent ID one stays
I-17 a region that has accepted an idempotent ID does not add it again
I-18 a reader that takes its cursor from region to region gets every entry that stays, once
I-21 after the faults no tombstones, waiting batches and unfinished full syncs are left
I-22 after the faults, when nobody writes, regions exchange only status rows and digests
I-23 no effect number ever has two contents
I-24 no reply reports an effect that a crash undoes, except where ``appendfsync`` permits it
I-25 a region that lost its data accepts no write before it has all effects of its former epochs
     that another member had; after 10 s members that it cannot reach do not count
I-26 the counters of a key are equal in all regions (part of I-1 and I-2)
I-27 the groups of a stream that is copied, or dumped and restored, have the same pending entries
     and the same cursor there, and deliver the same; late entries are released in a payload. A
     copy acknowledges nothing that no client has acknowledged
I-28 a command that runs in slices shows the data of one moment, whatever changes meanwhile
I-29 an entry of a group with a home is delivered in one region, and in the end the group has one
     home; what a forced take repeats is reported, exactly
I-30 a command on a set or a list makes of it, in its own region, what Redis makes of it
I-31 a scheduled entry, and the copy of an entry that was given up, is there once in the end
==== ==============================================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from anabranch.keyspace.replica import region_of
from anabranch.node.full_syncs import STAGING
from anabranch.simulator import looking
from anabranch.simulator.element_checks import CHECKED, ElementCheck
from anabranch.simulator.formulas import Shown
from anabranch.simulator.group_checks import GroupChecks
from anabranch.simulator.group_moves import MoveChecks
from anabranch.simulator.looking import difference, due_of
from anabranch.simulator.machine import Machine, Process
from anabranch.simulator.reader_checks import ReaderChecks
from anabranch.simulator.record import Dot, RunRecord, Violation
from anabranch.simulator.workload import Workload, parsed_id
from anabranch.stream.stream import Stream

SCAN_EVERY: Final = 12
"""Changes of a region between two complete checks of it."""

EQUAL_EVERY_MS: Final = 50.0
"""The interval between two comparisons of the same regions."""

TRACKED_MS: Final = 30_000
"""The least time for which an idempotent ID is remembered."""


@dataclass
class _LastCheck:
    """Data of a process at the last check, for comparison with the next one."""

    mark: int = -1
    changes: int = 0
    live: dict[bytes, set[Dot]] = field(default_factory=dict)
    gone: defaultdict[bytes, set[Dot]] = field(default_factory=lambda: defaultdict(set))


class Checks:
    """All checkers of a run: each looks at every moment that concerns it."""

    def __init__(self, machines: Sequence[Machine], record: RunRecord, work: Workload) -> None:
        self._nodes = machines
        self._record = record
        self._work = work
        self._seen: dict[Process, _LastCheck] = {}
        self.groups = GroupChecks(record, work)
        self._moves = MoveChecks(record, work, self.groups)
        self._moving = {
            b"COPY": self._moves.copy,
            b"DUMP": self._moves.dump,
            b"RESTORE": self._moves.restore,
        }
        self.readers = ReaderChecks(record, work)
        self._accepted: dict[tuple[Process, bytes, bytes, bytes], tuple[int, Dot]] = {}
        self._compared: dict[tuple[int, int], float] = {}  # when pairs of regions were compared
        self.configured = False
        """Whether idempotent IDs may be forgotten early: by XCFGSET, or by a jump of a clock."""

    # -- after every step ---------------------------------------------------------------------

    def changed(self, process: Process) -> None:
        """An event has happened in a region: check the region if its data has changed."""
        seen = self._seen.get(process)
        if seen is None:
            seen = self._seen[process] = _LastCheck()
        mark = process.durability.position
        if mark == seen.mark:
            return
        seen.mark = mark
        seen.changes += 1
        self._compare_equals(process)
        if seen.changes % SCAN_EVERY == 0:
            self.scan(process)

    def _compare_equals(self, process: Process) -> None:
        vector = process.replica.vector
        for machine in self._nodes:
            other = machine.process
            if (
                other is not None
                and other is not process
                and other.replica.vector == vector
                and not other.is_joining
                and not (other.durability.broken or process.durability.broken)
            ):
                pair = process.machine.number, machine.number
                now_ms = process.machine.timeline.now_ms
                if now_ms - self._compared.get(pair, -EQUAL_EVERY_MS) >= EQUAL_EVERY_MS:
                    self._compared[pair] = now_ms
                    self._record.reached["equal vectors compared"] += 1
                    self._must_be_equal(process, other)

    def _must_be_equal(self, one: Process, other: Process) -> None:
        mine = looking.equal(one.region.keyspace)
        theirs = looking.equal(other.region.keyspace)
        if mine != theirs:
            raise Violation(
                1,
                f"regions {one.machine.number} and {other.machine.number} have applied the same "
                f"and differ: {difference(mine, theirs)}",
            )

    def scan(self, process: Process) -> None:
        """Check all data of a region."""
        seen = self._seen.setdefault(process, _LastCheck())
        streams = looking.streams(process.region.keyspace)
        number = process.machine.number
        for key in {**seen.live, **streams}:
            stream = streams.get(key)
            live = set[Dot]()
            if stream is not None:
                stream.check()
                entries = looking.entries(stream)
                live = {entry.dot for entry in entries}
                self._check_order(process, key, stream, entries)
                for name, group in looking.groups(stream):
                    self.groups.check(number, stream, name, group, entries)
            back = live & seen.gone[key]
            if back:
                raise Violation(4, f"entries {sorted(back)} are back in {key!r} of region {number}")
            seen.gone[key] |= seen.live.get(key, set()) - live
            seen.live[key] = live

    def _check_order(
        self, process: Process, key: bytes, stream: Stream, entries: list[looking.Entry]
    ) -> None:
        for one, other in pairwise(entries):
            if one.dot[0] == other.dot[0] and not (
                one.dot < other.dot and one.entry_id < other.entry_id
            ):
                raise Violation(9, f"{one} stands before {other} in {key!r}")
        if self._work.mode == "strict" and not self._work.copies:
            twice = [i for i, n in Counter(e.entry_id for e in entries).items() if n > 1]
            if twice:
                which = [entry for entry in entries if entry.entry_id in twice]
                raise Violation(7, f"region {process.machine.number} has {which} in {key!r}")

    # -- commands -----------------------------------------------------------------------------

    def command(self, process: Process, words: list[bytes]) -> Any:
        """Run a command in a region, and check its reply."""
        name = words[0]
        key = words[words.index(b"STREAMS") + 1] if b"STREAMS" in words else words[-1]
        if name in _KEY_SECOND:
            key = words[1]
        elif name == b"XGROUP":
            key = words[2]
        stream = self._work.stream(process, key)
        if name == b"XADD":
            return self._add(process, words, key, stream)
        if name == b"XREADGROUP":
            return self.groups.read(process, words, key, stream)
        if name in (b"XACK", b"XACKDEL") or self.groups.gives_up(words, stream):
            return self.groups.acknowledge(process, words, key, stream)
        move = self._moving.get(name)
        if move is not None:
            return move(process, words)
        elements = ElementCheck(process.region.keyspace, words) if name in CHECKED else None
        reply = process.do(words)
        if isinstance(reply, Exception):
            return reply
        if elements is not None:
            elements.check(reply)
        elif name == b"XCFGSET":
            self.configured = True
        elif name == b"XGROUP" and words[1] == b"SETID":
            self.groups.jumped(process, key, words[3])
            to = "forward" if words[4] == b"$" else "to an ID"
            self._record.reached[f"SETID {to}"] += 1
        elif name == b"XGROUP" and words[1] == b"DELCONSUMER" and reply:
            self._record.reached["pending entries given up"] += 1
        elif name == b"XCLAIM" and b"LASTID" in words:
            self.groups.jumped(process, key, words[2])
        return reply

    def _add(self, process: Process, words: list[bytes], key: bytes, stream: Stream | None) -> Any:
        known: dict[Dot, int] = {}
        newest = 0
        if stream is not None and not looking.is_over(stream, process.exchange.wall_ms()):
            known = {entry.dot: entry.entry_id for entry in looking.entries(stream)}
            newest = max([stream.last_id, *known.values()])
        reply = process.do(words)
        if isinstance(reply, Exception):
            return reply
        given = parsed_id(reply)
        if b"IDMP" in words:
            at = words.index(b"IDMP")
            tag = key, words[at + 1], words[at + 2]
            made = self._work.stream(process, key)
            new = [
                entry.dot
                for entry in (looking.entries(made) if made is not None else ())
                if entry.dot not in known and entry.entry_id == given
            ]
            self._check_idempotent(process, tag, new[0] if new else None, known)
        elif given <= newest:
            raise Violation(
                8, f"region {process.machine.number} gave {reply!r} in {key!r}, which had {newest}"
            )
        return reply

    def _check_idempotent(
        self,
        process: Process,
        tag: tuple[bytes, bytes, bytes],
        new: Dot | None,
        known: dict[Dot, int],
    ) -> None:
        now_ms = process.exchange.wall_ms()
        before = self._accepted.get((process, *tag))
        if before is not None and not self.configured:
            at_ms, dot = before
            if new is not None and dot in known and abs(now_ms - at_ms) < TRACKED_MS:
                raise Violation(
                    17, f"region {process.machine.number} accepted {tag} as {dot} and as {new}"
                )
            self._record.reached["idempotent ID repeated"] += 1
        if new is not None:
            self._accepted[process, *tag] = now_ms, new
        elif before is None:
            self._record.reached["idempotent ID of another region"] += 1

    # -- what the formulas say ----------------------------------------------------------------

    def compare_with_formulas(self, process: Process) -> None:
        """Compare the data of a region with the formulas; it joins a full sync to the end."""
        process.region.merging.settle()
        vector = process.replica.vector
        found = looking.visible(process.region.keyspace)
        for db, key in sorted(self._record.history.facts):
            if db == 0:
                shown = self._record.history.shown((0, key), vector)
                due = due_of(shown) if shown.exists else None
                if found.get(key) != due:
                    raise Violation(
                        2,
                        f"{key!r} in region {process.machine.number}: "
                        f"{difference(found.get(key), due)}",
                    )

    # -- the end ------------------------------------------------------------------------------

    def disagreement(self, processes: Sequence[Process]) -> str | None:
        """What a region still lacks, or keeps although it need not; None if nothing."""
        first = processes[0]
        for process in processes:
            number = process.machine.number
            replica = process.replica
            if replica.vector != first.replica.vector:
                return (
                    f"region {number} has applied {dict(sorted(replica.vector.items()))}, region "
                    f"{first.machine.number} {dict(sorted(first.replica.vector.items()))}"
                )
            if replica.members != first.replica.members:
                return f"region {number} has other members than region {first.machine.number}"
            left = self.leftover(process)
            if left is not None:
                return left
        return None

    def leftover(self, process: Process) -> str | None:
        """What a region keeps although it need not once all regions agree; None if nothing."""
        number = process.machine.number
        replica = process.replica
        marked = process.region.keyspace.marked_keys
        if marked or replica.flushes or replica.unstable_tombstones:
            return (
                f"region {number} still has tombstones of {marked} keys and "
                f"{sorted(replica.flushes)}, and counts {len(replica.unstable_tombstones)}"
            )
        if len(process.replicator.receiver.buffer):
            return f"region {number} has effects that wait for causes"
        if process.replicator.receiver.joiner.incoming is not None or process.is_joining:
            return f"region {number} still receives a state"
        if process.exchange.gate.is_newcomer:
            return f"region {number} takes no writes yet"
        if process.region.keyspace.databases[0].policies.tombstones:
            return f"region {number} remembers policies that were deleted"
        now_ms = process.exchange.wall_ms()
        if any(row[-1] < now_ms for row in looking.scheduled(process.region.keyspace)):
            return f"region {number} has scheduled entries that were due"
        for key in looking.streams(process.region.keyspace):
            found = self.groups.untold(process, key) or self.groups.unmoved(process, key)
            if found:
                return found
        if STAGING in process.machine.disk.names():
            return f"region {number} has a staging file"
        blank = [
            key
            for key, stream in process.region.keyspace.databases[0].remembered.items()
            if stream.is_blank
        ]
        if blank:
            return f"region {number} remembers keys of which nothing is left: {sorted(blank)}"
        return None

    def remembered(self) -> list[object]:
        """What these checks remember of the past of the first region, to compare two pasts."""
        seen = [self._seen[each.process] for each in self._nodes if each.process in self._seen]
        return [
            self.configured,
            [sorted((key, sorted(dots)) for key, dots in one.gone.items() if dots) for one in seen],
            sorted((key, iid, dot) for (_, key, _, iid), (_, dot) in self._accepted.items()),
            self.groups.remembered(),
        ]

    def finish(self, processes: Sequence[Process]) -> None:
        """Check the end of a run: all regions have all effects."""
        for process in processes:
            self.scan(process)
            self.compare_with_formulas(process)
        for one, other in pairwise(processes):
            self._must_be_equal(one, other)
        vector = processes[0].replica.vector
        for replica_id, number in sorted(self._record.promised.items()):
            if number > vector.get(replica_id, 0):
                raise Violation(
                    3,
                    f"clients of region {region_of(replica_id)} heard that effect {number} of "
                    f"replica ID {replica_id} is done, and {vector.get(replica_id, 0)} are left",
                )
        for key in self._work.keys:
            shown = self._record.history.shown((0, key), vector)
            self.groups.check_acknowledgements(key, shown)
            self._check_collapse(key, shown)

    def _check_collapse(self, key: bytes, shown: Shown) -> None:
        live = {(entry.replica_id, entry.effect.entry_id) for entry in shown.entries}
        collapses = (
            not self._work.copies and self._work.conflict == "collapse" and not self.configured
        )
        for (pid, iid), facts in shown.tags.items():
            ids = [fact.effect.entry_id >> 64 for fact in facts]
            if len(facts) < 2 or max(ids) - min(ids) > TRACKED_MS:
                continue
            self._record.reached["idempotent ID accepted by two regions"] += 1
            left = [fact.dot for fact in facts if (fact.replica_id, fact.effect.entry_id) in live]
            if len(left) > 1 and collapses:
                raise Violation(16, f"{pid!r} {iid!r} has entries {left} in {key!r}")

    def drain(self, process: Process) -> None:
        """Read every group of a region to its end."""
        for key, stream in sorted(looking.streams(process.region.keyspace).items()):
            if looking.is_over(stream, process.exchange.wall_ms()):
                continue
            for name in sorted(stream.groups):
                words = [b"XREADGROUP", b"GROUP", name, b"z", b"STREAMS", key, b">"]
                self.command(process, words)
                process.finish_event()
                self.groups.check_nothing_missed(process, key, name)


_KEY_SECOND: Final = frozenset(
    {
        b"COPY", b"DEL", b"DUMP", b"PERSIST", b"PEXPIRE", b"RENAME", b"RENAMENX", b"RESTORE",
        b"XACK", b"XACKDEL", b"XADD", b"XAUTOCLAIM", b"XCFGSET", b"XCLAIM", b"XDEL", b"XDELEX",
        b"XNACK", b"XSETID", b"XTRIM",
    }
)  # fmt: skip
