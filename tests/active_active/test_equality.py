"""Regions prove that they hold the same, find out when they do not, and mend it."""

from __future__ import annotations

import random
from collections.abc import Callable

import hiredis
import pytest

from anabranch.keyspace.deferred_free import DeferredFree
from anabranch.replication.digest_exchange import ALARMS_MAX
from anabranch.simulator.machine import DIGEST_INTERVAL_MS
from tests.support.simulated_cluster import SimulatedCluster


def filled(count: int = 2, **settings: object) -> SimulatedCluster:
    """A cluster with a few keys that all regions have."""
    cluster = SimulatedCluster(count, **settings)  # type: ignore[arg-type]
    for number in cluster.machines:
        for index in range(20):
            cluster.do(number, "XADD", f"k{index}", "*", "from", number)
    cluster.run_until(cluster.have_converged)
    return cluster


def digests(cluster: SimulatedCluster, key: str) -> list[bytes]:
    return [cluster.do(number, "AB.DIGEST", key)[0] for number in cluster.machines]


def verified(cluster: SimulatedCluster, number: int, other: int) -> dict[str, object]:
    reply = cluster.do(number, "AB.VERIFY", other)
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


def test_regions_that_hold_the_same_find_that_out_by_themselves() -> None:
    cluster = filled(3)
    cluster.run(2 * DIGEST_INTERVAL_MS)
    assert cluster.alarms == []
    for number in cluster.machines:
        for peer in cluster.peers(number):
            assert (peer.differing_keys, peer.in_flight_keys) == (0, 0)
            assert peer.compared_ms is not None
            assert peer.compared_ms <= DIGEST_INTERVAL_MS + 100


def test_a_difference_is_told_by_both_sides_within_two_intervals() -> None:
    cluster = filled()
    cluster.run(1234)
    cluster.lose_entry(2, b"k7")
    ours, theirs = digests(cluster, "k7")
    cluster.run(2 * DIGEST_INTERVAL_MS)
    told = dict(cluster.alarms)
    common = {"db": 0, "key": "k7"}
    assert told == {
        1: {
            "region": 2, "name": "r2", **common,
            "ours": ours.decode(), "theirs": theirs.decode(),
        },
        2: {
            "region": 1, "name": "r1", **common,
            "ours": theirs.decode(), "theirs": ours.decode(),
        },
    }  # fmt: skip
    assert [peer.differing_keys for peer in cluster.peers(1)] == [1]
    facts = cluster.process(1).replicator.facts(cluster.timeline.now_ms)
    assert facts["differing_keys"] == 1
    assert facts["divergences"] in (1, 2)


def test_a_key_that_is_missing_on_one_side_is_told_as_well() -> None:
    cluster = filled()
    database = cluster.process(2).region.keyspace.databases[0]
    database.discard(b"k3")
    cluster.process(2).replica.last_effects.mark_changed((0, b"k3"))
    cluster.run(2 * DIGEST_INTERVAL_MS)
    assert {(number, facts["key"]) for number, facts in cluster.alarms} == {(1, "k3"), (2, "k3")}
    assert cluster.do(1, "AB.VERIFY", "r2", "k3", "k4") == [b"differs", b"equal"]
    assert cluster.do(2, "AB.VERIFY", "r1", "k3", "k4") == [b"differs", b"equal"]


def test_what_differs_is_found_while_others_write_all_the_time() -> None:
    cluster = filled()
    busy = True

    def write(number: int) -> None:
        if busy:
            cluster.write(number, b"XADD", b"hot%d" % number, b"*", b"f", b"v")
            cluster.timeline.after(4, lambda: write(number))  # a frame takes 5 ms

    write(1)
    write(2)
    cluster.lose_entry(2, b"k7")
    cluster.run(2 * DIGEST_INTERVAL_MS)
    assert {facts["key"] for _, facts in cluster.alarms} == {"k7"}
    assert {number for number, _ in cluster.alarms} == {1, 2}
    assert not cluster.have_converged()
    assert cluster.do(1, "AB.VERIFY", 2, "k7", "k8") == [b"differs", b"equal"]
    assert cluster.do(1, "AB.VERIFY", 2, "hot1") == [b"in-flight"]
    found = verified(cluster, 1, 2)
    assert found["differs"] == 1
    assert found["in-flight"] in (1, 2)
    busy = False


def test_verify_counts_when_no_key_is_named() -> None:
    cluster = filled()
    assert verified(cluster, 1, 2) == {"equal": 20, "differs": 0, "in-flight": 0, "keys": []}
    cluster.lose_entry(2, b"k7")
    assert verified(cluster, 1, 2) == {
        "equal": 19, "differs": 1, "in-flight": 0, "keys": [[0, b"k7", b"differs"]],
    }  # fmt: skip


