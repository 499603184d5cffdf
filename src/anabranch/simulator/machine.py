"""A machine with a disk and a clock, and the process that may run on it.

When a process starts, its data is compared with what must be on the disk.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.engine.spec import Command
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica, region_of, replica_id_of
from anabranch.oplog.errors import LogError
from anabranch.oplog.recovery import recover
from anabranch.oplog.snapshot import position_of
from anabranch.replication.former_epochs import ANSWER_MS
from anabranch.replication.interface import Address
from anabranch.simulator import looking
from anabranch.simulator.disk import MemoryStorage
from anabranch.simulator.network import Network
from anabranch.simulator.process import LATE_MS, NEW_LEVEL, TICK_MS, WORK_MS, Process
from anabranch.simulator.record import RunRecord, Violation
from anabranch.simulator.timeline import Timeline, WallClock

RESTART_MS: Final = 500.0


class Machine:
    """A machine: a disk that outlives processes, and the process that runs, if any."""

    def __init__(
        self,
        settings: Settings,
        timeline: Timeline,
        network: Network,
        record: RunRecord,
        chance: random.Random,
        has_changed: Callable[[Process], None],
    ) -> None:
        self.number = number = settings.region_id
        self.place = number
        """Its place in the network; by default its number."""
        self.settings = settings
        self.timeline = timeline
        self.network = network
        self.record = record
        self.chance = chance
        self.has_changed = has_changed
        self.clock = WallClock(timeline, random.Random(f"{number}/ticks"))
        self.disk = MemoryStorage(boot="boot 1")
        self.process: Process | None = None
        self.paused_until = 0.0
        self.boots = 1
        self.starts = 0
        self.is_full = False
        """Whether there is no memory for more effects of other regions."""
        self.first_level = NEW_LEVEL
        """The feature level of its first process; later processes have the newest."""
        self.is_removed = False
        """Whether it was removed from the cluster: its data need not agree any more."""
        self.is_rotten = False
        """Whether a bit of its log was flipped: synced effects may be lost."""
        self.on_refused: Callable[[Machine], None]
        """Called when recovery refuses the disk."""
        self.cuts_work = False
        """Whether the scheduler cuts work into slices, as in the server."""
        self.keeps_log = False
        """Whether the log keeps all files, so that a recovery can be compared with a replay."""
        self.commands: Sequence[Command] = COMMANDS
        """The commands that its processes know."""
        self.secret = "secret"  # noqa: S105 - so that links are sealed
        self.work_ms: Sequence[float] = WORK_MS
        """The range of the duration of work on the disk."""
        self.late_ms: Sequence[float] = LATE_MS
        """The range of the delay of timers."""
        self.seeds: list[Address] = []
        self.others: Callable[[], list[Machine]] = list
        """The machines of the other members."""
        self._former: dict[int, dict[int, int]] = {}
        # by machine, the former epochs of this region that it had when this one lost its disk
        self._has_lost_power = False  # since the last start
        self._wanted = False
        self._is_new_disk = False
        self._synced = 0  # the log was on the disk up to this position
        self._whole: dict[str, Any] | None = None  # the data that the next start must restore
        self._written: deque[tuple[int, dict[str, Any]]] = deque(maxlen=300)
        # positions of the log, and the data at each of them

    @property
    def is_up(self) -> bool:
        """Whether a process runs here, and belongs to a cluster."""
        return self.process is not None and bool(self.process.replica.cluster_id)

    def start(self, *, found: bool = False) -> None:
        """Start the process; if that fails, try again after a while."""
        self._wanted = True
        if self.process is not None:
            return
        self.starts += 1
        try:
            process = Process(self, self.seeds, creates=found)
        except (LogError, OSError) as problem:
            if isinstance(problem, OSError) or isinstance(problem.__context__, OSError):
                self.record.say(self.number, f"cannot start: {problem}")
                self.record.reached["start refused by the disk"] += 1
                self.timeline.after(RESTART_MS, self._start_again)
                return
            if not self.is_rotten:
                raise Violation(3, f"region {self.number} refuses its disk: {problem}") from None
            self.record.say(self.number, f"cannot start: {problem}")
            self.record.reached["start refused for a damaged log"] += 1
            self.on_refused(self)
            return
        self.process = process
        self.record.say(self.number, f"starts in epoch {process.replica.epoch}")
        self.network.listen(process.wire)
        process.happen(process.exchange.pulse)
        self._tick(process)

    def _start_again(self) -> None:
        if self._wanted:
            self.start()

    def _tick(self, process: Process) -> None:
        if not process.has_ended:
            process.happen(process.tick)
            self.timeline.after(TICK_MS, lambda: self._tick(process))

    # -- ends ---------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill -9: all writes stay."""
        self._wanted = False
        process, self.process = self.process, None
        if process is None:
            return
        self.record.say(self.number, "is killed")
        self.record.reached["kill"] += 1
        process.end(silently=False)
        self._written.clear()
        self._synced = process.log.synced
        if not process.durability.is_behind:
            self._whole = looking.everything(process.region.keyspace)

    def lose_power(self) -> None:
        """A power failure: unsynced data is lost, and the system has another boot ID."""
        self._wanted = False
        process, self.process = self.process, None
        self.boots += 1
        self._has_lost_power = True
        self._whole = None
        if process is None or not process.exchange.gate.is_newcomer:
            self._former.clear()
        if process is not None:
            self._synced = process.log.synced
            process.end(silently=True)
        self.record.say(self.number, "loses power")
        self.record.reached["power failure"] += 1
        free = self.disk.free
        self.disk = self.disk.crash(self.chance, holes=self.chance.random() < 0.5)
        self.record.reached["hole left by a power failure"] += self.disk.holes
        self.disk.free = free
        self.disk.boot = f"boot {self.boots}"

    def stop(self) -> None:
        """Stop the process in an orderly way."""
        self._wanted = False
        process = self.process
        if process is None:
            return
        if not process.end_in_order():
            self.kill()
            return
        self.record.say(self.number, "stops")
        self.record.reached["orderly stop"] += 1
        self._written.clear()
        self._synced = process.log.synced
        self._whole = looking.everything(process.region.keyspace)
        self.process = None

    def lose_disk(self) -> None:
        """The machine comes back with an empty disk."""
        self.kill()
        self.boots += 1
        self.record.say(self.number, "has lost its disk")
        self.record.reached["disk lost"] += 1
        self.disk = MemoryStorage(boot=f"boot {self.boots}")
        self.is_rotten = False
        self._whole = None
        self._synced = 0
        self._is_new_disk = True
        self._former = {
            each.number: {o: n for o, n in each.has().items() if region_of(o) == self.number}
            for each in self.others()
        }

    def rot(self) -> bool:
        """Flip one bit of the log on the disk; false if the disk is empty."""
        return self._has_rotten(self.disk.rot("log-", self.chance))

    def rot_end(self) -> bool:
        """Flip one of the last bits of the log while no process runs; false without a log."""
        return self._has_rotten(self.disk.rot_end("log-", self.chance))

    def _has_rotten(self, place: str) -> bool:
        if place:
            self.is_rotten = True
            self.record.say(self.number, f"has a bit turned over in {place}")
            self.record.reached["bit of the log flipped"] += 1
        return bool(place)

    def record_position(self, process: Process) -> None:
        """Record the data of the region at the present end of its log."""
        if not process.durability.is_behind:
            self._written.append((process.log.end, looking.everything(process.region.keyspace)))

    def pause(self, ms: float) -> None:
        """The process stands still, and its connections with it."""
        self.paused_until = max(self.paused_until, self.timeline.now_ms + ms)
        self.record.say(self.number, f"pauses for {ms:.0f} ms")
        self.record.reached["pause"] += 1

    def wake(self) -> None:
        """End the pause of the process."""
        self.paused_until = self.timeline.now_ms
        if self.process is not None:
            self.process.wake()

    # -- what recovery must bring -------------------------------------------------------------

    def check_recovery(self, process: Process) -> None:
        """Compare the recovered data with what must be on the disk."""
        record = self.record
        whole, self._whole = self._whole, None
        found = process.on_disk
        if self.is_rotten and process.report.cut is not None:
            whole, self._synced = None, 0  # the bit was in what looks like an unfinished end
        if whole is not None:
            _compare(f"region {self.number} recovers", found, whole, 14)
        for position, then in self._written:
            if position == process.report.end:
                _compare(f"region {self.number} recovers position {position}:", found, then, 14)
                record.reached["recovery compared with what was written"] += 1
        self._written.clear()
        if process.report.end < self._synced:
            raise Violation(
                3,
                f"region {self.number} recovers its log up to {process.report.end}, "
                f"and had synced it up to {self._synced}",
            )
        vector = found["vector"]
        for replica_id, number in list(record.promised.items()):
            if region_of(replica_id) == self.number and number > vector.get(replica_id, 0):
                is_excused = self._is_new_disk or self.is_rotten
                if self.settings.appendfsync == "always" and not is_excused:
                    raise Violation(
                        3,
                        f"region {self.number} lost effects {vector.get(replica_id, 0) + 1} to "
                        f"{number} of replica ID {replica_id} with appendfsync always",
                    )
                record.excuse(replica_id, vector.get(replica_id, 0))
        is_excused = self._is_new_disk or self.is_rotten
        if self._has_lost_power and self.settings.appendfsync != "always":
            is_excused = True
        self._has_lost_power = False
        record.recovered(self.number, vector, is_excused=is_excused)
        self._is_new_disk = False
        for replica_id in record.replica_ids():
            if region_of(replica_id) == self.number:
                record.lost(replica_id, vector.get(replica_id, 0))
        if self.keeps_log and not self.is_rotten and process.report.snapshot is not None:
            self._compare_with_replay(found)

    @property
    def due(self) -> list[object]:
        """What the next start must restore, to compare two pasts of a machine."""
        return [
            self._synced,
            self._whole,
            list(self._written),
            self._has_lost_power,
            self._is_new_disk,
            self.is_rotten,
        ]

    def has(self) -> dict[int, int]:
        """The applied effects; while no process runs, those on the disk."""
        if self.process is not None:
            return dict(self.process.replica.vector)
        return dict(self._whole["vector"]) if self._whole is not None else {}

    def check_newcomer(self, process: Process) -> None:
        """A region that lost its data answers a write: it must have its former effects again.

        This concerns effects that another member had then and still has. A member that does not
        answer for :data:`ANSWER_MS` does not count.
        """
        now_ms = self.timeline.now_ms
        may_leave_out = now_ms - process.began_ms >= ANSWER_MS
        for other in self.others():
            if may_leave_out and not process.is_linked(other.number):
                continue
            has = other.has()
            for replica_id, then in self._former.get(other.number, {}).items():
                due = min(then, has.get(replica_id, 0))
                ours = process.replica.vector.get(replica_id, 0)
                if ours < due:
                    raise Violation(
                        25,
                        f"region {self.number} began anew and takes writes with {ours} effects of "
                        f"its former replica ID {replica_id}; region {other.number} has {due}",
                    )

    def _compare_with_replay(self, found: dict[str, Any]) -> None:
        """The log alone must give the same data as the snapshot with the rest of the log."""
        log = MemoryStorage(
            {name: data for name, data in self.disk.files().items() if position_of(name) is None}
        )
        replica = Replica(
            replica_id_of(self.number, 0),
            lambda: (self.settings.stream_idmp_duration, self.settings.stream_idmp_maxsize),
        )
        keyspace = Keyspace(self.settings.databases, replica)
        for _ in recover(log, keyspace):
            pass
        replayed = looking.everything(keyspace)
        _compare(f"region {self.number} recovers from its snapshot", found, replayed, 15)
        self.record.reached["recovery compared with replay"] += 1


def _compare(what: str, found: dict[str, Any], due: dict[str, Any], number: int) -> None:
    for part, expected in due.items():
        if found[part] != expected:
            raise Violation(number, f"{what} {part} {found[part]} instead of {expected}")
