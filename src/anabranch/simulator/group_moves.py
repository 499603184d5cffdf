"""Checks of groups whose stream is copied, or dumped and restored in any region.

I-27 of :mod:`anabranch.simulator.checks`: such a group loses nothing and gains nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from anabranch.simulator import looking
from anabranch.simulator.group_checks import GroupChecks
from anabranch.simulator.machine import Process
from anabranch.simulator.record import RunRecord, Violation
from anabranch.simulator.workload import Workload

_Row = tuple[bytes, bytes, int]  # ID, consumer, delivery count


@dataclass(frozen=True)
class _GroupState:
    """The progress of a group, as COPY and RENAME must preserve it."""

    last_id: bytes
    lag: int
    pending: frozenset[_Row]
    done: frozenset[int]
    """The IDs of entries that count as acknowledged."""
    free: frozenset[int]
    """Those of entries that a copy need not deliver: they were acknowledged somewhere, or are
    before the beginning of the group."""


_GroupStates = dict[bytes, _GroupState]


class MoveChecks:
    """Compares groups before and after their stream is copied."""

    def __init__(self, record: RunRecord, work: Workload, groups: GroupChecks) -> None:
        self._record = record
        self._work = work
        self._groups = groups
        self._dumped: dict[bytes, _GroupStates | None] = {}

    def copy(self, process: Process, words: list[bytes]) -> Any:
        """Run a COPY, and compare the progress of both groups."""
        before = self._group_states(process, words[1])
        reply = process.do(words)
        if reply == 1:
            self._check(process, words[2], before, is_payload=False)
        return reply

    def dump(self, process: Process, words: list[bytes]) -> Any:
        """Run DUMP; clients keep some payloads."""
        before = self._group_states(process, words[1])
        if self._has_equal_ids(process, words[1]):
            before = None
        reply = process.do(words)
        if isinstance(reply, bytes):
            self._dumped[reply] = before
            self._work.payloads.append(reply)
        return reply

    def restore(self, process: Process, words: list[bytes]) -> Any:
        """Run RESTORE with one of the kept payloads."""
        reply = process.do(words)
        if not isinstance(reply, Exception):
            self._check(process, words[1], self._dumped[words[3]], is_payload=True)
        return reply

    def _group_states(self, process: Process, key: bytes) -> _GroupStates | None:
        """The progress of all groups of a key.

        None if it cannot be compared: entries with equal IDs, or an entry that was acknowledged
        under a creation of the group that is gone. This region does not deliver that entry again,
        others do, and a copy may take it either way.
        """
        stream = self._work.stream(process, key)
        if stream is None or looking.is_over(stream, process.exchange.wall_ms()):
            return {}
        found: _GroupStates = {}
        entries = list(looking.entries(stream))
        ids = Counter(entry.entry_id for entry in entries)
        for row in process.inspect([b"XINFO", b"GROUPS", key]):
            facts = dict(zip(row[::2], row[1::2], strict=True))
            name = facts[b"name"]
            rows = process.inspect([b"XPENDING", key, name, b"-", b"+", b"100000"])
            pending = frozenset((entry_id, owner, count) for entry_id, owner, _, count in rows)
            if ids.total() > len(ids) or len({entry_id for entry_id, *_ in rows}) < len(rows):
                return None
            alive = set(stream.groups[name].shared.creations)
            under = self._record.acknowledged_under
            settled = (under.get((key, name, entry.dot)) for entry in entries)
            if any(dots and dots.isdisjoint(alive) for dots in settled):
                return None
            done, free = self._settled(process, key, name)
            found[name] = _GroupState(
                facts[b"last-delivered-id"], facts[b"lag"], pending, done, free
            )
        return found

    def _has_equal_ids(self, process: Process, key: bytes) -> bool:
        """Whether a group has a pending entry that is deleted, and a live one has its ID.

        A payload names pending entries by their IDs, so it can hold one of the two.
        """
        stream = self._work.stream(process, key)
        return stream is not None and any(
            replica_id != entry.dot[0]
            for entry in looking.entries(stream)
            for group in stream.groups.values()
            for replica_id, _ in group.pending.with_id(entry.entry_id)
        )

    def _settled(
        self, process: Process, key: bytes, name: bytes
    ) -> tuple[frozenset[int], frozenset[int]]:
        shown = self._record.history.shown((0, key), process.replica.vector)
        if name not in shown.groups:  # its creation belongs to the present turn
            every = frozenset(entry.effect.entry_id for entry in shown.entries)
            return frozenset(), every
        done = frozenset(entry.effect.entry_id for entry in shown.done(name))
        under = self._record.acknowledged_under
        free = {
            entry.effect.entry_id
            for entry in shown.entries
            if under.get((key, name, entry.dot)) or not shown.delivers(name, entry)
        }
        return done, done | free

    def _check(
        self, process: Process, key: bytes, before: _GroupStates | None, *, is_payload: bool
    ) -> None:
        process.durability.commit()
        after = self._group_states(process, key)
        stream = self._work.stream(process, key)
        if stream is None:
            shown = self._record.history.shown((0, key), process.replica.vector)
            assert shown.is_small, f"{key!r} was not copied"
            return
        self._record.reached["group moved"] += len(stream.groups)
        for name in stream.groups:
            self._groups.moved(process, key, name)
        if before is None:
            return
        where = f"{key!r} of region {process.machine.number}"
        if after is None or set(after) != set(before):
            raise Violation(27, f"{where} got groups {before} and has {after}")
        for name, was in before.items():
            found = after[name]
            more = found.pending - was.pending
            if (
                was.pending - found.pending
                or found.last_id != was.last_id
                or found.lag + len(more) != was.lag
                or any(row[1:] != (b"", 0) for row in more)
                or (more and not is_payload)
                or (found.done - was.free and not is_payload)  # a payload has no skipped entries
            ):
                raise Violation(27, f"{name!r} of {where} was {was} and is {found}")
            self._record.reached["pending entry moved"] += len(was.pending)
            self._record.reached["late entry moved"] += len(more)
