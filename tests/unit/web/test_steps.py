"""Work of the HTTP side comes in short steps, however many streams there are.

The loop stands still for a slice of 1 ms and one step at most. How much a step does is counted in
calls, not in milliseconds, so a slow machine sees the same: no step may make more calls with four
times the streams.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from anabranch.scheduling import Steps, in_one_go
from tests.unit.web.test_metrics import Process

pytest.importorskip("starlette", reason="the extra web is not installed")

from anabranch.web.api import Api
from anabranch.web.feed import Feed
from anabranch.web.stream_metrics import pages
from anabranch.web.survey import StreamSurvey

FEW, MANY = 250, 1_000
CALLS_MAX = 5_000
"""In one step: 50 samples of /metrics as text take half of them."""


class Full(Process):
    """A server with many streams; every tenth has a group, every fifth a producer."""

    def __init__(self, count: int) -> None:
        super().__init__()
        for number in range(count):
            idempotent = ("IDMP", "p", "1") if number % 5 == 0 else ()
            self.streams.do("XADD", f"s{number}", *idempotent, "*", "f", "v")
            if number % 10 == 0:
                self.streams.do("XGROUP", "CREATE", f"s{number}", "g", "0")
        self.region.settings.metrics_max_streams = count
        self.survey = StreamSurvey(self.region)

    def surveyed(self) -> StreamSurvey:
        """After one survey."""
        in_one_go(self.survey._steps())
        return self.survey


def scraped(process: Full) -> Steps[Any]:
    return process.metrics.text(process.user)


def surveyed(process: Full) -> Steps[Any]:
    process.surveyed()  # so that the next one has an old one to forget
    return process.survey._steps()


def summed_up(process: Full) -> Steps[Any]:
    feed = Feed(cast("Any", process), cast("Any", None))
    feed.survey = process.surveyed()
    return feed._summary(cast("Any", Viewer(process)))


class Viewer:
    """Somebody who may see everything."""

    def __init__(self, process: Process) -> None:
        self.user = process.user


def listed(process: Full) -> Steps[Any]:
    api = Api(cast("Any", process), process.surveyed())
    return api._found(b"", lambda _key: True, "length", 50)


def calls_of_steps(steps: Iterator[None]) -> list[int]:
    """How many calls each step makes."""
    counts = [0]

    def count(_frame: object, event: str, _arg: object) -> None:
        if event in {"call", "c_call"}:
            counts[-1] += 1

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # finalizers of other tests are no work of ours
    sys.setprofile(count)
    try:
        for _ in steps:
            counts.append(0)  # noqa: PERF401 - the calls of the next step are counted there
    finally:
        sys.setprofile(before)
        gc.enable()
    return counts


@pytest.mark.parametrize(
    ("work", "times"), [(scraped, 1), (surveyed, 4), (summed_up, 4), (listed, 4)]
)
def test_no_step_does_more_with_more_streams(
    work: Callable[[Full], Steps[Any]], times: int
) -> None:
    few, many = (calls_of_steps(work(Full(count * times))) for count in (FEW, MANY))
    assert len(many) > 2 * len(few), "there are more steps instead"
    assert max(many) <= max(1.5 * max(few), 500), (max(few), max(many))
    assert max(many) <= CALLS_MAX


@pytest.mark.parametrize("work", [scraped, surveyed])
def test_no_step_does_more_with_more_keys_that_are_no_streams(
    work: Callable[[Full], Steps[Any]],
) -> None:
    most = []
    for count in (FEW, 4 * MANY):
        process = Full(0)
        for number in range(count):
            process.streams.do("SET", f"k{number}", "v")
        most.append(max(calls_of_steps(work(process))))
    assert most[1] <= max(1.5 * most[0], 500), most


def kept(count: int) -> int:
    """How many objects a scrape of so many streams has at any time for the garbage collector."""
    steps = scraped(Full(count))
    gc.collect()
    gc.freeze()
    try:
        return max(len(gc.get_objects()) for number, _ in enumerate(steps) if number % 20 == 0)
    finally:
        gc.unfreeze()


def test_a_scrape_makes_no_work_for_the_collector() -> None:
    """The collector of the interpreter would visit what stays to the end of a scrape in one go."""
    assert kept(MANY) < kept(FEW) + FEW, "no object for each stream"


def test_streams_are_found_once_while_keys_come_and_go() -> None:
    process = Full(MANY)
    found: list[bytes] = []
    for number, page in enumerate(pages(process.region.keyspace)):
        found += [key for _, key, _ in page]
        process.streams.do("DEL", f"s{number}")
        process.streams.do("XADD", f"new{number}", "*", "f", "v")
    assert len(set(found)) == len(found)
    assert {f"s{number}".encode() for number in range(number + 1, MANY)} <= set(found)
