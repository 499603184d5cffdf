"""Streams of deleted keys: objects or packed, each key is there once."""

from __future__ import annotations

import random

from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.remembered import Remembered
from anabranch.keyspace.replica import Replica
from anabranch.stream.stream import Stream
from tests.support.packing import packing_at_once

OWN = 257


def nothing() -> Remembered:
    return Keyspace(1, Replica(OWN, lambda: (100, 100))).databases[0].remembered


def deleted(number: int) -> Stream:
    """The stream of a key that was deleted by the effect with this number."""
    stream = Stream.of_regions(OWN, 100, 100)
    stream.local.skip_positions(number)
    stream.shared.tombstones = {(OWN, number): True}
    return stream


def numbers(remembered: Remembered) -> dict[bytes, int]:
    return {key: stream.local.next_position for key, stream in remembered.items()}


def test_it_agrees_with_a_dictionary() -> None:
    chance = random.Random(1)
    with packing_at_once():
        remembered = nothing()
        model: dict[bytes, int] = {}
        for number in range(1, 2000):
            key = b"%d" % chance.randrange(50)
            if chance.random() < 0.5:
                remembered[key] = deleted(number)
                model[key] = number
            elif chance.random() < 0.5:
                assert remembered.discard(key) == (model.pop(key, None) is not None)
            else:
                stream = remembered.get(key)
                assert (stream and stream.local.next_position) == model.get(key)
            assert (key in remembered) == (key in model)
            assert len(remembered) == len(model)
            assert len(remembered.objects) < 2
        assert sorted(remembered) == sorted(model)
        assert numbers(remembered) == model
        assert remembered.marked == remembered.marks == len(model) - len(remembered.objects)
        assert set(remembered.packed_dots()) == {
            (OWN, model[key]) for key in model if key not in remembered.objects
        }


def test_who_refers_to_a_stream_that_was_packed_meanwhile_may_put_it_back() -> None:
    with packing_at_once():
        remembered = nothing()
        remembered[b"key"] = stream = deleted(1)
        remembered[b"other"] = deleted(2)
        assert b"key" in remembered
        assert b"key" not in remembered.objects
        stream.local.skip_positions(5)
        remembered[b"key"] = stream
        assert sorted(remembered) == [b"key", b"other"]
        assert remembered.get(b"key") is stream
        assert remembered.marked == 1


def test_a_stream_comes_back_with_a_log_of_the_present_epoch() -> None:
    with packing_at_once():
        remembered = nothing()
        remembered[b"key"] = deleted(1)
        remembered[b"other"] = deleted(2)
        remembered._replica.become(OWN + 256)
        stream = remembered.get(b"key")
        assert stream is not None
        assert stream.own == OWN + 256
        assert stream.local is stream.logs[OWN + 256]
        assert stream.logs[OWN].next_position == 1
