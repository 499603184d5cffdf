"""Segments: written at the end, synced as far as anybody is told, retired from the front."""

from __future__ import annotations

import errno
import random
from io import BytesIO

import pytest

from anabranch.effects import kinds
from anabranch.oplog.errors import SyncFailedError
from anabranch.oplog.log import UNSYNCED_MAX, OpLog
from anabranch.oplog.manifest import MANIFEST
from anabranch.oplog.segment import (
    SEGMENT_HEADER_BYTES,
    first_position_of,
    segment_header,
    segment_name,
)
from anabranch.oplog.snapshot import Contents, Snapshot, snapshot_name
from anabranch.simulator.disk import DiskFault, MemoryStorage
from tests.support.batches import encode_batch
from tests.support.logged_server import LoggedServer, recovered
from tests.support.recorder import everything_in


def batch(number: int, size: int = 10) -> bytes:
    effect = kinds.SetString(0, b"k", b"v" * size)
    return encode_batch([effect], region=0, epoch=0, first=number, wall_ms=1, flags=0)


def new_log(storage: MemoryStorage, segment_bytes: int = 1) -> OpLog:
    """A log that begins a file with every turn, unless told otherwise."""
    return OpLog(storage, [], end=0, segment_bytes=segment_bytes)


def sync(log: OpLog) -> None:
    sync = log.begin_sync()
    sync.run()
    log.finish_sync(sync)


def logs(storage: MemoryStorage) -> list[str]:
    """The files of the log, in their order."""
    return sorted(name for name in storage.names() if first_position_of(name) is not None)


class CountingStorage(MemoryStorage):
    """Counts what is read."""

    read = 0

    def open(self, name: str) -> BytesIO:
        storage = self

        class Counted(BytesIO):
            def read(self, count: int | None = -1, /) -> bytes:
                data = super().read(count)
                storage.read += len(data)
                return data

        return Counted(super().open(name).getvalue())


def test_what_is_before_a_position_is_not_read() -> None:
    storage = CountingStorage()
    log = new_log(storage, segment_bytes=1 << 20)
    batches = [batch(number, 1000) for number in range(1, 200)]
    log.append(*batches)
    before, last = sum(map(len, batches[:-1])), batches[-1]
    storage.read = 0
    assert list(log.batches_from(before)) == [(before, last)]
    assert storage.read == len(last)


# -- writing ----------------------------------------------------------------------------------


def test_a_file_is_begun_when_the_last_is_full() -> None:
    storage = MemoryStorage()
    size = len(batch(1))
    log = new_log(storage, segment_bytes=2 * size)
    for number in range(1, 6):
        log.append(batch(number))
    assert logs(storage) == [segment_name(n * size) for n in (0, 2, 4)]
    assert [segment.size for segment in log.segments] == [2 * size, 2 * size, size]
    assert (log.end, log.size) == (5 * size, 5 * size)
    for name, segment in zip(logs(storage), log.segments, strict=True):
        assert storage.files()[name].startswith(segment_header(segment.first))
    keyspace, report = recovered(storage)
    assert report.batches == 5
    assert report.end == log.end
    assert keyspace.databases[0].values.keys() == {b"k"}


def test_a_turn_is_never_split_between_files() -> None:
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=100)
    log.append(batch(1, 1000))
    assert len(logs(storage)) == 1


def test_a_new_file_is_not_begun_behind_an_empty_one() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.begin_segment()
    log.begin_segment()
    assert logs(storage) == [segment_name(0)]
    log.append(batch(1))
    log.begin_segment()
    log.begin_segment()
    assert logs(storage) == [segment_name(0), segment_name(len(batch(1)))]


@pytest.mark.parametrize("keep", [0, 1, 30, 70])
def test_what_could_be_written_of_a_turn_is_cut_before_the_next(keep: int) -> None:
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=1 << 20)
    log.append(batch(1))
    end = log.end
    storage.faults = [DiskFault("write", errno.ENOSPC, times=2, keep=keep)]
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            log.append(batch(2))
        assert log.end == end
        assert log.size == end
    log.append(batch(2))
    _, report = recovered(storage)
    assert (report.batches, report.cut) == (2, None)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_long_turn_is_written_whole_or_not_at_all(after: int) -> None:
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=1 << 20)
    log.append(batch(1))
    end = log.end
    turn = [batch(number, 10_000) for number in range(2, 20)]  # written in three pieces
    storage.faults = [DiskFault("write", errno.ENOSPC, after=after, keep=10)]
    with pytest.raises(OSError, match="No space"):
        log.append(*turn)
    assert log.end == log.size == end
    log.append(*turn)
    assert log.end == log.size == end + sum(map(len, turn))
    log.record_end()
    assert [data for _, data in log.batches_from(0)] == [batch(1), *turn]
    _, report = recovered(storage)
    assert (report.batches, report.cut) == (19, None)


def test_a_log_that_cannot_be_cut_writes_nothing_behind_the_remains() -> None:
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=1 << 20)
    log.append(batch(1))
    storage.faults = [DiskFault("write", keep=20), DiskFault("truncate")]
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            log.append(batch(2))
    log.append(batch(2))
    _, report = recovered(storage)
    assert (report.batches, report.cut) == (2, None)


