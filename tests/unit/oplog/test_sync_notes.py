"""When the log says of itself how far it was on the disk."""

from __future__ import annotations

from anabranch.effects.kinds import Synced
from anabranch.oplog.log import OpLog, SyncNotes
from anabranch.simulator.disk import MemoryStorage


class Life:
    """A log to which turns of ten bytes are written, and a clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.log = OpLog(MemoryStorage(), [], end=0, segment_bytes=1 << 20)
        self.notes = SyncNotes(self.log, lambda: self.now_s)

    def turn(self, seconds: float = 0.0) -> list[int]:
        """Write one, so long after the one before; the positions that it notes."""
        self.now_s += seconds
        found = self.notes.with_turn()
        self.log.append(b"0123456789")
        return positions(found)

    def sync(self) -> None:
        sync = self.log.begin_sync()
        sync.run()
        self.log.finish_sync(sync)

    def rest(self, seconds: float) -> list[int]:
        """Look at it ten times within so many seconds; a note is written and synced."""
        found = []
        for _ in range(10):
            self.now_s += seconds / 10
            if note := self.notes.at_rest():
                self.log.append(b"note")
                self.sync()
            found += positions(note)
        return found


def positions(note: Synced | None) -> list[int]:
    """The position that a note tells, if there is one."""
    return [] if note is None else [note.position]


def test_the_first_turn_after_a_sync_tells_of_it_once() -> None:
    life = Life()
    assert life.turn() == []
    assert life.turn(5) == []
    life.sync()
    assert life.turn(5) == [20]
    assert life.turn(5) == []


def test_there_is_one_note_a_second_however_many_syncs() -> None:
    life = Life()
    found = []
    for _ in range(100):
        found += life.turn(0.05)
        life.sync()
    assert 4 <= len(found) <= 6
    assert found == sorted(found)


def test_a_log_that_rests_says_that_all_of_it_is_on_the_disk() -> None:
    life = Life()
    assert life.rest(60) == []
    life.turn()
    assert life.rest(60) == [], "it was not synced"
    life.sync()
    assert life.rest(60) == [10]
    assert life.rest(60) == []
    life.turn()
    life.sync()
    assert life.rest(0.5) == [], "something may come yet"
    assert life.rest(60) == [24]


def test_a_log_that_ends_says_so_too() -> None:
    life = Life()
    assert positions(life.notes.at_the_end()) == []
    life.turn()
    life.sync()
    assert positions(life.notes.at_the_end()) == [10]
    assert positions(life.notes.at_the_end()) == []
