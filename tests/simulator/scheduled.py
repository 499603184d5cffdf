"""Scheduled entries in the simulator: ``python -m tests.simulator.scheduled --seeds 1-1000``.

One region, or three, get entries that are due soon, late, or again and again. Servers are killed,
lose power, stop in order, stand still, and take snapshots; lines between regions are cut; one
region may be removed for ever. What is checked, several times a second and at the end:

======== ===========================================================================================
early    nothing is added before its time
twice    no entry is there twice in a region; with ``schedule-takeover`` at the end
late     what is due is added within two seconds by a region that runs
lost     at the end each entry that was answered is there, unless it was cancelled
dead     what was cancelled is not added from then on, where no other region may have added it
cron     a minute of a cron line has one entry at most; one if no server had trouble
agree    all regions have the same entries, and the same plans, in the end
======== ===========================================================================================

Everything follows from the seed.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.simulator.client import SimulatedClient
from anabranch.simulator.machine import HOST, Machine, Process
from anabranch.simulator.network import Network
from anabranch.simulator.record import RunRecord, Violation
from anabranch.simulator.timeline import BEGIN_MS, Timeline
from anabranch.stream.stream import Stream
from tests.simulator.scheduled_mistakes import MISTAKES, REGIONS
from tests.simulator.seeded_runs import SeededRuns

__all__ = ["RUNS", "ScheduledRun"]

LOOK_MS: Final = 250.0
LATE_MS: Final = 2000
END_MS: Final = 60_000.0
MINUTE_MS: Final = 60_000
KEY: Final = b"jobs"
_WORDS: Final = {"ab.region", "ab.schedule", "xrange"}
_USED: Final = [command for command in COMMANDS if command.name in _WORDS]


def require(kept: bool, promise: str, what: str) -> None:
    """Raise a violation of a promise unless it was kept."""
    if not kept:
        raise Violation(0, f"{promise}: {what}")


def words_of(*parts: object) -> list[bytes]:
    """A request."""
    return [part if isinstance(part, bytes) else str(part).encode() for part in parts]


@dataclass
class Plan:
    """An entry that somebody has scheduled."""

    number: int
    region: int
    at_ms: int
    is_cron: bool
    is_answered: bool = False
    is_cancelled: bool = False
    """Whether a cancel was answered with 1."""
    is_doubtful: bool = False
    """Whether a cancel was tried, its region is gone, or the request came later."""
    cancelled_ms: int = 0


class ScheduledRun:
    """The run of a seed. A :class:`Violation` if a promise is broken."""

    def __init__(self, seed: int, kind: str | None = None) -> None:
        """``kind`` is :data:`REGIONS` or None: then the seed draws it."""
        chance = self.chance = random.Random(f"{seed}/scheduled")
        self.timeline = Timeline()
        self.record = RunRecord(self.timeline)
        self.network = Network(self.timeline, random.Random(f"{seed}/network"))
        self.network.reached = self.record.reached
        self.reached = Counter[str]()
        self.is_breaking = True
        self.had_trouble = False
        self.plans: dict[int, Plan] = {}
        self.length = chance.choice([5000, 10_000, 20_000])
        to_minute = int(self.length * chance.uniform(0.2, 0.7))
        count = 3 if kind == REGIONS or chance.random() < 0.3 else 1
        self.takeover = chance.choice([0, 0, 2]) if count > 1 else 0
        self.fsync = chance.choice(["always", "always", "everysec"])
        self.machines: list[Machine] = []
        self.up_since: dict[int, float] = {}
        self.gone: set[int] = set()
        for number in range(1, count + 1):
            machine = Machine(
                Settings(
                    region_id=number,
                    databases=1,
                    appendfsync=self.fsync,
                    schedule_takeover=self.takeover,
                    stream_node_max_entries=chance.choice([100, 2]),
                ),
                self.timeline,
                self.network,
                self.record,
                random.Random(f"{seed}/region {number}"),
                lambda _process: None,
            )
            machine.clock.offset_ms = MINUTE_MS - BEGIN_MS % MINUTE_MS - to_minute
            machine.commands = _USED
            machine.seeds = [(HOST, self.network.port(1))] if number > 1 else []
            self.machines.append(machine)

    @property
    def is_alone(self) -> bool:
        """Whether there is one region."""
        return len(self.machines) == 1

    # -- the run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it."""
        self._begin()
        chance, timeline = self.chance, self.timeline
        length = self.length
        for _ in range(chance.randint(3, 15)):
            timeline.after(chance.uniform(0, length * 0.7), self._schedule)
        for _ in range(chance.choice([0, 1, 4])):
            timeline.after(chance.uniform(0, length), self._cancel)
        for _ in range(chance.choice([0, 1, 2, 3]) * len(self.machines)):
            timeline.after(chance.uniform(0, length), self._hit)
        for _ in range(chance.choice([0, 1, 2])):
            timeline.after(chance.uniform(0, length), self._snapshot)
        self._pass(length)
        self._end()

    def _begin(self) -> None:
        for machine in self.machines:
            machine.start(found=machine.number == 1)
        self._wait_until(self._are_members, "regions do not join")
        self._wait_until(self._have_equal_vectors, "regions do not hear of each other")
        for machine in self.machines:
            machine.seeds = [
                (HOST, self.network.port(each.number))
                for each in self.machines
                if each is not machine
            ]
            assert machine.process is not None
            machine.process.durability.sync_all()

    def _are_members(self) -> bool:
        return all(
            each.process is not None and len(each.process.replica.members) == len(self.machines)
            for each in self.machines
        )

    def _left(self) -> list[Machine]:
        return [each for each in self.machines if each.number not in self.gone]

    def _have_equal_vectors(self) -> bool:
        vectors = [
            None if each.process is None else each.process.replica.vector for each in self._left()
        ]
        return None not in vectors and all(each == vectors[0] for each in vectors)

    def _wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        until = self.timeline.now_ms + END_MS
        while not is_so():
            require(self.timeline.now_ms < until, "late", what)
            self.timeline.run_until(self.timeline.now_ms + LOOK_MS)

    def _pass(self, ms: float) -> None:
        until = self.timeline.now_ms + ms
        while self.timeline.now_ms < until:
            self.timeline.run_until(min(until, self.timeline.now_ms + LOOK_MS))
            self._look()

    def _now(self, machine: Machine) -> int:
        return machine.clock.now_us() // 1000

    # -- requests --------------------------------------------------------------------------------

    def _ask(self, machine: Machine, words: list[bytes], then: Callable[[Any], None]) -> Any:
        """A client sends a request; ``then`` gets the reply if it comes. The reply as decided."""
        process, replies = machine.process, list[Any]()
        if process is None or not process.replica.cluster_id:
            return None

        def ask() -> None:
            client = SimulatedClient(process)
            reply = client.do(words)
            replies.append(reply)
            client.on_answer(lambda: then(reply))
            client.flush()

        process.happen(ask)
        return replies[0] if replies else None

    def _schedule(self) -> None:
        chance, machine = self.chance, self.chance.choice(self.machines)
        number = len(self.plans) + 1
        is_cron = chance.random() < 0.2
        delay = chance.choice([1, 300, 2000, 8000, 15_000])
        when = ["CRON", "* * * * *"] if is_cron else ["IN", delay]
        plan = Plan(number, machine.number, self._now(machine) + delay, is_cron)
        words = words_of("AB.SCHEDULE", KEY, *when, "ID", f"h{number}", "n", number)

        def answered(reply: Any) -> None:
            plan.is_answered = not isinstance(reply, Exception)

        if is_cron:
            plan.at_ms = (self._now(machine) // MINUTE_MS + 1) * MINUTE_MS
            plan.is_doubtful = self.timeline.now_ms < machine.paused_until
        self.plans[number] = plan  # the request may come later, where a server stands still
        self._ask(machine, words, answered)
        self.reached["cron" if is_cron else "scheduled"] += 1

    def _cancel(self) -> None:
        if not self.plans:
            return
        plan = self.chance.choice(list(self.plans.values()))
        machine = self.chance.choice(self.machines)
        plan.is_doubtful = True

        def answered(reply: Any) -> None:
            if reply == 1:
                plan.is_cancelled = True
                plan.cancelled_ms = self._now(machine)
                self.reached["cancelled"] += 1

        self._ask(machine, words_of("AB.SCHEDULE", "CANCEL", KEY, f"h{plan.number}"), answered)

    # -- faults ----------------------------------------------------------------------------------

    def _hit(self) -> None:
        if not self.is_breaking:
            return
        machine, dice = self.chance.choice(self._left()), self.chance.random()
        if machine.process is None:
            return
        self.had_trouble = True
        if dice < 0.15:
            machine.pause(self.chance.choice([100, 1500, 5000]))
            return
        if dice < 0.5 and not self.is_alone:
            others = [each for each in self.machines if each is not machine]
            other = self.chance.choice(others)
            for pair in ((machine.number, other.number), (other.number, machine.number)):
                self.network.line(*pair).cut = True
            self.reached["line cut"] += 1
            return
        machine.wake()
        if dice < 0.75 or self.fsync != "always":
            machine.kill()
        elif dice < 0.9:
            machine.lose_power()
        else:
            machine.stop()
        self.reached["server ended"] += 1
        if not self.is_alone and not self.gone and self.chance.random() < 0.2:
            self.gone.add(machine.number)  # for ever
            return
        self.timeline.after(self.chance.choice([10, 300, 4000, 12_000]), machine.start)

    def _snapshot(self) -> None:
        process = self.chance.choice(self.machines).process
        if process is not None:
            process.happen(process.begin_snapshot)
            self.reached["snapshot"] += 1

    # -- what is checked -------------------------------------------------------------------------

    def _entries(self, process: Process) -> list[tuple[int, int]]:
        """Times and numbers of what was added."""
        value = process.region.keyspace.databases[0].values.get(KEY)
        if type(value) is not Stream:
            return []
        rows = process.inspect(words_of("XRANGE", KEY, "-", "+"))
        return [(int(entry_id.split(b"-")[0]), int(fields[1])) for entry_id, fields in rows]

    def _look(self, *, is_end: bool = False) -> None:
        for machine in self.machines:
            process = machine.process
            is_here = process is not None and self.timeline.now_ms >= machine.paused_until
            if process is None or not is_here:
                self.up_since.pop(machine.number, None)
                continue
            since = self.up_since.setdefault(machine.number, self.timeline.now_ms)
            process.region.keyspace.databases[0].timetables.check()
            entries = self._entries(process)
            self._check(machine, entries, is_end=is_end)
            if not self.takeover and not self.gone:
                count = process.region.stats.idmp_collapsed
                require(not count, "twice", f"{count} had to go in region {machine.number}")
            if self.timeline.now_ms - since > LATE_MS:
                self._check_lateness(machine, process)

    def _check(self, machine: Machine, entries: list[tuple[int, int]], *, is_end: bool) -> None:
        is_once = is_end or (self.takeover == 0 and not self.gone)
        seen, now_ms = Counter[tuple[int, int]](), self._now(machine)
        for at_ms, number in entries:
            plan = self.plans[number]
            require(min(at_ms, now_ms) >= plan.at_ms, "early", f"{plan} at {at_ms}")
            seen[number, at_ms // MINUTE_MS if plan.is_cron else 0] += 1
            if self.is_alone and plan.is_cancelled:
                require(at_ms <= plan.cancelled_ms + 1, "dead", f"{plan} at {at_ms}")
        if is_once:
            twice = [each for each, count in seen.items() if count > 1]
            require(not twice, "twice", f"{twice} in region {machine.number}")

    def _check_lateness(self, machine: Machine, process: Process) -> None:
        owners = process.region.keyspace.databases[0].timetables.handles.get(KEY, {})
        own = process.replica.region
        for at_ms, handle in owners[own].earliest(1) if own in owners else ():
            require(self._now(machine) - at_ms < LATE_MS, "late", f"{handle!r} of region {own}")

    # -- the end ---------------------------------------------------------------------------------

    def _end(self) -> None:
        """All is healed but what is gone for ever; then everything is due."""
        self.is_breaking = False
        for pair, line in list(self.network.lines.items()):
            if line.cut:
                self.network.mend(*pair)
        for machine in self._left():
            machine.wake()
            machine.start()
        for number in self.gone:
            self.reached["removed"] += 1
            self._remove(number)
        self._pass(3000)
        self._wait_until(lambda: all(map(self._is_done, self._left())), "entries are not added")
        self._wait_until(self._have_equal_vectors, "regions do not agree")
        self._pass(1000)
        self._wait_until(self._have_equal_vectors, "regions do not agree")
        self._look(is_end=True)
        found = [self._entries(each.process) for each in self._left() if each.process is not None]
        require(all(each == found[0] for each in found), "agree", f"{found}")
        self._check_end({number for _, number in found[0]}, found[0])

    def _remove(self, number: int) -> None:
        """Somebody gives up on a region; what its clients were told may be lost with it."""
        for plan in self.plans.values():
            if plan.region == number:
                plan.is_doubtful = True

        def is_removed() -> bool:
            process = self._left()[0].process
            if process is None or not process.replica.cluster_id:
                return False
            process.happen(lambda: process.do(words_of("AB.REGION", "REMOVE", number, "FORCE")))
            return number not in process.replica.members

        self._wait_until(is_removed, "a region cannot be removed")

    def _is_done(self, machine: Machine) -> bool:
        """Whether nothing is due that was to be added once."""
        process = machine.process
        if process is None or not process.replica.cluster_id:
            return False
        entries = process.region.keyspace.databases[0].timetables.entries.values()
        return not any(each.recurrence is None and each.fields for each in entries)

    def _check_end(self, numbers: set[int], entries: list[tuple[int, int]]) -> None:
        self.reached["entries"] += len(entries)
        for plan in self.plans.values():
            if plan.is_answered and not plan.is_doubtful and not plan.is_cron:
                require(plan.number in numbers, "lost", f"{plan}")
            if plan.is_cron and plan.is_answered and not plan.is_doubtful:
                machine = self._left()[0]
                passed = range(plan.at_ms, self._now(machine) - LATE_MS, MINUTE_MS)
                here = {at_ms // MINUTE_MS for at_ms, number in entries if number == plan.number}
                require(bool(here) or not passed, "cron", f"{plan} has no entry")
                if not self.had_trouble:
                    due = {at_ms // MINUTE_MS for at_ms in passed}
                    require(due <= here, "cron", f"{plan} has {here} and not {due}")
        for machine in self._left():
            assert machine.process is not None
            for database in machine.process.region.keyspace.databases:
                database.check()


# -- the program ----------------------------------------------------------------------------------


RUNS: Final = SeededRuns(ScheduledRun, MISTAKES)

if __name__ == "__main__":
    sys.exit(RUNS.main(__doc__))
