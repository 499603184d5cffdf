"""A full sync without the keys that need not be joined gives the same data as a whole one."""

from __future__ import annotations

import io
from collections import Counter

import pytest

from anabranch.keyspace.agreement import agreement_digest
from anabranch.keyspace.keyspace import Keyspace
from anabranch.scheduling import in_one_go
from anabranch.simulator import looking
from anabranch.simulator.disk import MemoryStorage
from anabranch.stream.stream import Stream
from tests.active_active.histories import run_range
from tests.support.mesh import Mesh, Node


def digests(keyspace: Keyspace) -> dict[tuple[int, bytes], int]:
    found = {}
    for database in keyspace.databases:
        for key, value in database.values.items():
            assert type(value) is Stream
            deadline = database.deadlines.get(key)
            found[database.index, key] = agreement_digest(value, deadline)
    return found


def twin_of(node: Node) -> Node:
    """Another process from the same disk."""
    twin = Node(node.mesh, node.number, node.settings, node._commands)
    twin.storage = MemoryStorage(node.storage.files(), node.storage.boot)
    twin.clock.us = node.clock.us
    twin._start()
    return twin


def test_a_part_of_a_full_sync_joins_to_the_same_as_all_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reached: Counter[str] = Counter()
    send_full_sync = Mesh.send_full_sync

    def checked(mesh: Mesh, source: int, target: int) -> None:
        sender, receiver = mesh.nodes[source], mesh.nodes[target]
        places = in_one_go(sender.replica.last_effects.beyond(receiver.vector))
        if places is None:
            reached["whole"] += 1
            send_full_sync(mesh, source, target)
            return
        database = sender.region.keyspace.databases[0]
        reached["left out"] += len(
            {*database.values, *database.remembered} - {k for _, k in places}
        )
        twin = twin_of(receiver)
        merging = twin.region.merging
        merging.join(
            in_one_go(merging.loading(io.BytesIO(sender.whole_snapshot()), "full sync")), "state"
        )
        send_full_sync(mesh, source, target)
        if twin.vector == receiver.vector:  # else something was waiting for it
            reached["compared"] += 1
            assert digests(receiver.region.keyspace) == digests(twin.region.keyspace)
            ours = looking.everything(receiver.region.keyspace)
            assert ours == looking.everything(twin.region.keyspace)

    monkeypatch.setattr(Mesh, "send_full_sync", checked)
    assert run_range(range(7000, 7051)).failed == {}
    assert min(reached[each] for each in ("whole", "left out", "compared")) > 0, reached


def test_only_keys_that_changed_are_in_a_full_sync() -> None:
    mesh = Mesh(3)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    for index in range(100):
        eu.do("XADD", f"k{index}", "*", "f", "v" * 100)
    mesh.settle()
    whole = len(eu.whole_snapshot())
    us.do("XADD", "mine", "*", "f", "v")
    eu.do("XADD", "k1", "*", "f", "v")
    eu.do("DEL", "k2")
    places = in_one_go(eu.replica.last_effects.beyond(us.vector))
    assert places is not None
    assert sorted(places) == [(0, b"k1"), (0, b"k2")]
    state = eu.whole_snapshot(places=places)
    assert len(state) < whole / 10
    us.join(state, eu, partial=True)
    assert us.do("EXISTS", "k1", "k2", "k3", "mine") == 3
    assert us.do("XLEN", "k1") == 2


def test_a_flush_may_concern_any_key() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    eu.do("XADD", "k", "*", "f", "v")
    mesh.settle()
    us.do("XGROUP", "CREATE", "other", "g", "0", "MKSTREAM")
    eu.do("FLUSHALL")
    assert in_one_go(eu.replica.last_effects.beyond(us.vector)) is None
    mesh.send_full_sync(1, 2)
    mesh.settle()
    assert us.do("EXISTS", "k", "other") == eu.do("EXISTS", "k", "other") == 0


def test_a_restart_from_a_snapshot_still_knows_what_changed() -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes[1], mesh.nodes[2]
    for key in "abc":
        eu.do("XADD", key, "*", "f", "v")
    mesh.settle()
    eu.do("XADD", "a", "*", "f", "v")
    eu.snapshot()
    eu.do("DEL", "b")
    eu.restart()
    places = in_one_go(eu.replica.last_effects.beyond(us.vector))
    assert places is not None
    assert sorted(places) == [(0, b"a"), (0, b"b")]


def test_a_region_that_has_nothing_gets_everything() -> None:
    mesh = Mesh(2)
    eu = mesh.nodes[1]
    eu.do("XADD", "k", "*", "f", "v")
    mesh.settle()
    eu.do("XADD", "l", "*", "f", "v")
    assert in_one_go(eu.replica.last_effects.beyond({})) is None


def test_what_came_with_a_whole_full_sync_is_passed_on_from_the_first_effect_on() -> None:
    mesh = Mesh(3)
    one, two, three = mesh.nodes.values()
    two.do("XADD", "k", "*", "f", "v")
    assert two.vector == {2: 1}
    one.join(two.whole_snapshot(), two)
    mesh.send(1, 3)
    assert three.do("XLEN", "k") == 1


@pytest.mark.parametrize("value", [("SET", "a", "x"), ("SADD", "a", "x"), ("LPUSH", "a", "x")])
def test_of_a_replaced_stream_it_has_where_its_logs_ended(value: tuple[str, ...]) -> None:
    mesh = Mesh(2)
    eu, us = mesh.nodes.values()
    for _ in range(3):
        us.do("XADD", "a", "*", "f", "v")
    us.do("XTRIM", "a", "MAXLEN", 0)
    mesh.settle()
    eu.do("DEL", "a")
    eu.do(*value)
    us.do("XADD", "a", "*", "f", "concurrent")
    assert in_one_go(eu.replica.last_effects.beyond(us.vector)) is not None
    mesh.send_full_sync(1, 2)
    mesh.settle()
    for node in (eu, us):
        facts = node.do("XINFO", "STREAM", "a")
        assert facts[facts.index(b"entries-added") + 1] == 1
