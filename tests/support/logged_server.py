"""A life whose turns are kept in a log, with what there was after each of them."""

from __future__ import annotations

from typing import Any

from anabranch.effects import kinds
from anabranch.effects.apply import apply
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.oplog.log import OpLog
from anabranch.oplog.manifest import MANIFEST, ManifestFile
from anabranch.oplog.recovery import Recovery, recover
from anabranch.oplog.snapshot import Contents, Snapshot, snapshot_name
from anabranch.oplog.storage import Storage
from anabranch.region.turn import Turn
from anabranch.simulator.disk import MemoryStorage
from tests.support.recorder import Recorder, everything_in

__all__ = ["LoggedServer", "go_on", "recovered", "restored"]


class LoggedServer:
    """A server whose effects are written to a log, turn by turn."""

    def __init__(self, storage: Storage | None = None, *, segment_bytes: int = 1 << 20) -> None:
        self.storage = MemoryStorage() if storage is None else storage
        self.recorder = Recorder()
        self.turn = Turn(Replica.alone())
        self.recorder.server.region.effects.record = self.turn.recorded
        self.log = OpLog(self.storage, [], end=0, segment_bytes=segment_bytes)
        self._noted = 0
        self.states: dict[int, Any] = {0: self.everything()}
        """What there was at the positions at which turns ended."""

    @property
    def keyspace(self) -> Keyspace:
        """What there is now."""
        return self.recorder.server.region.keyspace

    def files(self) -> dict[str, bytes]:
        """What was written, without the manifest."""
        assert isinstance(self.storage, MemoryStorage)
        return {name: data for name, data in self.storage.files().items() if name != MANIFEST}

    def everything(self) -> Any:
        """The same, to be compared."""
        return everything_in(self.keyspace)

    def run(self, *lines: str) -> None:
        """One turn: all of the lines, or what follows if one fails to be written."""
        for line in lines:
            self.recorder.run(line)
        self.end_turn()

    def end_turn(self) -> None:
        """Write what has happened."""
        if self.turn.recorded.effects and self.log.synced > self._noted:
            self._noted = self.log.synced
            self.turn.recorded.append(kinds.Synced(self._noted))
        data = self.turn.drain(self.recorder.server.clock.us // 1000)
        if data:
            self.log.append(data)
            self.states[self.log.end] = self.everything()

    def snapshot(self) -> None:
        """Take one, and sync it; the log goes on in a new file."""
        self.log.begin_segment()
        self.sync()
        position = self.log.end
        contents = Contents(position, 0, 0, self.turn.next_number, 1)
        file = self.storage.create(snapshot_name(position))
        file.write(Snapshot(self.keyspace, contents).whole())
        file.sync()
        file.close()
        self.storage.sync()

    def sync(self) -> None:
        """Sync what is written."""
        sync = self.log.begin_sync()
        sync.run()
        self.log.finish_sync(sync)


def restored(files: dict[str, bytes]) -> MemoryStorage:
    """A disk with these files, whose manifest asks for nothing: whatever is there is all."""
    storage = MemoryStorage(files)
    ManifestFile(storage).clear()
    return storage


def recovered(storage: Storage) -> tuple[Keyspace, Recovery]:
    """What a directory holds, which is tidied; raises what recovery raises."""
    keyspace = Keyspace()
    *_, report = recover(storage, keyspace)
    report.tidy(storage)
    return keyspace, report


def go_on(storage: Storage, keyspace: Keyspace, report: Recovery, name: bytes) -> None:
    """Write another turn behind what was recovered."""
    log = OpLog(
        storage, report.segments, end=report.end, segment_bytes=1 << 20, left_out=report.left_out
    )
    turn = Turn(Replica.alone())
    turn.next_number = report.next_number
    effect = kinds.SetString(0, name, b"v" * 10)
    apply(keyspace, effect)
    turn.recorded.append(effect)
    log.append(turn.drain(1))
    log.close()
