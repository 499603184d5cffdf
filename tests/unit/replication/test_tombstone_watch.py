"""Since when tombstones wait for a member, and when there are too many."""

from __future__ import annotations

from anabranch.keyspace.unstable_tombstones import UnstableTombstones
from anabranch.node.stability import TombstoneWatch


class Watched:
    """A region that deletes, and what the watch tells of it."""

    def __init__(self, most: int = 0) -> None:
        self.watch = TombstoneWatch()
        self.most = most
        self.tombstones = UnstableTombstones()
        self.vector = {1: 0}
        self.now_ms = 1000.0
        self.notes: list[tuple[str, int]] = []

    def deletes(self, count: int = 1) -> None:
        for _ in range(count):
            self.vector[1] += 1
            self.tombstones.add((1, self.vector[1]))

    def forgets(self, count: int = 1) -> None:
        oldest = self.tombstones.oldest
        assert oldest is not None
        self.tombstones.prune({1: oldest[1] + count - 1})

    def waits(self, ms: float) -> None:
        self.look()
        self.now_ms += ms
        self.look()

    def look(self) -> None:
        self.watch.observe(
            self.tombstones,
            self.vector,
            self.now_ms,
            self.most,
            lambda *told: self.notes.append(told),
        )

    @property
    def oldest_ms(self) -> float:
        return self.watch.oldest_ms(self.tombstones, self.now_ms)


def test_the_oldest_mark_ages() -> None:
    watched = Watched()
    watched.waits(500)
    assert watched.oldest_ms == 0
    watched.deletes()
    watched.waits(700)
    watched.deletes()
    watched.waits(100)
    assert watched.oldest_ms == 800


def test_the_next_one_is_as_old_as_it_is_known_to_be() -> None:
    watched = Watched()
    watched.deletes(2)
    watched.waits(700)
    watched.forgets()
    watched.waits(100)
    assert watched.oldest_ms == 800, "it was there when the first one was seen"
    watched.deletes()
    watched.forgets()
    watched.waits(50)
    assert watched.oldest_ms == 50
    watched.forgets()
    assert watched.oldest_ms == 0


def test_too_many_are_told_of_once_a_minute() -> None:
    watched = Watched(most=10)
    watched.deletes(10)
    watched.waits(1000)
    assert watched.notes == []
    watched.deletes()
    watched.waits(59_000)
    assert watched.notes == [("many_marks", 11)]
    watched.deletes()
    watched.waits(1000)
    assert watched.notes[1:] == [("many_marks", 12)]


def test_fewer_are_told_of_with_some_to_spare() -> None:
    watched = Watched(most=10)
    watched.deletes(11)
    watched.look()
    watched.forgets()
    watched.look()
    assert watched.notes == [("many_marks", 11)]
    watched.forgets()
    watched.look()
    watched.look()
    assert watched.notes[1:] == [("fewer_marks", 9)]


def test_without_a_limit_there_are_never_too_many() -> None:
    watched = Watched(most=1)
    watched.deletes(2)
    watched.look()
    watched.most = 0
    watched.waits(120_000)
    assert watched.notes == [("many_marks", 2), ("fewer_marks", 2)]
