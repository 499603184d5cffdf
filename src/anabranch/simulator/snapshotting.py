"""A snapshot that is taken while virtual time goes on, a few records with every tick."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from anabranch.keyspace.replica import epoch_of
from anabranch.oplog.compression import Compressor
from anabranch.oplog.recovery import TEMPORARY_SUFFIX
from anabranch.oplog.snapshot import Contents, Snapshot, framed, snapshot_name

if TYPE_CHECKING:
    from anabranch.simulator.process import Process

__all__ = ["SnapshotInProgress"]


class SnapshotInProgress:
    """One snapshot on its way into a file."""

    def __init__(self, process: Process) -> None:
        self._process = process
        process.journal.commit()
        if process.journal.is_behind:
            raise OSError(0, "the log cannot be written")
        self.position = process.journal.begin_segment()
        replica = process.replica
        contents = Contents(
            self.position,
            replica.region,
            epoch_of(replica.own),
            process.own_number + 1,
            process.wall_ms(),
        )
        self._disk = process.node.disk
        self._temporary = snapshot_name(self.position) + TEMPORARY_SUFFIX
        self._file = self._disk.create(self._temporary)
        self._snapshot = Snapshot(process.region.keyspace, contents)
        self._bodies = self._snapshot.bodies()
        self._compressor = Compressor()
        process.region.watch_changes(self._snapshot.before)
        try:
            self._file.write(self._snapshot.header())
        except OSError:
            self.discard()
            raise

    def go_on(self) -> bool:
        """Write some records; whether it is finished."""
        for _ in range(2):
            body = next(self._bodies, None)
            if body is None:
                self._finish()
                return True
            self._file.write(framed(body, self._compressor))
        return False

    def _finish(self) -> None:
        self._file.sync()
        self._file.close()
        self._disk.rename(self._temporary, snapshot_name(self.position))
        self._disk.sync()
        self._process.region.unwatch_changes(self._snapshot.before)

    def discard(self) -> None:
        """It comes to nothing."""
        self._process.region.unwatch_changes(self._snapshot.before)
        self._snapshot.release()
        with suppress(OSError):
            self._disk.remove(self._temporary)
