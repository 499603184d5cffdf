"""A worker does work in order, in a thread, and tells of it in a turn of the event loop."""

from __future__ import annotations

import asyncio
from threading import current_thread

import pytest

from anabranch.node.driver import WorkFuture
from anabranch.server.driver import LoopDriver


async def test_work_is_done_in_order_and_each_end_is_told_in_the_loop() -> None:
    worker = LoopDriver().worker("work")
    ended: asyncio.Queue[tuple[str, object]] = asyncio.Queue()

    def note(job: WorkFuture) -> None:
        ended.put_nowait((current_thread().name, job.result()))

    for number in range(3):
        worker.submit(lambda number=number: (current_thread().name, number), note)  # type: ignore[misc]
    here = current_thread().name
    assert [await ended.get() for _ in range(3)] == [(here, ("work_0", each)) for each in range(3)]
    worker.close()


async def test_who_asks_for_the_result_of_failed_work_gets_what_it_raised() -> None:
    worker = LoopDriver().worker("work")
    problem = OSError(5, "broken")

    def fail() -> None:
        raise problem

    job = worker.submit(fail)
    assert job.exception() is problem
    with pytest.raises(OSError, match="broken"):
        job.result()
    assert job.done()
    worker.close()


def test_what_ends_behind_its_loop_is_told_to_nobody_and_a_close_waits_for_it() -> None:
    async def submit() -> WorkFuture:
        return worker.submit(int, told.append)

    told: list[WorkFuture] = []
    worker = LoopDriver().worker("work")
    job = asyncio.run(submit())
    worker.close()
    assert (job.done(), job.result()) == (True, 0)
