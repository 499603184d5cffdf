"""What a region counts of what others did: equal IDs, conflicts, IDs of the future, marks."""

from __future__ import annotations

from anabranch.metrics.stats import Stats
from tests.support.mesh import Mesh, Node


def stats(node: Node) -> Stats:
    return node.region.stats


def conflicts(mesh: Mesh) -> list[int]:
    return [node.replica.conflicts.total for node in mesh.nodes.values()]


def counted(mesh: Mesh, name: str) -> list[int]:
    return [getattr(stats(node), name) for node in mesh.nodes.values()]


# -- equal IDs --------------------------------------------------------------------------------


def test_an_entry_with_the_id_of_another_one_is_counted_where_it_comes() -> None:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal")
    one, two = mesh.nodes.values()
    for ms in (10, 20, 30):
        one.do("XADD", "s", f"{ms}-0", "f", "v")
    for ms in (15, 20, 30, 35):
        two.do("XADD", "s", f"{ms}-0", "f", "v")
    mesh.settle()
    assert counted(mesh, "duplicate_ids") == [2, 2]
    assert len(one.do("XRANGE", "s", "-", "+")) == 7
    one.do("XADD", "s", "40-0", "f", "v")
    mesh.settle()
    assert counted(mesh, "duplicate_ids") == [2, 2]


def test_one_that_is_gone_does_not_count() -> None:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal")
    one, two = mesh.nodes.values()
    for node in (one, two):
        node.do("XADD", "s", "10-0", "f", "v")
        node.do("XADD", "s", "20-0", "f", "v")
    one.do("XDEL", "s", "20-0")
    mesh.settle()
    assert counted(mesh, "duplicate_ids") == [1, 2]


def test_runs_of_many_are_counted_across_nodes() -> None:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal", stream_node_max_entries=7)
    one, two = mesh.nodes.values()
    one.ask(*(("XADD", "s", f"{ms}-0", "f", "v") for ms in range(1, 101)))
    two.ask(*(("XADD", "s", f"{ms}-0", "f", "v") for ms in range(50, 151, 2)))
    mesh.settle()
    assert counted(mesh, "duplicate_ids") == [26, 26]


def test_a_rename_in_two_regions_gives_ids_twice_in_any_mode() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "s", "10", "f", "v")
    mesh.settle()
    one.do("RENAME", "s", "t")
    two.do("RENAME", "s", "t")
    mesh.settle()
    assert len(one.do("XRANGE", "t", "-", "+")) == 2
    assert counted(mesh, "duplicate_ids") == [1, 1]


def test_a_restart_counts_nothing_again() -> None:
    mesh = Mesh(2, xadd_id_uniqueness_mode="liberal")
    one, two = mesh.nodes.values()
    for node in (one, two):
        node.do("XADD", "s", "10-0", "f", "v")
        node.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
    mesh.settle()
    assert counted(mesh, "duplicate_ids") == conflicts(mesh) == [1, 1]
    one.restart()
    two.do("XADD", "t", "*", "f", "v")
    mesh.settle()
    assert counted(mesh, "duplicate_ids") == [0, 1]
    assert conflicts(mesh) == [1, 1], "all regions count them, and keep the count"


def added(node: Node) -> int:
    row = node.do("XINFO", "STREAM", "s")
    count: int = row[row.index(b"entries-added") + 1]
    return count


def test_counters_of_several_regions_may_exceed_what_a_record_holds() -> None:
    mesh = Mesh(3)
    one, two, _ = mesh.nodes.values()
    most = (1 << 63) - 1
    for node in mesh.nodes.values():
        node.do("XADD", "s", "*", "f", "v")
        node.do("XSETID", "s", "900000-0", "ENTRIESADDED", most, "MAXDELETEDID", "0-0")
    mesh.settle()
    one.sync()
    one.snapshot()
    one.restart()
    mesh.send_full_sync(1, 2)
    assert added(one) == added(two) == most
    two.do("DEL", "s")
    two.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    assert added(one) == added(two) == 1, "what raised the counter went with the key"


# -- idempotent IDs ---------------------------------------------------------------------------


def test_every_region_counts_a_conflict_once() -> None:
    for conflict, collapsed in (("collapse", [1, 1, 1]), ("keep", [0, 0, 0])):
        mesh = Mesh(3, idmp_conflict=conflict)
        one, two, _ = mesh.nodes.values()
        for node in (one, two):
            node.do("XADD", "s", "IDMP", "p", "i", "*", "f", "v")
        one.do("XADD", "s", "IDMP", "p", "j", "*", "f", "v")
        mesh.settle()
        assert conflicts(mesh) == [1, 1, 1]
        assert counted(mesh, "idmp_collapsed") == collapsed, "what each has removed"


# -- IDs and the clock ------------------------------------------------------------------------


def test_how_far_ids_were_ahead_of_the_clock() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.clock.us = 9_000_000
    one.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    now_ms = two.clock.us // 1000
    assert counted(mesh, "ids_ahead_ms") == [0, 9000 - now_ms]
    two.clock.us = 20_000_000
    one.do("XADD", "s", "*", "f", "v")
    mesh.settle()
    assert stats(two).ids_ahead_ms == 9000 - now_ms, "the most there was"
    two.do("CONFIG", "RESETSTAT")
    assert stats(two).ids_ahead_ms == 0
    two.do("XADD", "s", "60000", "f", "v")
    assert stats(two).ids_ahead_ms == 40_000


# -- tombstones ---------------------------------------------------------------------------------


def test_marks_are_unstable_until_every_member_has_them() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "s", "*", "f", "v")
    one.do("XGROUP", "CREATE", "s", "g", "0")
    mesh.settle()
    assert one.replica.oldest_tombstone is None
    one.do("XGROUP", "DESTROY", "s", "g")
    oldest = (one.replica_id, one.vector[one.replica_id])
    one.do("DEL", "s")
    one.do("FLUSHALL")
    assert len(one.replica.unstable_tombstones) == 3
    assert one.replica.oldest_tombstone == oldest
    one.sync()
    one.snapshot()
    one.restart()
    assert len(one.replica.unstable_tombstones) == 3, "after a restart, from a snapshot"
    mesh.send(1, 2)
    assert len(two.replica.unstable_tombstones) == 3
    mesh.settle()
    assert not one.replica.unstable_tombstones
    assert not two.replica.unstable_tombstones


def test_marks_that_come_with_a_state_are_unstable_too() -> None:
    mesh = Mesh(3)
    one, two, _ = mesh.nodes.values()
    for node, key in ((one, "s"), (two, "t")):
        node.do("XADD", key, "*", "f", "v")
        node.do("DEL", key)
    mine = two.replica.oldest_tombstone
    mesh.send_full_sync(1, 2)
    assert len(two.replica.unstable_tombstones) == 2
    assert two.replica.oldest_tombstone == mine
    mesh.settle()
    assert not two.replica.unstable_tombstones


def test_marks_may_be_kept_for_ever() -> None:
    mesh = Mesh(2)
    one, two = mesh.nodes.values()
    one.do("XADD", "s", "*", "f", "v")
    one.do("DEL", "s")
    one.do("FLUSHALL")
    two.region.keyspace.prune({}, keeps_tombstones=True)
    mesh.send(1, 2)
    everything = dict(two.vector)
    two.region.keyspace.prune(everything, keeps_tombstones=True)
    assert not two.replica.unstable_tombstones
    assert two.replica.tombstoned
    assert two.replica.flushes
    two.region.keyspace.prune(everything)
    assert not two.replica.tombstoned
    assert not two.replica.flushes
