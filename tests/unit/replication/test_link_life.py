"""Whole meshes in virtual time: what arrives, in which order, which way, and what is not sent."""

from __future__ import annotations

import itertools

from anabranch.replication.framing import FrameType, framed
from tests.support.replication_world import World


def test_effects_arrive_everywhere_as_soon_as_they_are_written() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    one.write()
    world.run(6)
    assert two.local.vector[1] == 1
    assert three.local.vector[1] == 1


def test_all_members_end_up_with_all_that_anybody_wrote() -> None:
    world = World()
    nodes = world.cluster(4)
    for turn in range(40):
        nodes[turn % 4].write(batches=1 + turn % 3, effects=2)
        world.run(7)
    world.run_until(world.converged)
    world.sync_all()
    world.run_until(world.is_settled, 5000)


def test_an_idle_mesh_sends_heartbeats_and_nothing_else() -> None:
    world = World()
    nodes = world.cluster(3)
    for node in nodes:
        node.write()
    world.run(3000)
    world.sync_all()
    world.run(3000)
    world.frames.clear()
    world.run(10_000)
    assert {name for _, _, name in world.frames} == {"ROW"}
    assert all(9 <= count <= 11 for count in world.frames.values())


def test_nothing_is_asked_for_or_sent_twice_in_a_healthy_mesh() -> None:
    world = World()
    nodes = world.cluster(3)
    world.run(1000)
    for turn in range(60):
        nodes[turn % 3].write()
        world.run(40)
    assert world.converged()
    assert not any(name in {"FETCH", "BEHIND"} for _, _, name in world.frames)
    assert all(
        figures.counters.duplicates == 0
        for node in nodes
        for figures in node.replicator.peers(world.now_ms)
    )


def test_a_cut_link_is_bridged_by_others_for_as_long_as_it_is_cut() -> None:
    world = World()
    one, two, _three = world.cluster(3)
    world.run(500)
    world.cut(1, 2)
    world.run(200)
    one.write()
    world.run(300)
    assert two.local.vector[1] == 1
    assert two.peer(1).state == "alive_via"
    assert two.peer(1).via == [3]
    assert two.peer(3).relayed_for == [1]
    assert two.local.noted("relay")
    assert one.replicator.acknowledged(1) == (2, 0)

    world.heal()
    world.run_until(lambda: two.peer(1).state == "in_sync", 15_000)
    one.write()
    world.run(50)
    assert two.peer(3).relayed_for == []
    world.frames.clear()
    for _ in range(20):
        one.write()
        world.run(20)
    assert not any(name == "FETCH" for _, _, name in world.frames)


def test_a_chain_of_regions_is_enough() -> None:
    world = World()
    nodes = world.cluster(4)
    for pair in [(1, 3), (1, 4), (2, 4)]:
        world.cut(*pair)
    world.run(500)
    for node in nodes:
        node.write(batches=3)
    world.run_until(world.converged, 5000)
    world.sync_all()
    world.run_until(world.is_settled, 5000)
    assert nodes[0].replicator.acknowledged(3) == (3, 3)


def test_a_link_that_brings_nothing_is_bridged_while_it_is_up() -> None:
    world = World()
    one, two, _ = world.cluster(3)
    world.run(500)

    def lose(source: int, target: int, frame: bytes) -> bytes | None:
        return None if (source, target, frame[4]) == (1, 2, 6) else frame

    world.on_frame = lose
    one.write()
    world.run(150)
    assert 1 not in two.local.vector
    world.run(400)
    assert two.local.vector[1] == 1


def test_an_effect_waits_for_its_cause_which_is_fetched_from_its_sender() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(1000)
    world.set_lines(1, 3, delay_ms=400)
    one.write()
    world.run(10)
    two.write()  # made with knowledge of it
    world.run(100)
    assert three.local.vector == {1: 1, 2: 1}
    assert world.frames[3, 2, "FETCH"] == 1
    assert three.peer(2).counters.relayed_bytes > 0
    world.run(1000)
    assert three.peer(1).counters.duplicates == 1


