"""A region, its log and its disk, as the replicator sees them.

Own effects leave the region when they are written, with ``appendfsync always`` when they are
synced. Effects of others are applied at once and written with the next turn.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds
from anabranch.errors import CommandError
from anabranch.keyspace.equality import KeyDigests
from anabranch.keyspace.last_effects import Place
from anabranch.keyspace.places import Places
from anabranch.keyspace.replica import Member, Replica, epoch_of, region_of
from anabranch.node.cluster_notes import ClusterNotes
from anabranch.node.durability import Durability
from anabranch.node.full_syncs import FullSyncFiles, chunks, lacking
from anabranch.oplog.batch import Batch, SentBatch, is_local, kept_form
from anabranch.oplog.errors import CorruptLogError
from anabranch.oplog.log import OpLog
from anabranch.oplog.log_index import LogIndex
from anabranch.oplog.snapshot import Contents, Snapshot
from anabranch.oplog.storage import Storage
from anabranch.region.region import Region
from anabranch.replication.interface import Address
from anabranch.scheduling import Steps

RECENT_SHARE: Final = 16
"""The part of maxmemory that batches kept for other regions may take; the log has them, too."""

CHUNK_BYTES: Final = 256 * 1024

_QUIET: Final = frozenset(
    {
        *("caught_up", "certificate_renewed", "clock_accepted", "entered", "fewer_held_tags"),
        *("fewer_marks", "idmp_conflict"),
        *("join_resumed", "joined", "not_full", "reachable", "relay", "relay_ended"),
        *("repaired", "state_joined", "takes_writes"),
    }
)
"""Events that are logged with level info; all others are warnings."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RegionLocal:
    """What a replicator needs of a region: a :class:`~anabranch.replication.interface.Local`."""

    def __init__(self, region: Region, durability: Durability) -> None:
        self.replica: Replica = region.replica
        self.vector: Mapping[int, int] = region.replica.vector
        self.notes = ClusterNotes(region.replica)
        self.chunk_bytes = CHUNK_BYTES
        """Bytes of a full sync that are sent at a time."""
        self.on_answers: Callable[[], None] = _nothing
        """Called when sessions may have got a reply to write."""
        self._region = region
        self._journal = durability
        self._digests: KeyDigests | None = None
        self._log_index: LogIndex
        self._full_syncs: FullSyncFiles
        self._damages: set[str] = set()

    def recent_max(self) -> int:
        """How many bytes of the newest batches may stay in memory: a part of maxmemory at most."""
        settings = self._region.settings
        share = settings.maxmemory // RECENT_SHARE if settings.maxmemory else sys.maxsize
        return min(settings.region_cache_bytes, share)

    def recent_changed(self) -> None:
        """The settings of :meth:`recent_max` have changed."""
        self._log_index.keep_recent(self.recent_max())

    def synced(self, position: int) -> None:
        """The log is on the disk up to this position."""
        self._log_index.synced(position)

    def open_log(self, storage: Storage, log: OpLog) -> None:
        """Start after recovery, when the log can be written. Raises :class:`OSError`."""
        self._full_syncs = FullSyncFiles(storage)
        self._log_index = LogIndex(storage, recent_bytes=self.recent_max())
        self._log_index.on_damage = self._damaged
        self._region.holdings.measured["recent"] = lambda: self._log_index.used_bytes
        self._log_index.scan(log.segments, self.replica.vector)
        log.needed_from = self._needed_from

    def found(self, cluster_id: str, me: Member) -> None:
        """Begin a cluster of one region."""
        number = self.replica.region
        self._region.effects.emit(kinds.EnterCluster(cluster_id, [(number, *me)]))
        self._region.effects.emit(kinds.AddRegion(number, *me))
        self._journal.sync_all()  # a region that forgot this could not join its cluster again

    def after_effects(self) -> None:
        """Effects of other regions were applied: clients may have waited for them."""
        self.on_answers()

    @property
    def is_full(self) -> bool:
        """Whether more than ``maxmemory`` is used: no effects of others are taken then."""
        maxmemory = self._region.settings.maxmemory
        return 0 < maxmemory < self._region.dispatcher.used_memory()

    # -- the log ------------------------------------------------------------------------------

    def taken(self, batches: list[bytes], position: int) -> None:
        """Batches of an own turn will be written at this position."""
        for data in batches:
            if not is_local(data):
                self._log_index.record(data, position)
            position += len(data)

    def _needed_from(self) -> int:
        log = self._journal.log
        assert log is not None
        settings = self._region.settings
        needed = self._log_index.needed_from(log, self.replica.watermark)
        needed = max(needed, log.excess_end(settings.oplog_max_bytes))
        if settings.oplog_max_age and log.segments:
            ages = self._log_index.ages
            ages.prune(log.segments[0].first)
            oldest_ms = self._region.clock.now_us() // 1000 - settings.oplog_max_age * 1000
            needed = max(needed, ages.older_than(oldest_ms, log.end))
        return needed

    @property
    def digests(self) -> KeyDigests:
        """The digests of all keys, which are computed as far as they are needed."""
        if self._digests is None:
            self._digests = KeyDigests(self._region.keyspace)
        return self._digests

    # -- for the replicator -------------------------------------------------------------------

    @property
    def durable(self) -> Mapping[int, int]:
        """What has been applied and is on the disk, by replica ID."""
        return self._log_index.durable

    def read(self, replica_id: int, after: int, max_bytes: int) -> list[SentBatch] | None:
        """Whole batches behind effect ``after`` that may leave the region; None: not in the log."""
        log = self._journal.log
        assert log is not None
        # Effects before this position may leave the region.
        visible = log.synced if self._region.settings.appendfsync == "always" else log.end
        return self._log_index.read(log, replica_id, after, max_bytes, visible)

    def fingerprint(self, replica_id: int, number: int) -> bytes | None:
        """The fingerprint of the batch that ends with a number; empty: none; None: unknown."""
        log = self._journal.log
        assert log is not None
        return self._log_index.fingerprint(log, replica_id, number)

    def _damaged(self, problem: OSError | CorruptLogError) -> None:
        """Report once that a part of the log cannot be read: a restart would refuse it."""
        if str(problem) not in self._damages:
            self._damages.add(str(problem))
            self.report_event("log_damaged", reason=str(problem))

    @property
    def is_over(self) -> bool:
        """Whether the present slice of time is over."""
        return self._region.scheduler.is_over()

    @property
    def is_joining(self) -> bool:
        """Whether keys of a full sync are still to be joined."""
        return self._region.merging.is_joining

    def deliver(self, units: list[Batch], raw: list[bytes]) -> None:
        """Apply units of another region, and append their bytes to the log; OSError: neither."""
        journal = self._journal
        journal.commit_own()  # earlier own effects do not have these in their context
        if journal.is_behind:
            raise OSError(0, journal.trouble)
        self._region.merging.apply(units)
        kept = [kept_form(data) for data in raw]
        position = journal.append(b"".join(kept))
        for data in kept:
            self._log_index.record(data, position)
            position += len(data)
        self.after_effects()

    def watermark_moved(self, vector: dict[int, int]) -> None:
        """Every member has these effects on its disk: drop what was kept for them."""
        keeps_tombstones = self._region.settings.mark_retention == "forever"
        self._region.stats.prunes += 1
        self._region.keyspace.prune(vector, keeps_tombstones=keeps_tombstones)
        self._log_index.prune(vector)

    def choose(self, known: Mapping[int, int]) -> Steps[Places | None]:
        """The keys that a region lacks which has applied ``known``; None: all keys."""
        return lacking(self.replica, self._region.keyspace, known)

    def places(self, chosen: Iterable[Place]) -> Places:
        """These keys for a full sync, as far as their databases exist."""
        databases = self._region.keyspace.databases
        return Places(databases, [place for place in chosen if place[0] < len(databases)])

    def full_sync(self, places: Places | None) -> Iterator[bytes]:
        """A snapshot of this moment in chunks, of these keys or of all; OSError."""
        self._region.merging.settle()
        self._journal.commit()
        if self._journal.is_behind:
            raise OSError(0, self._journal.trouble)
        if self._region.settings.appendfsync == "always":
            self._journal.sync_all()  # a full sync shows all effects
        replica = self.replica
        contents = Contents(
            self._journal.position,
            replica.region,
            replica.epoch,
            replica.vector.get(replica.own, 0) + 1,
            self._region.clock.now_us() // 1000,
        )
        snapshot = Snapshot(self._region.keyspace, contents, places, keeps_last_effects=False)
        self._region.watch_changes(snapshot.before)
        found = chunks(self._region, snapshot, self.chunk_bytes)
        next(found)  # from here on closing it releases the snapshot
        return found

    def stage(self, chunk: bytes | None) -> None:
        """Append to the file of an arriving full sync, or delete it (None); OSError."""
        self._full_syncs.stage(chunk)

    def load(self) -> Steps[None]:
        """Read the staged full sync in short steps; changes no data."""
        return self._full_syncs.load(self._region.merging)

    def join(self, vector: dict[int, int], *, partial: bool) -> None:
        """Join the loaded full sync, whose sender had applied ``vector``."""
        theirs, name = self._full_syncs.keep(self._journal)
        self._region.merging.join(theirs, name, partial=partial, on_end=self._joined)
        self.report_event("state_joined", file=name)
        self._log_index.joined(self.replica.vector)
        self._journal.commit()
        # It is on the disk as soon as the log that names it is.
        self._log_index.told_by(vector, self._journal.position)
        self.after_effects()

    def _joined(self) -> None:
        """All keys of a full sync are joined; effects may have followed from that."""
        self._journal.commit()
        self.after_effects()

    def take_key(self, db: int, key: bytes) -> None:
        """Take over one key of the loaded full sync."""
        theirs, name = self._full_syncs.keep(self._journal)
        self._region.merging.take_key(theirs, name, db, key)
        self.report_event("state_joined", file=name)
        self._journal.commit()
        self.after_effects()

    def forget_full_syncs(self, position: int) -> None:
        """Delete full syncs that were joined before this position: a snapshot contains them."""
        self._full_syncs.forget(position)

    @property
    def addresses(self) -> Mapping[int, Address]:
        """The addresses of members that an earlier process has noted."""
        return self.notes.addresses

    def note_addresses(self, addresses: Mapping[int, Address]) -> None:
        """Note the addresses of members that differ from those of their admissions."""
        self.notes.note_addresses(addresses)

    def admit(self, region: int, name: str, host: str, port: int) -> None:
        """Issue the effect that admits a region, and sync it to the disk."""
        self._region.effects.emit(kinds.AddRegion(region, name, host, port))
        # a region number whose first epoch was forgotten would be used twice
        self._journal.sync_all()

    def remove(self, region: int) -> None:
        """Issue the effect that removes a member; CommandError if it is none."""
        if region not in self.replica.members:
            raise CommandError(f"ERR Region {region} is not a member")
        epoch = max(
            (epoch_of(each) for each in self.replica.vector if region_of(each) == region),
            default=0,
        )
        self._region.effects.emit(kinds.RemoveRegion(region, epoch))
        self._journal.end_turn()

    def enter(
        self, cluster_id: str, members: dict[int, Member], removed: Mapping[int, int]
    ) -> None:
        """Store the cluster that has admitted this region, and its members; OSError."""
        rows = [(region, *member) for region, member in members.items()]
        effect = kinds.EnterCluster(cluster_id, rows, list(removed.items()))
        self._region.effects.emit(effect)
        self._journal.sync_all()

    def reopen(self, epoch: int) -> None:
        """Open an epoch later than ``epoch``, of which others have effects that are lost here."""
        if epoch < self.replica.epoch:
            return
        self._journal.commit()
        self._region.merging.open_epoch(epoch + 1)
        self._journal.sync_all()  # otherwise the next power failure would open it once more
        self.report_event("new_epoch", epoch=epoch + 1)

    def expelled(self, reason: str) -> None:
        """Other regions report that this one was removed: refuse writes, note it for a restart."""
        self.notes.note_removed(reason)
        self._region.dispatcher.refuse_writes("removed", f"READONLY {reason}")
        self.report_event("removed", reason=reason)

    def set_back(self, reason: str) -> None:
        """Others have different effects of this region: refuse writes, note it for a restart."""
        self.notes.note_set_back(reason)
        self._region.dispatcher.refuse_writes("set_back", f"READONLY {reason}")
        self.report_event("set_back", reason=reason)

    def report_event(self, event: str, **facts: object) -> None:
        """Report an event in the log of the server, and to clients that have subscribed to them."""
        level = "info" if event in _QUIET else "warning"
        self._region.host.log(level, f"region.{event}", **facts)
        text = " ".join(f"{name}={value}" for name, value in facts.items())
        self._region.channels.publish(b"__region__", f"{event} {text}".rstrip().encode())
        self.on_answers()


def _nothing() -> None:
    pass
