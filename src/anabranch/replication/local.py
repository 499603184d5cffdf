"""A region, its log and its disk, as the replicator sees them, in the server and the simulator.

Own effects leave the region when they are written, with ``appendfsync always`` when they are
synced. Effects of others are applied at once and written with the next turn. A full sync is staged
in a file, joined when it is complete, and kept beside the log until a snapshot contains it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Final, Protocol

from anabranch.compiling import mypyc_attr
from anabranch.effects import kinds
from anabranch.errors import CommandError
from anabranch.keyspace.equality import Digests
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.last_effects import Place
from anabranch.keyspace.places import Places
from anabranch.keyspace.replica import Member, Replica, epoch_of, region_of
from anabranch.keyspace.version_vectors import covers
from anabranch.oplog.batch import Batch, SentBatch, is_local, kept_form
from anabranch.oplog.compression import Compressor
from anabranch.oplog.errors import CorruptLogError
from anabranch.oplog.log import OpLog
from anabranch.oplog.log_index import LogIndex
from anabranch.oplog.snapshot import Contents, Snapshot, framed
from anabranch.scheduling import Steps

if TYPE_CHECKING:
    from anabranch.oplog.storage import LogFile, Storage
    from anabranch.region.region import Region

RECENT_SHARE: Final = 16
"""The part of maxmemory that batches kept for other regions may take; the log has them, too."""

STAGING: Final = "arriving.state"
FULL_SYNC_PREFIX: Final = "joined-"
FULL_SYNC_SUFFIX: Final = ".abstate"
CHUNK_BYTES: Final = 256 * 1024

PLACES_A_STEP = 256  # not Final: a test of the compiled core lowers it, too
"""Keys of a full sync that are looked up in one step."""


def joined_at(name: str) -> int | None:
    """The log position at which the full sync of this file was joined; None for other files."""
    if not (name.startswith(FULL_SYNC_PREFIX) and name.endswith(FULL_SYNC_SUFFIX)):
        return None
    digits = name.removeprefix(FULL_SYNC_PREFIX).removesuffix(FULL_SYNC_SUFFIX)
    return int(digits) if digits.isdecimal() else None


class Journal(Protocol):
    """Writes the region's effects into its log."""

    @property
    def log(self) -> OpLog | None:
        """The log."""

    @property
    def position(self) -> int:
        """A position behind all effects so far."""

    @property
    def is_behind(self) -> bool:
        """Whether something could not be written."""

    @property
    def trouble(self) -> str | None:
        """Why nothing could be written, as a text for operators."""

    def commit(self) -> None:
        """Write what the region has done so far as a turn of its own."""

    def commit_own(self) -> None:
        """Write the turn if it contains own effects; effects of others may still wait."""

    def sync_all(self) -> None:
        """Write and sync everything now; raises :class:`OSError`."""

    def append(self, data: bytes) -> int:
        """Append batches of another region; returns their position."""

    def end_turn(self) -> None:
        """The region has effects: they are to be written soon."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RegionLocal:
    """See :class:`anabranch.replication.interface.Local`."""

    chunk_bytes = CHUNK_BYTES
    """Bytes of a full sync that are sent at a time."""

    def __init__(self, region: Region, journal: Journal) -> None:
        self.replica: Replica = region.replica
        self._region = region
        self._journal = journal
        self._digests: Digests | None = None
        self._storage: Storage
        self._log_index: LogIndex
        self._staging: LogFile | None = None
        self._loaded: Keyspace | None = None  # the staging file
        self._damages: set[str] = set()

    def recent_max(self) -> int:
        """How many bytes of the newest batches may stay in memory: a part of maxmemory at most."""
        settings = self._region.settings
        share = settings.maxmemory // RECENT_SHARE if settings.maxmemory else sys.maxsize
        return min(settings.region_cache_bytes, share)

    def open_log(self, storage: Storage, log: OpLog) -> None:
        """Start after recovery, when the log can be written. Raises :class:`OSError`."""
        self._storage = storage
        self._log_index = LogIndex(storage, recent_bytes=self.recent_max())
        self._log_index.on_damage = self._damaged
        self._region.holdings.measured["recent"] = lambda: self._log_index.used_bytes
        self._log_index.scan(log.segments, self.replica.vector)
        log.needed_from = self._needed_from
        with suppress(FileNotFoundError):
            storage.remove(STAGING)

    def found(self, cluster_id: str, me: Member) -> None:
        """Begin a cluster of one region."""
        number = self.replica.region
        self._region.effects.emit(kinds.EnterCluster(cluster_id, [(number, *me)]))
        self._region.effects.emit(kinds.AddRegion(number, *me))
        self._journal.sync_all()  # a region that forgot this could not join its cluster again

    def after_effects(self) -> None:
        """Effects of other regions were applied: clients may have waited for them."""

    @property
    def is_full(self) -> bool:
        """See :class:`Local`."""
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
    def digests(self) -> Digests:
        """See :class:`Local`."""
        if self._digests is None:
            self._digests = Digests(self._region.keyspace)
        return self._digests

    # -- for the replicator -------------------------------------------------------------------

    @property
    def replica_id(self) -> int:
        """See :class:`Local`."""
        return self.replica.own

    @property
    def cluster_id(self) -> str:
        """See :class:`Local`."""
        return self.replica.cluster_id

    @property
    def members(self) -> Mapping[int, Member]:
        """See :class:`Local`."""
        return self.replica.members

    @property
    def removed(self) -> Mapping[int, int]:
        """See :class:`Local`."""
        return self.replica.removed

    @property
    def vector(self) -> Mapping[int, int]:
        """See :class:`Local`."""
        return self.replica.vector

    @property
    def durable(self) -> Mapping[int, int]:
        """See :class:`Local`."""
        return self._log_index.durable

    def read(self, replica_id: int, after: int, max_bytes: int) -> list[SentBatch] | None:
        """See :class:`Local`."""
        log = self._journal.log
        assert log is not None
        # Effects before this position may leave the region.
        visible = log.synced if self._region.settings.appendfsync == "always" else log.end
        return self._log_index.read(log, replica_id, after, max_bytes, visible)

    def fingerprint(self, replica_id: int, number: int) -> bytes | None:
        """See :class:`Local`."""
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
        """See :class:`Local`."""
        return self._region.scheduler.is_over()

    @property
    def is_joining(self) -> bool:
        """See :class:`Local`."""
        return self._region.merging.is_joining

    def deliver(self, units: list[Batch], raw: list[bytes]) -> None:
        """See :class:`Local`."""
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
        """See :class:`Local`."""
        keeps_tombstones = self._region.settings.mark_retention == "forever"
        self._region.stats.prunes += 1
        self._region.keyspace.prune(vector, keeps_tombstones=keeps_tombstones)
        self._log_index.prune(vector)

    def choose(self, known: Mapping[int, int]) -> Steps[Places | None]:
        """See :class:`Local`."""
        last_effects = self.replica.last_effects
        places = Places(self._region.keyspace.databases)
        while last_effects.absorb(PLACES_A_STEP):
            yield
        changed = last_effects.watch()
        try:
            found = yield from last_effects.beyond(known)
            for at, place in enumerate(found or (), 1):
                places.look(place)
                if at % PLACES_A_STEP == 0:
                    yield
        finally:
            last_effects.unwatch(changed)
        for place in changed:
            places.look(place)
        # A FLUSHALL meanwhile concerns all keys.
        return places if found is not None and covers(known, last_effects.base) else None

    def places(self, chosen: Iterable[Place]) -> Places:
        """See :class:`Local`."""
        databases = self._region.keyspace.databases
        return Places(databases, [place for place in chosen if place[0] < len(databases)])

    def full_sync(self, places: Places | None) -> Iterator[bytes]:
        """See :class:`Local`."""
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
            epoch_of(replica.own),
            replica.vector.get(replica.own, 0) + 1,
            self._region.clock.now_us() // 1000,
        )
        snapshot = Snapshot(self._region.keyspace, contents, places, keeps_last_effects=False)
        self._region.watch_changes(snapshot.before)
        chunks = self._chunks(snapshot)
        next(chunks)  # from here on closing it releases the snapshot
        return chunks

    def _chunks(self, snapshot: Snapshot) -> Iterator[bytes]:
        compressor = Compressor()
        try:
            yield b""
            buffer = bytearray(snapshot.header())
            for body in snapshot.bodies():
                if body:
                    buffer += framed(body, compressor)
                while len(buffer) >= self.chunk_bytes:
                    yield bytes(buffer[: self.chunk_bytes])
                    del buffer[: self.chunk_bytes]
                if self.is_over:
                    yield b""
            yield bytes(buffer)
        finally:
            self._region.unwatch_changes(snapshot.before)
            snapshot.release()

    def stage(self, chunk: bytes | None) -> None:
        """See :class:`Local`."""
        if chunk is None:
            if self._staging is not None:
                self._staging.close()
                self._staging = None
                self._storage.remove(STAGING)
            return
        if self._staging is None:
            self._staging = self._storage.create(STAGING)
        self._staging.write(chunk)

    def load(self) -> Steps[None]:
        """See :class:`Local`."""
        merging, shown = self._region.merging, self._storage.shown(STAGING)
        with closing(self._storage.open(STAGING)) as file:
            self._loaded = yield from merging.loading(file, shown)

    def join(self, vector: dict[int, int], *, partial: bool) -> None:
        """See :class:`Local`."""
        theirs, name = self._keep_staged()
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
        """See :class:`Local`."""
        theirs, name = self._keep_staged()
        self._region.merging.take_key(theirs, name, db, key)
        self.report_event("state_joined", file=name)
        self._journal.commit()
        self.after_effects()

    def _keep_staged(self) -> tuple[Keyspace, str]:
        """The loaded contents of the staging file, and the name under which the file is kept."""
        theirs, self._loaded = self._loaded, None
        journal = self._journal
        assert theirs is not None
        assert self._staging is not None
        journal.commit()
        if journal.is_behind:
            raise OSError(0, journal.trouble)
        self._staging.sync()
        self._staging.close()
        self._staging = None
        name = f"{FULL_SYNC_PREFIX}{journal.position:020d}{FULL_SYNC_SUFFIX}"
        self._storage.rename(STAGING, name)
        self._storage.sync()
        return theirs, name

    def forget_full_syncs(self, position: int) -> None:
        """Delete full syncs that were joined before this position: a snapshot contains them."""
        for name in self._storage.names():
            joined = joined_at(name)
            if joined is not None and joined < position:
                self._storage.remove(name)

    def admit(self, region: int, name: str, host: str, port: int) -> None:
        """See :class:`Local`."""
        self._region.effects.emit(kinds.AddRegion(region, name, host, port))
        # a region number whose first epoch was forgotten would be used twice
        self._journal.sync_all()

    def remove(self, region: int) -> None:
        """See :class:`Local`."""
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
        """See :class:`Local`."""
        rows = [(region, *member) for region, member in members.items()]
        effect = kinds.EnterCluster(cluster_id, rows, list(removed.items()))
        self._region.effects.emit(effect)
        self._journal.sync_all()

    def reopen(self, epoch: int) -> None:
        """See :class:`Local`."""
        if epoch < epoch_of(self.replica.own):
            return
        self._journal.commit()
        self._region.merging.open_epoch(epoch + 1)
        self._journal.sync_all()  # otherwise the next power failure would open it once more
        self.report_event("new_epoch", epoch=epoch + 1)

    def expelled(self, reason: str) -> None:
        """See :class:`Local`."""
        self._region.dispatcher.refuse_writes("removed", f"READONLY {reason}")
        self.report_event("removed", reason=reason)

    def set_back(self, reason: str) -> None:
        """See :class:`Local`."""
        self._region.dispatcher.refuse_writes("set_back", f"READONLY {reason}")
        self.report_event("set_back", reason=reason)

    def report_event(self, event: str, **facts: object) -> None:
        """See :class:`Local`."""
        text = " ".join(f"{name}={value}" for name, value in facts.items())
        self._region.channels.publish(b"__region__", f"{event} {text}".rstrip().encode())
