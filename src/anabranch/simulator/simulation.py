"""A run: a cluster is created, has faults, recovers, and must agree again.

======= =======================================================================================
begin   one region creates the cluster, the others join it
break   clients write and read while faults happen; invariants are checked at every step
heal    every fault ends; within :data:`HEAL_MS` all regions must have all effects
check   the invariants at the end; no traffic while no client writes; all streams read to the end
======= =======================================================================================

Everything follows from the seed and from the kinds of faults.
"""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from anabranch.config.settings import Settings
from anabranch.errors import AnabranchError
from anabranch.keyspace.replica import region_of
from anabranch.replication.framing import FrameType
from anabranch.simulator.checks import Checks
from anabranch.simulator.machine import (
    DIGEST_INTERVAL_MS,
    HOST,
    NEW_LEVEL,
    QUICK_WORK_MS,
    RESTART_MS,
    WORK_MS,
    Machine,
    Process,
)
from anabranch.simulator.network import Network
from anabranch.simulator.reader_checks import Reader
from anabranch.simulator.record import RunRecord, Violation
from anabranch.simulator.timeline import Timeline
from anabranch.simulator.workload import Workload

BEGIN_MS: Final = 30_000.0
HEAL_MS: Final = 60_000.0
IDLE_MS: Final = 5_000.0
STEP_MS: Final = 100.0
PROGRESS_MS: Final = 500.0

SILENT_ONCE_IN: Final = 4
"""The share of runs that check idle regions, because that takes long."""

DUMP_SHARE: Final = 0.2
"""The probability of a DUMP in slices before a client's requests, where work is cut."""

SAVE_SHARE: Final = 0.1
"""The probability that a client requests a snapshot within a turn."""

CALM_MS: Final = 12_000.0
"""Longer than the deadlines of a dial and of a silent link."""


@dataclass
class Outcome:
    """How a run ended: what it counted, and the violation that ended it, if any."""

    seed: int
    faults: tuple[str, ...]
    problem: Exception | None
    lines: list[str]
    reached: Counter[str]
    virtual_s: float
    commands: int

    @property
    def sentence(self) -> str:
        """The failure as a sentence."""
        problem = self.problem
        if problem is None:
            return "all held"
        return str(problem) if isinstance(problem, Violation) else repr(problem)

    def is_like(self, other: Outcome) -> bool:
        """Whether another run has failed in the same way."""
        one, two = self.problem, other.problem
        if isinstance(one, Violation) and isinstance(two, Violation):
            return one.number == two.number or {one.number, two.number} <= {1, 2}
        return type(one) is type(two)


@dataclass(eq=False)
class _Reading:
    """A reply to a reader that may not have reached it yet."""

    process: Process
    reader: Reader
    cursor: bytes
    entries: list[tuple[int, bytes]]


@dataclass(frozen=True)
class FaultPlan:
    """The kinds of faults of one run, and the functions that make them."""

    names: tuple[str, ...]
    begin: Callable[[Simulation, str], None]
    """Makes faults of one kind, from now on until the run heals."""
    heal: Callable[[Simulation], None]
    """Ends all faults."""


