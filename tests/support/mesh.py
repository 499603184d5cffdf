"""Regions in one process that exchange the batches they would send, in any order cause allows.

A :class:`Node` is a region with its own clock and what a server would keep beside it: a log, the
effects it can still send, and those it cannot apply yet for want of a cause. A :class:`Mesh` is
some of them and the links between. Nothing travels unless told to: :meth:`Mesh.settle` exchanges
everything, :meth:`Mesh.send` a part, :meth:`Mesh.send_state` a whole state.

Every batch is encoded and decoded, so what arrives is what a wire would bring.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from anabranch.config.settings import Settings
from anabranch.effects import kinds
from anabranch.keyspace.replica import Member, Replica
from anabranch.oplog.batch import Batch, decode_batch, effects_in, wire_form
from anabranch.oplog.log import OpLog
from anabranch.oplog.recovery import recover
from anabranch.oplog.snapshot import Contents, Snapshot, snapshot_name
from anabranch.region.region import Region
from anabranch.region.turn import Turn
from anabranch.simulator.disk import MemoryStorage
from anabranch.simulator.formulas import History, Vector
from tests.support.region_harness import FakeClock, FakeHost, decode_all
from tests.support.transcript import REGION_NAMES

__all__ = ["Mesh", "NamedMesh", "Node", "Unit"]

SEGMENT_BYTES: Final = 4096
"""Small, so that logs have several files."""

START_MS: Final = 1_000
"""What clocks show at first."""


class Unit(NamedTuple):
    """Batches of one origin that are applied as one: what a turn made."""

    origin: int
    first: int
    last: int
    dependencies: Vector
    batches: tuple[bytes, ...]

    def fits(self, vector: Vector) -> bool:
        """Whether it comes next, and everything it was made with knowledge of is there."""
        return vector.get(self.origin, 0) == self.first - 1 and all(
            vector.get(origin, 0) >= number for origin, number in self.dependencies.items()
        )

    def decoded(self) -> list[Batch]:
        return [decode_batch(data) for data in self.batches]


class Node:
    """One region and what it exchanges."""

    def __init__(self, mesh: Mesh, number: int, settings: Settings) -> None:
        self.mesh = mesh
        self.number = number
        self.settings = settings
        self.clock = FakeClock(START_MS)
        self.storage = MemoryStorage()
        self._states = 0
        self._start()
        self.kept: defaultdict[int, list[Unit]] = defaultdict(list)
        """By origin, what can be sent on: everything above ``base``."""
        self.base: dict[int, int] = {}
        self.held: dict[tuple[int, int], Unit] = {}
        """What came before its causes, by its first dot."""
        self.rows: dict[int, dict[int, int]] = {}
        """What the others had applied when they last told, as far as that counts."""
        self.news: dict[int, dict[int, int]] = {}
        """The same where it does not count yet: it speaks of effects that are not here."""
        self.issued: list[kinds.Effect] = []

    def _start(self) -> None:
        """Begin with what the disk holds."""
        self.host = FakeHost()
        self.region = Region(self.settings, self.clock, self.host)
        self.host.persistence.region = self.region
        *_, report = recover(self.storage, self.region.keyspace)
        self.session = self.region.open_session("127.0.0.1:50000", "127.0.0.1:6379")
        self.turn = Turn(self.region.replica)
        self.turn.next_number = report.next_number
        self.region.context.record = self.turn.effects.append
        self.log = OpLog(self.storage, report.segments, end=report.end, segment_bytes=SEGMENT_BYTES)

    def restart(self) -> None:
        """Stop, nothing lost, and start again. What waits for a cause is forgotten."""
        members = dict(self.replica.members)
        self.log.close()
        self.held.clear()
        self._start()
        self.replica.members.update(members)

    def snapshot(self) -> None:
        """Have the next start begin with the state of now."""
        self.log.begin_segment()
        position = self.log.end
        contents = Contents(position, self.number, 0, self.turn.next_number)
        self._write(snapshot_name(position), self.state(contents))

    def state(self, contents: Contents | None = None) -> bytes:
        """Everything, as a snapshot."""
        return Snapshot(self.region.keyspace, contents or Contents(1)).whole()

    def _write(self, name: str, data: bytes) -> None:
        file = self.storage.create(name)
        file.write(data)
        file.close()

    @property
    def replica(self) -> Replica:
        replica = self.region.replica
        assert replica is not None
        return replica

    @property
    def vector(self) -> dict[int, int]:
        return self.replica.vector

    # -- commands -----------------------------------------------------------------------------

    def do(self, *args: object) -> Any:
        """A command in a turn of its own; its reply. Error replies are raised."""
        words = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        self.region.execute(self.session, [words])
        self.end_turn()
        data = b"".join(self.session.outbox)
        self.session.outbox.clear()
        (reply,) = decode_all(data)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def tick(self) -> None:
        """Time passed."""
        self.region.tick()
        self.end_turn()

    def end_turn(self) -> None:
        """Number what was done and keep it, to be sent."""
        taken = self.turn.take_batches(self.clock.us // 1000)
        if taken:
            self.log.append(b"".join(taken))
        sent = [wire_form(data) for data in taken if not decode_batch(data).is_local]
        batches = [decode_batch(data) for data in sent]
        if not batches:
            return
        first, last = batches[0], batches[-1]
        assert [batch.continues for batch in batches] == [batch is not last for batch in batches]
        unit = Unit(first.origin, first.first, last.last, first.dependencies, tuple(sent))
        assert unit.last == self.vector[unit.origin], "a number is missing"
        self.kept[unit.origin].append(unit)
        for batch in batches:
            effects = effects_in(batch)
            self.issued += effects
            self.mesh.history.read(batch.origin, batch.first, batch.dependencies, effects)

    # -- what arrives -------------------------------------------------------------------------

    def receive(self, unit: Unit) -> None:
        """Apply a unit and whatever waited for it; hold it until it can be."""
        self.held[unit.origin, unit.first] = unit
        while (ready := next(self._ready(), None)) is not None:
            self.region.merge(ready.decoded())
            self.log.append(b"".join(ready.batches))
            self.kept[ready.origin].append(ready)
            self.end_turn()
            assert self.vector[ready.origin] >= ready.last

    def _ready(self) -> Iterator[Unit]:
        vector = self.vector
        for dot, unit in list(self.held.items()):
            if unit.last <= vector.get(unit.origin, 0):
                del self.held[dot]
            elif unit.fits(vector):
                del self.held[dot]
                yield unit

    def join(self, state: bytes) -> None:
        """Join another region's state, which then lies beside the log, to what is here."""
        self._states += 1
        name = f"state-{self._states}"
        self._write(name, state)
        self.region.join(io.BytesIO(state), name, name)
        self.end_turn()

    def can_serve(self, vector: Vector) -> bool:
        """Whether all that a region with this vector lacks can be sent as effects."""
        return all(vector.get(origin, 0) >= base for origin, base in self.base.items())

    def missing(self, vector: Vector) -> list[Unit]:
        """What a region with this vector lacks, in an order in which it can be applied."""
        return [
            unit
            for origin, units in sorted(self.kept.items())
            for unit in units
            if unit.first > vector.get(origin, 0)
        ]

    def forget(self, origin: int, number: int) -> None:
        """Drop what could be sent of an origin, up to the unit with this number."""
        rest = [unit for unit in self.kept[origin] if unit.last > number]
        self.base[origin] = rest[0].first - 1 if rest else self.vector.get(origin, 0)
        self.kept[origin] = rest

    # -- what may be forgotten ----------------------------------------------------------------

    def hear_row(self, number: int, vector: Vector) -> None:
        """A region tells what it has applied; that counts once it is all here."""
        self.news[number] = dict(vector)
        self.stabilise()

    def stabilise(self) -> None:
        """Have the region forget what was remembered for members that know it by now."""
        own = self.vector
        for number, row in list(self.news.items()):
            if all(own.get(origin, 0) >= count for origin, count in row.items()):
                self.rows[number] = self.news.pop(number)
        if len(self.rows) == len(self.mesh.nodes) - 1:
            self.region.keyspace.forget_stable(
                {
                    origin: min([count, *(row.get(origin, 0) for row in self.rows.values())])
                    for origin, count in own.items()
                }
            )


