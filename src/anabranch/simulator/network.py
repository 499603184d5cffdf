"""Connections between simulated regions: frames arrive in order, late, damaged, or not at all.

A connection is two streams of frames. Frames that are sent into a cut line are held, as TCP would
do, and arrive when the line is restored, unless the connection was closed before. A lost frame ends
the connection. One side knows the end of a half-open connection, no side that of a silent one.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from anabranch.oplog.batch import sent_batch
from anabranch.replication.framing import FrameType
from anabranch.simulator.timeline import Timeline

HEAD_BYTES = 5

PART_MS = 1000
"""How long a part of a frame takes on a slow line."""


class Endpoint(Protocol):
    """The process at one end of a connection."""

    def link_up(self, link: int, dialled: tuple[str, int] | None) -> None:
        """A connection was established."""

    def link_down(self, link: int) -> None:
        """The connection has ended."""

    def dial_failed(self, host: str, port: int, why: str) -> None:
        """The dial has failed."""

    def frame(self, link: int, data: bytes) -> None:
        """A frame has arrived."""

    def part(self, link: int) -> None:
        """A part of a frame has arrived."""


@dataclass
class Line:
    """One direction between two regions."""

    cut: bool = False
    delay_ms: float = 1.0
    jitter_ms: float = 1.0
    tail: float = 0.0
    """The probability that a frame takes much longer, and delays all later ones."""
    tail_ms: float = 0.0
    rate: float = 0.0
    """Bytes per ms; 0 is no limit."""
    loss: float = 0.0
    """The probability that a frame is lost, and with it the connection."""
    flip: float = 0.0
    """The probability that a bit of a frame is flipped."""
    half_open: float = 0.0
    """The probability that only one side, or neither side, notices the end of a connection."""
    twice: float = 0.0
    """The probability that a batch arrives twice, as if two regions had relayed it."""


@dataclass
class End:
    """One side of a connection."""

    number: int
    wire: Wire
    is_open: bool = True
    other: End | None = None
    free_at_ms: float = 0.0
    under_way: deque[bytes | None] = field(default_factory=deque)
    """Frames that were sent and have not arrived; None is the end."""
    held: list[bytes | None] = field(default_factory=list)
    """Frames that a cut line holds."""


class Wire:
    """The simulated connections of one process."""

    def __init__(self, network: Network, region: int, peer: Endpoint) -> None:
        self._network = network
        self.region = region
        self.peer = peer
        self.is_alive = True
        self.ends: dict[int, End] = {}

    def send(self, link: int, frame: bytes) -> None:
        """Send a whole frame, behind all earlier ones; nothing happens if the link is gone."""
        end = self.ends.get(link)
        if end is not None and end.is_open:
            self._network.send(end, frame)

    def close(self, link: int) -> None:
        """Close the link after all frames sent before; ``link_down`` may follow or not."""
        end = self.ends.pop(link, None)
        if end is not None and end.is_open:
            end.is_open = False
            self._network.carry(end, None)

    def dial(self, host: str, port: int) -> None:
        """Connect; the answer is ``link_up`` with this address, or ``dial_failed``."""
        self._network.dial(self, host, port)

    def cut_ms(self, region: int) -> float | None:
        """None: faults of a run are not pauses by an operator."""
        return None


class Network:
    """All lines, and the processes that listen."""

    dial_timeout_ms = 5000.0
    first_port = 10_000

    def __init__(self, timeline: Timeline, chance: random.Random) -> None:
        self._timeline = timeline
        self._chance = chance
        self.lines: dict[tuple[int, int], Line] = {}
        self.listening: dict[int, Wire] = {}
        self.sent: Counter[int] = Counter()
        """Frames by type."""
        self.reached: Counter[str] = Counter()
        self.on_batch: Callable[[int, int], None] = lambda _replica_id, _last: None
        """Called with every batch that leaves a region."""
        self._next = 0
        self._busy: dict[int, End] = {}  # ends with frames in transport

    def line(self, source: int, target: int) -> Line:
        """One direction between two regions."""
        return self.lines.setdefault((source, target), Line())

    def port(self, region: int) -> int:
        """The port of a region."""
        return self.first_port + region

    # -- connections --------------------------------------------------------------------------

    def listen(self, wire: Wire) -> None:
        """Let a process be dialled."""
        self.listening[wire.region] = wire

    def vanish(self, wire: Wire, *, silently: bool) -> None:
        """A process has ended; ``silently`` if its machine has failed and closes no connections."""
        wire.is_alive = False
        if self.listening.get(wire.region) is wire:
            del self.listening[wire.region]
        for end in wire.ends.values():
            end.is_open = False
            if not silently:
                self.carry(end, None)
        wire.ends.clear()

    def dial(self, wire: Wire, host: str, port: int) -> None:
        """Connect after a delay."""
        region = port - self.first_port
        there, back = self.line(wire.region, region), self.line(region, wire.region)

        def failed() -> None:
            if wire.is_alive:
                wire.peer.dial_failed(host, port, "no answer")

        if there.cut or back.cut:
            self._timeline.after(self.dial_timeout_ms, failed)
            return

        def arrived() -> None:
            target = self.listening.get(region)
            if target is None or not wire.is_alive:
                self._timeline.after(self._delay(back), failed)
                return
            near, far = self._end(wire), self._end(target)
            near.other, far.other = far, near

            def answered() -> None:
                if wire.is_alive:
                    wire.ends[near.number] = near
                    wire.peer.link_up(near.number, (host, port))

            target.ends[far.number] = far
            target.peer.link_up(far.number, None)
            self._timeline.after(self._delay(back), answered)

        self._timeline.after(self._delay(there), arrived)

    def _end(self, wire: Wire) -> End:
        self._next += 1
        return End(self._next, wire)

    def lose(self, end: End) -> None:
        """End a connection with loss of frames."""
        other = end.other
        assert other is not None
        line = self.line(end.wire.region, other.wire.region)
        sides = [end, other]
        if self._chance.random() < line.half_open:
            sides = self._chance.choice([[end], [other], []])
            self.reached["half-open connection" if sides else "silent connection"] += 1
        self.reached["connection lost"] += 1
        for side in sides:
            self._timeline.after(self._chance.random() * 20, lambda side=side: self._down(side))  # type: ignore[misc]
        end.is_open = other.is_open = False

    @staticmethod
    def _down(end: End) -> None:
        end.is_open = False
        if end.wire.ends.pop(end.number, None) is not None and end.wire.is_alive:
            end.wire.peer.link_down(end.number)

    # -- frames -------------------------------------------------------------------------------

    def send(self, end: End, frame: bytes) -> None:
        """Send a frame."""
        other = end.other
        assert other is not None
        line = self.line(end.wire.region, other.wire.region)
        self.sent[frame[4]] += 1
        if frame[4] == FrameType.BATCH:
            head = sent_batch(frame[HEAD_BYTES:])
            self.on_batch(head.replica_id, head.last)
        if self._chance.random() < line.loss:
            self.lose(end)
            return
        if self._chance.random() < line.flip:
            at = self._chance.randrange(4, len(frame))
            turned = frame[at] ^ 1 << self._chance.randrange(8)
            frame = frame[:at] + bytes([turned]) + frame[at + 1 :]
            self.reached["bit flip"] += 1
        self.carry(end, frame)
        if frame[4] == FrameType.BATCH and line.twice and self._chance.random() < line.twice:
            self.reached["batch sent twice"] += 1
            self.carry(end, frame)

    def carry(self, end: End, frame: bytes | None) -> None:
        """Transport a frame, or the end of the stream (None)."""
        other = end.other
        if other is None:
            return
        line = self.line(end.wire.region, other.wire.region)
        if line.cut or end.held:
            end.held.append(frame)
            return
        begin = max(self._timeline.now_ms, end.free_at_ms)
        if line.rate and frame is not None:
            took_ms = len(frame) / line.rate
            for part_ms in range(PART_MS, int(took_ms), PART_MS):
                at_ms = begin + part_ms - self._timeline.now_ms
                self._timeline.after(at_ms, lambda: self._arrive_in_part(end, line))
            begin += took_ms
        end.free_at_ms = max(begin, self._timeline.now_ms + self._delay(line))
        end.under_way.append(frame)
        self._busy[end.number] = end
        self._timeline.after(end.free_at_ms - self._timeline.now_ms, lambda: self._arrive(end))

    def hurry(self) -> None:
        """End the delays: frames in transport arrive now, in order."""
        for end in list(self._busy.values()):
            end.free_at_ms = self._timeline.now_ms
            for _ in range(len(end.under_way)):
                self._timeline.after(0, lambda end=end: self._arrive(end))  # type: ignore[misc]

    def _delay(self, line: Line) -> float:
        delay = line.delay_ms + self._chance.random() * line.jitter_ms
        if self._chance.random() < line.tail:
            delay += self._chance.expovariate(1 / line.tail_ms)
        return delay

    def _arrive(self, end: End) -> None:
        """The first frame in transport arrives, unless it has arrived already."""
        if not end.under_way:
            return
        frame = end.under_way.popleft()
        if not end.under_way:
            self._busy.pop(end.number, None)
        other = end.other
        assert other is not None
        line = self.line(end.wire.region, other.wire.region)
        if line.cut or end.held:
            end.held.append(frame)
        elif frame is None:
            self._down(other)
        elif other.wire.is_alive and other.number in other.wire.ends:
            other.wire.peer.frame(other.number, frame)

    @staticmethod
    def _arrive_in_part(end: End, line: Line) -> None:
        other = end.other
        assert other is not None
        is_there = other.wire.is_alive and other.number in other.wire.ends
        if is_there and end.under_way and not (line.cut or end.held):
            other.wire.peer.part(other.number)

    def mend(self, source: int, target: int) -> None:
        """Restore a line: held frames are transported, or the connection has timed out."""
        self.line(source, target).cut = False
        wires = [wire for wire in self.listening.values() if wire.region == target]
        for wire in wires:
            for mine in list(wire.ends.values()):
                other = mine.other
                if other is None or other.wire.region != source or not other.held:
                    continue
                held, other.held = other.held, []
                if self._chance.random() < 0.3:
                    self.lose(other)
                    continue
                for frame in held:
                    self.carry(other, frame)
