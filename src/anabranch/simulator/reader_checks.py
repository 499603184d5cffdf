"""Readers that take their cursor from region to region: I-18 of the checks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.effects import kinds
from anabranch.keyspace.replica import read_token
from anabranch.keyspace.version_vectors import covers
from anabranch.simulator import looking
from anabranch.simulator.machine import Process
from anabranch.simulator.record import RunRecord, Violation
from anabranch.simulator.workload import Workload, parsed_entries


@dataclass
class Reader:
    """A client of AB.READ that asks different regions in turn."""

    key: bytes
    count: int
    cursor: bytes = b"0"
    got: Counter[tuple[int, bytes]] = field(default_factory=Counter)


class ReaderChecks:
    """Checks what such readers get."""

    def __init__(self, record: RunRecord, work: Workload) -> None:
        self._record = record
        self._work = work

    def read(
        self, process: Process, reader: Reader
    ) -> tuple[bytes, list[tuple[int, bytes]]] | None:
        """Run AB.READ; returns the next cursor and the entries, None if the reply is withheld."""
        words = [b"AB.READ", b"COUNT", b"%d" % reader.count, b"STREAMS", reader.key, reader.cursor]
        reply = process.reader.do(words)
        if isinstance(reply, Exception):
            if process.durability.trouble is not None:
                self._record.reached["read withheld"] += 1
                return None
            raise Violation(18, f"AB.READ is refused: {reply}")
        ((_, cursor, entries),) = reply
        found = parsed_entries(entries)
        if process.durability.trouble is not None:
            self._record.reached["read answered in trouble"] += 1
            stream = self._work.stream(process, reader.key)
            known = [] if stream is None else looking.entries(stream)
            process.reader.reports(
                each.dot for each in known if (each.entry_id, each.token) in found
            )
        return cursor, found

    def got(self, reader: Reader, cursor: bytes, entries: list[tuple[int, bytes]]) -> None:
        """A reader has received a reply."""
        again = [each for each in entries if reader.got[each] >= self._times_added(reader, each)]
        if again and not self._work.copies:
            raise Violation(18, f"AB.READ of {reader.key!r} returned {again} again")
        reader.got.update(entries)
        reader.cursor = cursor

    def _times_added(self, reader: Reader, entry: tuple[int, bytes]) -> int:
        """How often an ID was added: a retry after DEL may get its former ID."""
        return sum(
            isinstance(fact.effect, kinds.Add) and _shown(fact.effect) == entry
            for fact in self._record.history.facts[0, reader.key]
        )

    def drain(self, reader: Reader, processes: Sequence[Process], chance: random.Random) -> None:
        """Read a stream to its end in some region, and check that no entry was missed."""
        vector = processes[0].replica.vector
        shown = self._record.history.shown((0, reader.key), vector)
        due = Counter(_shown(entry.effect) for entry in shown.entries)
        stream = self._work.stream(processes[0], reader.key)
        if stream is None or looking.is_over(stream, processes[0].exchange.wall_ms()):
            return
        for _ in range(sum(due.values()) + 2):
            reply = self.read(chance.choice(processes), reader)
            assert reply is not None, "the disks are well again"
            self.got(reader, *reply)
        missed = due - reader.got
        # A reader may know effects that were lost with a disk or a removed region: entries that
        # these had removed stay, and the reader has passed them.
        is_ahead = not covers(vector, read_token(reader.cursor))
        if missed and not (self._work.copies or self._record.has_lost or is_ahead):
            raise Violation(18, f"AB.READ of {reader.key!r} never returned {sorted(missed)}")
        self._record.reached["wandering reader read to the end"] += 1


def _shown(entry: kinds.Add) -> tuple[int, bytes]:
    """ID and token of an entry."""
    return entry.entry_id, looking.token_of(entry.fragment)