@pytest.mark.parametrize("keep", [0, 7, SEGMENT_HEADER_BYTES])
@pytest.mark.parametrize("leftover", [False, True], ids=["removed", "left over"])
def test_a_file_that_could_not_be_begun_is_begun_again(keep: int, leftover: bool) -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    storage.faults = [DiskFault("write", errno.ENOSPC, keep=keep)]
    if leftover:
        storage.faults.append(DiskFault("remove"))
    with pytest.raises(OSError, match="No space"):
        log.append(batch(2))
    assert len(log.segments) == 1
    _, report = recovered(MemoryStorage(storage.files()))  # a crash now
    assert (report.batches, report.end) == (1, log.end)
    log.append(batch(2))
    _, report = recovered(storage)
    assert (report.batches, report.cut) == (2, None)


def test_a_directory_that_cannot_take_a_file_changes_nothing() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    storage.faults = [DiskFault("create", errno.EROFS)]
    with pytest.raises(OSError, match="Read-only"):
        log.append(batch(1))
    assert (log.end, log.segments, storage.names()) == (0, [], [])
    log.append(batch(1))
    assert recovered(storage)[1].batches == 1


def test_a_predecessors_remains_are_cut_before_anything_is_written() -> None:
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=1 << 20)
    log.append(batch(1))
    log.close()
    segment = log.segments[0]
    storage.append(segment.name).write(b"remains")
    successor = OpLog(storage, [segment], end=segment.end, segment_bytes=1 << 20)
    successor.append(batch(2))
    _, report = recovered(storage)
    assert (report.batches, report.cut) == (2, None)


# -- syncing ----------------------------------------------------------------------------------


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=1 << 20)
    log.append(batch(1))
    before = log.end
    running = log.begin_sync()
    log.append(batch(2))
    running.run()
    log.finish_sync(running)
    assert log.synced == before
    sync(log)
    assert log.synced == log.end


def test_a_full_file_is_synced_with_the_next_one() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    log.append(batch(2))
    assert storage.synced == [MANIFEST + ".new", "."], "clients would wait for the disk"
    sync(log)
    names = [segment.name for segment in log.segments]
    assert storage.synced[2:] == [".", *names]
    assert log.synced == log.end
    storage.synced.clear()
    sync(log)
    assert storage.synced == [names[-1]]


