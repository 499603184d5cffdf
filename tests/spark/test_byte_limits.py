"""``maxBytesPerTrigger``: batches of about so many bytes, whatever the entries are like."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.spark.options import OptionError, ReadOptions
from anabranch.spark.reading.offsets import Range, Vector
from anabranch.spark.reading.planner import Planner
from tests.spark.reading import talking, url


def batches(server: Any, **options: str) -> list[list[Range]]:
    """What each batch reads, until there is nothing left."""
    given = {"url": url(server), "subscribe": "s,t", "startingOffsets": "earliest", **options}
    parsed = ReadOptions.parse(given)
    planner = Planner(parsed)
    found = []
    try:
        at: Vector | None = planner.initial()
        while (end := planner.next(at, parsed.max_entries)) is not None:
            found.append(end.ranges(at))
            at = end
    finally:
        planner.close()
    return found


def fill(server: Any, key: str, *sizes: int) -> None:
    with talking(server) as client:
        pipe = client.pipeline(transaction=False)
        for ms, size in enumerate(sizes, 1):
            pipe.xadd(key, {"v": "x" * size}, id=f"{ms}-0")
        pipe.execute()


def test_a_batch_has_about_so_many_bytes(server: Any) -> None:
    fill(server, "s", *[1_000] * 500)
    found = [sum(map(len, each)) for each in batches(server, maxBytesPerTrigger="100k")]
    assert sum(found) == 500
    assert all(90 <= count <= 105 for count in found[:-1])
    both = {"maxBytesPerTrigger": "100k", "maxEntriesPerTrigger": "40"}
    assert {sum(map(len, each)) for each in batches(server, **both)} == {40, 20}
    assert [sum(map(len, each)) for each in batches(server, maxBytesPerTrigger="1m")] == [500]


def test_a_limit_follows_entries_that_become_larger(server: Any) -> None:
    fill(server, "s", *[10] * 2_000, *[10_000] * 500)
    found = [sum(map(len, each)) for each in batches(server, maxBytesPerTrigger="64k")]
    assert sum(found) == 2_500
    assert max(found) > 200
    assert set(found[-20:-1]) <= {5, 6, 7}


def test_streams_of_small_and_of_large_entries_share_the_limit(server: Any) -> None:
    fill(server, "s", *[10] * 300)
    fill(server, "t", *[10_000] * 300)
    for each in batches(server, maxBytesPerTrigger="1m"):
        assert sum(len(part) for part in each if part.stream == "t") <= 120


def test_an_entry_that_is_larger_than_the_limit_is_a_batch(server: Any) -> None:
    fill(server, "s", *[50_000] * 3)
    assert [sum(map(len, each)) for each in batches(server, maxBytesPerTrigger="10k")] == [1, 1, 1]


def test_a_batch_read_has_no_such_limit() -> None:
    options = ReadOptions.parse({"subscribe": "s", "maxBytesPerTrigger": "1m"})
    with pytest.raises(OptionError, match="maxBytesPerTrigger is for streaming reads"):
        options.check_kind("batch")
