"""Somebody in between who knows the protocol and makes checksums, but does not know the secret."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from anabranch.keyspace.replica import Member
from anabranch.replication import frames
from anabranch.replication.frames import Reason
from anabranch.replication.framing import FrameType, batch_head, framed
from anabranch.replication.sealing import Seal, keys_of
from tests.support.counted_region import batch_bytes
from tests.support.replication_world import NAMES, World

Meddling = Callable[[bytes], bytes | None]


def linked(secret: bytes = b"what the forger does not know") -> World:
    """Regions 1 and 2 with an established link."""
    world = World()
    nodes = [world.region(number, secret=secret) for number in (1, 2)]
    members = {node.number: Member(NAMES[node.number], *node.address) for node in nodes}
    for node in nodes:
        node.local.enter("c", members)
    world.run(1000)
    assert nodes[0].peer(2).state == "in_sync"
    return world


def forged(world: World, meddling: Meddling, kind: FrameType) -> set[int]:
    """Meddle with a frame from region 2 to region 1; with what reasons links ended since."""
    done: list[bytes] = []

    def on_frame(source: int, target: int, frame: bytes) -> bytes | None:
        if source == 2 and frame[4] == kind and not done:
            done.append(frame)
            return meddling(frame)
        return frame

    world.on_frame = on_frame
    world.nodes[2].write()
    world.run(3000)
    assert done
    return {facts["reason"] for facts in world.nodes[1].local.noted("refused")}


def another_batch(frame: bytes) -> bytes:
    """A sound batch in place of the one that was sent, with the seal of that one."""
    body = batch_bytes(2, 1, 1, size=30) + frame[-frames.TAG_BYTES :]
    return framed(FrameType.BATCH, body)


def test_a_batch_that_is_put_in_place_of_another_is_not_applied() -> None:
    world = linked()
    assert forged(world, another_batch, FrameType.BATCH) == {Reason.FORGED}
    (kept,) = world.nodes[1].local.batches[2]
    assert len(kept) < len(batch_bytes(2, 1, 1, size=30)), "what region 2 wrote, over the next link"


def test_without_a_secret_it_is() -> None:
    """What the seal is for: this fails on it, and on nothing else."""
    world = linked(b"")
    swap: Meddling = lambda frame: framed(FrameType.BATCH, batch_bytes(2, 1, 1, size=30))  # noqa: E731
    assert forged(world, swap, FrameType.BATCH) == set()
    (kept,) = world.nodes[1].local.batches[2]
    assert kept == batch_bytes(2, 1, 1, size=30)


@pytest.mark.parametrize("kind", [FrameType.ROW, FrameType.BATCH])
def test_a_changed_frame_ends_the_link(kind: FrameType) -> None:
    def flip(frame: bytes) -> bytes:
        return frame[:20] + bytes([frame[20] ^ 1]) + frame[21:]

    assert forged(linked(), flip, kind) == {Reason.FORGED}


def test_a_frame_of_another_type_ends_the_link() -> None:
    def retyped(frame: bytes) -> bytes:
        return frame[:4] + bytes([FrameType.FULL_SYNC]) + frame[5:]

    assert forged(linked(), retyped, FrameType.BATCH) == {Reason.FORGED}


def test_a_frame_that_is_left_out_ends_the_link() -> None:
    assert forged(linked(), lambda frame: None, FrameType.ROW) == {Reason.FORGED}


def test_a_frame_without_a_seal_ends_the_link() -> None:
    bare: Meddling = lambda frame: frames.encode(frames.Credit(1))  # noqa: E731
    assert forged(linked(), bare, FrameType.ROW) == {Reason.FORGED}


def test_a_repeated_frame_ends_the_link() -> None:
    world = linked()
    node = world.nodes[1]
    link = next(iter(node.wire.ends))
    seen: list[bytes] = []

    def keep(source: int, target: int, frame: bytes) -> bytes:
        if source == 2:
            seen.append(frame)
        return frame

    world.on_frame = keep
    world.nodes[2].write()
    world.run(500)
    assert not node.local.noted("refused")
    again = seen[0]
    node.replicator.receive(link, again[4], again[5:], world.now_ms)
    assert [facts["reason"] for facts in node.local.noted("refused")] == [Reason.FORGED]
    assert link not in node.wire.ends


def test_frames_in_another_order_end_the_link() -> None:
    world = linked()
    node = world.nodes[1]
    link = next(iter(node.wire.ends))
    held: list[bytes] = []

    def hold(source: int, target: int, frame: bytes) -> bytes | None:
        if source == 2:
            held.append(frame)
            return None
        return frame

    world.on_frame = hold
    world.nodes[2].write()
    world.run(300)
    assert len(held) >= 2
    for frame in (held[1], held[0]):
        node.replicator.receive(link, frame[4], frame[5:], world.now_ms)
    assert [facts["reason"] for facts in node.local.noted("refused")] == [Reason.FORGED]


def test_both_directions_of_every_link_have_keys_of_their_own() -> None:
    keys = [
        key
        for secret in (b"s", b"t")
        for hello in (b"one nonce", b"another")
        for facts in (b"one nonce", b"another")
        for key in keys_of(secret, hello, facts)
    ]
    assert len(set(keys)) == 16
    assert all(len(key) == 32 for key in keys)


def test_a_large_batch_is_copied_once_to_be_sealed() -> None:
    batch = bytes(16 << 20)
    whole, in_parts, opening = Seal(b"key"), Seal(b"key"), Seal(b"key")
    expected = whole.close(framed(FrameType.BATCH, batch))
    tracemalloc.start()
    sealed = in_parts.close(batch_head(len(batch)), batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sealed == expected
    assert opening.open(FrameType.BATCH, sealed[5:]) == batch
    assert peak < len(batch) + (1 << 20)
