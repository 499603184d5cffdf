"""Who works how long in a turn, by a clock that only work moves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice

import pytest

from anabranch.scheduling import LEAST_NS, NEVER, NOT_BEGUN, SLICE_NS, TURN_NS, Scheduler

STEP_NS = 100_000


class Loop:
    """An event loop that calls a scheduler when it has asked for that."""

    def __init__(self) -> None:
        self.now_ns = 1
        self.asked = 0
        self.scheduler = Scheduler(lambda: self.now_ns)
        self.scheduler.drive(self._ask)
        self.did: list[str] = []

    def _ask(self) -> None:
        self.asked += 1

    def turn(self) -> int:
        """One turn; how long it took."""
        assert self.asked == 1
        self.asked = 0
        began = self.now_ns
        self.scheduler.run_turn()
        return self.now_ns - began

    def work(self, name: str, steps: int) -> Callable[[], bool]:
        """Work of so many steps."""
        left = steps

        def some() -> bool:
            nonlocal left
            while left:
                left -= 1
                self.now_ns += STEP_NS
                self.did.append(name)
                if self.scheduler.is_over():
                    break
            return left > 0

        return some


@pytest.fixture
def loop() -> Loop:
    return Loop()


def test_work_is_done_in_slices_in_the_order_of_its_arrival(loop: Loop) -> None:
    for name in "abc":
        loop.scheduler.schedule(loop.work(name, 25))
    assert loop.turn() <= TURN_NS + SLICE_NS
    slices = TURN_NS // SLICE_NS
    names = islice(cycle("abc"), slices)
    assert "".join(loop.did) == "".join(name * (SLICE_NS // STEP_NS) for name in names)
    while len(loop.scheduler):
        loop.turn()
    assert {name: loop.did.count(name) for name in "abc"} == {"a": 25, "b": 25, "c": 25}
    assert loop.asked == 0


def test_a_turn_is_bounded_however_many_wait(loop: Loop) -> None:
    for _ in range(1000):
        loop.scheduler.schedule(loop.work("x", 100))
    assert all(loop.turn() <= TURN_NS + SLICE_NS for _ in range(50))


def test_what_others_wait_for_has_a_slice_in_every_turn(loop: Loop) -> None:
    for _ in range(100):
        loop.scheduler.schedule(loop.work("x", 100))
    loop.scheduler.schedule(loop.work("first", 15), first=True)
    loop.turn()
    assert loop.did[: SLICE_NS // STEP_NS] == ["first"] * (SLICE_NS // STEP_NS)
    loop.turn()
    assert loop.did.count("first") == 15


def test_newcomers_share_a_turn_and_then_get_little(loop: Loop) -> None:
    scheduler = loop.scheduler
    shares = []
    for _ in range(10):
        began = scheduler.begin()
        shares.append(scheduler.deadline_ns - loop.now_ns)
        loop.now_ns = scheduler.deadline_ns
        scheduler.end(began)
    slices = TURN_NS // SLICE_NS
    assert shares == [SLICE_NS] * slices + [LEAST_NS] * (10 - slices)
    assert scheduler.is_used_up
    loop.turn()
    assert not scheduler.is_used_up
    scheduler.begin()
    assert scheduler.deadline_ns - loop.now_ns == SLICE_NS


def test_after_a_long_step_of_a_newcomer_the_queue_gives_way_once(loop: Loop) -> None:
    scheduler = loop.scheduler
    scheduler.schedule(loop.work("queued", 1000))
    for expected in ("", "q", "", "q"):
        began = scheduler.begin()
        loop.now_ns += 4 * TURN_NS
        scheduler.end(began)
        loop.did.clear()
        loop.turn()
        assert "".join(loop.did)[:1] == expected


def test_outside_of_a_slice_one_step_is_done(loop: Loop) -> None:
    assert loop.scheduler.is_over()


def test_where_nobody_drives_turns_everything_is_done_at_once(loop: Loop) -> None:
    scheduler = Scheduler(lambda: loop.now_ns)
    began = scheduler.begin()
    loop.now_ns += TURN_NS
    assert not scheduler.is_over()
    scheduler.end(began)
    assert not scheduler.is_over()


def test_removed_work_is_not_done(loop: Loop) -> None:
    one, other = loop.work("one", 5), loop.work("other", 5)
    loop.scheduler.schedule(one)
    loop.scheduler.schedule(other)
    loop.scheduler.remove(one)
    loop.turn()
    assert set(loop.did) == {"other"}


def test_a_slice_may_begin_with_the_first_request(loop: Loop) -> None:
    scheduler = loop.scheduler
    scheduler.begin_with_request()
    assert scheduler.deadline_ns == NOT_BEGUN
    assert scheduler.is_over()
    assert scheduler.begin_at(loop.now_ns) == loop.now_ns + SLICE_NS
    assert not scheduler.is_over()
    scheduler.begin_with_request()
    assert scheduler.deadline_ns == NOT_BEGUN, "it is the next one's slice"


def test_where_nobody_drives_turns_a_slice_does_not_end() -> None:
    scheduler = Scheduler(lambda: 1)
    scheduler.begin_with_request()
    assert scheduler.deadline_ns == NEVER