def test_while_many_full_files_are_not_synced_the_newest_one_grows() -> None:
    log = new_log(MemoryStorage())
    for number in range(1, UNSYNCED_MAX + 4):
        log.append(batch(number))
    sizes = [segment.size // len(batch(1)) for segment in log.segments]
    assert sizes == [1] * UNSYNCED_MAX + [3]
    sync(log)
    log.append(batch(UNSYNCED_MAX + 4))
    assert len(log.segments) == UNSYNCED_MAX + 2


def test_a_file_that_became_full_during_a_sync_is_closed_after_it() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    running = log.begin_sync()
    log.append(batch(2))
    running.run()  # the file that it syncs must not be closed yet
    log.finish_sync(running)
    assert log.synced == len(batch(1))
    sync(log)
    assert log.synced == log.end


def test_what_was_written_to_a_file_during_a_sync_before_it_was_full_is_synced() -> None:
    storage = MemoryStorage()
    log = new_log(storage, segment_bytes=2 * len(batch(1)))
    log.append(batch(1))
    running = log.begin_sync()
    running.run()
    log.append(batch(2))  # it fills the file
    log.append(batch(3))
    log.finish_sync(running)
    sync(log)
    _, report = recovered(storage.crash(random.Random(1)))
    assert (log.synced, report.end) == (log.end, log.end)


def test_a_cut_file_that_cannot_be_synced_is_told_apart_from_a_full_disk() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    log.segment_bytes = 1 << 20
    storage.faults = [DiskFault("write", errno.ENOSPC)]
    with pytest.raises(OSError, match="No space"):
        log.append(batch(2))
    end = log.end
    storage.faults = [DiskFault("sync", errno.EIO)]
    with pytest.raises(SyncFailedError):
        log.begin_segment()
    assert (log.end, log.synced) == (end, 0)


def test_a_torn_end_is_cut_before_the_next_file_begins() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    name, size = log.segments[0].name, len(storage.files()[log.segments[0].name])
    log.segment_bytes = 1 << 20
    storage.faults.append(DiskFault("write", errno.ENOSPC))
    with pytest.raises(OSError, match="No space"):
        log.append(batch(2))
    log.begin_segment()
    assert len(storage.files()[name]) == size


def test_what_a_predecessor_left_is_synced() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    log.close()
    storage.synced.clear()
    OpLog(storage, log.segments, end=log.end, segment_bytes=1).secure()
    assert storage.synced == [log.segments[0].name, "."]


def test_both_files_that_a_predecessor_may_not_have_synced_are_synced() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    log.append(batch(2))
    sync(log)
    log.append(batch(3))
    log.begin_segment()
    log.record_end()
    log.close()
    storage.synced.clear()
    names = [segment.name for segment in log.segments]
    assert len(names) == 4
    OpLog(storage, log.segments, end=log.end, segment_bytes=1).secure()
    assert storage.synced == [*names[2:], "."]


def test_the_name_of_a_file_that_was_begun_during_a_sync_is_synced_by_the_next() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    running = log.begin_sync()
    running.run()
    log.append(batch(2))
    log.finish_sync(running)
    storage.synced.clear()
    sync(log)
    assert "." in storage.synced


def test_a_sync_that_failed_has_synced_nothing() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    log.append(batch(1))
    storage.faults = [DiskFault("sync")]
    running = log.begin_sync()
    with pytest.raises(OSError, match="Input/output"):
        running.run()
    assert log.synced == 0


def test_closing_lets_go_of_every_file() -> None:
    storage = MemoryStorage()
    log = new_log(storage)
    for number in (1, 2, 3):
        log.append(batch(number))
    log.close()
    log.close()


# -- the front --------------------------------------------------------------------------------


def filled() -> tuple[MemoryStorage, OpLog, list[int]]:
    """A log of five files, and where each begins."""
    storage = MemoryStorage()
    log = new_log(storage)
    for number in range(1, 6):
        log.append(batch(number))
    return storage, log, [segment.first for segment in log.segments]


def test_files_before_a_position_go() -> None:
    storage, log, firsts = filled()
    assert log.retire(firsts[2]) == 2
    assert logs(storage) == [segment_name(first) for first in firsts[2:]]
    assert log.retire(firsts[3] - 1) == 0
    assert log.retire(firsts[3]) == 1
    assert log.retire(firsts[3]) == 0


def test_the_newest_file_stays() -> None:
    storage, log, firsts = filled()
    assert log.retire(log.end) == 4
    assert logs(storage) == [segment_name(firsts[-1])]
    log.append(batch(6))
    assert log.end == log.segments[-1].end


def test_what_somebody_still_reads_stays() -> None:
    storage, log, firsts = filled()
    log.needed_from = lambda: firsts[1] + 1
    assert log.retire(log.end) == 1
    assert min(storage.names()) == segment_name(firsts[1])
    log.needed_from = lambda: log.end
    assert log.retire(log.end) == 3


def test_a_file_that_cannot_be_removed_goes_the_next_time() -> None:
    storage, log, firsts = filled()
    storage.faults = [DiskFault("remove", after=1)]
    with pytest.raises(OSError, match="Input/output"):
        log.retire(firsts[3])
    assert [segment.first for segment in log.segments] == firsts[1:]
    assert log.retire(firsts[3]) == 2


def test_a_log_goes_on_behind_a_snapshot_when_its_files_are_gone() -> None:
    life = LoggedServer(segment_bytes=1)
    life.run("SET k 1")
    life.run("SET k 2")
    life.snapshot()
    life.log.retire(life.log.end)
    life.run("SET k 3")
    keyspace, report = recovered(life.storage)
    assert everything_in(keyspace) == life.everything()
    assert len(report.segments) == 1
    assert report.snapshot == snapshot_name(report.segments[0].first)


def test_a_log_may_begin_at_a_snapshot_that_was_taken_without_one() -> None:
    life = LoggedServer()
    life.run("SET k 1")
    storage = MemoryStorage()
    data = Snapshot(life.keyspace, Contents(7, next_number=2)).whole()
    storage.create(snapshot_name(7)).write(data)
    log = OpLog(storage, [], end=7, segment_bytes=1)
    log.append(batch(2))
    keyspace, report = recovered(storage)
    assert report.end == 7 + len(batch(2))
    assert keyspace.databases[0].values[b"k"].data == b"v" * 10  # type: ignore[union-attr]


def test_a_torn_end_is_cut_on_the_disk_before_another_file_begins() -> None:
    disk = MemoryStorage()
    log = new_log(disk, segment_bytes=1000)
    log.append(batch(1))
    disk.faults = [DiskFault("write", keep=3)]
    with pytest.raises(OSError, match="Input/output"):
        log.append(batch(2))
    sync = log.begin_sync()  # the torn bytes reach the disk, too
    sync.run()
    log.finish_sync(sync)
    log.begin_segment()
    for seed in range(20):
        left = disk.crash(random.Random(seed)).files()
        assert len(left[segment_name(0)]) == SEGMENT_HEADER_BYTES + len(batch(1))


def test_how_much_has_to_go_for_the_log_to_be_small_enough() -> None:
    log = new_log(MemoryStorage())
    size = len(batch(1))
    assert log.excess_end(0) == 0
    for number in range(1, 6):
        log.append(batch(number))
    assert log.excess_end(5 * size) == 0
    assert log.excess_end(5 * size - 1) == size
    assert log.excess_end(2 * size) == 3 * size
    assert log.excess_end(1) == log.end
    log.needed_from = lambda: log.excess_end(2 * size)
    assert log.retire(log.end) == 3
    assert log.excess_end(2 * size) == 0
    assert log.excess_end(size) == 4 * size
