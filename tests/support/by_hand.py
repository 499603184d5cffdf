"""A region that exchanges its effects by hand.

A :class:`Node` drives the process that the server drives (:class:`anabranch.node.node.Node`, with
its :class:`~anabranch.node.exchange.Exchange`) on a disk in memory; its clock stands still unless a
test sets it. It has no links: effects for other regions are read from its log, and their effects
are passed to its receiver as bytes, as a link does.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hiredis

from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.effects.recorded import Recorded
from anabranch.engine.spec import Command
from anabranch.keyspace.places import Places
from anabranch.keyspace.replica import Replica, region_of
from anabranch.node import node as process
from anabranch.node.exchange import Exchange
from anabranch.node.identity import forget_newcomer
from anabranch.node.local import RegionLocal
from anabranch.oplog.batch import Batch, is_local, sent_batch, wire_form
from anabranch.oplog.log import OpLog
from anabranch.oplog.snapshot import Contents, Snapshot
from anabranch.oplog.storage import Storage
from anabranch.region.turn import Turn
from anabranch.replication.causal import CausalBuffer
from anabranch.replication.frames import Behind, FullSyncBegin, FullSyncEnd, StatusRow
from anabranch.replication.peer import PeerSession, Stage
from anabranch.scheduling import in_one_go
from anabranch.simulator.disk import MemoryPlace, MemoryStorage
from anabranch.simulator.driver import SimulatedDriver
from anabranch.simulator.facts import Vector
from anabranch.stream.fields import NUMBER_MAX
from tests.support.recording import Recording
from tests.support.region_harness import FakeClock, FakeHost

if TYPE_CHECKING:
    from tests.support.mesh import Mesh

__all__ = ["FullSync", "Node", "Unit"]

SEGMENT_BYTES: Final = 4096
"""Small, so that logs have several files; a new one begins with a sync, never between two."""

START_MS: Final = 1_000
"""What clocks show at first."""

CHUNK_BYTES: Final = 200
"""Of a full sync, sent at a time: a record or two."""

NO_LIMIT: Final = 1 << 62


class Unit(NamedTuple):
    """Batches of one replica ID that are applied as one: those of one turn."""

    replica_id: int
    first: int
    last: int
    dependencies: Vector
    batches: tuple[bytes, ...]

    def fits(self, vector: Vector) -> bool:
        """Whether it is the next one, and everything in its context is applied."""
        return vector.get(self.replica_id, 0) == self.first - 1 and all(
            vector.get(replica_id, 0) >= number for replica_id, number in self.dependencies.items()
        )


class LocalByHand(RegionLocal):
    """A region in a mesh: a member from the first start on, without links."""

    def __init__(self, node: Node, core: process.Node) -> None:
        super().__init__(core.region, core.durability)
        self.chunk_bytes = CHUNK_BYTES
        self._node = node

    def open_log(self, storage: Storage, log: OpLog) -> None:
        self._region.effects.record = _Decided(self._node.durability.turn.recorded, self._node)
        super().open_log(storage, log)

    def taken(self, batches: list[bytes], position: int) -> None:
        super().taken(batches, position)
        self._node.made(batches)

    def deliver(self, units: list[Batch], raw: list[bytes]) -> None:
        at = 0
        for end, batch in enumerate(units, 1):
            if not batch.continues:
                _check(units[at:end], self._node.mesh.units[raw[at]].dependencies)
                at = end
        assert at == len(units)
        super().deliver(units, raw)
        self._node.steps.append(dict(self.replica.vector))


class _Decided(Recording):
    """Records effects for the log, and notes them."""

    def __init__(self, log: Recorded, node: Node) -> None:
        super().__init__(node.decided)
        self._log = log

    def append(self, effect: kinds.Effect) -> None:
        super().append(effect)
        self._log.append(effect)

    def go_to(self, db: int, key: bytes, position: int) -> None:
        super().go_to(db, key, position)
        self._log.go_to(db, key, position)

    def add(self, entry_id: int, fragment: bytes, weight: int, opens: bool) -> None:
        super().add(entry_id, fragment, weight, opens)
        self._log.add(entry_id, fragment, weight, opens)


def _check(unit: list[Batch], context: Vector) -> None:
    """Assert that batches belong together."""
    *ahead, last = unit
    assert last.dependencies == context
    assert not last.continues
    for batch in ahead:  # it may be encoded before its unit has all of its causes
        assert batch.continues
        assert all(
            number <= context[replica_id] for replica_id, number in batch.dependencies.items()
        )


class _Nowhere:
    """A transport without links."""

    def send(self, link: int, frame: bytes) -> None:
        pass

    def close(self, link: int) -> None:
        pass

    def dial(self, host: str, port: int) -> None:
        pass


class FullSync:
    """An unfinished full sync: data of the moment when it began."""

    def __init__(self, sender: Node, receiver: Node) -> None:
        self.sender = sender
        self.vector = dict(sender.vector)
        places = in_one_go(sender.local.choose(dict(receiver.vector)))
        self._chunks = sender.local.full_sync(places)
        self.is_partial = places is not None
        self._parts: list[bytes] = []
        receiver.begin_join(sender, partial=self.is_partial)
        self.go_on(1)

    def go_on(self, chunks: int) -> bool:
        """More chunks arrive; returns whether these were the last ones."""
        some = list(islice(self._chunks, chunks))
        self._parts += some
        return len(some) < chunks

    def end(self) -> bytes:
        """End the full sync; returns what has arrived."""
        self._chunks.close()  # type: ignore[attr-defined]
        return b"".join(self._parts)


class Node:
    """One region: its process, and what that exchanges by hand."""

    def __init__(
        self, mesh: Mesh, number: int, settings: Settings, commands: Sequence[Command]
    ) -> None:
        self.mesh = mesh
        self.number = number
        self.settings = settings
        self._commands = commands
        self._reader = hiredis.Reader()
        self.clock = FakeClock(START_MS)
        self._boots = 0
        self.storage = MemoryStorage(boot="boot 0")
        self.base: dict[int, int] = {}
        """By replica ID: effects up to this number cannot be sent any more."""
        self._version = 0
        self.issued: list[kinds.Effect] = []
        self.steps: list[Vector] = []
        """The version vector after each unit that arrived, until a test takes the list."""
        self._start()

    def _start(self) -> None:
        """Start a process with the data on the disk."""
        self.decided: list[kinds.Effect] = []  # in the present turn
        self.host = FakeHost()
        self.driver = SimulatedDriver(self.mesh.timeline, _at_once, self.mesh.chance, (0,), (0,))
        place = MemoryPlace(self.storage)
        core = process.Node(
            self.settings, self.clock, self.host, self.driver, place, self._commands
        )
        self.region = core.region
        self.persistence = core.persistence
        self.durability = core.durability
        self.local = LocalByHand(self, core)
        self.exchange = Exchange(
            self.local, core.region, core.durability, self.driver, random.Random(self.number)
        )
        self.replica: Replica = self.local.replica
        self.vector: dict[int, int] = self.replica.vector
        self.persistence.exchange = self.exchange
        self.host.persistence = self.persistence
        self.persistence.start()
        if not self.replica.cluster_id:
            self.local.enter("mesh", self.mesh.members, {})
            forget_newcomer(self.storage)
            self.exchange.gate.is_newcomer = False
            self.region.dispatcher.allow_writes("newcomer")
        self.exchange.connect(_Nowhere(), "")
        self.exchange.replica.feature_levels = dict  # all regions here have the same version
        self.replicator = self.exchange.replicator
        self._receiver = self.replicator.receiver
        self.session = self.region.open_session("127.0.0.1:50000", "127.0.0.1:6379")

    def restart(self) -> None:
        """A kill, which loses nothing but batches that wait for a cause, and a start."""
        self.steps.clear()
        for target, full_sync in list(self.mesh.full_syncs.items()):
            if self.number in (target, full_sync.sender.number):
                self.mesh.abandon(target)
        self._start()

    def sync(self) -> None:
        """Sync everything to the disk."""
        self.durability.begin_sync()
        self.mesh.timeline.run_until(self.mesh.timeline.now_ms)
        if self.log.segments and self.log.segments[-1].size >= SEGMENT_BYTES:
            self.durability.begin_segment()

    def fail(self) -> None:
        """A power failure: everything unsynced is lost, and a new epoch begins."""
        self.storage = self.storage.crash(_Least())
        self._boots += 1
        self.storage.boot = f"boot {self._boots}"
        replica_id = self.replica_id
        self.restart()
        assert self.replica_id > replica_id, "a new epoch"

    def snapshot(self) -> None:
        """Take a snapshot of this moment, for the next start."""
        self.persistence.save()

    def whole_snapshot(self, places: Iterable[tuple[int, bytes]] | None = None) -> bytes:
        """Everything, or some keys, as a full sync for another region."""
        keyspace = self.region.keyspace
        some = None if places is None else Places(keyspace.databases, places)
        return Snapshot(keyspace, Contents(1), some, keeps_last_effects=False).whole()

    @property
    def replica_id(self) -> int:
        """The own replica ID."""
        return self.replica.own

    @property
    def log(self) -> OpLog:
        """The log of the process."""
        log = self.durability.log
        assert log is not None
        return log

    @property
    def turn(self) -> Turn:
        """The effects that are not written yet."""
        turn = self.durability.turn
        assert turn is not None
        return turn

    @property
    def waiting(self) -> CausalBuffer:
        """Batches that wait for their causes."""
        return self._receiver.buffer

    # -- commands -----------------------------------------------------------------------------

    def do(self, *args: object) -> Any:
        """A command in a turn of its own; its reply. Error replies are raised."""
        (reply,) = self.ask(args)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def ask(self, *commands: Sequence[object]) -> list[Any]:
        """Commands in one turn; their replies, errors too."""
        self.region.execute(
            self.session,
            [
                [each if type(each) is bytes else str(each).encode() for each in words]
                for words in commands
            ],
        )
        self.end_turn()
        self._reader.feed(b"".join(self.session.outbox))
        self.session.outbox.clear()
        replies = [self._reader.gets() for _ in commands]
        assert self._reader.gets() is False
        return replies

    def tick(self) -> None:
        """Time passed."""
        self.region.tick()
        self.end_turn()

    def end_turn(self) -> None:
        """End the turn: its effects are written to the log, and can be sent from there."""
        durability = self.durability
        if self.turn.recorded.effects or durability.replies.is_ending:
            durability.end_turn()
            self.driver.end_turn()

    def made(self, batches: Sequence[bytes]) -> None:
        """Record the batches of a turn as a unit."""
        effects = [effect for effect in self.decided if not effect.local]
        self.decided.clear()
        sent = tuple(wire_form(data) for data in batches if not is_local(data))
        if not sent:
            return
        begin, last = sent_batch(sent[0]), sent_batch(sent[-1]).last
        replica_id, first = begin.replica_id, begin.first
        assert last == self.vector[replica_id], "a number is missing"
        dependencies = {other: count for other, count in self.vector.items() if other != replica_id}
        self.mesh.units[sent[0]] = Unit(replica_id, first, last, dependencies, sent)
        self.issued += effects
        self.mesh.history.read(replica_id, first, dependencies, effects)

    # -- what arrives -------------------------------------------------------------------------

    def receive(self, *units: Unit) -> None:
        """Units arrive: apply them and all units that waited for them, or hold them."""
        for unit in units:
            session = self._link_to(unit.replica_id)
            for raw in unit.batches:
                self._receiver.batch(session, raw, 0.0)
        self._apply()
        self.end_turn()

    def _link_to(self, replica_id: int) -> PeerSession:
        """A session that stands for a link to a region in one of its epochs."""
        sessions = self.replicator.links.sessions
        session = sessions.get(replica_id)
        if session is None:
            region = region_of(replica_id)
            session = PeerSession(replica_id, Stage.UP, None, 0.0)
            session.region, session.replica_id = region, replica_id
            sessions[replica_id] = session
        return session

    def _apply(self) -> None:
        """Apply the units that are ready."""
        receiver = self._receiver
        self.replicator.sessions.follow_epochs(0.0)
        while receiver.buffer and receiver.is_ready:
            receiver.deliver(0.0)
        if receiver.rejected:
            raise receiver.take_rejected()[0][1]
        assert receiver.refused is None, receiver.refused

    def begin_join(self, sender: Node, *, partial: bool) -> None:
        """A full sync of a region begins to arrive."""
        session, joiner = self._link_to(sender.replica_id), self._receiver.joiner
        joiner.is_behind(session, Behind(sender.replica_id, NUMBER_MAX), 0.0)
        joiner.full_sync_begin(session, FullSyncBegin(dict(sender.vector), partial), 0.0)

    def join(self, snapshot: bytes, sender: Node, *, partial: bool = False) -> None:
        """Join the full sync of a region with the own data; its file stays beside the log."""
        joiner = self._receiver.joiner
        if joiner.incoming is None:
            self.begin_join(sender, partial=partial)
        assert joiner.incoming is not None
        session = joiner.incoming.session
        joiner.full_sync_chunk(session, snapshot)
        joiner.full_sync_end(session, FullSyncEnd(len(snapshot)), 0.0)
        while joiner.is_loading:
            joiner.go_on()
        self._apply()
        self.end_turn()

    def abandon_join(self) -> None:
        """The rest of the full sync does not arrive."""
        joiner = self._receiver.joiner
        assert joiner.incoming is not None
        joiner.end(joiner.incoming.session, 0.0)
        joiner.mend(float("inf"))

    # -- what is sent -------------------------------------------------------------------------

    def missing(self, vector: Vector) -> list[Unit] | None:
        """The units that a region with this vector lacks, in an order in which they apply.

        None if some of them cannot be sent as effects any more.
        """
        found: list[Unit] = []
        for replica_id, number in sorted(self.vector.items()):
            after = vector.get(replica_id, 0)
            if after < self.base.get(replica_id, 0):
                return None
            if after >= number:
                continue
            batches = self.local.read(replica_id, after, NO_LIMIT)
            if batches is None:
                return None
            units = self.mesh.units
            found += [units[batch.data] for batch in batches if batch.data in units]
        return found

    def forget(self, replica_id: int, number: int) -> None:
        """From now on, effects of a replica ID up to this number cannot be sent."""
        self.base[replica_id] = max(number, self.base.get(replica_id, 0))

    # -- status rows -------------------------------------------------------------------------

    def row(self) -> StatusRow:
        """The own status row."""
        gossip = self.replicator.gossip
        self._version += 1
        gossip._version = self._version
        return gossip._own_row()

    def receive_rows(self, rows: Iterable[StatusRow]) -> None:
        """Status rows arrive; tombstones and tags below the watermark are dropped."""
        gossip, known = self.replicator.gossip, self.replicator.links.rows.rows
        for row in rows:
            if row is not known.get(row.region):
                gossip._update_row(row, 0.0)
        self._apply()
        gossip.watermark = {}  # report it again, as after a restart
        gossip.stabilise()


def _at_once(action: Any) -> None:
    action()


class _Least(random.Random):
    """Choices that keep as little unsynced data as possible."""

    def randint(self, a: int, b: int) -> int:
        return a

    def choice(self, seq: Any) -> Any:
        return seq[0]
