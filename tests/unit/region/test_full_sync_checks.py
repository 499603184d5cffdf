"""A full sync must contain later effects of each replica ID than this region has, or fails."""

from __future__ import annotations

import io
from array import array
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from anabranch.keyspace.held_tags import HeldTag
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica, replica_id_of
from anabranch.keyspace.values import ListValue, SetValue
from anabranch.oplog.errors import CorruptLogError
from anabranch.oplog.file_kind import HEADER_BYTES
from anabranch.oplog.snapshot import (
    BLOCKS,
    ELEMENTS,
    Contents,
    Snapshot,
    framed,
    load_snapshot,
    records_in,
)
from anabranch.region.full_sync_checks import check_full_sync, check_order
from anabranch.scheduling import in_one_go
from anabranch.stream.elements import PLACES_A_STEP, Elements, places_between
from anabranch.stream.shared import Shared
from anabranch.stream.stream import Stream

OURS, THEIRS = replica_id_of(1, 0), replica_id_of(2, 0)
FRAGMENT = b"*2\r\n$3\r\n0-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"


def state(*entries: tuple[int, int], first_position: int = 0) -> Keyspace:
    """A keyspace with entries of the other replica ID: numbers and IDs."""
    keyspace = Keyspace(1, Replica(OURS, lambda: (100, 100)))
    stream = Stream.of_regions(OURS, 100, 100)
    log = stream.log_of(THEIRS)
    log.open_at(first_position, entries[0][0] if entries else 0)
    for number, entry_id in entries:
        log.append(entry_id, FRAGMENT, 1, False, number - log.next_position)
        keyspace.replica.vector[THEIRS] = number
    keyspace.databases[0].put(b"s", stream)
    return keyspace


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (state((1, 10), (2, 20)), state((1, 10), (2, 20), (3, 30))),
        (state((1, 10), (2, 20)), state((3, 5), first_position=2)),  # all of ours was removed
        (state((1, 10), (2, 20)), state((1, 10), (2, 20))),
        (state(), state((1, 10))),
        (Keyspace(1, Replica(OURS, lambda: (100, 100))), state((1, 10))),
    ],
    ids=["behind ours", "after a deletion", "nothing new", "an empty log", "a new key"],
)
def test_states_that_go_on_are_taken(ours: Keyspace, theirs: Keyspace) -> None:
    in_one_go(check_order(ours, theirs, "state"))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (state((1, 10), (2, 20)), state((1, 10), (3, 15))),
        (state((1, 10), (2, 20)), state((1, 5), (3, 20))),
        (state((1, 10), first_position=7), state((1, 10), (3, 30), first_position=2)),
    ],
    ids=["an ID below ours", "an ID of ours", "a position below ours"],
)
def test_states_that_do_not_go_on_are_refused(ours: Keyspace, theirs: Keyspace) -> None:
    with pytest.raises(CorruptLogError, match="not above ours"):
        in_one_go(check_order(ours, theirs, "state"))


TAG = HeldTag(THEIRS, 1, 0, b"k", b"p", b"i", 1, (THEIRS, 1), 5, True, {OURS: 3})


def tagged(tag: HeldTag) -> Keyspace:
    """A keyspace that holds one tag."""
    keyspace = state((1, 1))
    keyspace.replica.conflicts.hold(tag)
    return keyspace


@pytest.mark.parametrize("count", ["iids_added", "duplicates"])
@pytest.mark.parametrize("value", [-1, 1 << 63, (1 << 64) - 1])
def test_a_count_that_no_reply_can_have_is_refused(count: str, value: int) -> None:
    theirs = state((1, 1))
    in_one_go(check_full_sync(theirs, "state"))
    setattr(theirs.databases[0].values[b"s"].producers, count, value)  # type: ignore[union-attr]
    with pytest.raises(CorruptLogError):
        in_one_go(check_full_sync(theirs, "state"))


@pytest.mark.parametrize(("field", "value"), [("hybrid_ms", -1), ("vector", {THEIRS: "x"})])
def test_the_knowledge_of_a_region_is_checked(field: str, value: object) -> None:
    theirs = state((1, 1))
    setattr(theirs.replica, field, value)
    with pytest.raises(CorruptLogError):
        in_one_go(check_full_sync(theirs, "state"))


def loaded(change: Callable[[list[list[Any]]], None] = lambda _: None) -> Keyspace:
    """A full sync with a stream of three blocks, of which a record was changed, and checked."""
    whole = state()
    stream = whole.databases[0].values[b"s"]
    assert isinstance(stream, Stream)
    for number in range(1, 251):
        name = b"0-%d" % (10 * number)
        fragment = b"*2\r\n$%d\r\n%b\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n" % (len(name), name)
        stream.log_of(THEIRS).append(10 * number, fragment, 1, number % 100 == 1, 1)
    whole.replica.vector[THEIRS] = 250
    written = Snapshot(whole, Contents(1)).whole()
    records = [record for _, _, record in records_in(io.BytesIO(written), "full sync")][1:]
    blocks = [block for record in records if record[0] == BLOCKS for block in record[2]]
    assert len(blocks) == 3
    change(blocks)
    bodies = [msgspec.msgpack.encode(record) for record in [*records, [8, len(records)]]]
    file = written[:HEADER_BYTES] + b"".join(map(framed, bodies))
    theirs = Keyspace(1, Replica(OURS, lambda: (100, 100)))
    for _ in load_snapshot(io.BytesIO(file), "full sync", theirs):
        pass
    in_one_go(check_full_sync(theirs, "full sync"))
    return theirs