def test_a_cause_that_is_on_its_way_is_not_asked_for() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(1000)
    world.set_lines(1, 3, delay_ms=8)
    for _ in range(10):
        one.write()
        world.run(3)
        two.write()  # made with knowledge of it, and sooner there
        world.run(200)
    assert three.local.vector == {1: 10, 2: 10}
    assert world.frames[3, 2, "FETCH"] == 0
    assert three.peer(1).counters.duplicates == 0


def test_a_unit_is_applied_as_a_whole_though_the_link_breaks_within() -> None:
    world = World()
    one, two = world.cluster(2, window_bytes=2000)
    world.run(500)
    world.set_lines(1, 2, rate=10)
    one.write(batches=20, size=500)
    world.run(400)
    assert 0 < two.peer(1).held_count < 20
    assert 1 not in two.local.vector
    world.cut(1, 2)
    world.heal()
    world.run_until(world.converged)
    assert two.local.vector[1] == 20
    assert two.peer(1).counters.duplicates == 0


def test_a_slow_peer_keeps_no_more_than_its_window_under_way() -> None:
    world = World()
    one, two = world.cluster(2, window_bytes=5000)
    world.run(500)
    world.set_lines(1, 2, rate=10)
    most = 0
    for _ in range(300):
        one.write(size=400)
        world.run(10)
        most = max(most, world.network.under_way(1, 2))
    assert two.local.vector[1] < 300
    assert 4000 < most < 5000 + 500 + 32 * 100  # a batch may exceed the window, and there are rows
    assert one.peer(2).lag_bytes > 40_000
    assert one.peer(2).lag_seconds > 0.5
    assert one.peer(2).lag_effects > 50
    assert 4000 < one.peer(2).window_used_bytes <= 5500
    world.set_lines(1, 2)
    world.run_until(world.converged)


def test_a_frame_may_take_longer_than_a_link_may_be_silent() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(500)
    world.set_lines(1, 2, rate=10)
    one.write(size=120_000)
    world.run(11_000)
    assert two.local.vector.get(1, 0) == 0
    world.run(2000)
    assert two.local.vector[1] == 1
    assert not one.local.noted("unreachable")
    assert not two.local.noted("unreachable")


def test_a_slow_link_brings_what_is_relayed_once() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    world.cut(1, 3)
    world.set_lines(2, 3, rate=10)
    for _ in range(100):
        one.write(size=2000)
    world.run(40_000)
    assert two.local.vector[1] == 100
    assert three.local.vector[1] == 100
    assert three.peer(2).counters.duplicates == 0
    assert world.network.frames[2, 3, "BATCH"] == 100


def test_a_link_slower_than_rows_is_sent_heartbeats_only() -> None:
    world = World()
    one, _two = world.cluster(2)
    world.run(500)
    world.set_lines(1, 2, rate=0.1)
    most = 0
    for _ in range(300):
        one.local.sync()
        one.local.write()  # a change to tell, and nobody calls appended()
        world.run(20)
        most = max(most, world.network.under_way(1, 2))
    assert most < 32 * 120 + 300 * 70
    heartbeats = len(next(iter(one.replicator.links.sessions.values())).unechoed) - 32
    assert 3 <= heartbeats <= 6


def test_a_peer_whose_effects_wait_is_granted_no_more_than_may_be_held() -> None:
    world = World()
    one, two, three = world.cluster(3, window_bytes=4000, hold_bytes=10_000)
    world.run(500)
    world.on_frame = lambda source, target, frame: (
        None if source != 2 and target == 3 and frame[4] == 6 else frame
    )
    world.cut(1, 3)
    one.write()
    world.run(10)
    # The cause is lost on its way from everybody who could be asked.
    world.on_frame = lambda source, target, frame: (
        None if target == 3 and frame[4] == 6 and frame[5 + 4] == 1 else frame
    )
    for _ in range(100):
        two.write(size=400)
        world.run(10)
    world.run(1000)
    held = three.peer(2).held_bytes
    assert 10_000 <= held < 10_000 + 4000 + 500
    assert three.peer(2).held_oldest_ms > 1000
    world.on_frame = None
    world.heal()
    world.run_until(world.converged)
    assert three.peer(2).held_bytes == 0


