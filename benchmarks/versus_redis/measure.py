"""Taking the samples: both servers in turns, a median of paired rounds.

For each workload: build the plan once, rehearse it on both servers (a warm-up that also checks
that the replies are right and alike), then play rounds. In a round both servers get the plan one
after the other, and who goes first alternates, so that whatever else the machine is doing falls
on both alike. The ratio of a round is taken inside that round; what is reported is the median of
these ratios with the lowest and the highest beside it.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .load import Connection, RefusedError, Rehearsal, request
from .servers import Server, cpu_between
from .workloads import (
    ENTRY_LINES,
    FanOut,
    Plan,
    Script,
    Workload,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .floor import Floor

FAN_OUT_KEY = "bench:fan-out"
READER_BUFFER_BYTES = 4096
NEW = "new"
"""The age of entries that a round itself has added."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with the lowest and the highest value of the rounds."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What one server did in one workload, per unit of it."""

    cpu_us: Spread
    per_second: Spread


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both servers in one workload, and the subject as a ratio of the baseline."""

    baseline: Figures
    subject: Figures
    cpu_ratio: Spread
    throughput_ratio: Spread
    floor: Figures | None
    """What sockets cost with the subject's requests and replies; None for many connections."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one workload; without an outcome where `problem` says why."""

    name: str
    family: str
    depth: int
    unit: str
    units_per_command: int
    units_per_round: int
    age: str
    """How old the entries are that it reads or deletes; empty if there are none."""
    note: str
    problem: str
    outcome: Outcome | None


@dataclass(slots=True)
class Sample:
    """One server in one round."""

    cpu_ns: int = 0
    wall_ns: int = 0


Watch = Callable[[], AbstractContextManager[None]]
"""Makes a context in which the timed requests run, and nothing else."""


class Bench:
    """One server with the connection that loads it; knows what was prefilled."""

    def __init__(self, server: Server) -> None:
        """Connect to a running server."""
        self.server = server
        self._connection = Connection(server.port)
        self._filled: set[str] = set()

    def close(self) -> None:
        """Close the connection; the server stays."""
        self._connection.close()

    def rehearse(self, plan: Plan) -> Rehearsal:
        """Play a plan once with its replies parsed."""
        with self._naming_refusals():
            return self._rehearse(plan)

    def sample(self, plan: Plan, watch: Watch = nullcontext) -> Sample:
        """Play a plan once against the clock."""
        with self._naming_refusals():
            if isinstance(plan, FanOut):
                return self._sample_fan_out(plan, watch)
            return self._sample_script(plan, watch)

    @contextmanager
    def _naming_refusals(self) -> Iterator[None]:
        """Add the server's name to a refusal and reconnect: replies may be left on the old line.

        Raises ServerError instead if the server is no more.
        """
        try:
            yield
        except (RefusedError, OSError) as error:
            self.close()
            self.server.check()
            self._connection = Connection(self.server.port)
            raise RefusedError(f"{self.server.name}: {error}") from error

    def _rehearse(self, plan: Plan) -> Rehearsal:
        if isinstance(plan, FanOut):
            self._sample_fan_out(FanOut(plan.readers, 1, plan.phase), nullcontext)
            return Rehearsal("", [])
        stream = plan.stream
        if stream is not None and stream.key not in self._filled:
            self._connection.ask("DEL", stream.key)
            self._connection.rehearse(stream.fill())
            time.sleep(stream.rest_s)
            self._filled.add(stream.key)
        self._connection.rehearse(plan.setup)
        rehearsal = self._connection.rehearse(plan.timed)
        return rehearsal if plan.same_replies else replace(rehearsal, digest="")

    @contextmanager
    def _measuring(self, sample: Sample, watch: Watch) -> Iterator[None]:
        """Add what the block costs to a sample."""
        before = self.server.cpu()
        with watch():
            started = time.perf_counter_ns()
            yield
            sample.wall_ns += time.perf_counter_ns() - started
            after = self.server.cpu()
        sample.cpu_ns += cpu_between(before, after)

    def _sample_script(self, plan: Script, watch: Watch) -> Sample:
        self._connection.replay(plan.setup)
        sample = Sample()
        with self._measuring(sample, watch):
            self._connection.replay(plan.timed)
        return sample

    def _sample_fan_out(self, plan: FanOut, watch: Watch) -> Sample:
        """Let readers block and wake them, `wakes` times; sum up the phase that counts.

        Reading the CPU counter waits until the server sleeps, so between the phases every
        reader is known to be blocked. The PING that ends the first phase is there for its
        reply, which comes when the server has seen all that was sent before.
        """
        writer = self._connection
        writer.ask("DEL", FAN_OUT_KEY)
        sample, ignored = Sample(), Sample()
        blocking, waking = (sample, watch), (ignored, nullcontext)
        if plan.phase == "wake":
            blocking, waking = waking, blocking
        with ExitStack() as stack:
            readers = [
                stack.enter_context(Connection(self.server.port, READER_BUFFER_BYTES))
                for _ in range(plan.readers)
            ]
            for turn in range(plan.wakes):
                block = request(
                    *("XREAD", "BLOCK", 0, "STREAMS", FAN_OUT_KEY, f"{turn}-0"),
                    lines=5 + ENTRY_LINES[1],
                )
                wake = request("XADD", FAN_OUT_KEY, f"{turn + 1}-0", "event", "opened", lines=2)
                with self._measuring(*blocking):
                    for reader in readers:
                        reader.send(block.payload)
                    writer.ask("PING")
                with self._measuring(*waking):
                    writer.send(wake.payload)
                    for reader in readers:
                        reader.drain(block.lines)
                    writer.drain(wake.lines)
        return sample


