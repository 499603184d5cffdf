"""Applies what other regions send: effects as they arrive, and full syncs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from anabranch.effects import kinds
from anabranch.effects.acknowledging import GroupPlace, told_by, waiting_no_more
from anabranch.effects.join import KeyspaceJoin, take_key
from anabranch.effects.recorded import numbers_of
from anabranch.effects.streams import known_stream
from anabranch.keyspace.conflicts import Due
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import ApplyStats, Replica, replica_id_of
from anabranch.oplog.batch import Batch
from anabranch.oplog.snapshot import load_snapshot
from anabranch.oplog.storage import ReadFile
from anabranch.region.full_sync_checks import check_full_sync, check_order
from anabranch.region.full_sync_join import FullSyncJoin
from anabranch.region.sent import SentUnit
from anabranch.region.state import RegionState
from anabranch.region.tiering import Tiering
from anabranch.region.waking import Waking
from anabranch.scheduling import Steps
from anabranch.stream.entry_id import SEQ_BITS

PACKED_CHUNKS_MAX: Final = 4
"""Chunks of held tags of a replica ID packed in a slice: some milliseconds."""

TOLD_GROUPS_MAX: Final = 500
"""Groups that are looked at in a slice, more of them only in one stream."""

_MEASURED_MAX: Final = 1000
_MEASURING_NS: Final = 1_000_000
"""Values of a full sync that are measured at a time."""


class Merging:
    """The only way by which other regions change this one; unused in a region alone."""

    def __init__(self, region: RegionState, waking: Waking, tiering: Tiering) -> None:
        """For the region that owns it."""
        self._region = region
        self._tiering = tiering
        self._waking = waking
        self._joining: FullSyncJoin | None = None
        self._incoming: Keyspace | None = None  # a full sync, until it is joined

    def apply(self, batches: Sequence[Batch]) -> None:
        """Apply the batches of units as one; everything in their context must be applied already.

        They are of one replica ID, and each follows the one before. The caller has written the
        earlier effects of this region to the log, and writes the batches afterwards. All batches
        are checked before the first effect is applied. Raises :class:`EffectFormatError` if one
        contains what no region sends; then nothing has changed.
        """
        self.settle()
        if len(batches) > 1:
            batches = joined_runs(batches)
        sent = SentUnit(self._region.keyspace)
        effects = [sent.effects(batch) for batch in batches]
        replica = self._region.keyspace.replica
        apply_remote = self._region.effects.apply_remote
        now_ms = self._region.clock.now_us() // 1000
        self._region.effects.now_ms = now_ms
        for batch, decided in zip(batches, effects, strict=True):
            replica_id = batch.replica_id
            context = batch.dependencies
            number = batch.first
            assert number == replica.vector.get(replica_id, 0) + 1
            assert all(replica.vector.get(o, 0) >= n for o, n in context.items())
            for effect in decided:
                replica.begin_remote(replica_id, number, context)
                apply_remote(effect)
                count = numbers_of(effect)
                replica.finish(effect, count)
                number += count
            self._region.stats.merged_effects += number - batch.first
        self._finish(now_ms)

    def loading(self, file: ReadFile, shown: str) -> Steps[Keyspace]:
        """Load a full sync of another region, in short steps; the own data does not change.

        ``file`` is a snapshot, ``shown`` its name for messages. Raises :class:`CorruptLogError`.
        The last step checks that it fits the own data: join it at once.
        """
        replica = self._region.keyspace.replica
        theirs = Keyspace(
            len(self._region.keyspace.databases), Replica(replica.own, replica.default_limits)
        )
        self._incoming = theirs
        try:
            for _ in load_snapshot(file, shown, theirs):
                self._tiering.relieve(theirs)
                yield
            yield from check_full_sync(theirs, shown)
            yield from check_order(self._region.keyspace, theirs, shown)
        except BaseException:  # closed by its caller, too
            self._incoming = None
            raise
        return theirs

    def incoming_bytes(self) -> int:
        """The memory of a full sync that is being loaded, until the join begins."""
        if self._incoming is None:
            return 0
        account = self._incoming.account
        account.measure_changed(_MEASURED_MAX, self._region.clock.ticks_ns, _MEASURING_NS)
        return account.used_bytes

    def join(
        self,
        theirs: Keyspace,
        name: str,
        *,
        partial: bool = False,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        """Join a full sync of another region, stored as the file ``name``, with the own data.

        With ``partial`` keys that are not in it stay as they are. The log records the join before
        the effects that follow from it. Do not use ``theirs`` afterwards. Keys may be left when
        this returns (:attr:`is_joining`); then ``on_end`` is called when all are joined.
        """
        self._incoming = None
        self.settle()
        self._begin()
        self._region.effects.emit(kinds.JoinFullSync(name, partial))
        self._region.stats.merged_states += 1

        def end() -> None:
            took_long, self._joining = self._joining is not None, None
            self._finish(self._region.effects.now_ms)
            if took_long and on_end is not None:
                on_end()

        join = KeyspaceJoin(self._region.keyspace, theirs, partial=partial)
        joining = FullSyncJoin(self._region, join, self.resolve_in, end)
        if joining.begin():
            self._joining = joining

    @property
    def is_joining(self) -> bool:
        """Whether a full sync is being joined, so that effects of other regions must wait."""
        return self._joining is not None

    def settle(self) -> None:
        """Join now what is left of a full sync."""
        if self._joining is not None:
            self._joining.complete()

    def take_key(self, theirs: Keyspace, name: str, db: int, key: bytes) -> None:
        """Take over the replicated part of one key from a full sync that contains only this key.

        Both regions must have applied the same effects on the key. The rest is as in :meth:`join`.
        """
        self._incoming = None
        self.settle()
        self._begin()
        self._region.effects.emit(kinds.TakeKey(db, key, name))
        self._region.stats.merged_states += 1
        take_key(self._region.keyspace, theirs, db, key)
        self._finish(self._region.effects.now_ms)

    def _begin(self) -> None:
        self._region.effects.now_ms = self._region.clock.now_us() // 1000

    def _finish(self, now_ms: int) -> None:
        """Resolve conflicts, count, and wake clients after effects were applied."""
        self.resolve()
        self._count(now_ms)
        if self._region.keyspace.ready:
            self._waking.serve()
        if self._region.context.waits.vectors:
            self._waking.answer_waitfor()

    def _count(self, now_ms: int) -> None:
        """Add the counts of the applied effects to the statistics of the region."""
        replica, stats = self._region.keyspace.replica, self._region.stats
        applied, replica.apply_stats = replica.apply_stats, ApplyStats()
        stats.duplicate_ids += applied.duplicate_ids
        stats.idmp_collapsed += applied.collapsed
        stats.ids_ahead_ms = max(stats.ids_ahead_ms, (applied.newest_id >> SEQ_BITS) - now_ms)

    def open_epoch(self, epoch: int) -> None:
        """Open a new epoch: numbers of effects that may have been lost are not used again."""
        replica = self._region.keyspace.replica
        previous = replica.own
        replica.become(replica_id_of(replica.region, epoch))
        self._region.context.ids.begin()
        self._region.effects.emit(kinds.OpenEpoch(previous))

    def maintain(self) -> None:
        """Do a slice of background work: drop what is stable, limit and pack held tags.

        Other regions hear of acknowledgements that had to wait for them.
        """
        self._region.keyspace.sweep()
        self._tell()
        replica = self._region.keyspace.replica
        conflicts = replica.conflicts
        conflicts.limit(self._region.settings.max_held_tags)
        for held in conflicts.held.values():
            for _ in range(PACKED_CHUNKS_MAX):
                if not held.pack():
                    break
            held.rest()
        self._region.keyspace.account.beside_bytes = conflicts.size + replica.last_effects.size

    def _tell(self) -> None:
        """Tell other regions of acknowledgements for which nothing is in the way any more.

        A group's own acknowledgement tells of them by itself. Here the entry in the way has gone by
        another region's acknowledgement, or it was removed.
        """
        keyspace, emit = self._region.keyspace, self._region.effects.emit
        untold, left = keyspace.replica.untold, TOLD_GROUPS_MAX
        while untold and left > 0:
            db, key = place = next(iter(untold))
            del untold[place]
            stream = known_stream(keyspace, db, key)
            groups = {} if stream is None else dict(stream.groups)
            left -= len(groups) + 1
            for name, group in groups.items():
                assert stream is not None
                where = GroupPlace(db, key, name, stream, group)
                for effect in told_by(where, waiting_no_more(where)):
                    emit(effect)

    def resolve(self) -> None:
        """Resolve the conflicts of idempotent IDs that were found.

        Call this after recovery: they may have been found before a crash, and not resolved.
        """
        due = self._region.keyspace.replica.conflicts.due
        for place in list(due):
            self.resolve_in(*place)
        self._carry_over()

    def resolve_in(self, db: int, key: bytes) -> None:
        """Resolve the conflicts that were found in a key.

        Groups that have processed the losing entry here need not process the one that stays.
        """
        keyspace, emit = self._region.keyspace, self._region.effects.emit
        replica = keyspace.replica
        for each in list(replica.conflicts.due.get((db, key), {}).values()):
            emit(_resolution(each))
        replica.conflicts.due.pop((db, key), None)
        self._carry_over()

    def _carry_over(self) -> None:
        """Acknowledge the entries that stay where the entries that went were processed here."""
        keyspace, emit = self._region.keyspace, self._region.effects.emit
        replica = keyspace.replica
        processed, replica.apply_stats.processed = replica.apply_stats.processed, []
        for db, key, name, (replica_id, number), entry_id in processed:
            stream = known_stream(keyspace, db, key)
            group = None if stream is None else stream.groups.get(name)
            if group is not None and not group.shared.is_acknowledged(replica_id, number):
                ranges = [(replica_id, number - 1, number)]
                creations = list(group.shared.creations)
                emit(kinds.AcknowledgeRuns(db, key, name, creations, ranges, entry_id))


def _resolution(due: Due) -> kinds.ResolveConflict:
    """The losing entry is removed if its tag says that it yields."""
    goes, stays = due
    return kinds.ResolveConflict(
        goes.db,
        goes.key,
        goes.pid,
        goes.iid,
        stays.entry_id,
        *goes.dot,
        stays.dot,
        goes.entry,
        stays.entry,
        removed=goes.yields,
    )


_TAG: Final = cast(int, kinds.AddRun.__struct_config__.tag)
_LENGTH: Final = 1 + len(kinds.AddRun.__struct_fields__)
_RUN: Final = 3
"""Length of the IDs of a run that ascend by one: milliseconds, sequence number, count."""


def joined_runs(batches: Sequence[Batch]) -> list[Batch]:
    """The batches of one replica ID, in their order, with neighbouring additions joined.

    A region that wrote entries one by one sends a batch for each. Checking and applying an effect
    costs about as much for one entry as for fifty, so neighbours are joined first. What is joined
    must be what each batch alone would be: the log keeps the batches as they came.
    """
    joined: list[Batch] = []
    stretch: list[Batch] = []
    for batch in batches:
        if stretch and not _follows(stretch[-1], batch):
            joined.append(_whole(stretch))
            stretch = []
        stretch.append(batch)
    joined.append(_whole(stretch))
    return joined


def _follows(before: Batch, batch: Batch) -> bool:
    """Whether two batches are one sound run of additions each, the second behind the first."""
    if not (_is_run(before) and _is_run(batch)):
        return False
    _, db, key, _, _, sizes, _, _, position = before.effects[0]
    array = batch.effects[0]
    return bool(
        array[1] == db
        and array[2] == key
        and array[8] == position + len(sizes)
        and batch.dependencies == before.dependencies
    )


def _is_run(batch: Batch) -> bool:
    """Whether a batch is one run of additions whose columns fit together."""
    if len(batch.effects) != 1 or len(batch.effects[0]) != _LENGTH:
        return False
    tag, db, key, ids, data, sizes, weights, opens, position = batch.effects[0]
    try:
        return bool(
            tag == _TAG
            and type(db) is type(position) is int
            and type(key) is type(data) is bytes
            and type(ids) is type(sizes) is type(weights) is type(opens) is list
            and len(ids) == _RUN
            and ids[2] == len(sizes) == len(weights) == batch.numbered
            and sum(sizes) == len(data)
            and all(type(each) is int and 0 <= each < len(sizes) for each in opens)
        )
    except TypeError:
        return False


def _whole(stretch: list[Batch]) -> Batch:
    """One batch with the additions of all."""
    first = stretch[0]
    if len(stretch) == 1:
        return first
    ids: list[Any] = []
    data: list[bytes] = []
    sizes: list[Any] = []
    weights: list[Any] = []
    opens: list[int] = []
    for batch in stretch:
        array = batch.effects[0]
        opens += [each + len(sizes) for each in array[7]]
        ids += array[3]
        data.append(array[4])
        sizes += array[5]
        weights += array[6]
    run = [*first.effects[0][:3], ids, b"".join(data), sizes, weights, opens, first.effects[0][8]]
    return first._replace(numbered=len(sizes), effects=[run])