class Simulation:
    """One run: machines, network, clients and faults under one virtual clock."""

    def __init__(self, seed: int, *, regions: int = 3, minutes: float = 5, plan: FaultPlan) -> None:
        self.seed = seed
        self.faults = plan.names
        self._plan = plan
        self.breaking_ms = minutes * 60_000
        self.timeline = Timeline()
        self.record = RunRecord(self.timeline)
        self.network = Network(self.timeline, self.chance("network"))
        self.network.reached = self.record.reached
        self.network.on_batch = self.record.leaves
        self.work = Workload(
            self.chance("workload"), self.chance("moves"), self.chance("registers")
        )
        self.is_breaking = False
        self.has_agreed = False
        """Whether all regions have agreed after the faults."""
        self.on_progress: Callable[[Simulation], None] = lambda _: None
        """Called at intervals during the faults."""
        self.commands = 0
        self._clients = self.chance("clients")
        self._saves = self.chance("saves")
        self._dumps = self.chance("dumps in slices")
        self._interval_ms = self._clients.choice([10, 30, 60, 100])
        chance = self.chance("settings")
        self.settings = self._settings(chance)
        self.machines: list[Machine] = []
        self.checks = Checks(self.machines, self.record, self.work)
        for number in range(1, regions + 1):
            self.machines.append(self._machine(number))
        for one in range(1, regions + 1):
            for other in range(1, regions + 1):
                self.network.line(one, other).delay_ms = chance.choice([1, 20, 100])
        self._readers = [
            Reader(chance.choice(self.work.keys), chance.choice([1, 2, 5])) for _ in range(3)
        ]
        self._readings: list[_Reading] = []
        self._levels: dict[Process, int] = {}  # the feature level that each member has found

    def _settings(self, chance: random.Random) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "xadd_id_uniqueness_mode": self.work.mode,
            "idmp_conflict": self.work.conflict,
            "appendfsync": chance.choice(["always", "everysec", "everysec", "no"]),
            "stream_node_max_entries": chance.choice([100, 4, 2]),
        }
        if "limits" in self.faults:
            settings |= {
                "oplog_segment_bytes": 4096,
                "oplog_max_bytes": chance.choice([1000, 8000, 100_000]),
                "region_cache_bytes": chance.choice([500, 4000, 64 << 20]),
                "gossip_window": chance.choice([600, 4000, 100_000]),
                "gossip_hold_bytes": chance.choice([500, 20_000]),
            }
        return settings

    def _machine(self, number: int) -> Machine:
        machine = Machine(
            Settings(region_id=number, **self.settings),
            self.timeline,
            self.network,
            self.record,
            self.chance(f"region {number}"),
            self._has_changed,
        )
        machine.keeps_log = "limits" not in self.faults and "membership" not in self.faults
        machine.cuts_work = "slices" in self.faults
        machine.work_ms = self.chance(f"disk of {number}").choice([WORK_MS, QUICK_WORK_MS])
        machine.on_refused = self._refused
        machine.others = partial(self._others, machine)
        if "crash" in self.faults:
            machine.first_level = self.chance(f"version of {number}").choice([1, NEW_LEVEL])
        machine.seeds = [(HOST, self.network.port(each)) for each in (1, 2) if each < number]
        return machine

    def chance(self, purpose: str) -> random.Random:
        """Separate random numbers for each purpose, so that one more use changes no other."""
        return random.Random(f"{self.seed}/{purpose}")

    # -- the run ------------------------------------------------------------------------------

    def run(self) -> Outcome:
        """Do the whole run, and look at everything once more at its end."""
        problem: Exception | None = None
        try:
            self._begin()
            self._break()
            self._heal()
            self._look()
        except (AnabranchError, AssertionError, LookupError, OSError, TypeError, ValueError,
                AttributeError, RuntimeError, Violation) as mistake:  # fmt: skip
            problem = mistake
            for frame in traceback.extract_tb(mistake.__traceback__)[-8:]:
                name = frame.filename.rpartition("/")[2]
                self.record.say("!", f"{name}:{frame.lineno} {frame.name}")
        reached = self.record.reached
        return Outcome(
            self.seed, self.faults, problem, self.record.lines, reached,
            self.timeline.now_ms / 1000, self.commands,
        )  # fmt: skip

    def _begin(self) -> None:
        for machine in self.machines:
            machine.start(found=machine.number == 1)
        numbers = {machine.number for machine in self.machines}
        self._wait_until(
            BEGIN_MS,
            lambda: all(
                machine.process is not None and set(machine.process.replica.members) == numbers
                for machine in self.machines
            ),
            lambda: "the regions have not found each other",
        )
        for machine in self.machines:
            assert machine.process is not None
            machine.process.durability.sync_all()
            machine.seeds = [
                (HOST, self.network.port(each.number))
                for each in self.machines
                if each is not machine
            ]

    def _break(self) -> None:
        self.is_breaking = True
        for name in self.faults:
            self._plan.begin(self, name)
        until_ms = self.timeline.now_ms + self.breaking_ms
        for machine in self.machines:
            self._client(machine)
        self._observe()
        while self.timeline.now_ms < until_ms:
            self.timeline.run_until(min(until_ms, self.timeline.now_ms + PROGRESS_MS))
            self.on_progress(self)
        self.is_breaking = False

    def _heal(self) -> None:
        self.record.say("", "everything is healed")
        self._plan.heal(self)
        self._agree()
        self.has_agreed = True

    def _look(self) -> None:
        processes = self._processes()
        self.checks.finish(processes)
        if self.seed % SILENT_ONCE_IN == 0:
            self._be_silent()
        chance = self.chance("end")
        for process in processes:
            self.checks.drain(process)
        self._agree()
        # A slow sync, which holds replies, may take longer than the regions need to agree.
        self._wait_until(HEAL_MS, self._drop_readings, lambda: "a reply is held for ever")
        processes = self._processes()
        for reader in self._readers:
            self.checks.readers.drain(reader, processes, chance)
        for process in processes:
            process.finish_event()
        self._agree()
        self.checks.finish(self._processes())

    def _others(self, machine: Machine) -> list[Machine]:
        return [each for each in self.members() if each is not machine]

    def _processes(self) -> list[Process]:
        return [machine.process for machine in self.members() if machine.process is not None]

    def members(self) -> list[Machine]:
        """Machines whose region belongs to the cluster."""
        return [machine for machine in self.machines if not machine.is_removed]

    def _agree(self) -> None:
        """Wait until every region has all effects and has dropped what it need not keep."""
        why: list[str | None] = ["a region is not up"]

        def have_converged() -> bool:
            if not all(machine.is_up for machine in self.members()):
                why[0] = "a region is not up"
                return False
            why[0] = self.checks.disagreement(self._processes())
            return why[0] is None

        self._wait_until(
            HEAL_MS, have_converged, lambda: f"no agreement after {HEAL_MS / 1000:g} s: {why[0]}"
        )

    def _wait_until(self, ms: float, is_so: Callable[[], bool], problem: Callable[[], str]) -> None:
        until_ms = self.timeline.now_ms + ms
        while not is_so():
            if self.timeline.now_ms >= until_ms:
                raise Violation(21, problem())
            self.timeline.run_until(self.timeline.now_ms + STEP_MS)

    def _be_silent(self) -> None:
        """No client writes: check what regions still send."""
        if any(stream_deadlines(process) for process in self._processes()):
            return  # keys will expire, which is an effect
        self.timeline.run_until(self.timeline.now_ms + CALM_MS)
        self.network.sent.clear()
        self.timeline.run_until(self.timeline.now_ms + IDLE_MS)
        sent = {FrameType(kind).name: n for kind, n in sorted(self.network.sent.items())}
        pairs = len(self.members()) * (len(self.members()) - 1)
        allowed = pairs * (IDLE_MS / 1000 + 2)
        digests = pairs * (IDLE_MS / DIGEST_INTERVAL_MS + 2)
        handshakes = len(self.machines) > len(self.members())  # a removed region still dials
        if not handshakes and (
            set(sent) - {"ROW", "DIGESTS", "DIFFERING"}
            or sent.get("ROW", 0) > allowed
            or max(sent.get("DIGESTS", 0), sent.get("DIFFERING", 0)) > digests
        ):
            raise Violation(22, f"while no client wrote, regions sent {sent}")
        for process in self._processes():
            for peer in process.replicator.peers(self.timeline.now_ms):
                if peer.region in process.replica.members and (
                    peer.compared_ms is None or peer.in_flight_keys or peer.differing_keys
                ):
                    raise Violation(
                        1,
                        f"region {process.machine.number} has compared everything with "
                        f"{peer.region} at rest, and finds {peer}",
                    )

    # -- clients ------------------------------------------------------------------------------

    def _client(self, machine: Machine) -> None:
        """A client uses a region again and again."""
        if not self.is_breaking:
            return
        process = machine.process
        if process is not None and not machine.is_removed:
            process.happen(lambda: self._act(process))
            self._drop_readings()
        self._count_joins()
        self.timeline.after(
            self._clients.expovariate(1 / self._interval_ms), lambda: self._client(machine)
        )

    def _act(self, process: Process) -> None:
        if process.is_joining:  # the checks compare the data before and after a command
            return
        if process.machine.cuts_work and self._dumps.random() < DUMP_SHARE:
            # The requests below run before the DUMP continues.
            is_cut = process.dumper.dump(self._dumps.choice(self.work.keys))
            self.record.reached["command in slices"] += is_cut
        chance = self._clients
        dice = chance.random()
        if dice < 0.07:
            idle = [r for r in self._readers if all(r is not x.reader for x in self._readings)]
            if idle:
                self._read(process, chance.choice(idle))
        elif dice < 0.1:
            self._transact(process)
        else:
            for _ in range(chance.choice([1, 1, 1, 2, 4])):  # requests of one turn
                if "disk" in self.faults and self._saves.random() < SAVE_SHARE:
                    process.do([b"BGSAVE"])  # writes the turn so far, which may fail
                words = self.work.command(process)
                self._say_command(process, words, self.checks.command(process, words))

    def _read(self, process: Process, reader: Reader) -> None:
        reply = self.checks.readers.read(process, reader)
        if reply is not None:
            reading = _Reading(process, reader, *reply)
            self._readings.append(reading)
            process.reader.on_answer(lambda: self._take_reply(reading))

    def _transact(self, process: Process) -> None:
        commands = self.work.unit(process)
        process.do([b"MULTI"])
        for words in commands:
            process.do(words)
        reply = process.do([b"EXEC"])
        self.record.reached["transaction"] += 1
        for words in commands:
            self._say_command(process, words, reply)

    def _say_command(self, process: Process, words: list[bytes], reply: object) -> None:
        self.commands += 1
        line = b" ".join(words).decode("utf-8", "backslashreplace")[:500]
        said = f"error {reply}" if isinstance(reply, Exception) else repr(reply)[:200]
        self.record.say(process.machine.number, f"{line} -> {said}")

    def _take_reply(self, reading: _Reading) -> None:
        if reading in self._readings:
            self._readings.remove(reading)
            self.checks.readers.got(reading.reader, reading.cursor, reading.entries)

    def _drop_readings(self) -> bool:
        """Forget replies of processes that have ended, or have cut off their clients.

        The end of a run does not wait for removed regions, whose last sync may be slow. Returns
        whether all other replies have come.
        """
        for each in list(self._readings):
            process = each.process
            is_late = process.machine.is_removed and not self.is_breaking
            if process.has_ended or process.durability.broken or is_late:
                self._readings.remove(each)
        return not self._readings

    # -- looking on ---------------------------------------------------------------------------

    def _has_changed(self, process: Process) -> None:
        runs = any(machine.process is process for machine in self.machines)
        if runs and not process.is_joining:
            self.checks.changed(process)

    def _observe(self) -> None:
        """Count the situations that the run has reached, and compare a region with the formulas."""
        if not self.is_breaking:
            return
        reached = self.record.reached
        for machine in self.machines:
            process = machine.process
            if process is None:
                continue
            receiver = process.replicator.receiver
            reached["held batch"] += bool(len(receiver.buffer))
            reached["replies held for a slow sync"] += process.durability.delayed_syncs
            reached["newcomer refused writes"] += process.exchange.gate.is_newcomer
            reached["tombstones waited"] += bool(process.region.keyspace.marked_keys)
            level = min(process.replicator.gossip.feature_levels().values())
            reached["feature level raised"] += level > self._levels.get(process, level)
            self._levels[process] = level
        process = self._clients.choice(self.machines).process  # a broken log records no effects
        is_whole = process and not (process.durability.broken or process.is_joining)
        if process and is_whole and self._clients.random() < 0.1:
            self.checks.compare_with_formulas(process)
        self.timeline.after(STEP_MS, self._observe)

    def _count_joins(self) -> None:
        joining = {
            machine.number: incoming
            for machine in self.machines
            if machine.process is not None
            and (incoming := machine.process.replicator.receiver.joiner.incoming) is not None
        }
        for number, incoming in joining.items():
            other = joining.get(incoming.session.region)
            if other is not None and other.session.region == number:
                self.record.reached["full syncs in both directions"] += 1

    # -- what faults do to the cluster --------------------------------------------------------

    def _refused(self, machine: Machine) -> None:
        """An operator gives a machine whose log is damaged an empty disk."""
        self.lose_disk(machine)
        self.timeline.after(RESTART_MS, machine.start)

    def lose_disk(self, machine: Machine) -> None:
        """A machine gets an empty disk; effects that only this machine had may be lost.

        Effects of a removed region, too: no other region accepts them from that one any more.
        """
        others = [each.process for each in self.members() if each is not machine and each.process]
        gone = {each.number for each in self.machines if each is machine or each.is_removed}
        for replica_id in list(self.record.promised):
            upto = max(
                (each.exchange.local.durable.get(replica_id, 0) for each in others), default=0
            )
            if region_of(replica_id) in gone or upto == 0:
                self.record.excuse(replica_id, upto)
        machine.lose_disk()

    def remove(self, machine: Machine, by: Machine) -> None:
        """A region removes another, which may be down; effects that only that one had are lost."""
        process = by.process
        if (
            process is None
            or machine.is_removed
            or by.is_removed
            or not by.is_up
            or machine.number not in process.replica.members
        ):
            return
        others = [each.process for each in self.members() if each is not machine and each.process]
        for replica_id in list(self.record.promised):
            if region_of(replica_id) == machine.number:
                self.record.excuse(
                    replica_id,
                    max(each.exchange.local.durable.get(replica_id, 0) for each in others),
                )
        self.record.say(by.number, f"removes region {machine.number}")
        machine.is_removed = True
        process.happen(lambda: process.replicator.remove(machine.number, force=True))


def stream_deadlines(process: Process) -> bool:
    """Whether any key of a region has a deadline."""
    return any(database.deadlines for database in process.region.keyspace.databases)