def run_workload(
    workload: Workload,
    baseline: Bench,
    subject: Bench,
    floor: Floor | None,
    *,
    rounds: int,
    scale: float,
) -> Row:
    """Rehearse and play one workload on both servers, in turns, and sum it up.

    Without ``floor`` nothing is compared with ready replies.
    """
    plan = workload.build(scale)
    baseline_plan = workload.build_baseline(scale) if workload.build_baseline else plan
    outcome = None
    problem = ""
    try:
        expected = baseline.rehearse(baseline_plan)
        rehearsed = subject.rehearse(plan)
        if rehearsed.digest == expected.digest:
            pairs = _play_rounds(baseline, baseline_plan, subject, plan, rounds)
            floors = []
            if floor is not None and isinstance(plan, Script):
                sizes = rehearsed.reply_sizes
                floors = [Sample(*floor.play(plan.timed, sizes)) for _ in range(rounds)]
            outcome = _outcome(pairs, floors, plan.units)
        else:
            problem = "the two servers answered differently"
    except RefusedError as error:
        problem = str(error)
    return Row(
        name=workload.name,
        family=workload.family,
        depth=workload.depth,
        unit=workload.unit,
        units_per_command=workload.units_per_command,
        units_per_round=plan.units,
        age=age_of(workload, plan),
        note=workload.note,
        problem=problem,
        outcome=outcome,
    )


def age_of(workload: Workload, plan: Plan) -> str:
    """Return how old the entries are that a plan reads or deletes; empty if there are none."""
    if isinstance(plan, Script) and plan.stream is not None:
        return plan.stream.age
    return "" if workload.family == "PING" else NEW


def spread(values: Sequence[float]) -> Spread:
    """Return median, lowest and highest of the values of all rounds."""
    return Spread(statistics.median(values), min(values), max(values))


def _play_rounds(
    baseline: Bench, baseline_plan: Plan, subject: Bench, plan: Plan, rounds: int
) -> list[tuple[Sample, Sample]]:
    """Return a pair of samples, baseline and subject, for each round."""
    pairs = []
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            if turn % 2:
                ours = subject.sample(plan)
                theirs = baseline.sample(baseline_plan)
            else:
                theirs = baseline.sample(baseline_plan)
                ours = subject.sample(plan)
            pairs.append((theirs, ours))
    finally:
        gc.enable()
    return pairs


def _outcome(
    pairs: Sequence[tuple[Sample, Sample]], floors: Sequence[Sample], units: int
) -> Outcome:
    return Outcome(
        baseline=_figures([theirs for theirs, _ in pairs], units),
        subject=_figures([ours for _, ours in pairs], units),
        cpu_ratio=spread([ours.cpu_ns / theirs.cpu_ns for theirs, ours in pairs]),
        throughput_ratio=spread([theirs.wall_ns / ours.wall_ns for theirs, ours in pairs]),
        floor=_figures(floors, units) if floors else None,
    )


def _figures(samples: Sequence[Sample], units: int) -> Figures:
    return Figures(
        cpu_us=spread([sample.cpu_ns / 1_000 / units for sample in samples]),
        per_second=spread([units / sample.wall_ns * 1e9 for sample in samples]),
    )
