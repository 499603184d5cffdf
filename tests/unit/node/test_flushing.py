"""Sessions that got replies from requests of others are written to in slices of time."""

from __future__ import annotations

import random

import pytest

from anabranch.config.settings import Settings
from anabranch.node.node import Node
from anabranch.simulator.disk import MemoryPlace, MemoryStorage
from anabranch.simulator.driver import SimulatedDriver
from anabranch.simulator.timeline import Timeline
from tests.support.region_harness import FakeClock, FakeHost


class Connection:
    """What a session knows of its connection."""

    has_more = False

    def __init__(self, flushed: list[Connection]) -> None:
        self._flushed = flushed

    def flush(self) -> None:
        self._flushed.append(self)

    def go_on_later(self) -> None:
        raise AssertionError("it has nothing more to read")


@pytest.fixture
def node() -> Node:
    driver = SimulatedDriver(Timeline(), lambda call: call(), random.Random(1), (0,), (0,))
    place = MemoryPlace(MemoryStorage())
    return Node(Settings(), FakeClock(1), FakeHost(), driver, place)


def test_who_is_left_for_a_later_slice_is_not_written_to_in_this_one(node: Node) -> None:
    flushed: list[Connection] = []
    scheduler = node.region.scheduler
    scheduler.drive(lambda: None)  # every slice is over after one step
    connections = [Connection(flushed) for _ in range(3)]
    for each in connections:
        session = node.region.open_session("127.0.0.1:1", "127.0.0.1:2")
        session.connection = each
        node.region.channels.pending[session] = None
    for _ in range(4):
        node.flush_pending()
    assert flushed == connections[:1]
    assert len(scheduler) == 1
    scheduler.run_turn()
    assert flushed == connections
    assert len(scheduler) == 0