def test_blocks_of_another_region_are_taken() -> None:
    theirs = loaded().databases[0].values[b"s"]
    assert isinstance(theirs, Stream)
    assert len(theirs.log_of(THEIRS).blocks) == 3


def later_first_id(blocks: list[list[Any]]) -> None:
    blocks[0][0] = [0, 1_500]  # that of the next block is 0-1010


def many_numbers(blocks: list[list[Any]]) -> None:
    blocks[0][11] = [1, 1 << 40]


def longer_before(blocks: list[list[Any]]) -> None:
    ends = array("H", blocks[-1][5])
    ends[0] = ends[1] + 1
    blocks[-1][5] = ends.tobytes()


@pytest.mark.parametrize("change", [later_first_id, many_numbers, longer_before])
def test_blocks_that_make_no_sense_are_refused(
    change: Callable[[list[list[Any]]], None],
) -> None:
    """First IDs that do not ascend, more numbers than entries, an end before its beginning."""
    with pytest.raises(CorruptLogError):
        loaded(change)


def test_a_held_tag_is_taken() -> None:
    in_one_go(check_full_sync(tagged(TAG), "state"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "text"},
        {"pid": None},
        {"iid": 5},
        {"yields": "yes"},
        {"entry": (THEIRS,)},
        {"context": {OURS: None}},
        {"db": 1},
        {"number": 1 << 63},
        {"entry_id": -1},
        {"at_ms": -1},
    ],
    ids=str,
)
def test_a_held_tag_with_a_wrong_field_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(CorruptLogError):
        in_one_go(check_full_sync(tagged(TAG._replace(**wrong)), "state"))


def a_list(*puts: Any) -> Keyspace:
    """A keyspace whose one key is a list that regions share."""
    keyspace = state((1, 1))
    keyspace.replica.vector[THEIRS] = 5
    shared = Shared()
    shared.settle(Elements.restored("list", dict(puts)))
    keyspace.databases[0].put(b"l", ListValue((), shared))
    return keyspace


PLACE = places_between(b"", b"\xff", THEIRS, 1, 1)[0]


def test_a_list_is_taken() -> None:
    in_one_go(check_full_sync(a_list((PLACE, [[[THEIRS, 5], b"x"]])), "state"))


@pytest.mark.parametrize(
    "put",
    [
        (b"x", [[[THEIRS, 5], b"x"]]),
        (PLACE, [[[THEIRS, 6], b"x"]]),
        (PLACE, [[[-1, 5], b"x"]]),
        (PLACE, []),
        (PLACE, [[[THEIRS, 5], b"x"], [[THEIRS, 5], b"y"]]),
    ],
    ids=["no place", "not applied", "no replica ID", "nothing there", "one dot twice"],
)
def test_a_list_that_makes_no_sense_is_refused(put: Any) -> None:
    with pytest.raises(CorruptLogError):
        in_one_go(check_full_sync(a_list(put), "state"))


def test_a_set_of_a_region_alone_is_refused() -> None:
    keyspace = state((1, 1))
    keyspace.databases[0].put(b"m", SetValue([b"a"]))
    with pytest.raises(CorruptLogError, match="a value of a region alone"):
        in_one_go(check_full_sync(keyspace, "state"))


@pytest.mark.parametrize("wrong", [{OURS: ("x", 1)}, {OURS: (1, -1)}, {"x": (1, 1)}, {-1: (1, 1)}])
def test_counts_of_conflicts_that_are_none_are_refused(wrong: dict[Any, Any]) -> None:
    keyspace = state((1, 1))
    keyspace.replica.conflicts.stable = {OURS: (2, 1)}
    in_one_go(check_full_sync(keyspace, "state"))
    keyspace.replica.conflicts.stable = wrong
    with pytest.raises(CorruptLogError):
        in_one_go(check_full_sync(keyspace, "state"))


def with_further(index: int, wrong: Any) -> None:
    """Load and check a list whose last item is in a record of its own, with a field changed."""
    places = places_between(b"", b"\xff", THEIRS, 1, PLACES_A_STEP + 1)
    whole = a_list(*[(place, [[[THEIRS, 5], b"x"]]) for place in places])
    written = Snapshot(whole, Contents(1)).whole()
    records = [record for _, _, record in records_in(io.BytesIO(written), "full sync")][1:]
    (further,) = [record for record in records if record[0] == ELEMENTS]
    assert list(further[4]) == places[PLACES_A_STEP:]
    further[index] = wrong(places) if callable(wrong) else wrong
    bodies = [msgspec.msgpack.encode(record) for record in [*records, [8, len(records)]]]
    theirs = Keyspace(1, Replica(OURS, lambda: (100, 100)))
    file = io.BytesIO(written[:HEADER_BYTES] + b"".join(map(framed, bodies)))
    for _ in load_snapshot(file, "full sync", theirs):
        pass
    in_one_go(check_full_sync(theirs, "full sync"))
    assert theirs.databases[0].values[b"l"].shared.elements["list"].puts.keys() == set(places)


def test_further_elements_are_taken() -> None:
    with_further(3, "list")


@pytest.mark.parametrize(
    ("index", "wrong"),
    [
        (2, b"another key"),
        (3, "set"),
        (4, 5),
        (4, {b"x": [[[THEIRS, 5], b"x"]]}),
        (4, lambda places: {places[0]: [[[THEIRS, 5], b"x"]]}),
    ],
    ids=["no key", "no set", "no elements", "no place", "a place twice"],
)
def test_further_elements_that_make_no_sense_are_refused(index: int, wrong: Any) -> None:
    with pytest.raises(CorruptLogError):
        with_further(index, wrong)
