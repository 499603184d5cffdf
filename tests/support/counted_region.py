"""A region whose contents are only counted: the batches that it has applied, and nothing else.

Applying them out of order, twice or without a cause is an assertion. The disk of a
:class:`CountedRegion` is a copy of itself, made by :meth:`~CountedRegion.sync`; a crash goes back
to that and opens an epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.effects import kinds
from anabranch.keyspace.last_effects import Place
from anabranch.keyspace.places import Places
from anabranch.keyspace.replica import Member, Replica, epoch_of, region_of, replica_id_of
from anabranch.keyspace.version_vectors import covers
from anabranch.oplog.batch import (
    CONTINUES,
    Batch,
    Compressor,
    SentBatch,
    decode_batch,
    fingerprint,
    sent_batch,
)
from anabranch.replication.interface import Address
from anabranch.scheduling import Steps
from tests.support.batches import encode_batch

if TYPE_CHECKING:
    from tests.support.replication_world import World

__all__ = ["CHUNK", "CountedRegion", "batch_bytes"]

CHUNK = 700
"""Bytes of a full sync, sent at a time."""


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


class CountedRegion:
    """The region that the replicator sees: batches by replica ID, and the members."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.replica = Replica(replica_id_of(number, 0), lambda: (0, 0))
        self.vector: dict[int, int] = {}
        self.addresses: dict[int, Address] = {}
        self.batches: dict[int, list[bytes]] = defaultdict(list)
        """Everything that is applied, by replica ID."""
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
        self.is_joining = False
        self.load_steps = 0
        self.loads = 0
        """Others have their turn after each unit."""
        self.sync()

    # -- the disk -----------------------------------------------------------------------------

    def sync(self) -> None:
        self.durable = dict(self.vector)
        self.disk = {
            "replica_id": self.replica.own,
            "cluster_id": self.replica.cluster_id,
            "members": dict(self.replica.members),
            "removed": dict(self.replica.removed),
            "addresses": dict(self.addresses),
            "vector": dict(self.vector),
            "batches": {replica_id: list(raws) for replica_id, raws in self.batches.items()},
            "cut": dict(self.cut),
        }

    def crash(self, *, clean: bool = False) -> CountedRegion:
        """What the next process finds; unless nothing can have been lost, in a new epoch."""
        if clean:
            self.sync()
        after = self.found_on(self.disk)
        if not clean:
            after.reopen(after.replica.epoch)
        return after

    def found_on(self, disk: dict[str, Any]) -> CountedRegion:
        """What a process finds on this disk, believing that it is as it was left."""
        after = CountedRegion(self.world, self.number)
        after.replica.become(disk["replica_id"])
        after.replica.cluster_id = disk["cluster_id"]
        after.replica.members = dict(disk["members"])
        after.replica.removed = dict(disk["removed"])
        after.addresses = dict(disk["addresses"])
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
        first = self.vector.get(self.replica.own, 0) + 1
        raw = batch_bytes(
            self.replica.own,
            first,
            count,
            dependencies=[(o, n) for o, n in self.vector.items() if o != self.replica.own],
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
                self.replica.members[array[1]] = Member(*array[2:5])
            elif array[0] == 71:
                self.replica.members.pop(array[1], None)
                self.replica.removed[array[1]] = array[2]

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

    def read(self, replica_id: int, after: int, max_bytes: int) -> list[SentBatch] | None:
        if after < self.cut.get(replica_id, 0):
            return None
        found: list[SentBatch] = []
        for batch in map(sent_batch, self.batches.get(replica_id, ())):
            if batch.last > after:
                size = sum(len(each.data) for each in found)
                if found and size + len(batch.data) > max_bytes:
                    break
                found.append(batch)
        assert not found or found[0].first == after + 1
        return found

    def fingerprint(self, replica_id: int, number: int) -> bytes | None:
        if not self.cut.get(replica_id, 0) < number <= self.vector.get(replica_id, 0):
            return None
        ending = [raw for raw in self.batches.get(replica_id, ()) if sent_batch(raw).last == number]
        return fingerprint(ending[0]) if ending else b""

    def deliver(self, units: list[Batch], raw: list[bytes]) -> None:
        if self.trouble:
            raise self.trouble
        assert not units[-1].continues
        for batch, data in zip(units, raw, strict=True):
            assert batch.replica_id != self.replica.own
            self._apply(batch, data)

    def watermark_moved(self, vector: dict[int, int]) -> None:
        for replica_id, number in self.watermark.items():
            assert vector.get(replica_id, 0) >= number, "what was stable is not any more"
        self.watermark = vector
        self.world.check_stable(self)

    def choose(self, known: Mapping[int, int]) -> Steps[Places | None]:
        yield
        return None

    def places(self, chosen: Iterable[Place]) -> Places:
        raise AssertionError("there are no keys")

    def full_sync(self, places: Places | None) -> Iterator[bytes]:
        data = msgspec.msgpack.encode(
            [
                list(self.batches.items()),
                list(self.replica.members.items()),
                list(self.replica.removed.items()),
            ]
        )
        return iter([data[at : at + CHUNK] for at in range(0, len(data), CHUNK)])

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
        assert covers(vector, self.watermark), "a full sync that lacks what has been forgotten here"
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
                    # What came with a full sync is not in the log.
                    self.cut[replica_id] = batch.last
        assert covers(self.vector, vector)
        self.replica.removed.update(removed)
        for region, fields in members:
            if (
                region not in self.replica.removed
                or epoch_of(self._latest(region)) > self.replica.removed[region]
            ):
                self.replica.members[region] = Member(*fields)
        for region in self.replica.removed:
            if epoch_of(self._latest(region)) <= self.replica.removed[region]:
                self.replica.members.pop(region, None)
        self.joins += 1
        self.sync()

    def _latest(self, region: int) -> int:
        return max((o for o in self.vector if region_of(o) == region), default=0)

    def note_addresses(self, addresses: Mapping[int, Address]) -> None:
        self.addresses = self.disk["addresses"] = dict(addresses)

    def admit(self, region: int, name: str, host: str, port: int) -> None:
        self._issue(kinds.AddRegion(region, name, host, port))

    def remove(self, region: int) -> None:
        self._issue(kinds.RemoveRegion(region, epoch_of(self._latest(region))))

    def enter(
        self, cluster_id: str, members: dict[int, Member], removed: Mapping[int, int] | None = None
    ) -> None:
        self.replica.cluster_id = cluster_id
        self.replica.members.update(members)
        self.replica.removed.update(removed or {})
        self.sync()

    def reopen(self, epoch: int) -> None:
        previous = self.replica.epoch
        self.replica.become(
            replica_id_of(self.number, max(epoch, self.world.last_epoch[self.number]) + 1)
        )
        self.world.last_epoch[self.number] = self.replica.epoch
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
