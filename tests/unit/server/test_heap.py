"""When freed memory is given back."""

from __future__ import annotations

from anabranch.server.memory import Heap


class Machine:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 1.0
        self.takes_s = 0.001
        self.trims: list[int] = []
        self.heap = Heap(self.trim, cpu_s=lambda: self.cpu_s, now_s=lambda: self.now_s)

    def trim(self, pad: int) -> int:
        self.trims.append(pad)
        self.now_s += self.takes_s
        return 1

    def live(self, seconds: int, cpu_share: float) -> int:
        """How often it was given back in this time."""
        before = len(self.trims)
        for _ in range(seconds):
            self.now_s += 1
            self.cpu_s += cpu_share
            self.heap.tick()
        return len(self.trims) - before


def test_at_rest_after_work_and_once() -> None:
    machine = Machine()
    assert machine.live(60, cpu_share=0.5) == 0
    assert machine.live(20, cpu_share=0.001) == 1
    assert machine.live(100, cpu_share=0.001) == 0
    assert machine.trims == [0]


def test_what_compression_has_freed_is_given_back() -> None:
    machine = Machine()
    machine.live(60, cpu_share=0.5)
    assert machine.live(20, cpu_share=0.001) == 1
    for freed, times in ((2 << 20, 2), (5 << 19, 2), (7 << 19, 3)):
        for _ in range(12):
            machine.now_s += 1
            machine.heap.tick(freed)
        assert len(machine.trims) == times


def test_what_takes_long_is_done_rarely() -> None:
    machine = Machine()
    machine.takes_s = 0.25
    for _ in range(10):
        machine.live(10, cpu_share=0.5)
        machine.live(10, cpu_share=0.01)
    assert len(machine.trims) == 1
    machine.live(100, cpu_share=0.01)
    assert len(machine.trims) == 2


def test_on_demand_whatever_is_going_on() -> None:
    machine = Machine()
    machine.live(20, cpu_share=1)
    machine.heap.give_back()
    assert machine.trims == [0]
