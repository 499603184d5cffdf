"""A machine with a disk and a clock, and the process that may run on it: a node in virtual time.

The :class:`anabranch.node.node.Node` is the one that a server drives, with all of its rules. Here
its disk and network fail, its clock is wrong, and its events are recorded. When a process starts,
its data is compared with what must be on the disk.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.engine.spec import Command
from anabranch.errors import CommandError
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.places import Places
from anabranch.keyspace.replica import Replica, epoch_of, region_of, replica_id_of
from anabranch.node.durability import Durability
from anabranch.node.exchange import Exchange
from anabranch.node.full_syncs import joined_at
from anabranch.node.local import RegionLocal
from anabranch.node.node import Node
from anabranch.oplog.batch import Batch
from anabranch.oplog.errors import LogError
from anabranch.oplog.log import OpLog
from anabranch.oplog.recovery import Recovery, recover
from anabranch.oplog.snapshot import position_of
from anabranch.oplog.storage import Storage
from anabranch.replication.former_epochs import ANSWER_MS
from anabranch.replication.interface import FEATURE_LEVEL, Address
from anabranch.resp.values import read_value
from anabranch.simulator import looking
from anabranch.simulator.client import SimulatedClient, SlicedClient, run_at_once
from anabranch.simulator.disk import MemoryPlace, MemoryStorage
from anabranch.simulator.driver import SimulatedDriver, SimulatedHost
from anabranch.simulator.network import Network, Wire
from anabranch.simulator.record import RunRecord, Violation
from anabranch.simulator.timeline import Timeline, WallClock

TICK_MS: Final = 50.0
DIGEST_INTERVAL_MS: Final = 1000.0
RESTART_MS: Final = 500.0
NEW_LEVEL: Final = FEATURE_LEVEL
"""The feature level of the newest code."""
HOST: Final = "sim"

WORK_MS: Final = (0.3, 1, 2, 5, 30)
"""The range of the duration of a sync or of a write of a snapshot."""

QUICK_WORK_MS: Final = (0.3,)
"""The same of a disk that is always quick: the process soon syncs without a thread."""

LATE_MS: Final = (0, 1, 5, 50)
"""The range of the delay of a timer."""

TURN_MS: Final = (0, 1, 5, 50)
"""The range of the delay of a turn for unfinished work."""

_COUNTED: Final = {
    "relay": "relay used",
    "joined": "full sync joined",
    "join_resumed": "full sync resumed",
    "new_epoch": "epoch opened",
    "refused": "link refused",
    "not_applied": "effects not applied for want of disk",
    "ahead_of_us": "others knew more of a region than itself",
    "bad_batch": "batch refused",
    "log_damaged": "damage found by a reader of the log",
}


class RecordedLocal(RegionLocal):
    """The region of a process as its replicator sees it; what happens is recorded and checked."""

    def __init__(self, process: Process, durability: Durability) -> None:
        super().__init__(process.region, durability)
        self.chunk_bytes = 400  # so that links also end within small full syncs
        self.process = process
        self.machine = process.machine

    def open_log(self, storage: Storage, log: OpLog) -> None:
        """Compare the recovered data with what must be on the disk, before anything changes it."""
        self.process.recovered()
        super().open_log(storage, log)

    @property
    def is_full(self) -> bool:
        """Whether a run has taken the memory for effects of others away."""
        return self.machine.is_full

    def taken(self, batches: list[bytes], position: int) -> None:
        """Record the batches of an own turn."""
        super().taken(batches, position)
        for data in batches:
            self.machine.record.made(data)

    def deliver(self, units: list[Batch], raw: list[bytes]) -> None:
        """Record batches that arrive before they are applied."""
        for data in raw:
            self.machine.record.arrives(data)
        if units[0].region == self.machine.number:
            self.machine.record.reached["effects fetched back"] += 1
        super().deliver(units, raw)

    def full_sync(self, places: Places | None) -> Iterator[bytes]:
        """Record what leaves the region in a full sync."""
        chunks = super().full_sync(places)
        for replica_id, number in self.replica.vector.items():
            self.machine.record.leaves(replica_id, number)
        return chunks

    def _needed_from(self) -> int:
        return 0 if self.machine.keeps_log else super()._needed_from()

    def forget_full_syncs(self, position: int) -> None:
        """Keep full syncs, too, while the log keeps all files."""
        if not self.machine.keeps_log:
            super().forget_full_syncs(position)

    def after_effects(self) -> None:
        """Have the checks look at the process."""
        super().after_effects()
        self.machine.has_changed(self.process)

    def report_event(self, event: str, **facts: object) -> None:
        """Record an event; some must not happen in a run."""
        record = self.machine.record
        record.say(self.machine.number, " ".join([event, *(f"{k}={v}" for k, v in facts.items())]))
        if (name := _COUNTED.get(event)) is not None:
            record.reached[name] += 1
        if event in ("set_back", "conflict"):  # no disk is set back in a run
            raise Violation(23, f"region {self.machine.number} reports {event}: {facts}")
        if event == "takes_writes" and not self.machine.is_removed:
            self.machine.check_newcomer(self.process)
        if event == "divergence":
            record.on_divergence(self.machine.number, facts)
        super().report_event(event, **facts)


class Process:
    """One run of the process of a machine, from a start to an end."""

    def __init__(self, machine: Machine, seeds: list[Address], *, creates: bool = False) -> None:
        """``creates``: create a cluster, unless the disk belongs to one."""
        self.machine = machine
        chance = machine.chance
        settings = machine.settings
        settings.region_name = f"r{machine.number}"
        settings.gossip_announce = HOST
        settings.gossip_port = machine.network.port(machine.place)
        settings.gossip_secret = machine.secret
        settings.digest_interval = int(DIGEST_INTERVAL_MS / 1000)
        settings.join = " ".join(f"{host}:{port}" for host, port in seeds)
        settings.cluster_create = creates
        self.driver = SimulatedDriver(
            machine.timeline, self.happen, chance, machine.work_ms, machine.late_ms
        )
        self.host = SimulatedHost(chance)
        place = MemoryPlace(machine.disk)
        self.core = Node(settings, machine.clock, self.host, self.driver, place, machine.commands)
        self.durability = self.core.durability
        self.region = self.core.region
        self.replica = self.region.replica
        local = RecordedLocal(self, self.durability)
        self.exchange = Exchange(local, self.region, self.durability, self.driver, chance)
        self.exchange.stretch = str.encode  # a simulated secret needs no slow derivation
        self.core.take_part(self.exchange)
        self.host.persistence = self.core.persistence
        self.host.regions = self.exchange
        self.report = Recovery()
        self.on_disk: dict[str, Any] = {}
        """The recovered data."""
        self._postponed: list[Callable[[], object]] = []
        self._unread: deque[tuple[int, bytes]] = deque()
        """Frames that have arrived while a full sync is joined."""
        self.began_ms = machine.timeline.now_ms
        self._turns = random.Random(f"{machine.number}/{machine.starts}/turns")
        self._snapshots = 0  # count of finished snapshots that were recorded
        self.has_ended = True  # until the start is complete
        self._recovered_id = 0  # the replica ID that recovery has found
        self.core.persistence.start()
        self._check_epoch()
        self.client = SimulatedClient(self)
        """The client that writes and reads."""
        self.reader = SimulatedClient(self)
        """The client that only reads."""
        self.dumper = SlicedClient(self)
        """The client whose commands are cut into slices."""
        self._inspector = self.region.open_session("127.0.0.1:3", "127.0.0.1:2")
        self.wire = Wire(machine.network, machine.place, self)
        level = machine.first_level if machine.starts == 1 else NEW_LEVEL
        run_id = f"{machine.place}/{machine.starts}"
        self.exchange.connect(self.wire, run_id, feature_level=level)
        self.replicator = self.exchange.replicator
        self.has_ended = False
        if machine.cuts_work:
            self.region.scheduler.drive(self._ask_for_turn)

    def recovered(self) -> None:
        """The data were recovered: compare them with what must be on the disk."""
        report = self.core.persistence.recovered
        assert report is not None
        self.report = report
        self.on_disk = looking.everything(self.region.keyspace)
        self.machine.check_recovery(self)
        self._recovered_id = self.replica.own

    def _check_epoch(self) -> None:
        """After the start: a region that goes on in its epoch has all that has left it."""
        machine, own = self.machine, self.replica.own
        goes_on = self.replica.cluster_id and own == self._recovered_id
        if goes_on and self.own_number < machine.record.left.get(own, 0):
            raise Violation(
                23,
                f"region {machine.number} goes on in epoch {epoch_of(own)} behind effect "
                f"{self.own_number}, but {machine.record.left[own]} have left it",
            )

    @property
    def log(self) -> OpLog:
        """The log of the process."""
        log = self.durability.log
        assert log is not None
        return log

    @property
    def own_number(self) -> int:
        """The number of the last own effect."""
        return self.replica.vector.get(self.replica.own, 0)

    @property
    def is_joining(self) -> bool:
        """Whether a full sync is being joined, so that a part of the data is not yet there."""
        return self.exchange.local.is_joining

    @property
    def is_as_logged(self) -> bool:
        """Whether a recovery from the log would find the data as they are."""
        return not (self.durability.is_behind or self.is_joining)

    # -- events -------------------------------------------------------------------------------

    def happen(self, action: Callable[[], object]) -> None:
        """Run an event now, or when the pause of the process ends."""
        machine = self.machine
        if machine.timeline.now_ms < machine.paused_until or self._postponed:
            if not self._postponed:
                machine.timeline.after(machine.paused_until - machine.timeline.now_ms, self.wake)
            self._postponed.append(action)
        elif not self.has_ended:
            action()
            self.finish_event()

    def wake(self) -> None:
        """Run the events of the time of the pause, unless another pause has begun."""
        machine = self.machine
        if self._postponed and machine.timeline.now_ms < machine.paused_until:
            machine.timeline.after(machine.paused_until - machine.timeline.now_ms, self.wake)
            return
        postponed, self._postponed = self._postponed, []
        for action in postponed:
            self.happen(action)

    def finish_event(self) -> None:
        """End the turn of the process."""
        self.client.flush()
        self.reader.flush()
        self.dumper.flush()
        self.core.end_turn()
        self.driver.end_turn()
        self._count_snapshots()
        self.machine.has_changed(self)

    def tick(self) -> None:
        """Called every :data:`TICK_MS`."""
        self.core.tick()
        while self._unread and not self.region.scheduler.is_exclusive:
            self._read(*self._unread.popleft())

    def link_up(self, link: int, dialled: Address | None) -> None:
        """A connection was made; ``dialled`` is the address if this side has dialled."""
        self.happen(lambda: self.replicator.sessions.link_up(link, self.exchange.now_ms(), dialled))

    def link_down(self, link: int) -> None:
        """A connection has ended: frames of it that wait are lost."""
        incoming = self.replicator.receiver.joiner.incoming
        if incoming is not None and incoming.session.link == link:
            self._count_join("link")
        self._unread = deque(each for each in self._unread if each[0] != link)
        self.happen(lambda: self.replicator.sessions.link_down(link, self.exchange.now_ms()))

    def dial_failed(self, host: str, port: int, why: str) -> None:
        """No connection was made; ``why`` is the reason."""
        self.happen(
            lambda: self.replicator.sessions.dial_failed(host, port, self.exchange.now_ms(), why)
        )

    def frame(self, link: int, data: bytes) -> None:
        """A whole frame has arrived; it waits while a full sync is joined."""

        def arrives() -> None:
            if self._unread or self.region.scheduler.is_exclusive:
                self.machine.record.reached["frame during a join"] += 1
                self._unread.append((link, data))
            else:
                self._read(link, data)

        self.happen(arrives)

    def part(self, link: int) -> None:
        """A part of a long frame has arrived, which shows that the other side lives."""
        self.happen(lambda: self.replicator.heard(link, self.exchange.now_ms()))

    def _read(self, link: int, data: bytes) -> None:
        """Process a frame, in a slice of time where work is cut."""
        scheduler = self.region.scheduler
        began_ns = scheduler.begin() if self.machine.cuts_work else 0
        self.replicator.receive(link, data[4], data[5:], self.exchange.now_ms())
        self.exchange.answer_waits()
        if self.machine.cuts_work:
            scheduler.end(began_ns)

    def _ask_for_turn(self) -> None:
        """Run another turn soon: what arrives until then finds unfinished work."""
        wait_ms = self._turns.choice(TURN_MS)
        self.machine.timeline.after(wait_ms, lambda: self.happen(self._run_turn))

    def _run_turn(self) -> None:
        self.machine.record.reached["turn for unfinished work"] += 1
        self.core.run_turn()

    # -- commands -----------------------------------------------------------------------------

    def do(self, words: list[bytes]) -> Any:
        """The reply of a command of the client that writes, before the client gets it."""
        return self.client.do(words)

    def inspect(self, words: list[bytes]) -> Any:
        """The reply of a command if nothing was withheld; no client gets the reply."""
        session, dispatcher = self._inspector, self.region.dispatcher
        withheld, dispatcher.withheld = dispatcher.withheld, None
        run_at_once(self.region, session, words)
        dispatcher.withheld = withheld
        reply = read_value(b"".join(session.outbox))
        session.outbox.clear()
        return reply

    def was_reported(self, upto: Mapping[int, int], *, is_write: bool) -> None:
        """A client has received replies that may report these effects."""
        machine = self.machine
        if machine.is_removed:
            return
        machine.record.was_reported(machine.number, upto)
        own = self.replica.own
        if own in upto:
            machine.record.promise(own, upto[own])
        if is_write and machine.timeline.now_ms - self.began_ms < ANSWER_MS:
            machine.check_newcomer(self)

    def is_linked(self, region: int) -> bool:
        """Whether there is a link to a region."""
        return any(
            peer.region == region and peer.connected_ms is not None
            for peer in self.exchange.peers()
        )

    # -- snapshots ----------------------------------------------------------------------------

    def begin_snapshot(self) -> None:
        """Begin a snapshot, unless one is in progress or the log cannot be written."""
        with suppress(CommandError):
            if self.core.persistence.begin_save():
                self.machine.record.say(self.machine.number, "snapshot begins")

    def _count_snapshots(self) -> None:
        count = self.core.persistence.snapshots.count
        if count != self._snapshots:
            self._snapshots = count
            self.machine.record.reached["snapshot taken"] += 1
            self.machine.record.say(self.machine.number, "snapshot is finished")

    # -- the end ------------------------------------------------------------------------------

    @property
    def has_unsynced_join(self) -> bool:
        """Whether it has joined a full sync, and its disk does not know that for sure."""
        joined = [joined_at(name) for name in self.machine.disk.names()]
        return any(at is not None and at >= self.log.synced for at in joined)

    def _count_join(self, ended: str) -> None:
        """Count a full sync that was in progress when the link or the process ended."""
        incoming = self.replicator.receiver.joiner.incoming
        if incoming is None:
            return
        step = "requested" if incoming.vector is None else "in progress"
        self.machine.record.reached[f"full sync: {ended} ended when it was {step}"] += 1

    def end(self, *, silently: bool) -> None:
        """The process has ended, by a kill or by a failure of its machine."""
        self._count_join("process")
        if silently and self.has_unsynced_join:
            self.machine.record.reached["full sync: power failed before it was on the disk"] += 1
        self.has_ended = True
        self.machine.network.vanish(self.wire, silently=silently)

    def end_in_order(self) -> bool:
        """An orderly stop; returns whether all effects are on the disk."""
        if not self.core.stop():
            return False
        self.finish_event()
        self.end(silently=False)
        return True


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
        if process.is_as_logged:
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
        if process.is_as_logged:
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
