"""Whatever comes over a link: nothing raises, nothing wrong is applied, and there is a sentence."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from anabranch.effects import kinds
from anabranch.effects.codec import BODY_BYTES_MAX, EffectFormatError
from anabranch.oplog.batch import COMPRESSED, LOCAL, Batch, batch_pieces
from anabranch.replication import frames
from anabranch.replication.frames import Reason, StatusRow
from anabranch.replication.framing import FrameType, framed
from anabranch.replication.peer import Stage
from anabranch.stream.fields import NUMBER_MAX
from tests.support.batches import encode_batch
from tests.support.counted_region import batch_bytes
from tests.support.replication_world import Node, World


def announcing(size: int) -> bytes:
    """A batch whose zstd frame announces so many bytes, and has a block of none."""
    (batch,) = batch_pieces(
        [b"\x28\xb5\x2f\xfd\xe0%b\x01\0\0" % size.to_bytes(8, "little")],
        region=2, epoch=0, first=1, count=1, wall_ms=1, flags=COMPRESSED,
    )  # fmt: skip
    return batch


EXPANDING = announcing(BODY_BYTES_MAX + 1)
"""More than a log can hold."""


def linked() -> tuple[World, Node, int]:
    """A region with an established link to region 2, and the number of that link."""
    world = World()
    one, two = world.cluster(2)
    world.run(1000)
    one.write()
    world.run(100)
    two.alive = False
    return world, one, next(iter(one.wire.ends))


def receive(node: Node, link: int, frame: bytes) -> None:
    node.replicator.receive(link, frame[4], frame[5:], node.world.now_ms)


def refusal(node: Node) -> tuple[int, str]:
    facts = node.local.noted("refused")[-1]
    return facts["reason"], facts["text"]


@pytest.mark.parametrize(
    ("batch", "reason", "text"),
    [
        (batch_bytes(2, 1)[:-1], Reason.BATCH, "cut off"),
        (batch_bytes(2, 1)[:-1] + b"?", Reason.BATCH, "checksum"),
        (batch_bytes(2, 1) + b"?", Reason.BATCH, "not one that is sent"),
        (b"", Reason.BATCH, "cut off"),
        (batch_bytes(1, 2), Reason.EPOCH, "effect 2 of region 1"),
        (batch_bytes(9, 1), Reason.BATCH, "region 9, which is no member"),
        (batch_bytes(0, 1), Reason.BATCH, "region 0, which is no member"),
        (batch_bytes(2, 0), Reason.BATCH, "not one that is sent"),
        (
            encode_batch(
                [kinds.Acknowledge(0, b"s", b"g", [1 << 64])],
                region=2, epoch=0, first=1, wall_ms=1, flags=LOCAL,
            ),
            Reason.BATCH,
            "not one that is sent",
        ),
    ],
)  # fmt: skip
def test_a_batch_that_must_not_be_applied_closes_the_link(
    batch: bytes, reason: Reason, text: str
) -> None:
    _world, node, link = linked()
    before = dict(node.local.vector)
    receive(node, link, framed(FrameType.BATCH, batch))
    assert link not in node.wire.ends
    assert refusal(node)[0] == reason
    assert text in refusal(node)[1]
    assert node.local.noted("bad_batch") or node.local.noted("ahead_of_us")
    assert before == {o: n for o, n in node.local.vector.items() if o < 256}


def test_a_batch_cut_in_another_way_than_the_one_applied_closes_the_link() -> None:
    _world, node, link = linked()
    receive(node, link, framed(FrameType.BATCH, batch_bytes(2, 1, 2)))
    receive(node, link, framed(FrameType.BATCH, batch_bytes(2, 2, 2)))
    assert "cut differently" in refusal(node)[1]


@pytest.mark.parametrize(
    "message",
    [
        frames.FullSyncBegin({2: 5}),
        frames.FullSyncEnd(0),
        frames.Proof(b""),
        frames.Members("c", []),
        frames.Sub({1: 99}),
        frames.StatusRows([StatusRow(3, 3, 1, {}, {}, {}, 1, [])], 0.0, -1.0, 0.0, 0),
        frames.StatusRows([StatusRow(2, 258, 1, {}, {}, {}, 1, [])], 0.0, -1.0, 0.0, 0),
        frames.StatusRows([StatusRow(2, 2, 1, {1: 7}, {}, {}, 1, [])], 0.0, -1.0, 0.0, 0),
        frames.StatusRows([StatusRow(2, 2, 1, {257: 7}, {}, {}, 1, [])], 0.0, -1.0, 0.0, 0),
    ],
)
def test_what_makes_no_sense_closes_the_link(message: frames.Message) -> None:
    _, node, link = linked()
    receive(node, link, frames.encode(message))
    assert link not in node.wire.ends
    assert node.local.noted("refused")


@pytest.mark.parametrize(
    "message",
    [
        frames.Fetch(77, 5, 9, 1 << 60),
        frames.Fetched(77),
        frames.Credit(1 << 62),
        frames.Behind(77, 5),
        frames.FullSyncGet(),
        frames.Sub({}),
        frames.Sub({9: 9}),
    ],
)
def test_what_is_only_useless_does_no_harm(message: frames.Message) -> None:
    _, node, link = linked()
    for _ in range(5):
        receive(node, link, frames.encode(message))
    assert link in node.wire.ends
    assert not node.local.noted("refused")


def test_a_snapshot_of_another_length_is_not_joined() -> None:
    _, node, link = linked()
    receive(node, link, frames.encode(frames.Behind(2, 0)))
    receive(node, link, frames.encode(frames.FullSyncBegin({2: 5})))
    receive(node, link, framed(FrameType.FULL_SYNC, b"x" * 10))
    receive(node, link, frames.encode(frames.FullSyncEnd(11)))
    assert node.local.joins == 0
    assert node.local.staged == bytearray()
    assert refusal(node)[0] == Reason.PROTOCOL


def test_an_empty_snapshot_is_not_joined() -> None:
    _, node, link = linked()
    receive(node, link, frames.encode(frames.Behind(2, 0)))
    receive(node, link, frames.encode(frames.FullSyncBegin({2: 5})))
    receive(node, link, frames.encode(frames.FullSyncEnd(0)))
    assert node.local.joins == 0
    assert refusal(node)[0] == Reason.PROTOCOL


def test_before_a_side_has_shown_who_it_is_frames_must_be_short() -> None:
    world, node, _ = linked()
    node.replicator.sessions.link_up(999, world.now_ms, None)
    node.replicator.receive(999, FrameType.HELLO, b"x" * (64 << 10), world.now_ms)
    assert "not accepted" in refusal(node)[1]


@pytest.mark.parametrize("seed", range(20))
def test_no_bytes_raise(seed: int) -> None:
    """Valid messages with wild contents, and wild bytes, at every stage of a link."""
    chance = random.Random(seed)
    world = World(seed)
    node, _, _ = world.cluster(3)
    world.run(700)

    def vector() -> dict[int, int]:
        replica_ids = [1, 2, 3, 258, 259, 9, chance.randrange(1 << 40)]
        return {
            chance.choice(replica_ids): chance.choice([0, 1, 2, 5, 2**63 - 1]) for _ in range(3)
        }

    def row() -> StatusRow:
        region = chance.choice([1, 2, 3, 77])
        replica_id = chance.choice([region, region | 256])
        return StatusRow(
            region, replica_id, chance.randrange(9), vector(), vector(), vector(), 1, [2, 3]
        )

    def message() -> frames.Message:
        number = chance.choice([0, 1, 7, 2**63 - 1])
        replica_id = chance.choice([1, 2, 3, 258, 77])
        makers: list[Callable[[], frames.Message]] = [
            lambda: frames.Sub(vector()),
            lambda: frames.StatusRows([row(), row()], 1.0, 2.0, 3.0, 4),
            lambda: frames.Fetch(replica_id, number, number, number),
            lambda: frames.Fetched(replica_id),
            lambda: frames.Credit(number, chance.random() < 0.5),
            lambda: frames.Behind(replica_id, number),
            frames.FullSyncGet,
            lambda: frames.FullSyncBegin(vector()),
            lambda: frames.FullSyncEnd(number),
            lambda: frames.Proof(b"x"),
            lambda: frames.Welcome(b"x"),
            lambda: frames.Members("c", []),
            lambda: frames.Hello(
                1, 1, "c", chance.randint(1, 5), "x", 0, "run", 1, 256, "h", 1, -1, b"n"
            ),
            lambda: frames.Bye(chance.randrange(20), "so it is", number),
        ]
        return chance.choice(makers)()

    def wild() -> bytes:
        if chance.random() < 0.5:
            body = chance.randbytes(chance.randrange(40))
        else:
            body = msgspec.msgpack.encode([chance.choice(junk) for _ in range(5)])
        return framed(chance.choice(list(FrameType)), body)

    junk: list[Any] = [None, -1, 2**64 - 1, "x", b"y", [], {}, {1: {}}, [[[[]]]], 1.5, True]
    for step in range(400):
        if chance.random() < 0.1 or not node.wire.ends:
            link = 10_000 + step
            node.replicator.sessions.link_up(link, world.now_ms, chance.choice([None, ("us", 2)]))
        links = list(node.replicator.links.sessions)
        link = chance.choice(links) if links else 0
        what = chance.random()
        if what < 0.5:
            receive(node, link, frames.encode(message()))
        elif what < 0.7:
            receive(node, link, wild())
        elif what < 0.9:
            raw = bytearray(
                batch_bytes(chance.choice([2, 3, 258]), chance.randint(1, 5), chance.randint(1, 3),
                            dependencies=[(3, chance.randint(0, 5))])
            )  # fmt: skip
            if chance.random() < 0.5:
                raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            receive(node, link, framed(FrameType.BATCH, bytes(raw)))
        else:
            world.run(chance.choice([1, 50, 400]))
    assert node.local.noted("refused")
    assert not any(
        session.stage is Stage.UP and session.region not in node.local.replica.members
        for session in node.replicator.links.sessions.values()
    )


def test_what_cannot_be_applied_ends_the_link_that_brought_it_and_is_not_tried_again() -> None:
    world, node, link = linked()
    before = dict(node.local.vector)
    node.local.trouble = EffectFormatError("Add: an entry has no names and values")
    receive(node, link, framed(FrameType.BATCH, batch_bytes(2, 1)))
    assert link not in node.wire.ends
    reason, text = refusal(node)
    assert (reason, text) == (
        Reason.BATCH,
        "a batch of region 2 cannot be applied: Add: an entry has no names and values",
    )
    assert node.local.noted("bad_batch")[-1]["why"] == text
    node.local.trouble = None
    world.run(1000)
    assert node.local.vector == before
    facts = node.replicator.facts(world.now_ms)
    assert facts["not_applied_because"] == f"region 2: {text}"
    assert facts["held_batches"] == 0
    assert facts["last_refusal"] == f"region 2: {text} (refused by us)"
    peer = next(each for each in node.replicator.peers(world.now_ms) if each.region == 2)
    assert peer.refusal == facts["last_refusal"]


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_batch_that_ends_beyond_all_numbers_is_refused(beyond: int) -> None:
    world, node, link = linked()
    receive(node, link, framed(FrameType.BATCH, batch_bytes(2, NUMBER_MAX - 1 + beyond, 2)))
    assert (link in node.wire.ends) == (not beyond)
    assert node.replicator.facts(world.now_ms)["held_batches"] == 1 - beyond


def test_what_waited_and_cannot_be_applied_ends_the_link_as_well() -> None:
    world, node, link = linked()
    receive(node, link, framed(FrameType.BATCH, batch_bytes(2, 2)))
    assert link in node.wire.ends
    node.local.trouble = EffectFormatError("no")
    receive(node, link, framed(FrameType.BATCH, batch_bytes(2, 1)))
    assert link not in node.wire.ends
    node.local.trouble = None
    world.run(1000)
    assert node.local.vector.get(2) is None


def test_of_units_that_came_together_those_before_the_malformed_one_are_applied() -> None:
    world, node, link = linked()
    deliver = node.local.deliver
    tried: list[int] = []

    def deliver_sound_ones(units: list[Batch], raw: list[bytes]) -> None:
        tried.append(len(units))
        if any(batch.first == 4 for batch in units):
            raise EffectFormatError("Add: an entry has no names and values")
        deliver(units, raw)

    node.local.deliver = deliver_sound_ones  # type: ignore[method-assign]
    for number in (2, 3, 4, 5, 6):
        receive(node, link, framed(FrameType.BATCH, batch_bytes(2, number)))
    assert not tried
    receive(node, link, framed(FrameType.BATCH, batch_bytes(2, 1)))
    assert tried == [6, 1, 1, 1, 1], "all together, then one by one up to the malformed one"
    assert node.local.vector[2] == 3
    assert link not in node.wire.ends
    assert refusal(node)[0] == Reason.BATCH
    world.run(1000)
    assert node.local.vector[2] == 3


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (batch_bytes(2, (1 << 63) - 1, 2), "not one that is sent"),
        (batch_bytes(2, 1, dependencies=[(1 << 40, 1)]), "not one that is sent"),
        (batch_bytes(2, 1, dependencies=[(3, 1 << 63)]), "cannot be read"),
        (batch_bytes(2, 1, dependencies=[(-1, 0)]), "cannot be read"),
        (EXPANDING, "are allowed"),
        (announcing(1 << 29), "are allowed"),  # no frame of 16 bytes becomes half a gigabyte
    ],
)
def test_a_batch_with_figures_that_cannot_be_closes_the_link(batch: bytes, text: str) -> None:
    _, node, link = linked()
    tracemalloc.start()
    try:
        receive(node, link, framed(FrameType.BATCH, batch))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert link not in node.wire.ends
    assert text in refusal(node)[1]
    assert node.peer(2).counters.checksum_errors == (text != "not one that is sent")
    assert peak < len(batch) * 6 + (1 << 20)


def test_what_cannot_be_read_is_named_until_something_can() -> None:
    world, node, link = linked()
    assert node.replicator.facts(world.now_ms)["not_applied_because"] == ""
    receive(node, link, framed(FrameType.BATCH, EXPANDING))
    facts = node.replicator.facts(world.now_ms)
    assert "region 2: a batch cannot be read" in str(facts["not_applied_because"])
    assert "are allowed" in str(facts["last_refusal"])
    (peer,) = node.replicator.peers(world.now_ms)
    assert peer.counters.refusals == 1
    assert "are allowed" in peer.refusal
    dialled: list[tuple[str, int]] = []
    node.wire.dial = lambda *address: dialled.append(address)  # type: ignore[method-assign]
    world.run(9_000)
    assert not dialled, "the same would come again"
    world.run(5_000)
    assert dialled


def test_a_batch_that_can_be_applied_ends_the_trouble() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(1000)
    link = next(iter(one.wire.ends))
    receive(one, link, framed(FrameType.BATCH, EXPANDING))
    assert one.replicator.facts(world.now_ms)["not_applied_because"]
    two.write()
    world.run(15_000)
    assert one.local.vector[2] == 1
    assert one.replicator.facts(world.now_ms)["not_applied_because"] == ""


def test_a_frame_that_is_too_long_is_named_by_both_sides() -> None:
    world = World()
    one, two = world.cluster(2)
    world.run(1000)
    link = next(iter(one.wire.ends))
    one.replicator.refuse_frame(link, frames.FRAME_BYTES_MAX + 1, world.now_ms)
    world.run(100)
    facts = one.replicator.facts(world.now_ms)
    for text in (facts["not_applied_because"], facts["last_refusal"]):
        assert f"a frame of {frames.FRAME_BYTES_MAX + 1} bytes" in str(text)
    assert "refused by them" in str(two.replicator.facts(world.now_ms)["last_refusal"])


def test_a_frame_for_which_there_is_no_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    world, node, link = linked()

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(node.local, "deliver", fail)
    receive(node, link, framed(FrameType.BATCH, batch_bytes(2, 1)))
    assert link not in node.wire.ends
    assert refusal(node)[0] == Reason.BUSY
    assert "not enough memory" in str(node.replicator.facts(world.now_ms)["not_applied_because"])
