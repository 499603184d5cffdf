"""Who may talk to whom, and what they are told who may not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.keyspace.replica import Member
from anabranch.replication import frames
from anabranch.replication.frames import Reason
from anabranch.replication.framing import FrameType, framed
from anabranch.replication.handshake import proof_of
from tests.support.replication_world import NAMES, Node, World


def pair(one: dict[str, Any] | None = None, two: dict[str, Any] | None = None) -> list[Node]:
    """Two members of one cluster, each with settings of its own."""
    world = World()
    nodes = [world.region(1, **(one or {})), world.region(2, **(two or {}))]
    members = {node.number: Member(NAMES[node.number], *node.address) for node in nodes}
    for node in nodes:
        node.local.enter("c", members)
    return nodes


def refusals(node: Node) -> set[tuple[int, str]]:
    return {(facts["reason"], facts["text"]) for facts in node.local.noted("refused")}


def are_refused(nodes: list[Node], reason: Reason, text: str) -> None:
    """Neither side has a link, and both know why."""
    nodes[0].world.run(3000)
    for node in nodes:
        assert not list(node.replicator.links.up())
        assert (reason, text) in refusals(node)


def test_regions_without_a_common_version_are_told_both_ranges() -> None:
    nodes = pair({"protocol": (1, 3)}, {"protocol": (4, 5)})
    are_refused(nodes, Reason.VERSION, "no common protocol version: 4 to 5 here, 1 to 3 there")


def test_a_common_version_is_enough() -> None:
    nodes = pair({"protocol": (1, 4)}, {"protocol": (4, 5)})
    nodes[0].world.run(1000)
    assert nodes[0].peer(2).state == "in_sync"


def test_regions_of_two_clusters_do_not_talk() -> None:
    nodes = pair()
    nodes[1].local.replica.cluster_id = "d"
    nodes[0].world.run(3000)
    assert (Reason.CLUSTER, "the cluster is c here and d there") in refusals(nodes[0])
    assert not list(nodes[0].replicator.links.up())


@pytest.mark.parametrize(
    ("one", "two", "text"),
    [
        (b"a", b"b", "the secrets differ"),
        (b"a", b"", "a secret is configured here, and the other side has none"),
        (b"", b"a", "no secret is configured here, but the other side has one"),
    ],
)
def test_who_does_not_know_the_secret_is_refused(one: bytes, two: bytes, text: str) -> None:
    nodes = pair({"secret": one}, {"secret": two})
    nodes[0].world.run(3000)
    told = {text for node in nodes for reason, text in refusals(node) if reason == Reason.SECRET}
    assert text in told
    assert not list(nodes[0].replicator.links.up())
    assert not list(nodes[1].replicator.links.up())
    assert not any(name == "SUB" for _, _, name in nodes[0].world.frames)


def test_regions_with_different_counts_of_databases_do_not_link() -> None:
    nodes = pair({"databases": 16}, {"databases": 32})
    nodes[0].world.run(3000)
    told = {text for node in nodes for reason, text in refusals(node) if reason == Reason.DATABASES}
    here = {f"there are {one} databases here and {two} there" for one, two in ((16, 32), (32, 16))}
    assert {text.split(":")[0] for text in told} & here
    for node in nodes:
        assert not list(node.replicator.links.up())
        assert not any(name == "BATCH" for _, _, name in node.world.frames)


def test_a_region_that_does_not_say_how_many_databases_it_has_is_let_in() -> None:
    nodes = pair({"databases": 16}, {})
    nodes[0].world.run(1000)
    assert nodes[0].peer(2).state == "in_sync"


def test_the_secret_is_never_sent() -> None:
    nodes = pair({"secret": b"top secret"}, {"secret": b"top secret"})
    sent: list[bytes] = []

    def listen(source: int, target: int, frame: bytes) -> bytes:
        sent.append(frame)
        return frame

    nodes[0].world.on_frame = listen
    nodes[0].world.run(1000)
    assert nodes[0].peer(2).state == "in_sync"
    assert not any(b"top secret" in frame for frame in sent)


def test_a_proof_depends_on_the_side_and_on_both_halves() -> None:
    proofs = {
        proof_of(b"s", side, hello, facts)
        for side in (b"welcome", b"proof")
        for hello in (b"h", b"i")
        for facts in (b"f", b"g")
    }
    assert len(proofs) == 8
    assert all(len(proof) == 32 for proof in proofs)


@pytest.mark.parametrize(
    ("frame_type", "at"), [(FrameType.HELLO, -4), (FrameType.WELCOME, -4), (FrameType.PROOF, -1)]
)
def test_what_is_changed_on_its_way_is_not_accepted(frame_type: FrameType, at: int) -> None:
    """Somebody in between who can make checksums, but does not know the secret."""
    nodes = pair({"secret": b"s"}, {"secret": b"s"})

    def meddle(source: int, target: int, frame: bytes) -> bytes:
        if frame[4] != frame_type:
            return frame
        body = bytearray(frame[13:])
        body[at] ^= 1  # in a nonce or a proof
        return framed(frame_type, bytes(body))

    nodes[0].world.on_frame = meddle
    nodes[0].world.run(3000)
    assert not list(nodes[0].replicator.links.up())
    assert not list(nodes[1].replicator.links.up())
    reasons = {reason for node in nodes for reason, _ in refusals(node)}
    assert reasons == {Reason.SECRET}


def said_to_a_stranger(secret: bytes, *, has_secret: bool = True) -> tuple[Node, list[bytes]]:
    """What a region sends to somebody who dials it and says something, but proves nothing."""
    nodes = pair({"secret": secret}, {"secret": secret})
    world, node = nodes[0].world, nodes[0]
    sent: list[bytes] = []
    node.wire.send = lambda link, frame: sent.append(frame)  # type: ignore[method-assign]
    hello = frames.Hello(
        1, 1, "c", 2, "us", 0, "run", 1, frames.MODULUS, "us", 2, -1, bytes(32),
        has_secret=has_secret,
    )  # fmt: skip
    node.replicator.sessions.link_up(900, world.now_ms, None)
    for message in (hello, frames.Proof(bytes(32))):
        frame = frames.encode(message)
        node.replicator.receive(900, frame[4], frame[5:], world.now_ms)
    return node, sent


def test_a_stranger_gets_nothing_that_a_secret_could_be_guessed_from() -> None:
    _, sent = said_to_a_stranger(b"one secret")
    assert [frame[4] for frame in sent] == [FrameType.WELCOME, FrameType.BYE]
    assert sent == said_to_a_stranger(b"another secret")[1]


def test_a_region_with_a_secret_has_nothing_to_say_to_one_without() -> None:
    node, sent = said_to_a_stranger(b"s", has_secret=False)
    assert [frame[4] for frame in sent] == [FrameType.BYE]
    assert (
        Reason.SECRET,
        "a secret is configured here, and the other side has none",
    ) in refusals(node)


def test_another_modulus_is_another_kind_of_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = pair()
    real = nodes[1].replicator.sessions.handshaker._facts

    def facts(known_epoch: int, **also: bool) -> frames.Hello:
        return msgspec.structs.replace(real(known_epoch, **also), modulus=512)

    monkeypatch.setattr(nodes[1].replicator.sessions.handshaker, "_facts", facts)
    nodes[0].world.run(2000)
    assert (Reason.MODULUS, "the sequence modulus is 256 here and 512 there") in refusals(nodes[0])


def test_a_region_that_dials_itself_is_told_so() -> None:
    world = World()
    node = world.region(1)
    node.local.enter("c", {1: Member("eu", "eu", 1), 2: Member("us", "eu", 1)})
    world.run(1000)
    assert (Reason.REGION, "both sides are region 1") in refusals(node)


def test_the_region_that_answers_must_be_the_one_that_was_dialled() -> None:
    world = World()
    one, two = world.region(1), world.region(2)
    wrong = {number: Member(NAMES[number], *two.address) for number in (1, 3)}
    one.local.enter("c", wrong)
    two.local.enter("c", {1: Member("eu", *one.address), 2: Member("us", *two.address)})
    world.cut(1, 2)
    world.run(500)
    world.heal()
    two.wire.dial = lambda host, port: None  # type: ignore[method-assign]
    world.run(11_000)
    assert (Reason.REGION, "region 3 was dialled, region 2 answered") in refusals(one)


def test_who_is_no_member_is_refused_and_may_ask_again() -> None:
    world = World()
    one, two, three = (world.region(number) for number in (1, 2, 3))
    members = {number: Member(NAMES[number], NAMES[number], number) for number in (1, 2, 3)}
    three.local.enter("c", members)
    del members[3]
    one.local.enter("c", members)
    two.local.enter("c", members)
    world.run(2000)
    assert (Reason.UNKNOWN, "region 3 is not known as a member here") in refusals(three)
    one.local.admit(3, *three.local.replica.members[3])
    one.replicator.appended(world.now_ms)
    world.run(4000)
    assert one.peer(3).state == two.peer(3).state == "in_sync"


def test_a_repeated_refusal_is_told_once_a_minute() -> None:
    nodes = pair({"secret": b"a"}, {"secret": b"b"})
    nodes[0].world.run(50_000)
    assert len(nodes[0].local.noted("refused")) <= 4  # by whom, and which side had dialled
    for node in nodes:
        node.local.notes.clear()
    nodes[0].world.run(80_000)
    assert 1 <= len(nodes[0].local.noted("refused")) <= 8


def test_who_says_nothing_is_let_go() -> None:
    world = World()
    node, _ = world.cluster(2)
    world.cut(1, 2)
    node.replicator.sessions.link_up(999, world.now_ms, None)
    assert node.replicator.frame_bytes_max(999) == frames.HANDSHAKE_BYTES_MAX
    world.run(4900)
    assert 999 in node.replicator.links.sessions
    world.run(200)
    assert 999 not in node.replicator.links.sessions


def test_a_stopping_region_says_goodbye() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(500)
    two.replicator.sessions.stop()
    world.run(20)
    assert one.local.noted("unreachable") == [
        {"region": 2, "name": "us", "why": "this region stops"}
    ]
    assert not one.local.noted("refused")


def test_a_newcomer_with_the_name_of_a_member_is_not_admitted() -> None:
    world = World()
    (one,) = world.cluster(1)
    two = world.region(2, join=[one.address], name=NAMES[1])
    three = world.region(3, join=[one.address])
    world.run(5000)
    assert sorted(one.local.replica.members) == [1, 3]
    assert not two.local.replica.cluster_id
    refused = (Reason.REGION, "region 1 has the name eu: choose another region-name")
    assert refused in refusals(two)
    assert refused not in refusals(three)
