"""The process that runs on a machine: a region, its log, its replicator.

It is put together as a server does it (``server/app.py``, ``persistence.py``, ``regions.py``):
recovery, the log, the decision about the epoch, the replicator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import hiredis

from anabranch.keyspace.replica import epoch_of
from anabranch.node.lifetime import CLEAN, Lifetime, begin_life
from anabranch.oplog.batch import Batch
from anabranch.oplog.log import OpLog
from anabranch.oplog.recovery import Recovery, recover
from anabranch.oplog.snapshot import position_of
from anabranch.region.region import Region
from anabranch.region.turn import Turn
from anabranch.replication.interface import Address, ReplicationConfig
from anabranch.replication.local import RegionLocal, joined_at
from anabranch.replication.replicator import Replicator
from anabranch.simulator import looking
from anabranch.simulator.host import SimulatedHost
from anabranch.simulator.journal import SimulatedJournal
from anabranch.simulator.network import Wire
from anabranch.simulator.record import Violation
from anabranch.simulator.snapshotting import SnapshotInProgress

if TYPE_CHECKING:
    from anabranch.simulator.node import Node

__all__ = ["CLUSTER", "DIGEST_INTERVAL_MS", "HOST", "NEW_LEVEL", "TICK_MS", "Process"]

TICK_MS: Final = 50.0
DIGEST_INTERVAL_MS: Final = 1000.0
NEW_LEVEL: Final = 2
"""What a process knows to do if the code was not of an older version."""
CLUSTER: Final = "c" * 32
HOST: Final = "sim"

_COUNTED: Final = {
    "relay": "relay used",
    "joined": "state joined",
    "join_resumed": "state join resumed",
    "new_epoch": "epoch opened",
    "refused": "link refused",
    "not_applied": "effects not applied for want of disk",
    "ahead_of_us": "others knew more of a region than itself",
    "bad_batch": "batch refused",
    "log_damaged": "damage found by a reader of the log",
}


class Process(RegionLocal):
    """What runs on a machine from a start to an end."""

    chunk_bytes = 400  # so that links end in the midst of small states, too

    def __init__(self, node: Node, seeds: list[Address]) -> None:
        self.node = node
        chance = node.chance
        self.host = SimulatedHost(chance)
        region = Region(node.settings, node.clock, self.host)
        self.report = Recovery()
        for self.report in recover(node.disk, region.keyspace):
            pass
        self.on_disk = looking.everything(region.keyspace)
        """What the disk had."""
        log = OpLog(
            node.disk,
            self.report.segments,
            end=self.report.end,
            segment_bytes=node.settings.oplog_segment_bytes,
            unborn=self.report.unborn,
        )
        log.secure()
        turn = Turn(region.replica)
        turn.next_number = self.report.next_number
        region.effects.record = turn.effects.append
        self.journal = SimulatedJournal(
            log, turn, node.settings.appendfsync, region.dispatcher, self.wall_ms,
            node.timeline, chance,
        )  # fmt: skip
        super().__init__(region, self.journal)
        self.region = region
        self.log = log
        self.session = region.open_session("127.0.0.1:1", "127.0.0.1:2")
        self._reader = hiredis.Reader()
        self._owed: deque[tuple[int, int, int]] = deque()  # (position, origin, number)
        self._told = False
        self._postponed: list[Callable[[], None]] = []
        self._snapshot: SnapshotInProgress | None = None
        self.has_ended = False
        node.check_recovery(self)
        self._open(log)
        self.wire = Wire(node.network, node.place, self)
        config = ReplicationConfig(
            name=f"r{node.number}",
            host=HOST,
            port=node.network.port(node.place),
            run_id=f"{node.place}/{node.starts}",
            wall_ms=self.wall_ms,
            join=seeds,
            secret=b"secret",
            window_bytes=node.settings.gossip_window,
            hold_bytes=node.settings.gossip_hold_bytes,
            feature_level=node.first_level if node.starts == 1 else NEW_LEVEL,
            digest_interval_ms=DIGEST_INTERVAL_MS,
        )
        self.replicator = Replicator(self, self.wire, config, chance)

    def _open(self, log: OpLog) -> None:
        """As a server does it once its log can be written."""
        node = self.node
        self.open_log(node.disk, log)
        self.journal.on_taken = self.taken
        self._lifetime = Lifetime(node.disk)
        own = self.replica.own
        was_cut = self.report.cut is not None
        begin_life(self, self._lifetime, node.settings.appendfsync, was_cut=was_cut)
        goes_on = self.replica.cluster_id and own == self.replica.own
        if goes_on and self.own_number < node.record.left.get(own, 0):
            raise Violation(
                23,
                f"region {node.number} goes on in epoch {epoch_of(own)} behind effect "
                f"{self.own_number}, but {node.record.left[own]} have left it",
            )

    def wall_ms(self) -> int:
        """The machine's clock."""
        return self.node.clock.now_us() // 1000

    @property
    def own_number(self) -> int:
        """How many effects the own origin has."""
        return self.replica.vector.get(self.replica.own, 0)

    # -- as the replicator's surroundings -----------------------------------------------------

    @property
    def is_full(self) -> bool:
        """See :class:`RegionLocal`."""
        return self.node.is_full

    def taken(self, batches: list[bytes], position: int) -> None:
        """See :class:`RegionLocal`."""
        super().taken(batches, position)
        for data in batches:
            self.node.record.made(data)

    def deliver(self, unit: list[Batch], raw: list[bytes]) -> None:
        """See :class:`RegionLocal`."""
        for data in raw:
            self.node.record.arrives(data)
        if unit[0].region == self.node.number:
            self.node.record.reached["effects fetched back"] += 1
        super().deliver(unit, raw)

    def state(
        self, known: Mapping[int, int], places: list[tuple[int, bytes]]
    ) -> tuple[Iterator[bytes], bool]:
        """See :class:`RegionLocal`."""
        chunks, partial = super().state(known, places)
        for origin, number in self.replica.vector.items():
            self.node.record.leaves(origin, number)
        return chunks, partial

    def after_effects(self) -> None:
        """See :class:`RegionLocal`."""
        self.node.has_changed(self)

    def note(self, event: str, **facts: object) -> None:
        """See :class:`RegionLocal`."""
        record = self.node.record
        record.say(self.node.number, " ".join([event, *(f"{k}={v}" for k, v in facts.items())]))
        if (name := _COUNTED.get(event)) is not None:
            record.reached[name] += 1
        if event in ("set_back", "conflict"):  # no disk is set back in a run
            raise Violation(23, f"region {self.node.number} tells {event}: {facts}")
        if event == "divergence":
            record.on_divergence(self.node.number, facts)

    # -- events -------------------------------------------------------------------------------

    def happen(self, action: Callable[[], None]) -> None:
        """An event, now or when the process is not paused any more."""
        node = self.node
        if node.timeline.now_ms < node.paused_until or self._postponed:
            if not self._postponed:
                node.timeline.after(node.paused_until - node.timeline.now_ms, self.wake)
            self._postponed.append(action)
        elif not self.has_ended:
            action()
            self.finish_event()

    def wake(self) -> None:
        """What has happened while the machine stood still happens, unless it still does."""
        node = self.node
        if self._postponed and node.timeline.now_ms < node.paused_until:
            node.timeline.after(node.paused_until - node.timeline.now_ms, self.wake)
            return
        postponed, self._postponed = self._postponed, []
        for action in postponed:
            self.happen(action)

    def finish_event(self) -> None:
        """Write what was done, tell who waits."""
        journal = self.journal
        journal.commit()
        if journal.has_progress:
            journal.has_progress = False
            self.synced()
            if not self._told:
                self._told = True
                self.node.timeline.after(0, lambda: self.happen(self._tell))
        while self._owed and self._owed[0][0] <= journal.safe and not journal.broken:
            _, origin, number = self._owed.popleft()
            if not self.node.is_removed:
                self.node.record.promise(origin, number)
        self.host.persistence.position = journal.mark
        self.host.persistence.synced_position = journal.synced
        self.node.has_changed(self)

    def _tell(self) -> None:
        self._told = False
        if not self.journal.broken:
            self.replicator.appended(self.node.timeline.now_ms)

    def tick(self) -> None:
        """Called every :data:`TICK_MS`."""
        self.journal.tick()
        if self.journal.broken:
            return
        self.region.tick()
        self._receive_pending()
        self.replicator.tick(self.node.timeline.now_ms)
        if self._snapshot is not None:
            self._continue_snapshot()

    def link_up(self, link: int, dialled: Address | None) -> None:
        """See :class:`Peer`."""
        now = self.node.timeline
        self.happen(lambda: self.replicator.link_up(link, now.now_ms, dialled))

    def link_down(self, link: int) -> None:
        """See :class:`Peer`."""
        incoming = self.replicator._receiver.joiner.incoming  # noqa: SLF001
        if incoming is not None and incoming.session.link == link:
            self._count_join("link")
        self.happen(lambda: self.replicator.link_down(link, self.node.timeline.now_ms))

    def dial_failed(self, host: str, port: int) -> None:
        """See :class:`Peer`."""
        self.happen(lambda: self.replicator.dial_failed(host, port, self.node.timeline.now_ms))

    def frame(self, link: int, data: bytes) -> None:
        """See :class:`Peer`."""
        self.happen(
            lambda: self.replicator.receive(link, data[4], data[5:], self.node.timeline.now_ms)
        )

    # -- commands -----------------------------------------------------------------------------

    def do(self, words: list[bytes]) -> Any:
        """A command; its reply, an error reply as an exception that is returned."""
        self.region.execute(self.session, [words])
        return self.take_reply()

    def take_reply(self) -> Any:
        """The reply to a command that was not answered at once; None if there is none yet."""
        self._reader.feed(b"".join(self.session.outbox))
        self.session.outbox.clear()
        reply = self._reader.gets()
        self.host.persistence.position = self.journal.mark
        return None if reply is False else reply

    def owe(self) -> None:
        """What was done so far is to be answered when it is safe."""
        if not self.journal.broken:
            self._owed.append((self.journal.mark, self.replica.own, self.own_number))

    def _receive_pending(self) -> None:
        for session in self.region.take_pending():
            self.region.resume(session)
            session.outbox.clear()

    # -- snapshots ----------------------------------------------------------------------------

    def begin_snapshot(self) -> None:
        """Take one, a few records with every tick."""
        if self._snapshot is None and not self.journal.is_behind:
            try:
                self._snapshot = SnapshotInProgress(self)
            except OSError:
                return
            self.node.record.say(self.node.number, "snapshot begins")

    def _continue_snapshot(self) -> None:
        snapshot = self._snapshot
        assert snapshot is not None
        try:
            if not snapshot.go_on():
                return
        except OSError:
            self._drop_snapshot()
            return
        self._snapshot = None
        self.node.record.reached["snapshot taken"] += 1
        self.node.record.say(self.node.number, "snapshot is finished")
        with suppress(OSError):
            self.log.manifest.snapshot = snapshot.position
            self.log.note()
            for name in self.node.disk.names():
                other = position_of(name)
                if other is not None and other < snapshot.position:
                    self.node.disk.remove(name)
            if not self.node.keeps_log:
                self.log.retire(snapshot.position)
                self.forget_states(snapshot.position)

    def _drop_snapshot(self) -> None:
        if self._snapshot is not None:
            self._snapshot.discard()
            self._snapshot = None

    # -- the end ------------------------------------------------------------------------------

    def _count_join(self, ended: str) -> None:
        """A state was being joined when the link or the process ended."""
        incoming = self.replicator._receiver.joiner.incoming  # noqa: SLF001
        if incoming is None:
            return
        step = "asked for" if incoming.vector is None else "under way"
        self.node.record.reached[f"state join: {ended} ended when it was {step}"] += 1

    def end(self, *, silently: bool) -> None:
        """The process is gone, with or without the system beneath it."""
        self._count_join("process")
        joined = [joined_at(name) for name in self.node.disk.names()]
        if silently and any(at is not None and at >= self.log.synced for at in joined):
            self.node.record.reached["state join: power failed before it was on the disk"] += 1
        self.has_ended = True
        self.journal.is_off = True
        self.node.network.vanish(self.wire, silently=silently)

    def stop(self) -> bool:
        """An orderly stop; whether all could be kept."""
        try:
            self.journal.settle()
        except OSError:
            return False
        self.finish_event()
        self.replicator.stop()
        with suppress(OSError):
            self._lifetime.note(CLEAN)
        self.end(silently=False)
        return True
