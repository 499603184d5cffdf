"""Takes snapshots in slices between the turns of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from errno import ENOMEM
from typing import Final

from anabranch.keyspace.inquiry import Inquiry
from anabranch.node.driver import Driver, Timer, Worker, WorkFuture
from anabranch.oplog.batch import Compressor
from anabranch.oplog.recovery import TEMPORARY_SUFFIX
from anabranch.oplog.snapshot import Contents, Snapshot, framed, snapshot_name
from anabranch.oplog.storage import LogFile, Storage
from anabranch.region.region import Region

SLICE_NS: Final = 2_000_000
"""The greatest time of a slice, for which clients wait."""

PAUSE_S: Final = 0.002
"""The least pause between two slices: clients get at least half of the time."""

WRITE_BYTES: Final = 1 << 20
"""Bytes that are collected before the worker writes them."""

IN_FLIGHT_MAX: Final = 8
"""The most writes that wait for the worker; then the snapshot waits for the disk."""


class Snapshots:
    """The snapshots of one process, one at a time."""

    def __init__(
        self,
        region: Region,
        driver: Driver,
        on_finished: Callable[[int], None],
        unsynced: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """``on_finished`` is called with the position of every snapshot that is on the disk.

        ``unsynced`` returns the full files of the log that may not be on the disk.
        """
        self.on_over: Callable[[], object] = _nothing
        """Called in a turn of its own after every snapshot, for the clients that wait for it."""
        self._region = region
        self._driver = driver
        self._on_finished = on_finished
        self._unsynced = unsynced
        self._worker = driver.worker("snapshot")
        self._running: _SnapshotRun | None = None
        self._timer: Timer | None = None
        self.size = 0
        """The size of the newest snapshot."""
        self.saved_ms = 0
        """When the newest snapshot was taken; 0 without any."""
        self.last_ok = True
        self.failed_at = 0.0
        self.last_s = -1.0
        self.count = 0
        self.failures = 0
        """How many failed since the last one that was completed."""
        self.longest_slice_ns = 0
        """The longest slice of the newest snapshot."""

    @property
    def in_progress(self) -> bool:
        """Whether a snapshot is being written."""
        return self._running is not None

    @property
    def running_s(self) -> float:
        """For how long it has been written; -1 if none is."""
        return -1.0 if self._running is None else self._driver.now_s() - self._running.began

    @property
    def progress(self) -> tuple[int, int]:
        """Of the snapshot in progress: how many keys are written, of how many."""
        run = self._running
        if run is None:
            return 0, 0
        return run.contents.keys - run.snapshot.keys_left, run.contents.keys

    def begin(self, storage: Storage, contents: Contents) -> Inquiry:
        """Begin a snapshot of the present data; its end is that of the returned inquiry.

        Raises :class:`OSError`.
        """
        assert self._running is None
        self._running = self._begun(storage, contents)
        self._region.watch_changes(self._running.snapshot.before)
        self._log("info", "snapshot.started", position=contents.position, keys=contents.keys)
        self.longest_slice_ns = 0
        self._schedule(0)
        return self._running.inquiry

    def save(self, storage: Storage, contents: Contents) -> None:
        """Take a snapshot now, and block; ends one in progress. Raises :class:`OSError`."""
        self.abandon()
        self.begin(storage, contents)
        self.complete()

    def complete(self) -> None:
        """Write all of the snapshot that was just begun, and block.

        Raises :class:`OSError`; the caller reports it by :meth:`failed`.
        """
        run = self._running
        assert run is not None
        self._stop_running()
        try:
            with _needing_memory():
                for body in run.bodies:
                    if body:
                        run.write(body)
                run.finish().result()
        except OSError:
            run.discard()
            self._over(run, "ERR")
            raise
        self._finished(run)

    def _begun(self, storage: Storage, contents: Contents) -> _SnapshotRun:
        with _needing_memory():
            self._worker.start()
            began = self._driver.now_s()
            return _SnapshotRun(
                self._region, storage, contents, self._unsynced(), self._worker, began
            )

    def abandon(self) -> None:
        """Drop the snapshot in progress, if there is one."""
        run = self._running
        if run is not None:
            self._stop_running()
            run.discard()
            self._over(run, "ERR")

    def close(self) -> None:
        """The server ends: give up a snapshot in progress, and end the worker."""
        self.abandon()
        self._worker.close()

    def _log(self, level: str, event: str, **facts: object) -> None:
        self._region.host.log(level, event, **facts)

    # -- slices -------------------------------------------------------------------------------

    def _schedule(self, delay_s: float) -> None:
        self._timer = self._driver.call_later(delay_s, self._slice)

    def _slice(self) -> None:
        run = self._running
        assert run is not None
        try:
            with _needing_memory():
                self._work(run)
        except Exception as problem:
            self._stop_running()
            self._failed(run, problem)
            if not isinstance(problem, OSError):
                raise  # a bug; the next snapshot can begin all the same

    def _work(self, run: _SnapshotRun) -> None:
        """Write one slice. Raises :class:`OSError` and :class:`MemoryError`."""
        if run.is_behind():
            self._schedule(5 * PAUSE_S)
            return
        ticks = self._region.clock.ticks_ns
        began = ticks()
        done = False
        while ticks() - began < SLICE_NS:
            body = next(run.bodies, None)
            if body is None:
                done = True
                break
            if body:
                run.write(body)
        self.longest_slice_ns = max(self.longest_slice_ns, ticks() - began)
        if not done:
            self._schedule(PAUSE_S)
            return
        self._region.unwatch_changes(run.snapshot.before)
        run.finish(lambda written: self._written(run, written))

    def _written(self, run: _SnapshotRun, written: WorkFuture) -> None:
        if self._running is not run:
            return
        self._stop_running()
        problem = written.exception()
        if problem is None:
            self._finished(run)
        else:
            self._failed(run, problem)

    def _stop_running(self) -> None:
        if self._running is not None:
            self._region.unwatch_changes(self._running.snapshot.before)
        self._running = None
        if self._timer is not None:
            self._timer.cancel()

    def _finished(self, run: _SnapshotRun) -> None:
        self.last_ok = True
        self.last_s = self._driver.now_s() - run.began
        self.saved_ms = run.contents.wall_ms
        self.size = run.size
        self.count += 1
        self.failures = 0
        self._region.context.changes -= run.changes
        self._log(
            "info",
            "snapshot.finished",
            position=run.contents.position,
            keys=run.contents.keys,
            bytes=run.size,
            seconds=round(self.last_s, 3),
            longest_slice_ms=round(self.longest_slice_ns / 1e6, 2),
        )
        self._on_finished(run.contents.position)
        self._over(run, "")

    def _failed(self, run: _SnapshotRun, problem: BaseException) -> None:
        run.discard()
        self.last_s = self._driver.now_s() - run.began
        self.failed(problem)
        self._over(run, "ERR")

    def _over(self, run: _SnapshotRun, problem: str) -> None:
        """Have the client answered that waits for the end of a snapshot (SAVE)."""
        run.inquiry.end(problem)
        self._driver.call_soon(self.on_over)

    def failed(self, problem: BaseException) -> None:
        """Note that a snapshot could not be begun or completed."""
        self.last_ok = False
        self.failures += 1
        self.failed_at = self._driver.now_s()
        reason = problem.strerror if isinstance(problem, OSError) else None
        reason = reason or str(problem) or type(problem).__name__
        self._log("error", "snapshot.failed", reason=reason)


def _nothing() -> None:
    """The default of a hook: nobody waits for a snapshot."""


class _SnapshotRun:
    """One snapshot that is being written to a file."""

    def __init__(
        self,
        region: Region,
        storage: Storage,
        contents: Contents,
        unsynced: Sequence[str],
        worker: Worker,
        began: float,
    ) -> None:
        self.contents = contents
        self.began = began
        self.changes = region.context.changes
        self.size = 0
        self.inquiry = Inquiry()
        self._storage = storage
        self._unsynced = unsynced
        self._worker = worker
        self._temporary = snapshot_name(contents.position) + TEMPORARY_SUFFIX
        self.snapshot = Snapshot(region.keyspace, contents)
        self.bodies: Iterator[bytes] = self.snapshot.bodies()
        self._compressor = Compressor() if region.settings.oplog_compression else None
        self._begun = False
        self._buffer: list[bytes] = []
        self._buffered = 0
        self._writes: list[WorkFuture] = []
        self._file: LogFile | None = storage.create(self._temporary)

    def is_behind(self) -> bool:
        """Whether the worker has enough to do; raises the error of a write that failed."""
        self._writes = [write for write in self._writes if not write.done() or write.result()]
        return len(self._writes) >= IN_FLIGHT_MAX

    def write(self, body: bytes) -> None:
        """Write the body of another record."""
        self._buffer.append(body)
        self._buffered += len(body)
        if self._buffered >= WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        bodies, self._buffer = self._buffer, []
        self._buffered = 0
        self._writes.append(self._worker.submit(lambda: self._write(bodies)))

    def _write(self, bodies: list[bytes]) -> None:
        """Compress, hash and write in the worker; compressing and hashing release the GIL."""
        assert self._file is not None
        with _needing_memory():
            parts = [] if self._begun else [self.snapshot.header()]
            self._begun = True
            parts += [framed(body, self._compressor) for body in bodies]
            data = b"".join(parts)
            self._file.write(data)
            self.size += len(data)

    def finish(self, then: Callable[[WorkFuture], object] | None = None) -> WorkFuture:
        """Write the rest, and give the file its name once it is on the disk.

        The log before the snapshot is on the disk then, too: recovery does not read it.
        """
        self._flush()
        writes = self._writes
        return self._worker.submit(lambda: self._finish(writes), then)

    def _finish(self, writes: list[WorkFuture]) -> None:
        assert self._file is not None
        for write in writes:
            write.result()
        self._file.sync()
        self._file.close()
        self._file = None
        for name in self._unsynced:
            with suppress(FileNotFoundError), closing(self._storage.append(name)) as file:
                file.sync()
        self._storage.rename(self._temporary, snapshot_name(self.contents.position))
        self._storage.sync()

    def discard(self) -> None:
        """Drop the snapshot and its file."""
        self.snapshot.release()
        self.bodies = iter(())
        self._worker.submit(self._discard).result()
        self._writes.clear()
        self._buffer.clear()

    def _discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        with suppress(OSError):
            self._storage.remove(self._temporary)


@contextmanager
def _needing_memory() -> Iterator[None]:
    """Report a lack of memory as an :class:`OSError`, like a lack of disk space."""
    with suppress(MemoryError):
        yield
        return
    # Here nothing refers to the frames any more, so their memory is free.
    raise OSError(ENOMEM, "Cannot allocate memory")
