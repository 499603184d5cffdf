"""Regions in one process that exchange the batches they would send, in any order cause allows.

A :class:`Node` is a region with its own clock and what a server would keep beside it: a log, the
effects it can still send, and those it cannot apply yet for want of a cause. A :class:`Mesh` is
some of them and the links between. Nothing travels unless told to: :meth:`Mesh.settle` exchanges
everything, :meth:`Mesh.send` a part, :meth:`Mesh.send_state` a whole state.

Every batch is encoded and decoded, so what arrives is what a wire would bring.
"""

from __future__ import annotations

import io
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cache
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast

import hiredis

from anabranch.commands.request.spec import Command
from anabranch.commands.table import COMMANDS
from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.keyspace.replica import Member, Replica, epoch_of
from anabranch.keyspace.version_vectors import maximum
from anabranch.oplog.batch import Batch, decode_batch, is_local, span, wire_form
from anabranch.oplog.log import OpLog
from anabranch.oplog.recovery import recover
from anabranch.oplog.snapshot import Contents, Snapshot, framed, snapshot_name
from anabranch.region.region import Region
from anabranch.region.turn import Turn
from anabranch.replication.frames import Row
from anabranch.replication.interface import Local
from anabranch.replication.membership import Membership
from anabranch.replication.status_table import StatusTable
from anabranch.scheduling import in_one_go
from anabranch.simulator.disk import MemoryStorage
from anabranch.simulator.facts import Vector
from anabranch.simulator.formulas import History
from tests.support.region_harness import FakeClock, FakeHost
from tests.support.transcript import REGION_NAMES

__all__ = ["Mesh", "NamedMesh", "Node", "Unit"]

SEGMENT_BYTES: Final = 4096
"""Small, so that logs have several files; a new one begins with a sync, never between two."""

START_MS: Final = 1_000
"""What clocks show at first."""


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

    def decoded(self) -> list[Batch]:
        batches = [decode_batch(data) for data in self.batches]
        last = batches[-1]
        for batch in batches:
            assert batch.continues is (batch is not last)
            for replica_id, number in batch.dependencies.items():
                assert number <= self.dependencies[replica_id]
        # What was encoded ahead names fewer causes than the rest of its unit.
        assert any(batch.dependencies == self.dependencies for batch in batches)
        return batches


def _first_of(unit: Unit) -> int:
    return unit.first


class Staging:
    """A state on its way, as it was when it began; its region goes on meanwhile."""

    def __init__(self, giver: Node, known: Vector) -> None:
        """``known`` is what its taker had applied."""
        self.giver = giver
        self.vector = dict(giver.vector)
        self._region = giver.region
        places = giver.replica.last_effects.beyond(known)
        self.is_partial = places is not None
        self._snapshot = Snapshot(self._region.keyspace, Contents(1), places)
        self._region.watch_changes(self._snapshot.before)
        self._bodies = self._snapshot.bodies()
        self._parts = [self._snapshot.header()]
        self.go_on(1)

    def go_on(self, records: int) -> bool:
        """Some more of it arrives; whether that is all."""
        some = list(islice(self._bodies, records))
        self._parts += map(framed, some)
        return len(some) < records

    def end(self) -> bytes:
        """What has arrived; nothing more will."""
        self._region.unwatch_changes(self._snapshot.before)
        self._snapshot.release()
        return b"".join(self._parts)