def test_a_disk_in_trouble_stops_granting_and_recovers_by_itself() -> None:
    world = World()
    one, two = world.cluster(2, window_bytes=5000)
    world.run(500)
    two.local.trouble = OSError(28, "No space left on device")
    for _ in range(100):
        one.write(size=400)
        world.run(10)
    assert 1 not in two.local.vector
    assert two.peer(1).held_bytes < 6000
    assert two.replicator.facts(world.now_ms)["not_applied_because"]
    assert two.peer(1).state != "unreachable"
    two.local.trouble = None
    world.run_until(world.converged, 5000)


def test_a_region_without_memory_applies_what_is_under_way_and_asks_for_no_more() -> None:
    world = World()
    one, two, three = world.cluster(3, window_bytes=5000)
    world.run(500)
    two.local.is_full = True
    for _ in range(100):
        one.write(size=400)
        world.run(10)
    had = two.local.vector[1]
    assert 5 < had < 30
    assert three.local.vector[1] == 100
    world.cut(1, 2)  # a new link, and another region that has it all, change nothing
    world.run(10_000)
    world.heal()
    world.run(15_000)
    assert two.peer(1).state == "catching_up"
    assert two.local.vector[1] == had
    assert two.peer(1).held_bytes == 0
    assert two.replicator.facts(world.now_ms)["not_pulled_because"] == "maxmemory"
    assert two.local.noted("full") == [{}]
    two.local.is_full = False
    world.run_until(world.converged, 5000)
    assert two.local.noted("not_full") == [{}]
    assert two.replicator.facts(world.now_ms)["not_pulled_because"] == ""


def test_a_silent_link_is_given_up_and_dialled_again() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(500)
    world.cut(1, 2, silently=True)
    world.run(4000)
    assert one.peer(2).state == "in_sync"
    world.run(2000)
    assert one.peer(2).state == two.peer(1).state == "unreachable"
    assert one.local.noted("unreachable") == [
        {"region": 2, "name": "us", "why": "nothing was heard for 5 s"}
    ]
    assert not one.local.noted("refused")
    assert not two.local.noted("refused")
    one.write()
    world.heal()
    world.run_until(world.converged, 11_000)


def test_one_unreachable_member_holds_up_nobody() -> None:
    world = World()
    one, two, three = world.cluster(3)
    three.crash()
    one.write()
    world.run(500)
    assert two.local.vector[1] == 1
    assert one.replicator.caught_up


def test_dials_are_spread_and_slow_down_to_ten_seconds() -> None:
    world = World()
    one, two = world.cluster(2)
    two.crash()
    dials: list[float] = []
    real = one.wire.dial

    def dial(host: str, port: int) -> None:
        dials.append(world.now_ms)
        real(host, port)

    one.wire.dial = dial  # type: ignore[method-assign]
    world.run(120_000)
    gaps = [later - sooner for sooner, later in itertools.pairwise(dials)]
    assert gaps[0] < 500
    assert 3000 < max(gaps) <= 10_000 + 100
    assert len({round(gap) for gap in gaps}) > 5


def test_two_regions_that_dial_at_once_keep_the_link_of_the_lower_number() -> None:
    world = World()
    nodes = world.cluster(3)
    world.run(2000)
    for node in nodes:
        assert len(node.wire.ends) == 2
        for session in node.replicator.links.up():
            assert (session.dialled is not None) == (node.number < session.region)
    assert not any(node.local.noted("unreachable") for node in nodes)
    assert not any(node.local.noted("refused") for node in nodes)


def test_a_process_that_comes_back_replaces_its_half_open_link_at_once() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(1000)
    two.crash(clean=True, silently=True)
    assert one.peer(2).state == "in_sync"
    two.start()
    two.write()
    assert world.run_until(world.converged, 1500) < 1500


def test_clocks_are_compared_by_the_fastest_round_trip() -> None:
    world = World()
    world.clock_ms[2] = 1234
    one, two, three = world.cluster(3)
    world.run(20_000)
    assert abs(one.peer(2).skew_ms - 1234) <= 2
    assert abs(two.peer(1).skew_ms + 1234) <= 2
    assert 9 <= one.peer(2).round_trip_ms <= 12
    assert {facts["region"] for facts in one.local.noted("skew")} == {2}
    assert len(one.local.noted("skew")) == 1
    assert not three.local.noted("skew") or three.local.noted("skew")[0]["region"] == 2


