"""Frames on a connection with faults: what gets through, in which order, and what does not."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from weakref import ref

import pytest

from anabranch.server import gossip
from anabranch.server.admission import ConnectionKind
from anabranch.server.gossip import SocketTransport, bound

FRAME = b"\x02\x00\x00\x00\x07"
"""What comes before the one byte of a payload."""


class FakeReplicator:
    """Takes down what comes; every link is one with region 2."""

    def __init__(self) -> None:
        self.sessions = self.handshaker = self
        self.links: list[int] = []
        self.received: list[bytes] = []
        self.followed: list[bool] = []
        self.refused: list[int] = []
        self.parts = 0
        self.ended = asyncio.Event()
        self.failed = asyncio.Event()
        self.news = asyncio.Event()

    def link_up(self, link: int, now_ms: float, dialled: object, names: object = None) -> None:
        self.links.append(link)
        self.news.set()

    def link_down(self, link: int, now_ms: float) -> None:
        self.ended.set()

    def dial_failed(self, host: str, port: int, now_ms: float, why: str) -> None:
        self.failed.set()

    def receive(
        self, link: int, kind: int, payload: bytes, now_ms: float, *, more_follows: bool
    ) -> None:
        self.received.append(payload)
        self.followed.append(more_follows)
        self.news.set()

    def heard(self, link: int, now_ms: float) -> None:
        self.parts += 1

    def frame_bytes_max(self, link: int) -> int:
        return 100

    def refuse_frame(self, link: int, size: int, now_ms: float) -> None:
        self.refused.append(size)

    def is_up(self, link: int) -> bool:
        return True

    def region_of(self, link: int) -> int:
        return 2

    def region_at(self, address: tuple[str, int]) -> int:
        return 2

    async def until(self, count: int) -> None:
        """So many frames have come."""
        while len(self.received) < count:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 60)


class Ends:
    """A gossip that is tested, and a plain one at the other end of the connection."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.one, self.other = SocketTransport(loop), SocketTransport(loop)
        self.here, self.there = FakeReplicator(), FakeReplicator()

    async def connect(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.other.open(self.there, bound("127.0.0.1", self.port))  # type: ignore[arg-type]
        self.one.replicator = self.here  # type: ignore[assignment]
        self.one.dial("127.0.0.1", self.port)
        for each in (self.here, self.there):
            while not each.links:
                await each.news.wait()

    def send(self, *numbers: int) -> None:
        for number in numbers:
            self.one.send(self.here.links[0], FRAME + bytes([number]))

    def reply(self, number: int) -> None:
        self.other.send(self.there.links[0], FRAME + bytes([number]))


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ends = Ends()
    await asyncio.wait_for(ends.connect(), 60)
    yield ends
    ends.one.shut_down()
    ends.other.shut_down()


def numbers(replicator: FakeReplicator) -> list[int]:
    return [payload[0] for payload in replicator.received]


async def test_nothing_passes_a_paused_link_either_way_until_it_is_released(ends: Ends) -> None:
    ends.send(1)
    await ends.there.until(1)
    assert ends.one.cut_ms(2) is None
    ends.one.fault(2).paused = True
    ends.one.released()
    assert 0 <= (ends.one.cut_ms(2) or -1) < 10_000
    ends.send(2)
    ends.reply(3)
    ends.one.dial("127.0.0.1", ends.port)
    # Nobody finds a way around by another connection.
    await asyncio.wait_for(ends.here.failed.wait(), 60)
    (link,) = ends.one.links.values()
    while not link._buffer:  # noqa: ASYNC110 - nobody tells of what is not read
        await asyncio.sleep(0)
    assert link._held == [FRAME + b"\x02"]
    assert (numbers(ends.there), numbers(ends.here)) == ([1], [])
    assert len(ends.there.links) == 1
    ends.one.fault(2).paused = False
    ends.one.released()
    await ends.there.until(2)
    await ends.here.until(1)
    assert (numbers(ends.there), numbers(ends.here)) == ([1, 2], [3])
    assert ends.one.faults == {}
    assert ends.one.cut_ms(2) is None


async def test_whether_the_next_frame_has_arrived_is_reported(ends: Ends) -> None:
    (link,) = ends.one.links.values()
    frame = FRAME + b"\x01"
    link.data_received(frame * 3 + frame[:-1])
    assert ends.here.followed == [True, True, False]
    link.data_received(frame[-1:])
    assert ends.here.followed == [True, True, False, False]


async def test_each_part_of_a_long_frame_is_a_sign_of_life(ends: Ends) -> None:
    (link,) = ends.one.links.values()
    for byte in FRAME + b"\x01":
        link.data_received(bytes([byte]))
    assert ends.here.parts == len(FRAME)
    assert numbers(ends.here) == [1]


async def test_frames_keep_their_order_however_long_each_is_delayed(ends: Ends) -> None:
    fault = ends.one.fault(2)
    fault.delay_ms, fault.jitter_ms = 20.0, 20.0
    ends.send(*range(100))
    assert numbers(ends.there) == []
    fault.delay_ms = fault.jitter_ms = 0.0
    ends.one.released()
    ends.send(*range(100, 200))  # must not overtake what is under way
    await ends.there.until(200)
    assert numbers(ends.there) == list(range(200))


async def test_a_narrow_link_takes_its_time(ends: Ends) -> None:
    loop = asyncio.get_running_loop()
    ends.one.fault(2).rate = 600.0  # bytes a second, a frame has 6
    began = loop.time()
    ends.send(*range(10))
    await ends.there.until(10)
    assert loop.time() - began >= 0.09
    assert numbers(ends.there) == list(range(10))


async def test_what_is_sent_before_a_frame_is_lost_arrives(ends: Ends) -> None:
    ends.one.fault(2).delay_ms = 5.0
    ends.send(1, 2)
    ends.one.fault(2).loss = 1.0
    ends.send(3)
    ends.one.fault(2).loss = 0.0
    ends.send(4)
    await ends.there.ended.wait()
    assert numbers(ends.there) == [1, 2]


async def test_who_listens_is_told_when_frames_have_been_received(ends: Ends) -> None:
    heard: list[int] = []
    ends.other.on_heard = lambda: heard.append(len(ends.there.received))
    ends.send(1)
    await ends.there.until(1)
    assert heard == [1]


async def test_moving_elsewhere_leaves_connections_alone(ends: Ends) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ends.other.move("127.0.0.1", port)
    ends.send(1)
    await ends.there.until(1)
    ends.one.dial("127.0.0.1", ends.port)
    await asyncio.wait_for(ends.here.failed.wait(), 60)
    ends.here.news.clear()
    ends.one.dial("127.0.0.1", port)
    await asyncio.wait_for(ends.here.news.wait(), 60)
    assert len(ends.here.links) == 2


async def test_moving_twice_at_once_leaves_nothing_behind(ends: Ends) -> None:
    for _ in range(3):
        ends.other.move("127.0.0.1", ends.port)
    assert len(ends.other._acceptor.sockets) == 1
    with socket.create_connection(("127.0.0.1", ends.port), timeout=60):
        pass
    ends.other.shut_down()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", ends.port), timeout=60)


async def test_a_region_leaves_its_place_at_the_door_once_it_has_greeted(ends: Ends) -> None:
    held = ends.other._admission.held
    assert held[ConnectionKind.STRANGER] == 1
    ends.send(1)
    await ends.there.until(1)
    assert (held[ConnectionKind.STRANGER], held[ConnectionKind.PEER]) == (0, 1)
    ends.one.shut_down()
    await asyncio.wait_for(ends.there.ended.wait(), 60)
    assert not +held


async def test_what_a_closed_link_held_is_freed_at_once(ends: Ends) -> None:
    gc.collect()
    gc.disable()
    try:
        left = [ref(link) for each in (ends.one, ends.other) for link in each.links.values()]
        assert len(left) == 2
        # The beginning of a frame that never ends.
        ends.one.send(ends.here.links[0], b"\x60\x00\x00\x00\x07" + b"x" * 50)
        ends.one.close(ends.here.links[0])
        await asyncio.wait_for(ends.there.ended.wait(), 60)
        async with asyncio.timeout(60):
            while any(each() for each in left):  # noqa: ASYNC110 - nobody tells of that
                await asyncio.sleep(0)
    finally:
        gc.enable()


async def test_a_frame_that_is_too_long_ends_the_link_and_is_named(ends: Ends) -> None:
    ends.one.send(ends.here.links[0], (101).to_bytes(4, "little") + bytes(101))
    await asyncio.wait_for(ends.there.ended.wait(), 60)
    assert ends.there.refused == [101]
    assert not ends.there.received


async def test_a_frame_longer_than_what_may_be_unsent_arrives(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gossip, "UNSENT_BYTES_MAX", 1000)
    monkeypatch.setattr(FakeReplicator, "frame_bytes_max", lambda *_: 1 << 30)
    long = 20_000_000
    ends.one.send(ends.here.links[0], (long + 1).to_bytes(4, "little") + bytes(long + 1))
    ends.send(1)  # while the other one is unsent
    await ends.there.until(2)
    assert [len(payload) for payload in ends.there.received] == [long, 1]


async def test_a_peer_that_does_not_read_is_disconnected(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gossip, "UNSENT_BYTES_MAX", 1000)
    monkeypatch.setattr(FakeReplicator, "frame_bytes_max", lambda *_: 1 << 30)
    frame = (1_000_001).to_bytes(4, "little") + bytes(1_000_001)
    for _ in range(30):  # without a pause in which anything could be sent
        ends.one.send(ends.here.links[0], frame)
    await asyncio.wait_for(ends.here.ended.wait(), 60)