class Node:
    """One region and what it exchanges."""

    def __init__(
        self, mesh: Mesh, number: int, settings: Settings, commands: Sequence[Command]
    ) -> None:
        self.mesh = mesh
        self.number = number
        self.settings = settings
        self._commands = commands
        self._reader = hiredis.Reader()
        self.clock = FakeClock(START_MS)
        self.storage = MemoryStorage()
        self._states = 0
        self.held: dict[tuple[int, int], Unit] = {}
        """What came before its causes, by its first dot."""
        self._start()
        self.kept: defaultdict[int, list[Unit]] = defaultdict(list)
        """By replica ID, what can be sent on: everything above ``base``."""
        self.base: dict[int, int] = {}
        self._version = 0
        self.issued: list[kinds.Effect] = []
        self.steps: list[Vector] = []
        """What it had applied after each unit that arrived; whoever looks at them takes them."""

    def _start(self) -> None:
        """Begin with what the disk holds."""
        self.host = FakeHost()
        self.region = Region(self.settings, self.clock, self.host, self._commands)
        self.host.persistence.region = self.region
        self.replica: Replica = self.region.replica
        self.vector: dict[int, int] = self.replica.vector
        *_, report = recover(self.storage, self.region.keyspace)
        self.session = self.region.open_session("127.0.0.1:50000", "127.0.0.1:6379")
        self.turn = Turn(self.region.replica)
        self.turn.next_number = report.next_number
        self.region.effects.record = self.turn.effects.append
        self.region.effects.encode_ahead = self.turn.encode_ahead
        self.log = OpLog(
            self.storage,
            report.segments,
            end=report.end,
            segment_bytes=1 << 30,
            unborn=report.unborn,
        )
        self.log.secure()
        self.rows = StatusTable()
        self.membership = Membership(cast("Local", self))
        self.membership.hear([self.replica_id, *self.vector])
        self.durable = dict(self.vector)

    def restart(self) -> None:
        """Stop, nothing lost, and start again. What waits for a cause is forgotten."""
        self.log.close()
        self.held.clear()
        self.steps.clear()
        for target, staging in list(self.mesh.stagings.items()):
            if self.number in (target, staging.giver.number):
                self.mesh.give_up(target)
        self._start()
        self.replica.members.update(self.mesh.members)

    def sync(self) -> None:
        """Have everything on the disk."""
        sync = self.log.begin_sync()
        sync.run()
        self.log.finish_sync(sync)
        self.durable = dict(self.vector)
        if self.log.segments and self.log.segments[-1].size >= SEGMENT_BYTES:
            self.log.begin_segment()

    def fail(self) -> None:
        """Lose power, and with it all that was not synced; go on in a new epoch."""
        self.storage = self.storage.crash(_Least())
        self.restart()
        for replica_id, units in self.kept.items():
            self.kept[replica_id] = [u for u in units if u.last <= self.vector.get(replica_id, 0)]
        self.region.merging.open_epoch(epoch_of(self.replica_id) + 1)
        self.end_turn()
        self.sync()
        self.membership.hear([self.replica_id])

    def snapshot(self) -> None:
        """Have the next start begin with the state of now."""
        self.sync()
        self.log.begin_segment()
        position = self.log.end
        contents = Contents(position, self.number, 0, self.turn.next_number)
        self._write(snapshot_name(position), self.state(contents))

    def state(
        self,
        contents: Contents | None = None,
        places: Iterable[tuple[int, bytes]] | None = None,
    ) -> bytes:
        """Everything, or some keys, as a snapshot."""
        return Snapshot(self.region.keyspace, contents or Contents(1), places).whole()

    def _write(self, name: str, data: bytes) -> None:
        file = self.storage.create(name)
        file.write(data)
        file.sync()
        file.close()
        self.storage.sync()

    # -- as membership sees us ----------------------------------------------------------------

    @property
    def replica_id(self) -> int:
        """Under which our effects are numbered now."""
        return self.replica.own

    @property
    def members(self) -> dict[int, Member]:
        """Of the cluster: all there are, though nobody has admitted them."""
        return self.mesh.members

    @property
    def removed(self) -> dict[int, int]:
        """Nobody ever is."""
        return self.replica.removed

    # -- commands -----------------------------------------------------------------------------

    def do(self, *args: object) -> Any:
        """A command in a turn of its own; its reply. Error replies are raised."""
        (reply,) = self.ask(args)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def ask(self, *commands: Sequence[object]) -> list[Any]:
        """Commands in one turn; their replies, errors too."""
        self.region.execute(self.session, [list(map(_word, words)) for words in commands])
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
        """Number what was done and keep it, to be sent."""
        if not self.turn.effects:
            return
        effects = [effect for effect in self.turn.effects if not effect.local]
        taken = self.turn.take_batches(self.clock.us // 1000)
        self.log.append(b"".join(taken))
        if not effects:
            return
        sent = tuple(wire_form(data) for data in taken if not is_local(data))
        replica_id, first, _, _ = span(sent[0])
        last = span(sent[-1]).last
        assert last == self.vector[replica_id], "a number is missing"
        dependencies = {other: count for other, count in self.vector.items() if other != replica_id}
        self.kept[replica_id].append(Unit(replica_id, first, last, dependencies, sent))
        self.issued += effects
        self.mesh.history.read(replica_id, first, dependencies, effects)

    # -- what arrives -------------------------------------------------------------------------

    def receive(self, unit: Unit) -> None:
        """Apply a unit and whatever waited for it; hold it until it can be."""
        self._hear([unit.replica_id])
        self.held[unit.replica_id, unit.first] = unit
        while (ready := next(self._ready(), None)) is not None:
            self.region.merging.apply(ready.decoded())
            self.log.append(b"".join(ready.batches))
            self.kept[ready.replica_id].append(ready)
            self.end_turn()
            assert self.vector[ready.replica_id] >= ready.last
            self.steps.append(dict(self.vector))

    def _ready(self) -> Iterator[Unit]:
        vector = self.vector
        for dot, unit in list(self.held.items()):
            if unit.last <= vector.get(unit.replica_id, 0):
                del self.held[dot]
            elif unit.fits(vector):
                del self.held[dot]
                yield unit

    def join(self, state: bytes, *, partial: bool = False) -> None:
        """Join another region's state, which then lies beside the log, to what is here."""
        self._states += 1
        name = f"state-{self._states}"
        self._write(name, state)
        merging = self.region.merging
        merging.join(in_one_go(merging.loading(io.BytesIO(state), name)), name, partial=partial)
        self.end_turn()

    def can_serve(self, vector: Vector) -> bool:
        """Whether all that a region with this vector lacks can be sent as effects."""
        return all(vector.get(replica_id, 0) >= base for replica_id, base in self.base.items())

    def missing(self, vector: Vector) -> list[Unit]:
        """What a region with this vector lacks, in an order in which it can be applied."""
        return [
            unit
            for replica_id, units in sorted(self.kept.items())
            for unit in units[bisect_right(units, vector.get(replica_id, 0), key=_first_of) :]
        ]

    def forget(self, replica_id: int, number: int) -> None:
        """Drop what could be sent of a replica ID, up to the unit with this number."""
        rest = [unit for unit in self.kept[replica_id] if unit.last > number]
        self.base[replica_id] = rest[0].first - 1 if rest else self.vector.get(replica_id, 0)
        self.kept[replica_id] = rest

    # -- what may be forgotten ----------------------------------------------------------------

    def row(self) -> Row:
        """How far we are."""
        self._version += 1
        have = dict(self.vector)
        for unit in self.held.values():
            have[unit.replica_id] = max(unit.last, have.get(unit.replica_id, 0))
        if self.number in self.mesh.stagings:
            have = maximum(have, self.mesh.stagings[self.number].vector)
        applied, durable = dict(self.vector), dict(self.durable)
        return Row(self.number, self.replica_id, self._version, applied, durable, have, 1, [])

    def hear_rows(self, rows: Iterable[Row]) -> None:
        """How far others are; the region forgets what it remembered for who knows it by now."""
        for row in rows:
            if row.region != self.number and row is not self.rows.rows.get(row.region):
                self.rows.update(row, 0)
                self._hear([row.replica_id, *row.applied, *row.durable, *row.have])
        stable = self.rows.watermark(self.vector, self.durable, self.membership)
        if stable and self.number not in self.mesh.stagings:
            self.region.keyspace.forget_below(stable)

    def _hear(self, replica_ids: Iterable[int]) -> None:
        """Of what waits here of former lives only what somebody has applied will come again."""
        self.membership.hear(replica_ids)
        if self.membership.has_news:
            self.membership.has_news = False
            for dot in [dot for dot in self.held if self.membership.is_former(dot[0])]:
                del self.held[dot]


class _Least(random.Random):
    """Chance that leaves as little of an unsynced disk as there may be."""

    def randint(self, a: int, b: int) -> int:
        return a

    def choice(self, seq: Any) -> Any:
        return seq[0]


def _word(arg: object) -> bytes:
    return arg if isinstance(arg, bytes) else str(arg).encode()


@cache
def _settings(**settings: object) -> Settings:
    """To be copied: checking them takes longer."""
    return Settings(**settings)


class Mesh:
    """Regions and links; ``history`` is everything that was ever done."""

    def __init__(
        self, count: int = 3, commands: Sequence[Command] = COMMANDS, **settings: object
    ) -> None:
        self.history = History()
        self.nodes: dict[int, Node] = {}
        self.cut_links: set[frozenset[int]] = set()
        self.stagings: dict[int, Staging] = {}
        """By who gets them."""
        self.joined: list[int] = []
        """Regions that have joined a state, since somebody last emptied this."""
        common = _settings(**settings)
        self.members = {number: Member(f"r{number}", "", 0) for number in range(1, count + 1)}
        for number in range(1, count + 1):
            own = copy(common)
            own.region_id = number
            self.nodes[number] = Node(self, number, own, commands)
        for node in self.nodes.values():
            node.replica.members.update(self.members)

    def is_up(self, one: int, other: int) -> bool:
        """Whether two regions can talk."""
        return frozenset((one, other)) not in self.cut_links

    def send(self, source: int, target: int, units: Iterable[Unit] | None = None) -> int:
        """Bring a region what it lacks of another's effects, or some of it; how much arrived.

        The target gets the source's state if effects are no longer there to be sent.
        """
        giver, taker = self.nodes[source], self.nodes[target]
        if giver.vector == taker.vector:
            return 0
        if not giver.can_serve(taker.vector):
            self.send_state(source, target)
            return 1
        before = sum(taker.vector.values())
        for unit in giver.missing(taker.vector) if units is None else units:
            taker.receive(unit)
        return sum(taker.vector.values()) - before

    def send_state(self, source: int, target: int) -> None:
        """A region joins what another has, or what differs of that, to what it has itself."""
        self.begin_state(source, target)
        while not self.go_on(target, 1000):
            pass

    def begin_state(self, source: int, target: int) -> None:
        """A region begins to get another's state, instead of what it was getting."""
        self.give_up(target)
        self.stagings[target] = Staging(self.nodes[source], self.nodes[target].vector)

    def go_on(self, target: int, records: int) -> bool:
        """More of it arrives, and is joined when it is whole; whether it was."""
        staging = self.stagings[target]
        if not staging.go_on(records):
            return False
        del self.stagings[target]
        taker = self.nodes[target]
        taker.join(staging.end(), partial=staging.is_partial)
        self.joined.append(target)
        for replica_id, number in taker.vector.items():
            units = taker.kept[replica_id]
            if replica_id != taker.replica.own and (not units or units[-1].last < number):
                units.clear()
                taker.base[replica_id] = number
        for unit in list(taker.held.values()):
            taker.receive(unit)
        return True

    def give_up(self, target: int) -> None:
        """What a region was getting comes to nothing."""
        staging = self.stagings.pop(target, None)
        if staging is not None:
            staging.end()

    def send_row(self, source: int, target: int) -> None:
        """A region tells another how far it is, and what it has heard of the rest."""
        self._tell(source, self.nodes[source].row(), [target])

    def _tell(self, source: int, row: Row, targets: Iterable[int]) -> None:
        rows = [row, *self.nodes[source].rows.rows.values()]
        for target in targets:
            self.nodes[target].hear_rows(rows)

    def settle(self, numbers: Sequence[int] | None = None) -> None:
        """Everything travels between these regions, over links that are up; then rows do."""
        among = list(self.nodes) if numbers is None else list(numbers)
        pairs = [(a, b) for a in among for b in among if a != b and self.is_up(a, b)]
        while sum(self.send(source, target) for source, target in pairs):
            pass
        for number in among:
            self.nodes[number].sync()
        is_direct = len(pairs) == len(among) * (len(among) - 1)
        # Around a cut link rows come by those who have heard them, a round later.
        for _ in range(1 if is_direct else 2):
            for source, some in groupby(pairs, itemgetter(0)):
                self._tell(source, self.nodes[source].row(), [target for _, target in some])


class NamedMesh:
    """A mesh for transcripts: regions by name."""

    has_clock = True

    def __init__(self, regions: Sequence[str], mode: str) -> None:
        self.mesh = Mesh(len(regions), xadd_id_uniqueness_mode=mode)

    def _number(self, region: str) -> int:
        return REGION_NAMES.index(region) + 1

    def _node(self, region: str) -> Node:
        return self.mesh.nodes[self._number(region)]

    def do(self, region: str, *args: str | bytes) -> Any:
        return self._node(region).do(*args)

    def settle(self, regions: Sequence[str]) -> None:
        self.mesh.settle([self._number(region) for region in regions])

    def clock(self, region: str, ms: int) -> None:
        self._node(region).clock.us = ms * 1000

    def cut(self, one: str, other: str) -> None:
        self.mesh.cut_links.add(frozenset((self._number(one), self._number(other))))

    def heal(self) -> None:
        self.mesh.cut_links.clear()

    def forget(self, region: str) -> None:
        node = self._node(region)
        for replica_id, number in node.vector.items():
            node.forget(replica_id, number)

    def count_effects(self, region: str, kind: str) -> int:
        counted = {"ack": kinds.AcknowledgeRuns}[kind]
        return sum(isinstance(effect, counted) for effect in self._node(region).issued)
