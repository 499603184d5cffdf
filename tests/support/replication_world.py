"""Regions with toy contents, a network in virtual time, and checks that look at every step.

A :class:`ToyRegion` keeps the batches it has applied and nothing else: applying them out of order,
twice or without a cause is an assertion. Its disk is a copy of itself, made by :meth:`sync`; a
crash goes back to that and opens an epoch. A :class:`World` connects regions by links that keep
order, take time, and may be cut: with a reset, or silently.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from anabranch.effects import kinds
from anabranch.keyspace.replica import Member, epoch_of, region_of, replica_id_of
from anabranch.keyspace.version_vectors import covers
from anabranch.oplog.batch import CONTINUES, Batch, decode_batch, encode_batch, fingerprint, span
from anabranch.oplog.compression import Compressor
from anabranch.replication.frames import FrameType
from anabranch.replication.interface import Address, ReplicationConfig
from anabranch.replication.replicator import Replicator
from anabranch.scheduling import Steps
from anabranch.simulator.timeline import Timeline

__all__ = ["NAMES", "Node", "ToyRegion", "World", "batch_bytes"]

NAMES = {1: "eu", 2: "us", 3: "ap", 4: "sa", 5: "af"}
TICK_MS = 50
CHUNK = 700


def batch_bytes(
    replica_id: int,
    first: int,
    count: int = 1,
    *,
    dependencies: Iterable[tuple[int, int]] = (),
    size: int = 10,
    continues: bool = False,
    wall_ms: int = 1_000_000,
    effects: list[Any] | None = None,
    compressor: Compressor | None = None,
) -> bytes:
    """A batch of a replica ID: so many strings of so many bytes."""
    key = f"{replica_id}:{first}".encode()
    return encode_batch(
        effects or [kinds.SetString(0, key, b"x" * size) for _ in range(count)],
        region=region_of(replica_id),
        epoch=epoch_of(replica_id),
        first=first,
        wall_ms=wall_ms,
        flags=CONTINUES if continues else 0,
        dependencies=[edge for pair in dependencies for edge in pair],
        compressor=compressor,
    )


class ToyRegion:
    """The region that the replicator sees: batches by replica ID, and the members."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.replica_id = replica_id_of(number, 0)
        self.cluster_id = ""
        self.vector: dict[int, int] = {}
        self.members: dict[int, Member] = {}
        self.removed: dict[int, int] = {}
        self.batches: dict[int, list[bytes]] = defaultdict(list)
        """All that is applied, by replica ID: the state."""
        self.cut: dict[int, int] = {}
        """The log does not reach back behind these numbers."""
        self.durable: dict[int, int] = {}
        self.disk: dict[str, Any] = {}
        self.watermark: dict[int, int] = {}
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.staged: bytearray | None = None
        self.joins = 0
        self.trouble: Exception | None = None
        """Raised where the disk is needed."""
        self.is_over = False
        self.load_steps = 0
        self.loads = 0
        """Others have their turn after each unit."""
        self.sync()

    # -- the disk -----------------------------------------------------------------------------

    def sync(self) -> None:
        self.durable = dict(self.vector)
        self.disk = {
            "replica_id": self.replica_id,
            "cluster_id": self.cluster_id,
            "members": dict(self.members),
            "removed": dict(self.removed),
            "vector": dict(self.vector),
            "batches": {replica_id: list(raws) for replica_id, raws in self.batches.items()},
            "cut": dict(self.cut),
        }

    def crash(self, *, clean: bool = False) -> ToyRegion:
        """What the next process finds; unless nothing can have been lost, in a new epoch."""
        if clean:
            self.sync()
        after = self.found_on(self.disk)
        if not clean:
            after.reopen(epoch_of(after.replica_id))
        return after

    def found_on(self, disk: dict[str, Any]) -> ToyRegion:
        """What a process finds on this disk, believing that it is as it was left."""
        after = ToyRegion(self.world, self.number)
        after.replica_id = disk["replica_id"]
        after.cluster_id = disk["cluster_id"]
        after.members = dict(disk["members"])
        after.removed = dict(disk["removed"])
        after.vector = dict(disk["vector"])
        after.batches = defaultdict(list, {o: list(raws) for o, raws in disk["batches"].items()})
        after.cut = dict(disk["cut"])
        after.sync()
        return after

    # -- what is written here -----------------------------------------------------------------

    def write(self, batches: int = 1, effects: int = 1, size: int = 10) -> None:
        """A unit of so many batches."""
        for index in range(batches):
            self._issue(None, effects, size, continues=index < batches - 1)

    def _issue(
        self, effect: Any, count: int = 1, size: int = 10, *, continues: bool = False
    ) -> None:
        first = self.vector.get(self.replica_id, 0) + 1
        raw = batch_bytes(
            self.replica_id,
            first,
            count,
            dependencies=[(o, n) for o, n in self.vector.items() if o != self.replica_id],
            size=size,
            continues=continues,
            wall_ms=self.world.wall_ms(self.number),
            effects=None if effect is None else [effect],
        )
        self._apply(decode_batch(raw), raw)

    def _apply(self, batch: Batch, raw: bytes) -> None:
        assert batch.first == self.vector.get(batch.replica_id, 0) + 1, "a gap, or twice"
        for replica_id, number in batch.dependencies.items():
            assert self.vector.get(replica_id, 0) >= number, "before its cause"
        self._check_stable(batch)
        self.batches[batch.replica_id].append(raw)
        self.vector[batch.replica_id] = batch.last
        self._members_of(batch)

    def _members_of(self, batch: Batch) -> None:
        for array in batch.effects:
            if array[0] == 70:
                self.members[array[1]] = Member(*array[2:5])
            elif array[0] == 71:
                self.members.pop(array[1], None)
                self.removed[array[1]] = array[2]

    def _check_stable(self, batch: Batch) -> None:
        """What is stable has been forgotten: nothing may come that does not know of it."""
        for replica_id, number in self.watermark.items():
            known = (
                batch.dependencies.get(replica_id, 0) if replica_id != batch.replica_id else number
            )
            assert known >= number, (
                f"{batch.replica_id}:{batch.first} is concurrent to what is stable"
            )

    is_full = False

    # -- Local --------------------------------------------------------------------------------

    def read(self, replica_id: int, after: int, max_bytes: int) -> list[bytes] | None:
        if after < self.cut.get(replica_id, 0):
            return None
        found: list[bytes] = []
        for raw in self.batches.get(replica_id, ()):
            if span(raw).last > after:
                if found and sum(map(len, found)) + len(raw) > max_bytes:
                    break
                found.append(raw)
        assert not found or span(found[0]).first == after + 1
        return found

    def fingerprint(self, replica_id: int, number: int) -> bytes | None:
        if not self.cut.get(replica_id, 0) < number <= self.vector.get(replica_id, 0):
            return None
        ending = [raw for raw in self.batches.get(replica_id, ()) if span(raw).last == number]
        return fingerprint(ending[0]) if ending else b""

    def deliver(self, unit: list[Batch], raw: list[bytes]) -> None:
        if self.trouble:
            raise self.trouble
        assert [batch.continues for batch in unit] == [True] * (len(unit) - 1) + [False]
        for batch, data in zip(unit, raw, strict=True):
            assert batch.replica_id != self.replica_id
            self._apply(batch, data)

    def watermark_moved(self, vector: dict[int, int]) -> None:
        for replica_id, number in self.watermark.items():
            assert vector.get(replica_id, 0) >= number, "what was stable is not any more"
        self.watermark = vector
        self.world.check_stable(self)

    def full_sync(
        self, known: Mapping[int, int], places: list[tuple[int, bytes]]
    ) -> tuple[Iterator[bytes], bool]:
        data = msgspec.msgpack.encode(
            [list(self.batches.items()), list(self.members.items()), list(self.removed.items())]
        )
        return iter([data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]), False

    def stage(self, chunk: bytes | None) -> None:
        if self.trouble:
            raise self.trouble
        if chunk is None:
            self.staged = bytearray()
        else:
            assert self.staged is not None
            self.staged += chunk

    def load(self) -> Steps[None]:
        self.loads += 1
        for _ in range(self.load_steps):
            yield

    def join(self, vector: dict[int, int], *, partial: bool) -> None:
        assert not partial
        assert self.staged is not None
        assert covers(vector, self.watermark), "a state that lacks what has been forgotten here"
        batches, members, removed = msgspec.msgpack.decode(self.staged)
        self.staged = None
        for replica_id, raws in batches:
            for raw in raws:
                batch = decode_batch(raw)
                if batch.last > self.vector.get(replica_id, 0):
                    assert batch.first == self.vector.get(replica_id, 0) + 1
                    self._check_stable(batch)
                    self.batches[replica_id].append(raw)
                    self.vector[replica_id] = batch.last
                    # What came as state is not in the log.
                    self.cut[replica_id] = batch.last
        assert covers(self.vector, vector)
        self.removed.update(removed)
        for region, fields in members:
            if region not in self.removed or epoch_of(self._latest(region)) > self.removed[region]:
                self.members[region] = Member(*fields)
        for region in self.removed:
            if epoch_of(self._latest(region)) <= self.removed[region]:
                self.members.pop(region, None)
        self.joins += 1
        self.sync()

    def _latest(self, region: int) -> int:
        return max((o for o in self.vector if region_of(o) == region), default=0)

    def admit(self, region: int, name: str, host: str, port: int) -> None:
        self._issue(kinds.AddRegion(region, name, host, port))

    def remove(self, region: int) -> None:
        self._issue(kinds.RemoveRegion(region, epoch_of(self._latest(region))))

    def enter(
        self, cluster_id: str, members: dict[int, Member], removed: Mapping[int, int] | None = None
    ) -> None:
        self.cluster_id = cluster_id
        self.members.update(members)
        self.removed.update(removed or {})
        self.sync()

    def reopen(self, epoch: int) -> None:
        previous = epoch_of(self.replica_id)
        self.replica_id = replica_id_of(
            self.number, max(epoch, self.world.last_epoch[self.number]) + 1
        )
        self.world.last_epoch[self.number] = epoch_of(self.replica_id)
        self._issue(kinds.OpenEpoch(previous))
        self.sync()

    def expelled(self, reason: str) -> None:
        self.report_event("removed", reason=reason)

    def set_back(self, reason: str) -> None:
        self.report_event("set_back", reason=reason)

    def report_event(self, event: str, **facts: Any) -> None:
        self.notes.append((event, facts))

    # -- for tests ----------------------------------------------------------------------------

    def cut_log(self, replica_id: int | None = None) -> None:
        """Nothing of a replica ID (of any) can be sent on, but for what comes from now on."""
        for each in self.batches if replica_id is None else [replica_id]:
            self.cut[each] = self.vector[each]

    def noted(self, event: str) -> list[dict[str, Any]]:
        return [facts for name, facts in self.notes if name == event]


