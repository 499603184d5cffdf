"""The offset vector: one text, exact differences."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.sharing import share
from anabranch.spark.reading.offsets import (
    BY_ID,
    LogCursor,
    OffsetError,
    Vector,
    next_id,
    parse_id,
    previous_id,
)

names = st.sampled_from(["", "eu", "us", "orders", "é"])
cursors = st.builds(
    LogCursor,
    st.integers(0, 50),
    st.integers(50, 200),
    st.builds(lambda ms, seq: f"{ms}-{seq}", st.integers(0, 99), st.integers(0, 9)),
)
vectors = st.builds(
    Vector,
    st.dictionaries(names, st.dictionaries(names, cursors, max_size=3), max_size=3),
    st.integers(1, 9),
)


def shuffled(value: object, rng: random.Random) -> object:
    """The same JSON with its keys in another order."""
    if isinstance(value, dict):
        items = list(value.items())
        rng.shuffle(items)
        return {key: shuffled(each, rng) for key, each in items}
    return value


@given(vectors, st.randoms())
def test_a_vector_has_one_text_whatever_order_its_parts_came_in(vector, rng):
    text = vector.to_json()
    again = Vector.parse(json.dumps(shuffled(vector.to_dict(), rng)))
    assert again.to_json() == text
    assert json.dumps(again.to_dict()) == json.dumps(vector.to_dict())
    assert again == vector


def test_an_offset_may_tell_where_its_query_began():
    origin = Vector({"s": {"": LogCursor(0, 3, "5-0")}})
    end = Vector({"s": {"": LogCursor(0, 9, "7-0")}}, 2, origin)
    assert Vector.parse(end.to_json()) == end
    assert list(end.to_dict()) == sorted(end.to_dict())
    assert "b" not in origin.to_dict()


def test_unknown_keys_are_ignored_and_a_newer_version_is_refused():
    found = Vector({"s": {"": LogCursor(0, 3, "5-0")}}).to_dict()
    assert Vector.parse({**found, "x": 1}) == Vector.parse(found)
    with pytest.raises(OffsetError, match="newer anabranch"):
        Vector.parse({**found, "v": 2})


@pytest.mark.parametrize(
    "text", ["", "null", "{}", '{"v":1}', '{"v":1,"p":1,"s":{"a":{"":[1,"x"]}},"k":{"a":{"":0}}}']
)
def test_what_is_no_offset_is_refused(text):
    with pytest.raises(OffsetError):
        Vector.parse(text)


def test_a_late_region_and_a_new_stream_begin_at_their_first_position():
    start = Vector({"s": {"us": LogCursor(0, 90, "900-0")}})
    end = Vector(
        {
            "s": {"us": LogCursor(0, 90, "900-0"), "eu": LogCursor(7, 9, "5-0")},
            "t": {"": LogCursor(0, 2, "1-0")},
        }
    )
    found = [(each.stream, each.region, each.first, each.stop) for each in end.ranges(start)]
    assert found == [("s", "eu", 7, 9), ("t", "", 0, 2)]


def test_a_key_that_was_made_again_is_read_from_its_new_first_position():
    start = Vector({"s": {"": LogCursor(0, 90, "900-0")}})
    end = Vector({"s": {"": LogCursor(90, 95, "910-0")}})
    assert [(each.first, each.stop) for each in end.ranges(start)] == [(90, 95)]
    remade = Vector({"s": {"": LogCursor(BY_ID, 3, "5-0")}})
    assert not remade.ranges(Vector({"s": {"": LogCursor(BY_ID, 90, "900-0")}})), "nothing twice"


@settings(max_examples=500)
@given(
    st.dictionaries(st.tuples(names, names), st.integers(1, 1000), min_size=1, max_size=6),
    st.integers(1, 2000),
)
def test_a_limit_is_shared_in_proportion_and_nobody_starves(backlogs, limit):
    shares = share(backlogs, limit)
    assert shares.keys() == backlogs.keys()
    assert all(1 <= shares[name] <= backlogs[name] for name in backlogs)
    total = sum(shares.values())
    assert total <= max(limit, len(backlogs))
    assert total >= min(limit, sum(backlogs.values()))
    if limit >= len(backlogs) and sum(backlogs.values()) > limit:
        largest = max(backlogs, key=lambda name: backlogs[name])
        assert shares[largest] >= backlogs[largest] * (limit - len(backlogs)) // sum(
            backlogs.values()
        )


@pytest.mark.parametrize(
    ("low", "high"), [("0-0", "0-1"), ("5-3", "5-4"), (f"5-{2**64 - 1}", "6-0")]
)
def test_ids_have_neighbours(low, high):
    assert next_id(low) == high
    assert previous_id(high) == low


def test_nothing_is_below_the_least_id_and_nonsense_is_no_id():
    assert previous_id("0-0") == "0-0"
    for text in ("", "x", "1-", "-1", "1-2-3", "\N{ARABIC-INDIC DIGIT ONE}-0"):
        with pytest.raises(OffsetError):
            parse_id(text)
