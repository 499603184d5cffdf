"""Estimates of what keys cost are of the right size and grow with what they hold."""

from __future__ import annotations

import tracemalloc

import pytest

from anabranch.keyspace.memory import key_bytes, value_bytes
from anabranch.keyspace.values import ListValue, SetValue, StringValue
from anabranch.stream.stream import Stream
from tests.support.region_harness import Harness


def stream(entries, *, groups=False):
    server = Harness()
    for number in range(1, entries + 1):
        server.do("XADD", "s", f"{number}-0", "field", "x" * 100)
    if groups:
        server.do("XGROUP", "CREATE", "s", "g", "0")
        server.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    return server.region.keyspace.databases[0].values[b"s"]


def test_strings_cost_their_length_and_a_little():
    assert 1000 < key_bytes(b"k", StringValue(b"x" * 1000)) < 1500


def test_lists_and_sets_cost_their_items():
    items = [b"%09d" % number for number in range(1000)]
    assert key_bytes(b"k", ListValue(items)) > 1000 * 9
    assert key_bytes(b"k", SetValue(items)) > 1000 * 9
    assert key_bytes(b"k", ListValue()) < 1500


@pytest.mark.parametrize("samples", [0, 1, 5])
def test_samples_change_little_when_parts_are_alike(samples):
    value = stream(1000, groups=True)
    exact = key_bytes(b"s", value, 0)
    assert key_bytes(b"s", value, samples) == pytest.approx(exact, rel=0.15)


def test_a_stream_costs_about_what_python_says():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        value = stream(2000, groups=True)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert key_bytes(b"s", value, 0) == pytest.approx(used, rel=0.5)


def test_pending_entries_are_counted():
    assert key_bytes(b"s", stream(100, groups=True)) > key_bytes(b"s", stream(100)) + 100 * 100


def test_the_table_by_which_removals_are_found_is_counted() -> None:
    stream = Stream.of_regions(1, 100, 100)
    for number in range(1, 1000):
        stream.shared.bury((1, number), b"%d" % number, lambda _dot: None)
    size = value_bytes(stream)
    tracemalloc.start()
    try:
        stream.shared.beats(b"g", lambda _: True)
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    # The compiled core has copies of the dots in it, and takes twice as much.
    assert value_bytes(stream) - size == pytest.approx(used, rel=0.6)


def test_an_empty_stream_has_a_size():
    server = Harness()
    server.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    assert key_bytes(b"s", server.region.keyspace.databases[0].values[b"s"]) > 100