class _Half:
    """One end of a link."""

    def __init__(self, node: Node, number: int) -> None:
        self.node = node
        self.number = number
        self.other: _Half | None = None
        self.is_open = True
        self.is_dead = False  # something was lost: nothing arrives any more
        self.last_arrival = 0.0
        self.under_way = 0  # bytes sent and not arrived


class Node:
    """A region with its replicator, and the transport between."""

    def __init__(self, world: World, number: int, **config: Any) -> None:
        self.world = world
        self.number = number
        self.address: Address = (NAMES[number], number)
        self.settings = config
        self.lives = 0
        self.alive = True
        self.local = ToyRegion(world, number)
        self.halves: dict[int, _Half] = {}
        self.start()

    def start(self) -> None:
        self.lives += 1
        config = {
            "name": NAMES[self.number],
            "host": self.address[0],
            "port": self.address[1],
            "run_id": f"{self.number}.{self.lives}",
            "wall_ms": lambda: self.world.wall_ms(self.number),
            **self.settings,
        }
        chance = random.Random(f"{self.world.seed} {self.number} {self.lives}")
        self.replicator = Replicator(self.local, self, ReplicationConfig(**config), chance)
        self.alive = True

    def write(self, **what: int) -> None:
        self.local.write(**what)
        self.replicator.appended(self.world.now_ms)

    def crash(self, *, clean: bool = False, silently: bool = False) -> None:
        """The process ends; ``silently``, and the other ends of its links do not notice."""
        self.alive = False
        for half in list(self.halves.values()):
            if silently:
                half.is_open = False
            else:
                self.world.reset(half)
        self.halves.clear()
        self.local = self.local.crash(clean=clean)

    def set_back(self, disk: dict[str, Any]) -> None:
        """An earlier disk is put in place of the one there is, and nobody knows."""
        self.crash(clean=True)
        self.local = self.local.found_on(disk)
        self.start()

    def peer(self, region: int) -> Any:
        figures = self.replicator.peers(self.world.now_ms)
        return next(each for each in figures if each.region == region)

    # -- Transport ----------------------------------------------------------------------------

    def send(self, link: int, frame: bytes) -> None:
        half = self.halves.get(link)
        if half is not None and half.is_open:
            self.world.carry(half, frame)

    def close(self, link: int) -> None:
        half = self.halves.pop(link, None)
        if half is not None and half.is_open:
            half.is_open = False
            self.world.closed(half)

    def dial(self, host: str, port: int) -> None:
        self.world.dialled(self, (host, port))

    def cut_ms(self, region: int) -> float | None:
        return None