class Mesh:
    """Regions and links; ``history`` is everything that was ever done."""

    def __init__(self, count: int = 3, **settings: object) -> None:
        self.history = History()
        self.nodes: dict[int, Node] = {}
        self.cut_links: set[frozenset[int]] = set()
        self.joined: list[int] = []
        """Regions that have joined a state, since somebody last emptied this."""
        for number in range(1, count + 1):
            self.nodes[number] = Node(self, number, Settings(region_id=number, **settings))
        members = {number: Member(f"r{number}", "", 0) for number in self.nodes}
        for node in self.nodes.values():
            node.replica.members.update(members)

    def is_up(self, one: int, other: int) -> bool:
        """Whether two regions can talk."""
        return frozenset((one, other)) not in self.cut_links

    def send(self, source: int, target: int, units: Iterable[Unit] | None = None) -> int:
        """Bring a region what it lacks of another's effects, or some of it; how much arrived.

        The target gets the source's state if effects are no longer there to be sent.
        """
        giver, taker = self.nodes[source], self.nodes[target]
        if not giver.can_serve(taker.vector):
            self.send_state(source, target)
            return 1
        before = sum(taker.vector.values())
        for unit in giver.missing(taker.vector) if units is None else units:
            taker.receive(unit)
        return sum(taker.vector.values()) - before

    def send_state(self, source: int, target: int) -> None:
        """A region joins what another has to what it has itself."""
        giver, taker = self.nodes[source], self.nodes[target]
        taker.join(giver.state())
        self.joined.append(target)
        for origin, number in taker.vector.items():
            units = taker.kept[origin]
            if origin != taker.replica.own and (not units or units[-1].last < number):
                units.clear()
                taker.base[origin] = number
        for unit in list(taker.held.values()):
            taker.receive(unit)

    def send_row(self, source: int, target: int) -> None:
        """A region tells another what it has applied."""
        self.nodes[target].hear_row(source, self.nodes[source].vector)

    def settle(self, numbers: Sequence[int] | None = None) -> None:
        """Everything travels between these regions, over links that are up; then rows do."""
        among = list(self.nodes) if numbers is None else list(numbers)
        pairs = [(a, b) for a in among for b in among if a != b and self.is_up(a, b)]
        while sum(self.send(source, target) for source, target in pairs):
            pass
        for _ in range(2):
            for source, target in pairs:
                self.send_row(source, target)


class NamedMesh:
    """A mesh for transcripts: regions by name."""

    has_clock = True

    def __init__(self, regions: Sequence[str], mode: str) -> None:
        self.mesh = Mesh(len(regions), xadd_id_uniqueness_mode=mode)

    def _number(self, region: str) -> int:
        return REGION_NAMES.index(region) + 1

    def _node(self, region: str) -> Node:
        return self.mesh.nodes[self._number(region)]

    def do(self, region: str, *args: str) -> Any:
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
        for origin, number in node.vector.items():
            node.forget(origin, number)

    def count_effects(self, region: str, kind: str) -> int:
        counted = {"ack": kinds.Settle}[kind]
        return sum(isinstance(effect, counted) for effect in self._node(region).issued)
