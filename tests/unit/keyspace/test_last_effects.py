"""The last effects on keys, and what need not be kept of them."""

from __future__ import annotations

import random

import msgspec

from anabranch.keyspace.last_effects import BATCH, UNPACKED_MAX, LastEffects, Place, bucket_of
from anabranch.keyspace.packed_table import map_of
from anabranch.keyspace.version_vectors import maximum
from anabranch.replication.digest_exchange import comparable
from anabranch.scheduling import in_one_go
from tests.support.packing import packing_at_once

KEY = (0, b"key")
OTHER = (0, b"other")


def test_a_write_is_noted_under_its_key_and_bucket() -> None:
    last_effects = LastEffects()
    last_effects.wrote(0, b"key", 1, 7)
    last_effects.wrote(0, b"key", 2, 3)
    assert last_effects.of_key(KEY) == {1: 7, 2: 3}
    assert last_effects.of_bucket(bucket_of(KEY)) == {1: 7, 2: 3}
    assert KEY in last_effects.changed[bucket_of(KEY)]
    assert last_effects.of_key(OTHER) == {}


def test_an_earlier_effect_does_not_hide_a_later_one() -> None:
    last_effects = LastEffects()
    last_effects.record(KEY, {1: 7})
    last_effects.record(KEY, {1: 5, 2: 1})
    assert last_effects.of_key(KEY) == {1: 7, 2: 1}


def test_keys_beyond_a_vector() -> None:
    last_effects = LastEffects()
    last_effects.record(KEY, {1: 7})
    last_effects.record(OTHER, {2: 4})
    assert in_one_go(last_effects.beyond({1: 7, 2: 3})) == [OTHER]
    assert in_one_go(last_effects.beyond({1: 7, 2: 4})) == []
    last_effects.record_all({3: 1})
    assert in_one_go(last_effects.beyond({1: 7, 2: 4})) is None
    assert in_one_go(last_effects.beyond({1: 6, 2: 4, 3: 1})) == [KEY]


def test_what_every_member_has_is_told_by_one_vector() -> None:
    last_effects = LastEffects()
    last_effects.record(KEY, {1: 7})
    last_effects.record(OTHER, {1: 9})
    last_effects.prune({1: 8})
    assert last_effects.of_key(KEY) == {1: 8}
    assert last_effects.of_key(OTHER) == {1: 9}
    assert in_one_go(last_effects.beyond({1: 8})) == [OTHER]
    assert in_one_go(last_effects.beyond({1: 7})) is None


def test_two_sides_compare_if_neither_has_an_effect_that_the_other_lacks() -> None:
    assert comparable({1: 9}, {1: 5}, {1: 5}, {1: 5})
    assert not comparable({1: 9}, {1: 6}, {1: 5}, {1: 5})
    assert comparable({1: 5}, {1: 5}, {1: 9}, {1: 5})
    assert not comparable({1: 5}, {1: 5}, {1: 9}, {1: 6})
    assert comparable({1: 9, 2: 1}, {1: 2, 2: 1}, {1: 2, 2: 8}, {1: 1, 2: 1})
    assert not comparable({}, {}, {3: 1}, {3: 1})


def test_packed_keys_are_the_same_keys() -> None:
    chance = random.Random(1)
    last_effects = LastEffects()
    model: dict[Place, dict[int, int]] = {}
    with packing_at_once():
        for _ in range(3000):
            place = chance.randrange(2), b"%d" % chance.randrange(200)
            vector = {chance.randrange(1, 4): chance.randrange(1000)}
            last_effects.record(place, vector)
            model[place] = maximum(model.get(place, {}), vector)
        base = {1: 500, 2: 900}
        last_effects.prune(base)
        last_effects.sweep()
    for place, vector in model.items():
        assert last_effects.of_key(place) == maximum(base, vector)
        is_marked = place in last_effects.changed[bucket_of(place)]
        assert is_marked == (place in last_effects._keys), "who is packed waits for nobody"
    known = {1: 700, 2: 950, 3: 600}
    due = {
        place
        for place, vector in model.items()
        if any(number > known.get(each, 0) for each, number in vector.items())
    }
    beyond = in_one_go(last_effects.beyond(known))
    assert beyond is not None
    assert set(beyond) == due


def test_what_is_packed_is_dropped_when_every_member_has_it() -> None:
    last_effects = LastEffects()
    with packing_at_once():
        for number in range(1, 1001):
            last_effects.record((0, b"%d" % number), {257: number})
        last_effects.prune({257: 500})
        for _ in range(5):
            last_effects.sweep()
    ((_, chunks),) = last_effects.packed()
    keys = [key for chunk in chunks for key in msgspec.msgpack.decode(map_of(chunk))]
    assert min(map(int, keys)) == 501
    keys += [key for _, key in last_effects._keys]
    assert sorted(map(int, keys)) == list(range(501, 1001))


def test_a_restart_knows_the_same() -> None:
    last_effects = LastEffects()
    count = 2 * UNPACKED_MAX
    for number in range(1, count):
        last_effects.wrote(0, b"%d" % number, 257, number)
    assert last_effects.absorb(100)
    assert len(last_effects.recent) == count - 1 - 100
    written = last_effects.written()
    assert len(written[1]) < UNPACKED_MAX + BATCH
    again = LastEffects()
    again.read(written)
    for db, chunks in last_effects.packed():
        for chunk in chunks:
            again.restore(db, msgspec.msgpack.decode(map_of(chunk), type=dict[bytes, bytes]))
    for number in range(1, count):
        place = 0, b"%d" % number
        assert again.of_key(place) == {257: number}
        assert again.of_bucket(bucket_of(place)) == last_effects.of_bucket(bucket_of(place))
