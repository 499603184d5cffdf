"""Which tags newer ones displaced: two numbers for a producer and a replica ID."""

from __future__ import annotations

from anabranch.keyspace.displaced_tags import DisplacedTags

S = (0, b"s")


def test_a_span_reaches_from_the_oldest_to_the_newest_displaced_tag() -> None:
    displaced = DisplacedTags()
    for number in (9, 4, 7):
        displaced.add(S, b"p", [(1, number)])
    displaced.add(S, b"p", [(2, 3), (2, 5)])
    assert displaced.of(S) == {b"p": {1: (3, 9), 2: (2, 5)}}
    assert displaced.of((1, b"s")) == {}


def test_a_removal_takes_what_is_in_its_context() -> None:
    displaced = DisplacedTags()
    displaced.add(S, b"p", [(1, 4), (1, 9), (2, 3)])
    displaced.add(S, b"q", [(1, 2)])
    displaced.remove(S, lambda dot: dot[1] <= {1: 6, 2: 8}[dot[0]])
    assert displaced.of(S) == {b"p": {1: (6, 9)}}
    displaced.remove(S, lambda dot: dot[1] <= 9)
    assert displaced.written() == []


def test_a_generation_is_forgotten_when_every_member_has_it() -> None:
    displaced = DisplacedTags()
    displaced.add(S, b"p", [(1, 4)])
    displaced.prune({}, {1: 6})  # the older generation ends at 6
    displaced.add(S, b"p", [(1, 8)])
    displaced.prune({1: 5}, {1: 9})
    assert displaced.of(S) == {b"p": {1: (3, 8)}}, "a member may lack the effect 6"
    displaced.prune({1: 6}, {1: 9})
    assert displaced.of(S) == {b"p": {1: (7, 8)}}, "the newer one is still needed"
    displaced.prune({1: 9}, {1: 9})
    assert displaced.written() == []


def test_everything_is_written_and_read() -> None:
    displaced, other = DisplacedTags(), DisplacedTags()
    displaced.add(S, b"p", [(1, 4)])
    displaced.prune({}, {1: 6})
    displaced.add(S, b"p", [(1, 8), (2, 5)])
    displaced.add((3, b"t"), b"q", [(1, 9)])
    other.read(displaced.written())
    for place in (S, (3, b"t")):
        assert other.of(place) == displaced.of(place)
    displaced.forget(S, b"p")
    assert displaced.of(S) == {}