def test_the_feature_level_is_that_of_the_member_that_understands_least() -> None:
    world = World()
    one, two, _ = world.cluster(3, feature_level=3)
    two.replicator._config.feature_level = 2
    assert one.replicator.facts(world.now_ms)["feature_level"] == 1  # nobody has told yet
    world.run(1500)
    facts = one.replicator.facts(world.now_ms)
    assert (facts["feature_level"], facts["feature_level_held_back_by"]) == (2, "2")
    two.replicator._config.feature_level = 3
    world.run(200)
    assert one.replicator.facts(world.now_ms)["feature_level"] == 3


def test_acknowledgements_tell_applied_from_durable() -> None:
    world = World()
    one, two, _three = world.cluster(3)
    world.run(500)
    one.write()
    world.run(100)
    assert one.replicator.acknowledged(1) == (2, 0)
    two.local.sync()
    world.run(100)
    assert one.replicator.acknowledged(1) == (2, 1)
    assert one.replicator.acknowledged(2) == (0, 0)


def test_frames_of_an_unknown_type_are_counted_and_skipped() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(500)
    link = next(iter(two.wire.ends))
    two.wire.send(link, framed(200, b"from later times"))  # type: ignore[arg-type]
    world.run(100)
    assert one.replicator.facts(world.now_ms)["unknown_frames"] == 1
    assert one.peer(2).state == "in_sync"


def test_numbers_beyond_32_bits_are_numbers_like_others() -> None:
    world = World()
    one, two = world.cluster(2)
    start = (1 << 53) - 3
    for node in (one, two):
        node.local.vector[1] = node.local.cut[1] = start
        node.local.sync()
    one.start()
    two.start()
    for _ in range(6):
        one.write()
    world.run(500)
    assert two.local.vector[1] == start + 6


def test_nobody_is_asked_for_what_he_lacks_himself() -> None:
    world = World()
    one, two, three = world.cluster(3)
    world.run(500)
    world.on_frame = lambda source, _target, frame: (
        None if source == 1 and frame[4] == FrameType.BATCH else frame
    )
    one.write()
    world.run(5000)
    assert two.local.vector.get(1, 0) == three.local.vector.get(1, 0) == 0
    rows = two.replicator.links.rows.rows
    assert (rows[1].applied[1], rows[3].applied.get(1, 0)) == (1, 0)
    assert world.frames[2, 3, "FETCH"] == world.frames[3, 2, "FETCH"] == 0


def test_links_that_end_soon_are_dialled_later_each_time() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(20_000)

    def are_linked() -> bool:
        return all(node.replicator.facts(world.now_ms)["peers_connected"] for node in (one, two))

    waits = []
    for _ in range(12):
        world.network.end_links(1, 2)
        waits.append(world.run_until(are_linked))
    assert waits[0] < 400
    assert max(waits) > 1000
    world.run(10_000)
    world.network.end_links(1, 2)
    assert world.run_until(are_linked) < 400, "a link that was up for long begins anew"


def test_a_region_counts_its_links() -> None:
    world = World()
    nodes = world.cluster(3)
    world.run(500)
    assert [node.replicator.facts(world.now_ms)["peers_connected"] for node in nodes] == [2, 2, 2]
    world.cut(1, 2)
    world.run(500)
    assert [node.replicator.facts(world.now_ms)["peers_connected"] for node in nodes] == [1, 1, 2]


def test_of_two_dials_at_the_same_time_one_link_stays() -> None:
    world = World()
    nodes = world.cluster(2)
    world.run(3000)
    dialled = [each.dialled is not None for node in nodes for each in node.replicator.links.up()]
    assert sorted(dialled) == [False, True], "one link, which one of them has dialled"
    for node in nodes:
        assert len(node.local.noted("reachable")) == 1
        assert node.local.noted("unreachable") == []
    assert world.frames[1, 2, "HELLO"] == world.frames[2, 1, "HELLO"] == 1, "both have dialled"