class World:
    """Nodes, the links between them, and a clock."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.timeline = Timeline()
        self.timeline.run_until(1000.0)
        self.nodes: dict[int, Node] = {}
        self.cuts: set[frozenset[int]] = set()
        self.silent: set[frozenset[int]] = set()
        self.delay_ms: dict[frozenset[int], float] = {}
        self.bytes_per_ms: dict[frozenset[int], float] = {}
        self.frames: Counter[tuple[int, int, str]] = Counter()
        """Frames sent, by sender, receiver and type."""
        self.clock_ms: dict[int, int] = {}
        self.last_epoch: Counter[int] = Counter()
        self.on_frame: Callable[[int, int, bytes], bytes | None] | None = None
        """May change a frame on its way, or lose it."""
        self._links = 0

    # -- building -----------------------------------------------------------------------------

    def region(self, number: int, **config: Any) -> Node:
        """A region that is not a member of anything yet."""
        node = self.nodes[number] = Node(self, number, **config)
        self._tick(node)
        return node

    def cluster(self, count: int, **config: Any) -> list[Node]:
        """Members of one cluster that know each other."""
        nodes = [self.region(number, **config) for number in range(1, count + 1)]
        members = {node.number: Member(NAMES[node.number], *node.address) for node in nodes}
        for node in nodes:
            node.local.enter("c", members)
        return nodes

    def wall_ms(self, number: int) -> int:
        return int(self.now_ms) + 1_700_000_000_000 + self.clock_ms.get(number, 0)

    # -- time ---------------------------------------------------------------------------------

    @property
    def now_ms(self) -> float:
        """Virtual time."""
        return self.timeline.now_ms

    def run(self, ms: float) -> None:
        """Let so much time pass."""
        self.timeline.run_until(self.now_ms + ms)

    def run_until(self, condition: Callable[[], bool], ms: float = 60_000) -> float:
        """Let time pass until something holds; how long it took."""
        began = self.now_ms
        while not condition():
            assert self.now_ms - began < ms, "it does not happen"
            self.run(10)
        return self.now_ms - began

    def _tick(self, node: Node) -> None:
        if node.alive:
            node.replicator.tick(self.now_ms)
        self.timeline.after(TICK_MS, lambda: self._tick(node))

    # -- links --------------------------------------------------------------------------------

    def dialled(self, node: Node, address: Address) -> None:
        target = next((each for each in self.nodes.values() if each.address == address), None)
        life = node.lives

        def answer() -> None:
            if not node.alive or node.lives != life:
                return
            if target is None or not target.alive or self._is_cut(node, target):
                node.replicator.dial_failed(*address, self.now_ms, "nobody listens")
                return
            near, far = (_Half(each, self._next_link()) for each in (node, target))
            near.other, far.other = far, near
            node.halves[near.number] = near
            target.halves[far.number] = far
            target.replicator.link_up(far.number, self.now_ms, None)
            node.replicator.link_up(near.number, self.now_ms, address)

        self.timeline.after(2 * self._delay(node, target or node), answer)

    def carry(self, half: _Half, frame: bytes) -> None:
        other = half.other
        assert other is not None
        pair = frozenset((half.node.number, other.node.number))
        assert int.from_bytes(frame[:4], "little") == len(frame) - 4
        kind = frame[4]
        name = FrameType(kind).name if kind in set(FrameType) else "?"
        self.frames[half.node.number, other.node.number, name] += 1
        changed: bytes | None = frame
        if self.on_frame is not None:
            changed = self.on_frame(half.node.number, other.node.number, frame)
        if pair in self.silent:
            half.is_dead = True
        if changed is None or half.is_dead:
            return
        half.under_way += len(frame)
        begins = max(half.last_arrival, self.now_ms + self._delay(half.node, other.node))
        half.last_arrival = begins + len(frame) / self.bytes_per_ms.get(pair, 1e9)
        payload = bytes(changed)

        def arrive() -> None:
            half.under_way -= len(frame)
            if other.is_open and other.node.alive and other.number in other.node.halves:
                other.node.replicator.receive(other.number, payload[4], payload[5:], self.now_ms)

        self.timeline.after(half.last_arrival - self.now_ms, arrive)

    def closed(self, half: _Half) -> None:
        """One side has closed: the other hears of it behind all that was sent."""
        other = half.other
        assert other is not None
        pair = frozenset((half.node.number, other.node.number))
        if pair not in self.silent and not half.is_dead:
            wait = max(self._delay(half.node, other.node), half.last_arrival - self.now_ms)
            self.timeline.after(wait, lambda: self._down(other))

    def reset(self, half: _Half) -> None:
        """A link breaks; what is under way is lost."""
        for each in (half, half.other):
            assert each is not None
            if each.is_open:
                self._down(each)

    def _down(self, half: _Half) -> None:
        if half.is_open:
            half.is_open = False
            if half.node.halves.pop(half.number, None) is not None and half.node.alive:
                half.node.replicator.link_down(half.number, self.now_ms)

    def cut(self, one: int, two: int, *, silently: bool = False) -> None:
        pair = frozenset((one, two))
        self.cuts.add(pair)
        if silently:
            self.silent.add(pair)
        else:
            for half in list(self.nodes[one].halves.values()):
                if half.other is not None and half.other.node.number == two:
                    self.reset(half)

    def heal(self, one: int | None = None, two: int | None = None) -> None:
        pairs = list(self.cuts) if one is None else [frozenset((one, two or 0))]
        for pair in pairs:
            self.cuts.discard(pair)
            self.silent.discard(pair)

    def _is_cut(self, one: Node, two: Node) -> bool:
        return frozenset((one.number, two.number)) in self.cuts

    def _delay(self, one: Node, two: Node) -> float:
        return self.delay_ms.get(frozenset((one.number, two.number)), 5.0)

    def _next_link(self) -> int:
        self._links += 1
        return self._links

    def under_way(self, one: int, two: int) -> int:
        """Bytes from one to another that have not arrived."""
        return sum(
            half.under_way
            for half in self.nodes[one].halves.values()
            if half.other is not None and half.other.node.number == two
        )

    # -- what must hold -----------------------------------------------------------------------

    def check_stable(self, local: ToyRegion) -> None:
        for node in self.nodes.values():
            if node.number in local.members:
                assert covers(node.local.durable, local.watermark), "stable, and not on all disks"

    def converged(self) -> bool:
        """Whether everybody alive has the same, by number and by content."""
        members = [node for node in self.nodes.values() if node.alive]
        first = members[0].local
        return all(
            node.local.vector == first.vector and node.local.batches == first.batches
            for node in members
        )

    def is_settled(self) -> bool:
        """Converged, on disk, known to be so, and nothing half-way."""
        if not self.converged():
            return False
        for node in self.nodes.values():
            facts = node.replicator.facts(self.now_ms)
            if facts["held_batches"] or facts["joining_from"] or facts["unstable_effects"]:
                return False
        return True

    def sync_all(self) -> None:
        for node in self.nodes.values():
            if node.alive:
                node.local.sync()
