"""The window of a link, changed while regions talk."""

from __future__ import annotations

import pytest

from anabranch.replication.frames import Credit, body_of, decode
from anabranch.replication.framing import FrameType
from tests.support.replication_world import Node, World


def opened(world: World) -> list[int]:
    """Windows with which links begin from now on, as they are granted."""
    found: list[int] = []

    def look(_one: int, _two: int, frame: bytes) -> bytes:
        if frame[4] == FrameType.CREDIT:
            credit = decode(Credit, body_of(frame[4], frame[5:]))
            if not credit.of_full_sync:
                found.append(credit.bytes)
        return frame

    world.on_frame = look
    return found


def resize(nodes: list[Node], window_bytes: int) -> None:
    for node in nodes:
        node.replicator._config.window_bytes = window_bytes


@pytest.mark.parametrize("window_bytes", [100, 1_000_000])
def test_a_link_keeps_its_window_and_the_next_one_has_the_new_one(window_bytes: int) -> None:
    world = World()
    nodes = world.cluster(2, window_bytes=4000)
    one, two = nodes
    world.run(500)
    resize(nodes, window_bytes)
    for _ in range(40):
        one.write(size=500)
    world.run(2000)
    assert world.converged()
    assert two.peer(1).connected_ms > 2000, "still the same link"
    windows = opened(world)
    world.cut(1, 2)
    world.heal()
    world.run(1000)
    assert windows[:2] == [window_bytes, window_bytes]