def test_verify_needs_a_region_that_can_be_reached() -> None:
    cluster = filled()
    with pytest.raises(hiredis.ReplyError, match="name another one"):
        cluster.do(1, "AB.VERIFY", 1)
    cluster.cut(1, 2, silently=True)
    cluster.run_until(lambda: cluster.peers(1)[0].state == "unreachable")
    with pytest.raises(hiredis.ReplyError, match="unreachable"):
        cluster.do(1, "AB.VERIFY", 2)


def test_who_waits_is_told_when_the_link_goes_down() -> None:
    cluster = filled()
    process = cluster.process(1)
    inquiry = process.replicator.verify(2, [], cluster.timeline.now_ms)
    mending = process.replicator.repair(2, (0, b"k1"), cluster.timeline.now_ms)
    cluster.cut(1, 2, silently=True)
    cluster.run_until(lambda: inquiry.is_done and mending.is_done)
    assert inquiry.problem == mending.problem == "TRYAGAIN the connection was lost"


@pytest.mark.parametrize("number", [1, 2])
def test_repair_takes_over_the_version_of_the_other_side(number: int) -> None:
    cluster = filled(3)
    cluster.do(number, "XGROUP", "CREATE", "k7", "g", "0")
    cluster.do(number, "XREADGROUP", "GROUP", "g", "me", "COUNT", 2, "STREAMS", "k7", ">")
    cluster.run_until(cluster.have_converged)
    pending = cluster.do(number, "XPENDING", "k7", "g")
    cluster.lose_entry(number, b"k7")
    other = 3 - number
    assert cluster.do(number, "AB.REGION", "REPAIR", "k7", "FROM", other) == b"OK"
    assert len(set(digests(cluster, "k7"))) == 1
    assert cluster.do(number, "XLEN", "k7") == 3
    assert cluster.do(number, "XPENDING", "k7", "g") == pending
    assert cluster.do(number, "AB.VERIFY", other, "k7") == [b"equal"]
    # It goes on as if nothing had been.
    for each in cluster.machines:
        cluster.do(each, "XADD", "k7", "*", "after", each)
    cluster.run_until(cluster.have_converged)
    assert len(set(digests(cluster, "k7"))) == 1
    cluster.alarms.clear()
    cluster.run(3 * DIGEST_INTERVAL_MS)
    assert cluster.alarms == []
    cluster.stream(number, b"k7").check()


def test_a_repair_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = filled()
    cluster.lose_entry(1, b"k7")
    told: list[dict[str, object]] = []
    local = cluster.process(1).replicator.links.local
    monkeypatch.setattr(
        local, "report_event", lambda event, **facts: told.append({"event": event, **facts})
    )
    cluster.do(1, "AB.REGION", "REPAIR", "k7", "FROM", 2)
    assert {"event": "repaired", "region": 2, "name": "r2", "db": 0, "key": "k7"} in told


def test_not_every_key_is_told_when_very_many_differ() -> None:
    cluster = filled()
    for index in range(20):
        cluster.lose_entry(2, b"k%d" % index)
    assert verified(cluster, 1, 2)["differs"] == 20
    assert [number for number, _ in cluster.alarms].count(1) == ALARMS_MAX < 20


def test_a_repair_outlives_a_restart() -> None:
    cluster = filled()
    cluster.lose_entry(2, b"k7")
    wrong = cluster.do(2, "AB.DIGEST", "k7")
    # The log still tells of what was lost; a snapshot does not.
    node = cluster.machines[2]
    cluster.process(2).begin_snapshot()
    cluster.run_until(lambda: cluster.record.reached["snapshot taken"])
    cluster.do(2, "AB.REGION", "REPAIR", "k7", "FROM", 1)
    node.stop()
    node.start()
    cluster.run_until(lambda: cluster.peers(2)[0].state == "in_sync")
    assert cluster.do(2, "AB.DIGEST", "k7") == cluster.do(1, "AB.DIGEST", "k7") != wrong


def damaged(change: Callable[[SimulatedCluster], None]) -> SimulatedCluster:
    cluster = filled()
    change(cluster)
    cluster.process(2).replica.last_effects.mark_changed((0, b"k7"))
    assert cluster.do(2, "AB.VERIFY", 1, "k7") == [b"differs"]
    cluster.do(2, "AB.REGION", "REPAIR", "k7", "FROM", 1)
    assert len(set(digests(cluster, "k7"))) == 1
    return cluster


