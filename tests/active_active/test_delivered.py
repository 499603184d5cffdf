"""What a group has delivered is few intervals, however long it reads: each read looks at them."""

from __future__ import annotations

import pytest

from anabranch.keyspace.deferred_free import DeferredFree
from anabranch.stream.stream import Stream
from tests.support.mesh import Mesh, Node

ROUNDS = 60


def intervals(node: Node, key: bytes = b"a") -> int:
    """The intervals of all replica IDs in a group."""
    stream = node.region.keyspace.databases[0].values[key]
    assert isinstance(stream, Stream)
    return sum(map(len, stream.groups[b"g"].shared.delivered.values()))


def read(node: Node, count: int = 10) -> list[bytes]:
    """Read new entries; returns their IDs."""
    reply = node.do("XREADGROUP", "GROUP", "g", "c", "COUNT", count, "STREAMS", "a", ">")
    return [entry[0] for entry in reply[0][1]] if reply else []


def begun() -> tuple[Node, Node, Mesh]:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XGROUP", "CREATE", "a", "g", "0", "MKSTREAM")
    mesh.settle()
    return one, two, mesh


def test_numbers_of_other_keys_make_no_intervals() -> None:
    one, _two, _mesh = begun()
    for _ in range(ROUNDS):
        for key in "abab":
            one.do("XADD", key, "*", "f", "v")
        one.do("XDEL", "a", one.do("XADD", "a", "*", "f", "gone"))
        assert len(read(one)) == 2
    assert intervals(one) == 1
    assert read(one) == []


def test_entries_of_two_regions_make_an_interval_each() -> None:
    one, two, mesh = begun()
    for _ in range(ROUNDS):
        for node in (one, two):
            for key in "aba":
                node.do("XADD", key, "*", "f", "v")
        mesh.settle()
        assert len(read(one, 4)) == 4
    assert intervals(one) == 2


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_what_other_regions_process_in_between_ends_an_interval_until_it_is_trimmed(
    *, is_trimmed: bool
) -> None:
    one, two, mesh = begun()
    for _ in range(ROUNDS):
        for node in (one, two):
            one.do("XADD", "a", "*", "f", "v")
            mesh.settle()
            (entry_id,) = read(node)
            node.do("XACK", "a", "g", entry_id)
            mesh.settle()
        if is_trimmed:
            one.do("XTRIM", "a", "MAXLEN", 4)
    assert read(one) == read(two) == []
    if is_trimmed:
        assert intervals(one) <= ROUNDS // 4, "gone entries need none"
    else:
        assert intervals(one) == ROUNDS


def test_what_another_region_has_processed_is_not_part_of_what_was_delivered_here() -> None:
    one, two, mesh = begun()
    first, second, third = (one.do("XADD", "a", "*", "f", "v") for _ in range(3))
    mesh.settle()
    two.do("XGROUP", "SETID", "a", "g", first)
    assert read(two, 1) == [second]
    two.do("XACK", "a", "g", second)
    mesh.settle()
    assert read(one) == [first, third]
    assert intervals(one) == 2


@pytest.mark.parametrize("removal", [("XGROUP", "DESTROY", "a", "g"), ("FLUSHALL",)], ids=" ".join)
@pytest.mark.parametrize("by_full_sync", [False, True])
def test_a_group_that_ends_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch, removal: tuple[str, ...], *, by_full_sync: bool
) -> None:
    """Its pending entries and their consumers refer to each other: nobody else frees them."""
    one, two, mesh = begun()
    one.do("XADD", "a", "*", "f", "v")
    if by_full_sync:
        mesh.settle()
    assert len(read(one)) == 1
    stream = one.region.keyspace.databases[0].values[b"a"]
    assert isinstance(stream, Stream)
    group = stream.groups[b"g"]
    freed: list[object] = []
    monkeypatch.setattr(DeferredFree, "defer", lambda _self, thing: freed.append(thing))
    two.do(*removal)
    if by_full_sync:
        mesh.send_full_sync(2, 1)
    else:
        mesh.send(2, 1)
    assert any(thing is group or thing is stream for thing in freed)


def test_a_group_of_a_key_that_flushall_elsewhere_has_not_seen_is_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two, mesh = begun()
    one.do("XADD", "b", "*", "f", "v")
    one.do("XGROUP", "CREATE", "b", "h", "0")
    one.do("XREADGROUP", "GROUP", "h", "c", "STREAMS", "b", ">")
    stream = one.region.keyspace.databases[0].values[b"b"]
    assert isinstance(stream, Stream)
    group = stream.groups[b"h"]
    freed: list[object] = []
    monkeypatch.setattr(DeferredFree, "defer", lambda _self, thing: freed.append(thing))
    two.do("FLUSHALL")
    mesh.send(2, 1)
    assert not stream.groups
    assert any(thing is group for thing in freed)
