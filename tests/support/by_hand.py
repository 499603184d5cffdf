"""A region that exchanges its effects by hand.

A :class:`Node` drives the process that the server drives (:class:`anabranch.node.node.Node`, with
its :class:`~anabranch.node.exchange.Exchange`) on a disk in memory; its clock stands still unless a
test sets it. It has no links. What others lack is read from its log, and what they send is handed
to its receiver, as bytes, as if a link had brought it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import hiredis

from anabranch.commands.request.spec import Command
from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.keyspace.replica import Replica, region_of
from anabranch.node import node as process
from anabranch.node.exchange import Exchange
from anabranch.node.identity import forget_newcomer
from anabranch.oplog.batch import NUMBER_MAX, Batch, is_local, span, wire_form
from anabranch.oplog.log import OpLog
from anabranch.oplog.snapshot import Contents, Snapshot
from anabranch.oplog.storage import Storage
from anabranch.region.turn import Turn
from anabranch.replication.causal import CausalBuffer
from anabranch.replication.frames import Behind, FullSyncBegin, FullSyncEnd, Row
from anabranch.replication.peer import Session, Stage
from anabranch.simulator.disk import MemoryPlace, MemoryStorage
from anabranch.simulator.driver import SimulatedDriver
from anabranch.simulator.facts import Vector
from tests.support.region_harness import FakeClock, FakeHost

if TYPE_CHECKING:
    from tests.support.mesh import Mesh

__all__ = ["Node", "Staging", "Unit"]

SEGMENT_BYTES: Final = 4096
"""Small, so that logs have several files; a new one begins with a sync, never between two."""

START_MS: Final = 1_000
"""What clocks show at first."""

CHUNK_BYTES: Final = 200
"""Of a state, sent at a time: a record or two."""

NO_LIMIT: Final = 1 << 62


class Unit(NamedTuple):
    """Batches of one replica ID that are applied as one: what a turn made."""

    replica_id: int
    first: int
    last: int
    dependencies: Vector
    batches: tuple[bytes, ...]

    def fits(self, vector: Vector) -> bool:
        """Whether it comes next, and everything it was made with knowledge of is there."""
        return vector.get(self.replica_id, 0) == self.first - 1 and all(
            vector.get(replica_id, 0) >= number for replica_id, number in self.dependencies.items()
        )


class ByHand(Exchange):
    """A region's part in a mesh: a member from the first start on, and without links."""

    chunk_bytes = CHUNK_BYTES

    def __init__(self, node: Node, core: process.Node) -> None:
        super().__init__(core.region, core.durability, node.driver, random.Random(node.number))
        self._node = node

    def open(self, storage: Storage, log: OpLog, *, was_cut: bool) -> None:
        turn, decided = self._durability.turn, self._node.decided

        def record(effect: kinds.Effect) -> None:
            turn.effects.append(effect)
            decided.append(effect)

        self._region.effects.record = record
        super().open(storage, log, was_cut=was_cut)
        if not self.replica.cluster_id:
            self.enter("mesh", self._node.mesh.members, {})
            forget_newcomer(storage)
            self.is_newcomer = False
            self._region.dispatcher.allow_writes("newcomer")

    def taken(self, batches: list[bytes], position: int) -> None:
        super().taken(batches, position)
        self._node.made(batches)

    def deliver(self, unit: list[Batch], raw: list[bytes]) -> None:
        if len(unit) > 1:
            _check(unit, self._node.mesh.units[raw[0]].dependencies)
        super().deliver(unit, raw)
        self._node.steps.append(dict(self.replica.vector))


def _check(unit: list[Batch], causes: Vector) -> None:
    """Assert that batches belong together."""
    *ahead, last = unit
    assert last.dependencies == causes
    assert not last.continues
    for batch in ahead:  # it may be encoded before its unit has all of its causes
        assert batch.continues
        assert all(
            number <= causes[replica_id] for replica_id, number in batch.dependencies.items()
        )


class _Nowhere:
    """A transport without links."""

    def send(self, link: int, frame: bytes) -> None:
        pass

    def close(self, link: int) -> None:
        pass

    def dial(self, host: str, port: int) -> None:
        pass