def test_repair_mends_contents_groups_deadlines_and_counters() -> None:
    def other_bytes(cluster: SimulatedCluster) -> None:
        log = cluster.stream(2, b"k7").log_of(1)
        assert log.tail is not None
        assert log.tail.parts is not None
        log.tail.parts[0] = log.tail.parts[0].replace(b"from", b"FROM")

    def no_group(cluster: SimulatedCluster) -> None:
        cluster.do(1, "XGROUP", "CREATE", "k7", "g", "0")
        cluster.run_until(cluster.have_converged)
        cluster.stream(2, b"k7").groups.clear()

    def a_deadline(cluster: SimulatedCluster) -> None:
        stream = cluster.stream(2, b"k7")
        assert stream.shared is not None
        stream.shared.deadlines = {(2, 1): 9_000_000_000_000}
        cluster.process(2).region.keyspace.databases[0].deadlines[b"k7"] = 9_000_000_000_000

    def a_counter(cluster: SimulatedCluster) -> None:
        log = cluster.stream(2, b"k7").log_of(1)
        log.record_newest(log.newest_number, log.newest_id + (5 << 64))
        cluster.stream(2, b"k7").recount()

    for change in (other_bytes, no_group, a_deadline, a_counter):
        damaged(change).stream(2, b"k7").check()


def test_repair_takes_a_group_apart_that_the_other_side_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its pending entries and their consumers refer to each other: nobody else frees them."""
    cluster = filled()
    cluster.do(2, "XGROUP", "CREATE", "k7", "g", "0")
    cluster.do(2, "XREADGROUP", "GROUP", "g", "me", "STREAMS", "k7", ">")
    cluster.run_until(cluster.have_converged)
    group = cluster.stream(2, b"k7").groups[b"g"]
    cluster.stream(1, b"k7").groups.clear()
    cluster.process(1).replica.last_effects.mark_changed((0, b"k7"))
    freed: list[object] = []
    monkeypatch.setattr(DeferredFree, "defer", lambda _self, thing: freed.append(thing))
    assert cluster.do(2, "AB.REGION", "REPAIR", "k7", "FROM", 1) == b"OK"
    assert not cluster.stream(2, b"k7").groups
    assert any(thing is group for thing in freed)


def test_repair_brings_back_a_key_and_takes_one_away() -> None:
    cluster = filled()
    database = cluster.process(2).region.keyspace.databases[0]
    database.discard(b"k7")
    cluster.process(2).replica.last_effects.mark_changed((0, b"k7"))
    cluster.do(2, "AB.REGION", "REPAIR", "k7", "FROM", 1)
    assert cluster.do(2, "EXISTS", "k7") == 1
    cluster.process(1).region.keyspace.databases[0].discard(b"k8")
    cluster.process(1).replica.last_effects.mark_changed((0, b"k8"))
    cluster.do(2, "AB.REGION", "REPAIR", "k8", "FROM", 1)
    assert cluster.do(2, "EXISTS", "k8") == 0
    assert cluster.do(2, "AB.VERIFY", 1, "k7", "k8") == [b"equal", b"equal"]


def test_repair_of_a_key_that_is_being_written_waits_and_loses_nothing() -> None:
    cluster = filled()
    chance = random.Random(5)
    left = 300

    def write(number: int) -> None:
        nonlocal left
        if left:
            left -= 1
            cluster.write(number, b"XADD", b"k7", b"*", b"f", b"v")
            cluster.timeline.after(chance.uniform(1, 30), lambda: write(number))

    cluster.lose_entry(2, b"k7")
    write(1)
    write(2)
    assert cluster.do(2, "AB.REGION", "REPAIR", "k7", "FROM", 1) == b"OK"
    cluster.run_until(lambda: not left and cluster.have_converged())
    assert len(set(digests(cluster, "k7"))) == 1
    assert cluster.do(2, "XLEN", "k7") == 302


def test_repair_gives_up_on_a_key_that_never_rests() -> None:
    cluster = filled()
    busy = True

    def write() -> None:
        if busy:
            cluster.write(2, b"XADD", b"k7", b"*", b"f", b"v")
            cluster.timeline.after(4, write)  # a frame takes 5 ms

    write()
    with pytest.raises(hiredis.ReplyError, match="TRYAGAIN the key is written all the time"):
        cluster.do(2, "AB.REGION", "REPAIR", "k7", "FROM", 1)
    busy = False
    cluster.run_until(cluster.have_converged)
    assert cluster.do(2, "AB.VERIFY", 1, "k7") == [b"equal"]
