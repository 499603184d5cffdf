"""The data directory of a process: recovery, the log, snapshots, and when each is due.

::

    <dir>/<appenddirname>/lock                     held by the server that uses the directory
                          manifest                 which files must be there, and how far they go
                          users                    there are ACL users in the log
                          log-<position>.ablog     segments of the log
                          snapshot-<position>.absnap

With ``appendonly no`` there is no log: the directory is loaded at the start, and only snapshots are
written: on request, by save points, and by SHUTDOWN SAVE.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from anabranch.effects import kinds
from anabranch.errors import CommandError, ConfigError
from anabranch.keyspace.inquiry import Inquiry
from anabranch.keyspace.keyspace import Keyspace
from anabranch.node.driver import Driver, ProcessDirectory
from anabranch.node.durability import Durability
from anabranch.node.snapshots import Snapshots
from anabranch.oplog.errors import LogError
from anabranch.oplog.log import OpLog
from anabranch.oplog.manifest import ManifestFile
from anabranch.oplog.recovery import Recovery, recover
from anabranch.oplog.segment import first_position_of
from anabranch.oplog.snapshot import Contents, position_of
from anabranch.oplog.storage import Storage
from anabranch.region.region import Region
from anabranch.region.turn import Turn
from anabranch.scheduling import Steps, in_one_go

if TYPE_CHECKING:
    from anabranch.node.exchange import Exchange

PROGRESS_S: Final = 1.0
"""A recovery that takes longer reports its progress this often."""

LOG_NEEDED: Final = "a region of an Active-Active cluster needs its log: leave appendonly at yes"

RETIRE_EVERY_S: Final = 60.0
"""The interval of deleting files of the log that other regions do not need."""

RETRY_SNAPSHOT_S: Final = 5.0
"""After a failed snapshot, none is begun automatically for so long."""

_USERS: Final = "users"
"""An empty file: commands have set users, which the log keeps."""

_IN_PROGRESS = "ERR Background save already in progress"
_REWRITE_IN_PROGRESS = "ERR Background append only file rewriting already in progress"


class Persistence:
    """The directory of one process, and all operations on it."""

    def __init__(self, region: Region, driver: Driver, place: ProcessDirectory) -> None:
        self._region = region
        self._settings = region.settings
        self._driver = driver
        self._place = place
        self.durability = Durability(region, driver)
        self.snapshots = Snapshots(region, driver, self._snapshot_finished, self._unsynced)
        self.exchange: Exchange | None = None
        """The exchange with other regions; None in a region alone."""
        self._storage: Storage | None = None
        self._manifest: ManifestFile | None = None
        self._turn = Turn(region.replica, region.effects.mode.compressed_bytes_min)
        region.effects.encode_ahead = self._encode_ahead
        region.acl.before_keeping = self._note_users
        self._end = 0  # the position of the next snapshot while there is no log
        self._covered = 0  # the position of the newest snapshot
        self._retired_at = 0.0  # when :meth:`retire` ran last
        self._rewriting = False  # the snapshot in progress was requested by BGREWRITEAOF
        self._scheduled = False  # another snapshot will follow it
        self._saves_rest = False  # the server stops, and ends with a snapshot
        self.recovered: Recovery | None = None
        self._loading = Recovery()  # the progress while the data are being recovered
        self._loading_since_ms = 0
        self._has_noted_users = False
        self._loaded_keys = 0  # at the end of the recovery

    def _encode_ahead(self, effect: kinds.AddRun) -> None:
        self._turn.encode_ahead(effect, compress=self._settings.oplog_compression)

    # -- start and end ------------------------------------------------------------------------

    def start(self) -> None:
        """Recover the data, and begin to log unless ``appendonly`` is no.

        Raises what :meth:`begin` and :meth:`load` raise.
        """
        self.begin()
        in_one_go(self.load())

    def begin(self) -> None:
        """Lock the directory; most commands are refused from now on, until :meth:`load` has ended.

        Raises :class:`ConfigError` if the directory cannot be used.
        """
        settings = self._settings
        if settings.region_id and not settings.appendonly:
            raise ConfigError(LOG_NEEDED)
        if settings.appendonly or self._place.is_there():
            storage = self._open()
            if _USERS in storage.names() and not settings.aclfile:
                self._region.acl.await_kept(settings)
        self._loading_since_ms = self._region.clock.now_us() // 1000
        self._region.begin_loading()

    def load(self) -> Steps[None]:
        """Recover the data in short steps, then begin to log; requests may run between the steps.

        Raises :class:`LogError` if the files cannot be used.
        """
        report = None
        if self._storage is not None:
            report = yield from self._recover(self._storage)
        self._region.end_loading()
        if report is not None and self._settings.appendonly and self._storage is not None:
            self._start_log(self._storage, report)
        self._retired_at = self._driver.now_s()

    def _recover(self, storage: Storage) -> Steps[Recovery]:
        began = reported = self._driver.now_s()
        report = self._loading
        try:
            if self.exchange is not None:
                self.exchange.local.notes.read(storage)
            for report in recover(storage, self._region.keyspace):
                self._loading = report
                yield
                self._region.tiering.relieve(self._region.keyspace)
                now = self._driver.now_s()
                if now - reported >= PROGRESS_S:
                    reported = now
                    self._log(
                        "info",
                        "recovery.progress",
                        percent=100 * report.bytes_done // max(report.bytes_total, 1),
                        effects=report.effects,
                        seconds=round(now - began, 1),
                    )
            report.tidy(storage)
        except OSError as problem:
            raise LogError(
                f"cannot read {problem.filename or self._place.shown}: {problem.strerror}. "
                "Nothing was changed"
            ) from None
        self._recovered(report, self._driver.now_s() - began)
        return report

    @property
    def is_loading(self) -> bool:
        """Whether the data are being recovered."""
        return self._region.dispatcher.is_loading

    @property
    def loaded_percent(self) -> float:
        """How much of the files has been read, while the data are being recovered."""
        return 100 * self._loading.bytes_done / max(self._loading.bytes_total, 1)

    def _open(self) -> Storage:
        if self._storage is None:
            self._storage = self._place.open()
            if self._region.keyspace.users:
                self._note_users()
        if self._manifest is None:
            self._manifest = ManifestFile(self._storage)
        return self._storage

    def _note_users(self) -> None:
        """Users are about to be kept in the log: the next start must not let others in before.

        Raises :class:`CommandError` if the disk does not take the note.
        """
        storage = self._storage
        if self._has_noted_users or storage is None:
            return
        try:
            if _USERS not in storage.names():
                storage.create(_USERS).close()
                storage.sync()
        except OSError as problem:
            self._log("warning", "acl.save_failed", reason=problem.strerror)
            raise CommandError("ERR the user cannot be kept: the disk cannot be written") from None
        self._has_noted_users = True

    def _log(self, level: str, event: str, **facts: object) -> None:
        self._region.host.log(level, event, **facts)

    def _recovered(self, report: Recovery, seconds: float) -> None:
        self.recovered = report
        self._loaded_keys = sum(len(each.values) for each in self._region.keyspace.databases)
        self._turn.next_number = report.next_number
        self._end = report.end
        self._covered = report.snapshot_position
        if report.snapshot is not None and self._manifest is not None:
            self._manifest.snapshot = report.snapshot_position
        self.snapshots.saved_ms = report.snapshot_ms
        if report.snapshot is not None and self._storage is not None:
            self.snapshots.size = self._storage.size(report.snapshot)
        if report.cut is not None:
            self._log(
                "warning",
                "oplog.tail_cut",
                file=report.cut.name,
                at_byte=report.cut.offset,
                lost_bytes=report.cut.size,
                why=report.cut.why,
                note="the server stopped before this was known to be on the disk",
            )
        if report.end:
            self._log(
                "info",
                "recovery.done",
                keys=sum(len(each.values) for each in self._region.keyspace.databases),
                snapshot=report.snapshot or "none",
                batches=report.batches,
                effects=report.effects,
                seconds=round(seconds, 3),
            )

    def _start_log(self, storage: Storage, report: Recovery) -> None:
        log = OpLog(
            storage,
            report.segments,
            end=report.end,
            segment_bytes=self._settings.oplog_segment_bytes,
            left_out=report.left_out,
            manifest=self._manifest,
        )
        try:
            log.secure()
        except OSError as problem:
            raise LogError(
                f"cannot sync {self._place.shown}: {problem.strerror}. Look at the disk first; "
                "nothing was changed"
            ) from None
        self.durability.start(log, self._turn)
        if self.exchange is not None:
            try:
                self.exchange.open(storage, log, was_cut=report.cut is not None)
            except OSError as problem:
                raise LogError(f"cannot write to {self._place.shown}: {problem.strerror}") from None

    def close(self) -> None:
        """Close and unlock the directory; the caller has written everything before."""
        self.snapshots.close()
        self.durability.close()
        self._place.close()

    # -- snapshots ----------------------------------------------------------------------------

    def _unsynced(self) -> list[str]:
        log = self.durability.log
        return [] if log is None else log.unsynced

    def _contents(self) -> Contents:
        """The header data of a snapshot of now; writes all effects so far to the log first."""
        self._region.merging.settle()
        durability = self.durability
        durability.commit()
        if durability.trouble is not None:
            raise OSError(0, durability.trouble)
        if durability.log is not None:
            position = durability.begin_segment()
        else:
            position = self._end = self._end + 1
        replica = self._region.replica
        return Contents(
            position,
            replica.region,
            replica.epoch,
            self._turn.next_number,
            self._region.clock.now_us() // 1000,
        )

    def save(self) -> None:
        """Take a snapshot now, and block; ends one in progress. Raises :class:`CommandError`."""
        try:
            self._save()
        except (OSError, ConfigError):
            raise CommandError("ERR") from None

    def _save(self) -> None:
        try:
            self.snapshots.save(self._open(), self._contents())
        except (OSError, ConfigError) as problem:
            self.snapshots.failed(problem)
            raise

    def begin_save(self, *, rewrite: bool = False, schedule: bool = False) -> bool:
        """BGSAVE and BGREWRITEAOF: True if a snapshot was begun, False if it will begin later.

        Within a transaction it begins later: otherwise it would contain half of the transaction.
        """
        if self.snapshots.in_progress:
            if rewrite and self._rewriting:
                raise CommandError(_REWRITE_IN_PROGRESS)
            if not rewrite and not schedule:
                raise CommandError(_IN_PROGRESS)
            self._scheduled = True
            return False
        if self._region.context.in_exec or self._region.scheduler.is_exclusive:
            self._scheduled = True
            return False
        self._begin(
            "ERR Background save failed to start. Please check the server logs for more information"
        )
        self._rewriting = rewrite
        return True

    def save_for(self) -> Inquiry:
        """SAVE: begin a snapshot for a client that waits; raises :class:`CommandError`."""
        if self.snapshots.in_progress:
            raise CommandError(_IN_PROGRESS)
        return self._begin("ERR")

    def _begin(self, refusal: str) -> Inquiry:
        try:
            return self.snapshots.begin(self._open(), self._contents())
        except (OSError, ConfigError) as problem:
            self.snapshots.failed(problem)
            raise CommandError(refusal) from None

    def _snapshot_finished(self, position: int) -> None:
        """Delete files that the snapshot has made superfluous; a failure to delete does no harm."""
        storage, manifest = self._storage, self._manifest
        assert storage is not None
        assert manifest is not None
        self._covered = manifest.snapshot = position
        try:
            if self.durability.log is not None:
                self.durability.log.record_end()
            elif position >= self._end:
                manifest.record(newest=None, written=position, synced=position)
            for name in storage.names():
                other = position_of(name)
                if other is not None and other < position:
                    storage.remove(name)
            if self.durability.log is not None:
                self.durability.log.retire(position)
                if self.exchange is not None:
                    self.exchange.snapshot_finished(position)
            elif position >= self._end:  # otherwise it is from before the log was switched off
                # The newest first: files that recovery has left out may lie behind the snapshot.
                for name in sorted(storage.names(), reverse=True):
                    if first_position_of(name) is not None:
                        storage.remove(name)
        except OSError as problem:
            self._log("warning", "oplog.retire_failed", reason=problem.strerror)
        self._rewriting = False

    def retire(self) -> None:
        """Delete files of the log that other regions do not need, or that are kept too long."""
        if self.durability.log is not None:
            try:
                self.durability.log.retire(self._covered)
            except OSError as problem:
                self._log("warning", "oplog.retire_failed", reason=problem.strerror)

    def tick(self) -> None:
        """Called regularly: sync, record the end of the log, take a snapshot if one is due."""
        if self.is_loading:
            return
        self.durability.tick()
        if self.durability.log is not None:
            self.durability.log.tick()
        now_s = self._driver.now_s()
        if now_s - self._retired_at >= RETIRE_EVERY_S:
            self._retired_at = now_s
            self.retire()
        snapshots = self.snapshots
        if snapshots.in_progress:
            return
        if not snapshots.last_ok and now_s - snapshots.failed_at < RETRY_SNAPSHOT_S:
            return
        if self._scheduled or self._is_due():
            self._scheduled = False
            with suppress(CommandError):  # it is noted, and tried again later
                self.begin_save()

    def _is_due(self) -> bool:
        settings = self._settings
        log = self.durability.log
        if log is not None and settings.auto_aof_rewrite_percentage:
            # Files for regions that lag do not count: another snapshot would not help.
            added = min(log.size, log.end - self._covered)
            grown = added * 100 >= self.snapshots.size * settings.auto_aof_rewrite_percentage
            if added >= settings.auto_aof_rewrite_min_size and grown:
                return True
        changes = self._region.context.changes
        if not settings.save or not changes:
            return False
        since_s = (self._region.clock.now_us() // 1000 - self._last_save_ms()) / 1000
        words = settings.save.split()
        return any(
            changes >= int(least) and since_s >= int(seconds)
            for seconds, least in zip(words[::2], words[1::2], strict=True)
        )

    def _last_save_ms(self) -> int:
        return self.snapshots.saved_ms or self._region.stats.started_ms

    def save_for_stop(self, *, asked: bool | None = None) -> None:
        """A stop begins: take a snapshot if that is ``asked`` for, or changes would be lost.

        The stop ends with :meth:`save_rest`. Raises :class:`CommandError` if that is impossible.
        """
        wanted = bool(self._settings.save) and not self.is_logging if asked is None else asked
        self._saves_rest = wanted and not self.is_loading  # the files have more than memory then
        # A script that has begun may have done half of its work: a snapshot can come later only.
        if self._saves_rest and not self._region.scheduler.is_exclusive:
            self.save()

    def save_rest(self) -> None:
        """The end of a stop: save what clients have changed behind its snapshot, and been told."""
        if not self._saves_rest or self.is_logging or not self._region.context.changes:
            return
        if self._region.scheduler.is_exclusive:
            self._log("error", "snapshot.left_out", reason="a script had not come to its end")
            return
        with suppress(CommandError):  # it is in the operator's log
            self.save()

    # -- for commands -------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the directory is in use, for a log or for snapshots."""
        return self._storage is not None

    @property
    def is_logging(self) -> bool:
        """Whether there is a log (``appendonly yes``)."""
        return self.durability.log is not None

    def position(self) -> int:
        """The position in the log behind all effects so far."""
        return self.durability.position

    def synced(self) -> int:
        """The log is on the disk up to this position."""
        return self.durability.synced

    def reload(self, *, save: bool) -> None:
        """DEBUG RELOAD and LOADAOF: drop all data, and recover it from the disk."""
        if self.exchange is not None:
            raise CommandError("ERR a region cannot forget what others know of it: restart it")
        if save:
            self.save()
        try:
            self.durability.sync_all()
            storage = self._storage
            if storage is None:
                raise CommandError("ERR there is nothing to load: nothing was ever saved")
            keyspace = Keyspace(len(self._region.keyspace.databases))
            *_, report = recover(storage, keyspace)
            report.tidy(storage)
        except (OSError, LogError) as problem:
            self._log("error", "reload.failed", reason=str(problem))
            raise CommandError(
                "ERR Error trying to load the RDB dump, check server logs."
            ) from None
        self._log("info", "reload.done", snapshot=report.snapshot or "none", effects=report.effects)
        self._region.replace_contents(keyspace)

    def switch(self, *, on: bool) -> None:
        """CONFIG SET appendonly: raises :class:`ConfigError`, and nothing has changed then."""
        if self.exchange is not None and not on:
            raise ConfigError(LOG_NEEDED)
        if on == self.is_logging:
            return
        try:
            storage = self._open()
            if on:
                # The log begins with a snapshot of the data; otherwise data would be missing.
                self._save()
                log = OpLog(
                    storage,
                    [],
                    end=self._end,
                    segment_bytes=self._settings.oplog_segment_bytes,
                    left_out=() if self.recovered is None else self.recovered.left_out,
                    manifest=self._manifest,
                )
                self.durability.start(log, self._turn)
            else:
                self.durability.sync_all()
                self._end = self.durability.position
                self.durability.stop()
        except OSError as problem:
            raise ConfigError(f"cannot use {self._place.shown}: {problem.strerror}") from None

    def segments_changed(self) -> None:
        """``oplog-segment-bytes`` has changed: it applies from the next file on."""
        if self.durability.log is not None:
            self.durability.log.segment_bytes = self._settings.oplog_segment_bytes

    def facts(self) -> dict[str, int | float | str]:
        """Fields of INFO persistence: log, snapshots, loading and unsafe keys."""
        snapshots, durability = self.snapshots, self.durability
        log = durability.log
        running = int(snapshots.running_s)
        written, keys = snapshots.progress
        facts: dict[str, int | float | str] = {
            "current_fork_perc": f"{100 * written / max(keys, 1):.2f}",
            "current_save_keys_processed": written,
            "current_save_keys_total": keys,
            "rdb_bgsave_in_progress": int(snapshots.in_progress and not self._rewriting),
            "rdb_last_save_time": self._last_save_ms() // 1000,
            "rdb_last_bgsave_status": "ok" if snapshots.last_ok else "err",
            "rdb_last_bgsave_time_sec": int(snapshots.last_s),
            "rdb_current_bgsave_time_sec": running if not self._rewriting else -1,
            "rdb_saves": snapshots.count,
            "rdb_last_cow_size": 0,
            "rdb_last_load_keys_expired": 0,
            "rdb_last_load_keys_loaded": self._loaded_keys,
            "aof_enabled": int(log is not None),
            "aof_rewrite_in_progress": int(snapshots.in_progress and self._rewriting),
            "aof_rewrite_scheduled": int(self._scheduled),
            "aof_last_rewrite_time_sec": int(snapshots.last_s),
            "aof_current_rewrite_time_sec": running if self._rewriting else -1,
            "aof_last_bgrewrite_status": "ok" if snapshots.last_ok else "err",
            "aof_last_write_status": "ok" if durability.trouble is None else "err",
            "aof_last_cow_size": 0,
            "aof_rewrites": snapshots.count,  # each one replaces the log before it
            "aof_rewrites_consecutive_failures": snapshots.failures,
        }
        if log is not None:
            facts |= {
                "aof_current_size": log.size + snapshots.size,
                "aof_base_size": snapshots.size,
                "aof_pending_rewrite": 0,
                "aof_buffer_length": 0,
                "aof_pending_bio_fsync": int(durability.is_syncing),
                "aof_delayed_fsync": durability.delayed_syncs,
                "oplog_position": log.end,
                "oplog_synced_position": log.synced,
                "oplog_unsynced_bytes": durability.unsynced_bytes,
                "oplog_segments": len(log.segments),
                "oplog_unsafe_keys": durability.disk.unsafe_keys,
                "oplog_refused_reads": durability.disk.withheld.refused,
                "oplog_last_fsync_usec": int(durability.last_sync_s * 1e6),
            }
        if snapshots.count:
            facts["snapshot_longest_slice_usec"] = snapshots.longest_slice_ns // 1000
        recovered = self.recovered
        if recovered is not None:
            facts["recovery_effects"] = recovered.effects
            facts["recovery_cut_bytes"] = recovered.cut.size if recovered.cut else 0
        if self.is_loading:
            facts |= self._loading_facts()
        return facts

    def _loading_facts(self) -> dict[str, int | float | str]:
        """The progress, under the names of Redis; the time left as if all bytes took as long."""
        done, total = self._loading.bytes_done, self._loading.bytes_total
        elapsed_s = (self._region.clock.now_us() // 1000 - self._loading_since_ms) // 1000
        left_s = elapsed_s * max(total - done, 0) // (done + 1) if elapsed_s > 0 else 1
        return {
            "loading_start_time": self._loading_since_ms // 1000,
            "loading_total_bytes": total,
            "loading_rdb_used_mem": 0,
            "loading_loaded_bytes": done,
            "loading_loaded_perc": f"{self.loaded_percent:.2f}",
            "loading_eta_seconds": left_s,
        }
