"""What a process does beside its exchange with other regions: what it refuses, keeps and reports.

The regions are those of a mesh: their processes have everything but links.
"""

from __future__ import annotations

import io

import pytest

from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.node.identity import set_back_noted
from anabranch.oplog.snapshot import load_snapshot
from tests.support.mesh import Mesh, Node


def write(node: Node, count: int, size: int = 10) -> None:
    for _ in range(count):
        node.do("XADD", "s", "*", "f", "v" * size)


def test_writes_are_refused_as_long_as_a_full_sync_is_under_way() -> None:
    mesh = Mesh(2, serve_while_joining=False)
    one, two = mesh.nodes.values()
    write(two, 3)
    mesh.begin_full_sync(2, 1)
    for _ in range(2):
        one.exchange.gate.update(one.replicator)
        (refusal,) = one.ask(("XADD", "t", "*", "f", "v"))
        assert str(refusal).startswith("READONLY This region is getting the whole state")
        assert one.do("XLEN", "t") == 0
    mesh.abandon(1)
    for _ in range(2):
        one.exchange.gate.update(one.replicator)
        one.do("XADD", "t", "*", "f", "v")


def test_a_smaller_cache_of_batches_is_smaller_at_once() -> None:
    one = Mesh(2).nodes[1]
    write(one, 50, 100)
    held = one.region.holdings.measured["recent"]
    assert held() > 5000
    one.do("CONFIG", "SET", "region-cache-bytes", 1000)
    one.exchange.settings_changed()
    assert held() < 3000


def test_times_of_a_log_go_with_its_files() -> None:
    one = Mesh(2, oplog_max_age=600).nodes[1]
    ages = one.local._log_index.ages
    for _ in range(60):
        one.clock.us += 60_000_000
        write(one, 1, 300)
        one.sync()
    known = len(ages._times)
    assert known == 60
    one.snapshot()
    assert one.log.segments[0].first > 0
    one.log.needed_from()
    assert len(ages._times) < known / 2
    assert ages._positions[0] >= one.log.segments[0].first


def test_the_time_of_the_last_save_is_that_of_lastsave() -> None:
    one = Mesh(2).nodes[1]
    one.clock.us = 1_700_000_123_456_789
    one.snapshot()
    assert one.do("LASTSAVE") == 1_700_000_123
    assert b"\r\nrdb_last_save_time:1700000123\r\n" in one.do("INFO", "persistence")


def test_too_many_held_tags_are_reported() -> None:
    one = Mesh(2, max_held_tags=10).nodes[1]
    host = one.host
    for number in range(8):
        one.do("XADD", "s", "IDMP", "p", number, "*", "f", "v")
    one.exchange._stability.observe(one.replicator, 1000.0)
    assert not [event for _, event, _ in host.logs if event == "region.many_held_tags"]
    one.do("XADD", "s", "IDMP", "p", "last", "*", "f", "v")
    one.exchange._stability.observe(one.replicator, 1000.0)
    told = [facts for _, event, facts in host.logs if event == "region.many_held_tags"]
    assert told == [{"tags": 9, "most": 10}]


def test_a_process_that_ends_has_closed_its_log() -> None:
    one = Mesh(2).nodes[1]
    write(one, 1)
    (file,) = one.log._open_files()
    one.persistence.close()
    assert file.closed
    assert one.durability.log is None
    one.region.execute(one.session, [[b"XADD", b"s", b"*", b"f", b"v"]])  # nobody records it


@pytest.fixture
def apart() -> tuple[Node, Keyspace]:
    """A region, and what another one has, loaded."""
    one, two = Mesh(2).nodes.values()
    for number in range(40):
        two.do("XADD", f"k{number}", "*", "f", "v")
    theirs = Keyspace(16, Replica(one.replica.own, lambda: (100, 100)))
    for _ in load_snapshot(io.BytesIO(two.whole_snapshot()), "state", theirs):
        pass
    return one, theirs


def test_who_waits_for_the_end_of_a_long_join_is_told_once(apart: tuple[Node, Keyspace]) -> None:
    one, theirs = apart
    merging, scheduler = one.region.merging, one.region.scheduler
    scheduler.drive(lambda: None)  # every slice is over after one step
    ends: list[int] = []
    merging.join(theirs, "state", on_end=lambda: ends.append(len(one.do("KEYS", "*"))))
    assert merging.is_joining
    assert ends == []
    while merging.is_joining:
        scheduler.run_turn()
    assert ends == [40]


def test_who_waits_for_the_end_of_a_short_join_has_not_to_be_told(
    apart: tuple[Node, Keyspace],
) -> None:
    one, theirs = apart
    ends: list[int] = []
    one.region.merging.join(theirs, "state", on_end=lambda: ends.append(1))
    assert not one.region.merging.is_joining
    assert ends == []
    assert len(one.do("KEYS", "*")) == 40


def test_a_removed_region_knows_that_after_a_restart() -> None:
    one = Mesh(2).nodes[1]
    assert not one.replicator.links.is_expelled
    one.local.notes.note_removed("region 1 was removed")
    one.restart()
    assert one.replicator.links.is_expelled
    one.restart()
    assert one.replicator.links.is_expelled, "once and for all"


def test_effects_that_nobody_has_confirmed_are_in_a_salvage_from_the_first_on() -> None:
    one = Mesh(2).nodes[1]
    write(one, 3)
    one.restart()
    assert one.replica.watermark.get(one.replica_id, 0) == 0
    one.local.notes.note_set_back("others know more")
    noted = set_back_noted(one.storage)
    assert noted == ("others know more", {one.replica_id: 0})
