"""The simulator's time and network for tests: no faults unless a test makes some."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from anabranch.replication.framing import FrameType
from anabranch.simulator.network import End, Line, Network
from anabranch.simulator.timeline import Timeline

__all__ = ["DELAY_MS", "LinkedWorld"]

DELAY_MS = 5.0
STEP_MS = 10.0
DIAL_TIMEOUT_MS = 10.0
"""Tests of cut links need not wait for a dial."""


class _Watched(Network):
    """A network that counts its frames, and shows them to a test."""

    dial_timeout_ms = DIAL_TIMEOUT_MS
    first_port = 0

    def __init__(self, timeline: Timeline, chance: random.Random) -> None:
        super().__init__(timeline, chance)
        self.frames: Counter[tuple[int, int, str]] = Counter()
        self.on_frame: Callable[[int, int, bytes], bytes | None] | None = None

    def line(self, source: int, target: int) -> Line:
        return self.lines.setdefault((source, target), Line(delay_ms=DELAY_MS, jitter_ms=0))

    def send(self, end: End, frame: bytes) -> None:
        assert end.other is not None
        assert int.from_bytes(frame[:4], "little") == len(frame) - 4
        source, target = end.wire.region, end.other.wire.region
        name = FrameType(frame[4]).name if frame[4] in set(FrameType) else "?"
        self.frames[source, target, name] += 1
        changed: bytes | None = frame
        if self.on_frame is not None:
            changed = self.on_frame(source, target, frame)
        if changed is not None:
            self.carry(end, bytes(changed))

    def between(self, one: int, other: int) -> list[End]:
        """The ends at ``one`` of its links with ``other``."""
        wire = self.listening.get(one)
        ends = [] if wire is None else wire.ends.values()
        return [end for end in ends if end.other is not None and end.other.wire.region == other]

    def end_links(self, one: int, other: int) -> None:
        """Both sides notice; what is under way is lost."""
        for end in self.between(one, other) + self.between(other, one):
            self._down(end)

    def under_way(self, one: int, other: int) -> int:
        """Bytes from one to another that have not arrived."""
        return sum(len(frame or b"") for end in self.between(one, other) for frame in end.under_way)


class LinkedWorld:
    """Virtual time, and lines between places."""

    def __init__(self, seed: int = 0) -> None:
        self.timeline = Timeline()
        self.network = _Watched(self.timeline, random.Random(seed))
        self.cuts: set[frozenset[int]] = set()

    # -- time ---------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Virtual time."""
        return self.timeline.now_ms

    def run(self, ms: float) -> None:
        """Let so much time pass."""
        self.timeline.run_until(self.now_ms + ms)

    def run_until(self, is_so: Callable[[], object], ms: float = 60_000) -> float:
        """Let time pass until something is so; how long it took."""
        began = self.now_ms
        while not is_so():
            assert self.now_ms - began < ms, "it does not happen"
            self.run(STEP_MS)
        return self.now_ms - began

    # -- links --------------------------------------------------------------------------------

    @property
    def frames(self) -> Counter[tuple[int, int, str]]:
        """Frames sent, by sender, receiver and type."""
        return self.network.frames

    @property
    def on_frame(self) -> Callable[[int, int, bytes], bytes | None] | None:
        """May change a frame on its way, or lose it."""
        return self.network.on_frame

    @on_frame.setter
    def on_frame(self, look: Callable[[int, int, bytes], bytes | None] | None) -> None:
        self.network.on_frame = look

    def lines(self, one: int, other: int) -> tuple[Line, Line]:
        return self.network.line(one, other), self.network.line(other, one)

    def set_lines(
        self, one: int, other: int, *, delay_ms: float = DELAY_MS, rate: float = 0.0
    ) -> None:
        """From now on; ``rate`` is bytes per ms, 0 is no limit."""
        for line in self.lines(one, other):
            line.delay_ms, line.rate = delay_ms, rate

    def cut(self, one: int, other: int, *, silently: bool = False) -> None:
        """Nothing gets through any more; ``silently``, and neither side notices."""
        self.cuts.add(frozenset((one, other)))
        for line in self.lines(one, other):
            line.cut = True
        if not silently:
            self.network.end_links(one, other)

    def heal(self, one: int | None = None, other: int | None = None) -> None:
        """Mend cut lines (all); a connection into which something was sent stays dead."""
        for pair in list(self.cuts) if one is None else [frozenset((one, other or 0))]:
            self.cuts.discard(pair)
            for line in self.lines(*pair):
                line.cut = False