class Staging:
    """A state on its way, as it was when it began; its region goes on meanwhile."""

    def __init__(self, giver: Node, taker: Node) -> None:
        self.giver = giver
        self.vector = dict(giver.vector)
        self._chunks, self.is_partial = giver.exchange.full_sync(dict(taker.vector), [])
        self._parts: list[bytes] = []
        taker.begin_join(giver, partial=self.is_partial)
        self.go_on(1)

    def go_on(self, chunks: int) -> bool:
        """Some more of it arrives; whether that is all."""
        some = list(islice(self._chunks, chunks))
        self._parts += some
        return len(some) < chunks

    def end(self) -> bytes:
        """What has arrived; nothing more will."""
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
        """By replica ID, what cannot be sent any more, up to this number."""
        self._version = 0
        self.issued: list[kinds.Effect] = []
        self.steps: list[Vector] = []
        """What it had applied after each unit that arrived; whoever looks at them takes them."""
        self._start()

    def _start(self) -> None:
        """Begin with what the disk holds."""
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
        self.exchange = ByHand(self, core)
        self.replica: Replica = self.exchange.replica
        self.vector: dict[int, int] = self.replica.vector
        self.persistence.exchange = self.exchange
        self.host.persistence = self.persistence
        self.persistence.start()
        self.exchange.connect(_Nowhere(), "")
        self.replicator = self.exchange.replicator
        self._receiver = self.replicator._receiver
        self.session = self.region.open_session("127.0.0.1:50000", "127.0.0.1:6379")

    def restart(self) -> None:
        """Be killed, which loses nothing, and start again. What waits for a cause is forgotten."""
        self.steps.clear()
        for target, staging in list(self.mesh.stagings.items()):
            if self.number in (target, staging.giver.number):
                self.mesh.give_up(target)
        self._start()

    def sync(self) -> None:
        """Have everything on the disk."""
        self.durability.begin_sync()
        self.mesh.timeline.run_until(self.mesh.timeline.now_ms)
        if self.log.segments and self.log.segments[-1].size >= SEGMENT_BYTES:
            self.durability.begin_segment()

    def fail(self) -> None:
        """Lose power, and with it all that was not synced; go on in a new epoch."""
        self.storage = self.storage.crash(_Least())
        self._boots += 1
        self.storage.boot = f"boot {self._boots}"
        replica_id = self.replica_id
        self.restart()
        assert self.replica_id > replica_id, "a new epoch"

    def snapshot(self) -> None:
        """Have the next start begin with the state of now."""
        self.persistence.save()

    def state(self, places: Iterable[tuple[int, bytes]] | None = None) -> bytes:
        """Everything, or some keys, as a snapshot."""
        return Snapshot(self.region.keyspace, Contents(1), places).whole()

    @property
    def replica_id(self) -> int:
        """Under which our effects are numbered now."""
        return self.replica.own

    @property
    def log(self) -> OpLog:
        """What the process writes."""
        log = self.durability.log
        assert log is not None
        return log

    @property
    def turn(self) -> Turn:
        """What is not written yet."""
        turn = self.durability.turn
        assert turn is not None
        return turn

    @property
    def waiting(self) -> CausalBuffer:
        """What came before its causes."""
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
        """Have what was done written, from where it can be sent."""
        durability = self.durability
        if self.turn.effects or durability.replies.is_ending:
            durability.end_turn()
            self.driver.end_turn()

    def made(self, batches: Sequence[bytes]) -> None:
        """The process writes what it has decided in a turn."""
        effects = [effect for effect in self.decided if not effect.local]
        self.decided.clear()
        sent = tuple(wire_form(data) for data in batches if not is_local(data))
        if not sent:
            return
        replica_id, first, _, _ = span(sent[0])
        last = span(sent[-1]).last
        assert last == self.vector[replica_id], "a number is missing"
        dependencies = {other: count for other, count in self.vector.items() if other != replica_id}
        self.mesh.units[sent[0]] = Unit(replica_id, first, last, dependencies, sent)
        self.issued += effects
        self.mesh.history.read(replica_id, first, dependencies, effects)

    # -- what arrives -------------------------------------------------------------------------

    def receive(self, *units: Unit) -> None:
        """Apply units and whatever waited for them; hold them until they can be."""
        for unit in units:
            session = self._link_to(unit.replica_id)
            for raw in unit.batches:
                self._receiver.batch(session, raw, 0.0)
            self._apply()
        self.end_turn()

    def _link_to(self, replica_id: int) -> Session:
        """What stands for a link to a region in one of its epochs."""
        sessions = self.replicator._links.sessions
        session = sessions.get(replica_id)
        if session is None:
            region = region_of(replica_id)
            session = Session(replica_id, Stage.UP, None, 0.0, region=region, replica_id=replica_id)
            sessions[replica_id] = session
        return session

    def _apply(self) -> None:
        """Do what follows from what has come."""
        receiver = self._receiver
        self.replicator._sessions.follow_epochs(0.0)
        while receiver.buffer and receiver.is_ready:
            receiver.deliver(0.0)
        if receiver.rejected:
            raise receiver.take_rejected()[0][1]
        assert receiver.refused is None, receiver.refused

    def begin_join(self, giver: Node, *, partial: bool) -> None:
        """The state of a region begins to come."""
        session, joiner = self._link_to(giver.replica_id), self._receiver.joiner
        joiner.is_behind(session, Behind(giver.replica_id, NUMBER_MAX), 0.0)
        joiner.full_sync_begin(session, FullSyncBegin(dict(giver.vector), partial), 0.0)

    def join(self, state: bytes, giver: Node, *, partial: bool = False) -> None:
        """Join the state of a region, which then lies beside the log, to what is here."""
        joiner = self._receiver.joiner
        if joiner.incoming is None:
            self.begin_join(giver, partial=partial)
        assert joiner.incoming is not None
        session = joiner.incoming.session
        joiner.full_sync_chunk(session, state)
        joiner.full_sync_end(session, FullSyncEnd(len(state)), 0.0)
        while joiner.is_loading:
            joiner.go_on()
        self._apply()
        self.end_turn()

    def give_up_join(self) -> None:
        """The rest of a state will not come."""
        joiner = self._receiver.joiner
        assert joiner.incoming is not None
        joiner.end(joiner.incoming.session, 0.0)
        joiner.mend(float("inf"))

    # -- what is sent -------------------------------------------------------------------------

    def missing(self, vector: Vector) -> list[Unit] | None:
        """What a region with this vector lacks, in an order in which it can be applied.

        None if some of that cannot be sent as effects any more.
        """
        found: list[Unit] = []
        for replica_id, number in sorted(self.vector.items()):
            after = vector.get(replica_id, 0)
            if after < self.base.get(replica_id, 0):
                return None
            if after >= number:
                continue
            batches = self.exchange.read(replica_id, after, NO_LIMIT)
            if batches is None:
                return None
            units = self.mesh.units
            found += [units[data] for data in batches if data in units]
        return found

    def forget(self, replica_id: int, number: int) -> None:
        """Be unable to send effects of a replica ID up to this number."""
        self.base[replica_id] = max(number, self.base.get(replica_id, 0))

    # -- what may be forgotten ----------------------------------------------------------------

    def row(self) -> Row:
        """How far we are."""
        gossip = self.replicator._gossip
        self._version += 1
        gossip._version = self._version
        return gossip._own_row()

    def hear_rows(self, rows: Iterable[Row]) -> None:
        """How far others are; the region forgets what it remembered for who knows it by now."""
        gossip, known = self.replicator._gossip, self.replicator._links.rows.rows
        for row in rows:
            if row is not known.get(row.region):
                gossip._update_row(row, 0.0)
        self._apply()
        gossip.watermark = {}  # tell it again, as after a restart
        gossip.stabilise()


def _at_once(action: Any) -> None:
    action()


class _Least(random.Random):
    """Chance that leaves as little of an unsynced disk as there may be."""

    def randint(self, a: int, b: int) -> int:
        return a

    def choice(self, seq: Any) -> Any:
        return seq[0]
