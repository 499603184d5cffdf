"""A group with a home: one region at a time delivers it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import hiredis
import pytest

from anabranch.commands.extensions import renewing
from anabranch.effects import apply_homes, kinds
from anabranch.effects.acknowledging import GroupPlace
from anabranch.keyspace import policies as policies_module
from anabranch.region.leases import Leasing
from anabranch.scheduling import SLICE_NS
from anabranch.simulator.exploration.search import Search
from anabranch.simulator.exploration.worlds import world_named
from anabranch.stream import entry_id
from anabranch.stream.groups.home import HomeEpoch
from anabranch.stream.stream import Stream
from tests.active_active.home_histories import HomeHistory
from tests.active_active.policy_mistakes import (
    nobody_compares,
    nothing_pending_is_handed_over,
)
from tests.support.mesh import Mesh, Node

Patch = pytest.MonkeyPatch

SEEDS = range(1, 31)

WORLDS = (
    "homes", "homes-taken", "homes-and-power", "homes-and-full-syncs"
)  # fmt: skip

REACHED = {
    "HOMED": 200, "delivered": 300, "acknowledged": 100, "MOVE": 8, "TAKE": 5, "FORCE": 8,
    "delivered twice": 10, "ended": 80,
}  # fmt: skip
"""What these histories must come to, and how often."""


def test_histories() -> None:
    reached: Counter[str] = Counter()
    for seed in SEEDS:
        history = HomeHistory(seed, forces=min(seed % 3, 1))
        history.run()
        reached += history.reached
    assert {name for name, least in REACHED.items() if reached[name] < least} == set()


def test_histories_with_hand_overs_in_many_pieces(monkeypatch: Patch) -> None:
    one_piece_at_a_time(monkeypatch)
    reached: Counter[str] = Counter()
    for seed in SEEDS[:12]:
        history = HomeHistory(seed, forces=0, full_syncs=True)
        history.run()
        reached += history.reached
    assert min(reached[each] for each in ("MOVE", "full sync", "ended")) > 5


def one_piece_at_a_time(patch: Patch) -> None:
    """Each pending entry is handed over in a turn of its own."""

    def hand_over_one(self: Leasing) -> bool:
        hand_over(self)
        return False

    hand_over = Leasing._hand_over_pieces
    patch.setattr(Leasing, "_hand_over_pieces", hand_over_one)
    patch.setattr(apply_homes, "HANDED_ENTRIES", 1)


@pytest.mark.parametrize("name", WORLDS)
def test_all_holds_in_every_order(name: str) -> None:
    explored = Search(world_named(name)).run()
    assert explored.problem is None
    assert explored.is_complete


# -- mistakes that must be found --------------------------------------------------------------


def _fails(seed: int) -> bool:
    try:
        HomeHistory(seed).run()
    except Exception:
        return True
    return False


@pytest.mark.parametrize("build_in", [nothing_pending_is_handed_over, nobody_compares])
def test_histories_find_mistakes(build_in: Callable[[Patch], None], monkeypatch: Patch) -> None:
    build_in(monkeypatch)
    assert any(map(_fails, SEEDS))


# -- what clients see -------------------------------------------------------------------------


def begun(count: int = 4) -> tuple[Mesh, Node, Node]:
    mesh = Mesh(2)
    _begin(mesh, count)
    eu, us = mesh.nodes.values()
    return mesh, eu, us


def _begin(mesh: Mesh, count: int) -> None:
    """Make a group whose home is the first region, with some entries."""
    mesh.settle()
    for node in mesh.nodes.values():
        node.host.regions = node.exchange
    eu = mesh.nodes[1]
    eu.do("AB.POLICY", "SET", "s", "GROUP", "g", "home-region", "r1")
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for number in range(1, count + 1):
        eu.do("XADD", "other", "*", "f", "v")
        eu.do("XADD", "s", f"{number}-*", "f", "v")
    mesh.settle()


def read(node: Node, *words: object) -> list[bytes]:
    reply = node.do("XREADGROUP", "GROUP", "g", "c", *words, "STREAMS", "s", ">")
    return [entry_id for entry_id, _ in reply[0][1]] if reply else []


def settle(mesh: Mesh) -> None:
    for _ in range(3):
        mesh.settle()
        for node in mesh.nodes.values():
            node.tick()
    mesh.settle()


def shown(node: Node) -> dict[str, Any]:
    reply = node.do("AB.HOME", "SHOW", "s", "GROUP", "g")
    return {name.decode(): value for name, value in zip(reply[::2], reply[1::2], strict=True)}


@pytest.mark.parametrize(
    "command",
    [
        "XREADGROUP GROUP g c STREAMS s >",
        "XREADGROUP GROUP g c STREAMS s 0",
        "XREADGROUP GROUP g c CLAIM 0 STREAMS s >",
        "XCLAIM s g c 0 1-1",
        "XAUTOCLAIM s g c 0 -",
        "XNACK s g FAIL IDS 1 1-1",
        "AB.RENEW s g c 1s",
    ],
)
def test_other_regions_name_the_home(command: str) -> None:
    _mesh, _eu, us = begun()
    with pytest.raises(hiredis.ReplyError, match=r"^HOMED r1 .* delivered in that region only"):
        us.do(*command.split())


def test_a_move_takes_what_is_pending_along() -> None:
    mesh, eu, us = begun()
    assert read(eu, "COUNT", 2) == [b"1-1", b"2-1"]
    eu.do("XACK", "s", "g", "2-1")
    assert eu.do("AB.HOME", "MOVE", "s", "GROUP", "g", "r2") == b"OK"
    with pytest.raises(hiredis.ReplyError, match=r"HOMED r1 .* being handed over"):
        read(eu)
    with pytest.raises(hiredis.ReplyError, match="HOMED"):
        read(us)
    settle(mesh)
    assert shown(us)["state"] == b"here"
    (row,) = us.do("XPENDING", "s", "g", "-", "+", 9)
    assert (row[0], row[1], row[3]) == (b"1-1", b"c", 1)
    assert read(us) == [b"3-1", b"4-1"]
    assert eu.do("XACK", "s", "g", "1-1") == 1  # a worker that did not notice
    settle(mesh)
    assert us.do("XPENDING", "s", "g")[0] == 2
    assert us.do("AB.HOME", "MOVE", "s", "GROUP", "g", 1) == b"OK"
    settle(mesh)
    assert [row[0] for row in eu.do("XPENDING", "s", "g", "-", "+", 9)] == [b"3-1", b"4-1"]
    assert read(eu) == []
    assert shown(eu)["epoch"] == shown(us)["epoch"] == 2


def test_a_renewal_in_slices_ends_when_the_group_is_handed_over(monkeypatch: Patch) -> None:
    monkeypatch.setattr(renewing, "_AT_ONCE", 1)
    _mesh, eu, _us = begun()
    read(eu, "COUNT", 4)
    region = eu.region
    region.scheduler.drive(lambda: None)
    eu.clock.tick_ns = SLICE_NS
    session = region.open_session("127.0.0.1:50000", "127.0.0.1:6379")
    region.execute(session, [b"AB.RENEW s g c 1h".split()])
    assert session.sliced is not None
    assert eu.do("AB.HOME", "MOVE", "s", "GROUP", "g", "r2") == b"OK"
    region.scheduler.run_turn()
    assert b"".join(session.outbox).startswith(b"-HOMED r1 ")


def given_up() -> tuple[Mesh, Node, Node]:
    """The home has given up its only entry."""
    mesh, eu, us = begun(1)
    eu.do("AB.POLICY", "SET", "s", "dead-letter", "dead", "redeliver", "first")
    read(eu)
    eu.do("XNACK", "s", "g", "FATAL", "IDS", 1, "1-1")
    settle(mesh)
    assert us.do("XLEN", "dead") == 1
    return mesh, eu, us


def test_dead_letters_are_given_back_in_the_home_only() -> None:
    """Elsewhere nobody would be given the entry."""
    mesh, eu, us = given_up()
    done, (skipped,), left = us.do("AB.REDRIVE", "dead")[1::2]
    assert (done, left) == (0, 1)
    assert skipped[1].startswith(b"ask in the home of the group: HOMED r1 ")
    assert eu.do("AB.REDRIVE", "dead")[1] == 1
    settle(mesh)
    assert read(eu) == [b"1-1"]


@pytest.mark.parametrize("again", ["AB.REDRIVE dead", "XGROUP SETID s g 0"])
def test_a_move_takes_along_what_became_pending_again(again: str) -> None:
    """It was acknowledged before, and every region knows that."""
    mesh, eu, us = given_up()
    eu.do(*again.split())
    assert read(eu) == [b"1-1"]
    settle(mesh)
    eu.do("AB.HOME", "MOVE", "s", "GROUP", "g", "r2")
    settle(mesh)
    assert us.do("XPENDING", "s", "g")[0] == 1
    assert us.do("XACK", "s", "g", "1-1") == 1
    settle(mesh)
    assert eu.do("XPENDING", "s", "g")[0] == 0
    us.do("AB.HOME", "MOVE", "s", "GROUP", "g", "r1")
    settle(mesh)
    assert read(eu) == []


def test_a_forced_take_gets_what_the_former_home_has_given_back() -> None:
    """It delivers the entry itself, and hears later that it was acknowledged, and given back."""
    mesh, eu, us = begun(1)
    eu.do("AB.POLICY", "SET", "s", "dead-letter", "dead", "redeliver", "first")
    mesh.settle()
    read(eu)
    eu.do("XNACK", "s", "g", "FATAL", "IDS", 1, "1-1")
    eu.do("AB.REDRIVE", "dead")
    us.do("AB.HOME", "TAKE", "s", "GROUP", "g", "FORCE")
    assert read(us) == [b"1-1"]
    us.do("XNACK", "s", "g", "FAIL", "IDS", 1, "1-1")
    settle(mesh)
    assert read(us) == [b"1-1"]


def test_a_hand_over_in_pieces_goes_on_over_restarts_and_full_syncs(monkeypatch: Patch) -> None:
    one_piece_at_a_time(monkeypatch)
    mesh, eu, us = begun(6)
    assert len(read(eu, "COUNT", 4)) == 4
    eu.do("AB.HOME", "MOVE", "s", "GROUP", "g", "r2")
    tick_until(eu, 1)
    mesh.settle()
    assert eu.do("XACK", "s", "g", "1-1", "4-1") == 2
    with pytest.raises(hiredis.ReplyError, match="HOMED"):
        read(us)
    eu.restart()  # it begins anew
    eu.host.regions = eu.exchange
    eu.issued.clear()
    tick_until(eu, 2)
    mesh.send_full_sync(1, 2)  # in place of these pieces
    assert shown(eu)["state"] == b"hands over"
    tick_until(eu, 3)
    assert shown(eu)["state"] == b"other region"
    mesh.settle()
    assert shown(us)["state"] == b"waits for a hand-over"
    for _ in range(8):
        settle(mesh)
    assert shown(us)["state"] == b"here"
    assert [row[0] for row in us.do("XPENDING", "s", "g", "-", "+", 9)] == [b"2-1", b"3-1"]
    assert read(us) == [b"5-1", b"6-1"]


def tick_until(node: Node, pieces: int) -> None:
    """Let time pass until a region has handed over so many pieces."""
    for _ in range(20):
        if sum(isinstance(effect, kinds.HandOver) for effect in node.issued) == pieces:
            return
        node.sync()
        node.tick()
    raise AssertionError("it does not hand over")


def test_a_hand_over_tells_what_the_home_itself_has_delivered() -> None:
    mesh, eu, us = begun()
    assert read(eu, "COUNT", 2) == [b"1-1", b"2-1"]
    assert eu.do("AB.HOME", "MOVE", "s", "GROUP", "g", "r2") == b"OK"
    settle(mesh)
    assert read(us, "COUNT", 1) == [b"3-1"]
    stream = us.region.keyspace.databases[0].values[b"s"]
    assert isinstance(stream, Stream)
    place = GroupPlace(0, b"s", b"g", stream, stream.groups[b"g"])
    (effect,) = apply_homes.hand_over_of(place, HomeEpoch(2, 1))
    assert [entry_id.text(row[0]) for row in effect.rows] == [b"3-1", b"1-1", b"2-1"]
    assert effect.fresh == 1


def test_a_forced_take_reports_what_was_delivered_twice() -> None:
    mesh, eu, us = begun(6)
    assert read(eu, "COUNT", 2) == [b"1-1", b"2-1"]
    assert us.do("AB.HOME", "TAKE", "s", "GROUP", "g", "FORCE") == b"OK"
    assert read(us, "COUNT", 3) == [b"1-1", b"2-1", b"3-1"]
    assert read(eu, "COUNT", 2) == [b"3-1", b"4-1"]
    assert eu.do("XACK", "s", "g", "3-1") == 1
    assert us.do("XACK", "s", "g", "1-1") == 1
    assert shown(us)["waiting-for"] == [b"r1"]
    with pytest.raises(hiredis.ReplyError, match=r"have not heard of it yet \(r1\)"):
        us.do("AB.HOME", "MOVE", "s", "GROUP", "g", 1)
    settle(mesh)
    found = shown(us)
    assert (found["waiting-for"], found["taken"]) == ([], 1)
    assert found["delivered-twice"] == [b"1-1", b"2-1", b"3-1"]
    assert [row[0] for row in us.do("XPENDING", "s", "g", "-", "+", 9)] == [b"2-1", b"4-1"]
    assert read(us) == [b"5-1", b"6-1"]
    with pytest.raises(hiredis.ReplyError, match="HOMED r2"):
        read(eu)


def test_a_take_waits_for_the_home() -> None:
    mesh, eu, us = begun()
    read(eu, "COUNT", 1)
    words = [b"AB.HOME", b"TAKE", b"s", b"GROUP", b"g"]
    us.region.execute(us.session, [words])
    us.end_turn()
    assert not us.session.outbox
    settle(mesh)
    assert b"".join(us.session.outbox) == b"+OK\r\n"
    us.session.outbox.clear()
    assert read(us) == [b"2-1", b"3-1", b"4-1"]


def three_with_a_home() -> Mesh:
    """Three regions that can ask one another, and a group whose home is the first one."""
    mesh = Mesh(3)
    mesh.settle()
    for node in mesh.nodes.values():
        node.host.regions = node.exchange
    eu = mesh.nodes[1]
    eu.do("AB.POLICY", "SET", "s", "GROUP", "g", "home-region", "1")
    eu.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    return mesh


def test_two_regions_may_ask_at_the_same_time() -> None:
    """One lacks the hand-over that a full sync has swallowed, another one wants to be the home."""
    mesh = three_with_a_home()
    eu, us, ap = mesh.nodes.values()
    eu.do("XADD", "s", "1-*", "f", "v")
    mesh.settle()
    eu.do("AB.HOME", "MOVE", "s", "GROUP", "g", "2")
    eu.sync()
    eu.tick()
    mesh.send_full_sync(1, 2)
    us.tick()  # it asks
    mesh.send(1, 3)
    waits = ap.region.open_session("127.0.0.1:50001", "127.0.0.1:6379")
    ap.region.execute(waits, [[b"AB.HOME", b"TAKE", b"s", b"GROUP", b"g"]])
    ap.end_turn()
    for region in (2, 3):
        mesh.send(region, 1)
    settle(mesh)
    assert b"".join(waits.outbox) == b"+OK\r\n"
    assert read(ap) == [b"1-1"]


def test_who_is_asked_while_it_waits_for_a_hand_over_answers_afterwards(
    monkeypatch: Patch,
) -> None:
    one_piece_at_a_time(monkeypatch)
    mesh = three_with_a_home()
    eu, us, ap = mesh.nodes.values()
    for number in range(1, 5):
        eu.do("XADD", "s", f"{number}-*", "f", "v")
    mesh.settle()
    assert len(read(eu, "COUNT", 3)) == 3
    eu.do("AB.HOME", "MOVE", "s", "GROUP", "g", "2")
    tick_until(eu, 1)
    mesh.settle()
    assert shown(us)["state"] == b"waits for a hand-over"
    waits = ap.region.open_session("127.0.0.1:50001", "127.0.0.1:6379")
    ap.region.execute(waits, [[b"AB.HOME", b"TAKE", b"s", b"GROUP", b"g"]])
    ap.end_turn()
    mesh.settle()
    us.tick()
    assert shown(us)["state"] == b"waits for a hand-over"
    for _ in range(12):
        settle(mesh)
    assert b"".join(waits.outbox) == b"+OK\r\n"
    assert [shown(node)["state"] for node in (eu, us)] == [b"other region"] * 2
    assert [row[0] for row in ap.do("XPENDING", "s", "g", "-", "+", 9)] == [b"1-1", b"2-1", b"3-1"]
    assert read(ap) == [b"4-1"]


def test_a_blocked_reader_hears_that_the_home_has_moved() -> None:
    mesh, eu, _us = begun(0)
    words = b"XREADGROUP GROUP g c BLOCK 0 STREAMS s >".split()
    eu.region.execute(eu.session, [words])
    eu.end_turn()
    other = eu.region.open_session("127.0.0.1:50001", "127.0.0.1:6379")
    eu.region.execute(other, [b"AB.HOME MOVE s GROUP g 2".split()])
    eu.end_turn()
    settle(mesh)
    assert b"".join(eu.session.outbox).startswith(b"-HOMED r")
    eu.session.outbox.clear()


def test_what_one_of_two_takers_hands_over_was_not_delivered_twice() -> None:
    mesh = Mesh(3)
    _begin(mesh, 2)
    eu, us, ap = mesh.nodes.values()
    for node in (us, ap):
        assert node.do("AB.HOME", "TAKE", "s", "GROUP", "g", "FORCE") == b"OK"
    assert read(us) == [b"1-1", b"2-1"]
    settle(mesh)
    assert ap.do("XACK", "s", "g", "1-1", "2-1") == 2
    settle(mesh)
    assert [shown(node)["delivered-twice"] for node in (eu, us, ap)] == [[], [], []]


def test_everything_survives_a_restart_a_snapshot_and_a_full_sync() -> None:
    mesh, eu, us = begun(6)
    read(eu, "COUNT", 2)
    us.do("AB.HOME", "TAKE", "s", "GROUP", "g", "FORCE")
    read(us, "COUNT", 1)
    for node in (eu, us):
        node.snapshot()
        node.restart()
        node.host.regions = node.exchange
    mesh.send_full_sync(2, 1)
    mesh.send_full_sync(1, 2)
    settle(mesh)
    assert shown(us)["delivered-twice"] == [b"1-1"]
    assert [row[0] for row in us.do("XPENDING", "s", "g", "-", "+", 9)] == [b"1-1", b"2-1"]
    assert shown(eu)["home"] == b"r2"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("AB.HOME SHOW s GROUP h", "NOGROUP"),
        ("AB.HOME SHOW s g g", "syntax error"),
        ("AB.HOME MOVE s GROUP g r9", "No region is called 'r9'"),
        ("AB.HOME MOVE s GROUP g r1", "is the home of the group already"),
        ("AB.HOME TAKE s GROUP g", "is the home of the group already"),
        ("AB.HOME TAKE s GROUP g NOW", "syntax error"),
        ("AB.POLICY SET s GROUP g home-region 2", "AB.HOME MOVE moves a group"),
        ("AB.POLICY SET s GROUP g home-region r9", "No region is called 'r9'"),
    ],
)
def test_what_is_refused(command: str, told: str) -> None:
    _mesh, eu, _us = begun()
    with pytest.raises(hiredis.ReplyError, match=told):
        eu.do(*command.split())


def test_a_group_without_a_home_is_delivered_in_every_region() -> None:
    _mesh, eu, _us = begun()
    eu.do("AB.POLICY", "DEL", "s", "GROUP", "g")
    with pytest.raises(hiredis.ReplyError, match="every region delivers this group"):
        eu.do("AB.HOME", "SHOW", "s", "GROUP", "g")


def test_a_region_that_starts_knows_at_once_that_it_is_not_the_home(monkeypatch: Patch) -> None:
    monkeypatch.setattr(policies_module, "_NAMES", 1)  # groups get their policies bit by bit
    mesh, eu, us = begun()
    keys = [f"s{number}" for number in range(20)]
    for key in keys:
        eu.do("XGROUP", "CREATE", key, "g", "0", "MKSTREAM")
    eu.do("AB.POLICY", "SET", "PATTERN", "s*", "home-region", 1)
    mesh.settle()
    us.snapshot()
    us.restart()
    for key in keys:
        with pytest.raises(hiredis.ReplyError, match="HOMED r1"):
            us.do("XREADGROUP", "GROUP", "g", "c", "STREAMS", key, ">")


def test_a_home_that_was_removed_has_no_address() -> None:
    mesh = Mesh(3)
    node = mesh.nodes[1]
    node.host.regions = node.exchange
    node.do("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    node.do("AB.POLICY", "SET", "s", "GROUP", "g", "home-region", "3")
    refused = ("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")
    with pytest.raises(hiredis.ReplyError, match="HOMED r3 :0 consumer group"):
        node.do(*refused)
    node.do("AB.REGION", "REMOVE", "3", "FORCE")
    for words in (
        refused,
        ("XAUTOCLAIM", "s", "g", "c", "0", "0"),
        ("AB.HOME", "MOVE", "s", "GROUP", "g", "2"),
    ):
        with pytest.raises(hiredis.ReplyError, match="HOMED r3 - consumer group 'g' of 's'"):
            node.do(*words)
    shown = node.do("AB.HOME", "SHOW", "s", "GROUP", "g")
    assert shown[shown.index(b"address") + 1] == b""
    node.do("AB.HOME", "TAKE", "s", "GROUP", "g", "FORCE")
    assert node.do(*refused) is None
