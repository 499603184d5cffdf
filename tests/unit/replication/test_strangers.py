"""What a side can do that has proved nothing: be refused, and be reported once a second."""

from __future__ import annotations

from anabranch.keyspace.replica import epoch_of
from anabranch.replication import frames
from anabranch.replication.frames import Bye, Hello, Reason
from anabranch.replication.framing import framed
from anabranch.replication.peer import Stage
from anabranch.replication.sealing import stretched
from tests.support.replication_world import Node, World

SECRET = stretched("s" * 32)


def receive(node: Node, link: int, frame: bytes) -> None:
    node.replicator.receive(link, frame[4], frame[5:], node.world.now_ms)


def hello(region: int) -> bytes:
    return frames.encode(
        Hello(1, 2, "c", region, "x", 0, "run", 1, 256, "h", 1, -1, b"n" * 32, False, True)
    )


def newcomer(world: World) -> Node:
    """A region that waits for a member which does not answer."""
    return world.region(3, join=[("nowhere", 1)], secret=SECRET)


def test_a_stranger_does_not_say_whom_a_region_asks_to_join() -> None:
    world = World()
    node = newcomer(world)
    world.run(100)
    node.replicator.sessions.link_up(77, world.now_ms, None)
    receive(node, 77, frames.encode(Bye(Reason.ELSEWHERE, "ask there", 0, ("evil", 1))))
    node.replicator.sessions.link_up(78, world.now_ms, ("nowhere", 1))
    receive(node, 78, frames.encode(Bye(Reason.ELSEWHERE, "ask there", 0, ("evil", 2))))
    assert not node.replicator.sessions.dialler._recommended
    world.run(60_000)
    assert epoch_of(node.local.replica.own) == 0


def test_a_dialled_side_that_does_not_end_the_handshake_is_given_up() -> None:
    world = World()
    node = newcomer(world)
    world.run(100)
    node.replicator.sessions.link_up(78, world.now_ms, ("nowhere", 1))
    for _ in range(25):
        world.run(500)
        if 78 in node.replicator.links.sessions:
            receive(node, 78, framed(99, b"a frame of a type that nobody knows"))  # type: ignore[arg-type]
    assert 78 not in node.replicator.links.sessions


def test_strangers_are_reported_once_a_second() -> None:
    world = World()
    one, _ = world.cluster(2, secret=SECRET)
    world.run(1000)
    before = len(one.local.noted("refused"))
    for number in range(500):
        link = 1000 + number
        one.replicator.sessions.link_up(link, world.now_ms, None)
        if number % 2:
            receive(one, link, hello(number))
        receive(one, link, frames.encode(Bye(Reason.PROTOCOL, f"text {number}", 0)))
        world.run(10)
    assert 4 <= len(one.local.noted("refused")) - before <= 6
    assert len(one.replicator.links._noted) < 20


def test_the_text_of_a_stranger_is_no_refusal_by_the_region_that_it_names() -> None:
    world = World()
    one, _ = world.cluster(2, secret=SECRET)
    world.run(1000)
    one.replicator.sessions.link_up(77, world.now_ms, None)
    receive(one, 77, hello(2))
    assert one.replicator.links.sessions[77].stage is Stage.PROOF
    receive(one, 77, frames.encode(Bye(Reason.REMOVED, "you were removed", 0)))
    (peer,) = one.replicator.peers(world.now_ms)
    assert peer.refusal == ""
    shown = one.replicator.facts(world.now_ms)["last_refusal"]
    assert shown == "region 2: you were removed (refused by a side that has proved nothing)"
    assert not one.replicator.links.is_expelled
