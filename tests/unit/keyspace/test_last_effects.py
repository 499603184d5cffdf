"""The last effects on keys, and what need not be kept of them."""

from __future__ import annotations

from anabranch.keyspace.last_effects import LastEffects, bucket_of
from anabranch.replication.digest_exchange import comparable

KEY = (0, b"key")
OTHER = (0, b"other")


def test_a_write_is_noted_under_its_key_and_bucket() -> None:
    last_effects = LastEffects()
    last_effects.recent[0, b"key", 1] = 7
    last_effects.recent[0, b"key", 2] = 3
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
    assert last_effects.beyond({1: 7, 2: 3}) == [OTHER]
    assert last_effects.beyond({1: 7, 2: 4}) == []
    last_effects.record_all({3: 1})
    assert last_effects.beyond({1: 7, 2: 4}) is None
    assert last_effects.beyond({1: 6, 2: 4, 3: 1}) == [KEY]


def test_what_every_member_has_is_told_by_one_vector() -> None:
    last_effects = LastEffects()
    last_effects.record(KEY, {1: 7})
    last_effects.record(OTHER, {1: 9})
    last_effects.prune({1: 8})
    assert last_effects.of_key(KEY) == {1: 8}
    assert last_effects.of_key(OTHER) == {1: 9}
    assert last_effects.beyond({1: 8}) == [OTHER]
    assert last_effects.beyond({1: 7}) is None


def test_two_sides_compare_if_neither_has_an_effect_that_the_other_lacks() -> None:
    assert comparable({1: 9}, {1: 5}, {1: 5}, {1: 5})
    assert not comparable({1: 9}, {1: 6}, {1: 5}, {1: 5})
    assert comparable({1: 5}, {1: 5}, {1: 9}, {1: 5})
    assert not comparable({1: 5}, {1: 5}, {1: 9}, {1: 6})
    assert comparable({1: 9, 2: 1}, {1: 2, 2: 1}, {1: 2, 2: 8}, {1: 1, 2: 1})
    assert not comparable({}, {}, {3: 1}, {3: 1})
