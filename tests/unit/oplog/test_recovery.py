"""From files to state, after every crash that a disk can make of what was written."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from anabranch.effects import kinds
from anabranch.keyspace.keyspace import Keyspace
from anabranch.oplog.errors import CorruptLogError, LogError, NewerFormatError
from anabranch.oplog.recovery import recover
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES, segment_header, segment_name
from anabranch.oplog.snapshot import snapshot_name
from anabranch.simulator.disk import DiskFault, MemoryStorage
from tests.support.batches import encode_batch
from tests.support.logged_server import LoggedServer, go_on, recovered, restored
from tests.support.random_lines import random_lines
from tests.support.recorder import OTHER_LINES, everything_in

# -- crashes ----------------------------------------------------------------------------------


def random_turns(rng: random.Random, life: LoggedServer, *, snapshots: bool) -> int:
    """Turns and syncs; the position up to which everything is on the disk."""
    lines = random_lines(rng, *OTHER_LINES, count=60)
    synced = 0
    while lines:
        count = rng.choice((1, 1, 2, 8))
        life.run(*lines[:count])
        del lines[:count]
        act = rng.random()
        if act < 0.15:
            life.sync()
        elif act < 0.2:
            running = life.log.begin_sync()
            life.run(*lines[:2])
            del lines[:2]
            running.run()
            if rng.random() < 0.5:
                life.run(*lines[:1])
                del lines[:1]
            life.log.finish_sync(running)
        elif act < 0.23 and snapshots:
            life.sync()
            life.snapshot()
            if rng.random() < 0.7:
                life.log.retire(life.log.end)
                synced = life.log.end
        synced = max(synced, life.log.synced)
    return synced


def after_a_crash(seed: int, *, segment_bytes: int, snapshots: bool, holes: bool) -> None:
    rng = random.Random(seed)
    life = LoggedServer(segment_bytes=segment_bytes)
    synced = random_turns(rng, life, snapshots=snapshots)
    assert isinstance(life.storage, MemoryStorage)
    for _ in range(4):
        storage = life.storage.crash(rng, holes=holes)
        keyspace, report = recovered(storage)
        assert report.end >= synced
        assert everything_in(keyspace) == life.states[report.end]
        go_on(storage, keyspace, report, b"after")
        again, _ = recovered(storage)
        assert everything_in(again) == everything_in(keyspace)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("snapshots", [False, True], ids=["", "snapshots"])
def test_a_power_failure_takes_nothing_that_was_synced_and_no_part_of_a_turn(
    seed: int, snapshots: bool
) -> None:
    after_a_crash(seed, segment_bytes=1 << 20, snapshots=snapshots, holes=seed % 2 == 0)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("snapshots", [False, True], ids=["", "snapshots"])
def test_the_same_when_a_file_ends_within_a_few_turns(seed: int, snapshots: bool) -> None:
    """Only the newest file may have an end that is not on the disk."""
    after_a_crash(seed, segment_bytes=300, snapshots=snapshots, holes=seed % 2 == 0)


def with_hole(*, synced: int) -> tuple[MemoryStorage, int, Any]:
    """Four turns of which the second is zeros, and a sync after so many.

    With the offset of the second turn, and what there was before it.
    """
    life = LoggedServer()
    ends = []
    for number in (1, 2, 3, 4):
        life.run(f"SET k {number}")
        ends.append(life.log.end + SEGMENT_HEADER_BYTES)
        if number == synced:
            life.sync()
    ((name, whole),) = life.files().items()
    begin, end, *_ = ends
    disk = restored({name: whole[:begin] + bytes(end - begin) + whole[end:]})
    return disk, begin, life.states[begin - SEGMENT_HEADER_BYTES]


@pytest.mark.parametrize("synced", [0, 1])
def test_a_hole_in_what_was_not_synced_is_an_unfinished_end(synced: int) -> None:
    """A disk may write pages in another order."""
    storage, begin, before = with_hole(synced=synced)
    keyspace, report = recovered(storage)
    assert report.cut is not None
    assert report.cut.offset == begin
    assert report.end == begin - SEGMENT_HEADER_BYTES
    assert everything_in(keyspace) == before


@pytest.mark.parametrize("synced", [2, 3])
def test_a_hole_in_what_was_synced_is_damage(synced: int) -> None:
    storage, begin, _ = with_hole(synced=synced)
    before = storage.files()
    with pytest.raises(CorruptLogError, match=f"damaged at byte {begin}: "):
        recovered(storage)
    assert storage.files() == before


@pytest.mark.parametrize("seed", range(10))
def test_a_killed_process_leaves_everything(seed: int) -> None:
    rng = random.Random(seed)
    life = LoggedServer(segment_bytes=2000)
    random_turns(rng, life, snapshots=True)
    assert isinstance(life.storage, MemoryStorage)
    keyspace, report = recovered(MemoryStorage(life.storage.files()))
    assert report.end == life.log.end
    assert everything_in(keyspace) == life.everything()
    assert report.next_number == life.turn.next_number


# -- a crash while a file is begun ------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, SEGMENT_HEADER_BYTES - 1])
def test_a_file_without_its_whole_header_never_held_anything(size: int) -> None:
    life = LoggedServer()
    life.run("SET k 1")
    end = life.log.end
    assert isinstance(life.storage, MemoryStorage)
    storage = restored({**life.storage.files(), segment_name(end): segment_header(end)[:size]})
    keyspace, report = recovered(storage)
    assert everything_in(keyspace) == life.everything()
    assert report.cut is not None
    assert (report.cut.name, report.cut.offset, report.cut.size) == (
        f"disk/{segment_name(end)}",
        0,
        size,
    )
    assert storage.files()[segment_name(end)] == segment_header(end)[:size]
    go_on(storage, keyspace, report, b"after")
    assert segment_name(end) not in storage.names()
    assert everything_in(recovered(storage)[0]) == everything_in(keyspace)


def test_a_file_with_nothing_but_its_header_is_gone_on_with() -> None:
    life = LoggedServer()
    life.run("SET k 1")
    life.log.begin_segment()
    keyspace, report = recovered(life.storage)
    assert [segment.size for segment in report.segments] == [life.log.end, 0]
    go_on(life.storage, keyspace, report, b"after")
    assert len(life.files()) == 2
    assert everything_in(recovered(life.storage)[0]) == everything_in(keyspace)


def test_a_file_that_could_not_be_begun_and_whose_deletion_was_lost_is_left_out() -> None:
    life = LoggedServer()
    assert isinstance(life.storage, MemoryStorage)
    life.run("SET k 1")
    begin = life.log.end
    life.storage.faults = [DiskFault("write", errno.ENOSPC, keep=SEGMENT_HEADER_BYTES)]
    with pytest.raises(OSError, match="No space left"):
        life.log.begin_segment()
    life.run("SET l 2")  # there is room again, and the log goes on in the file before
    life.sync()
    files = life.storage.files()
    assert segment_name(begin) not in files
    storage = MemoryStorage({**files, segment_name(begin): segment_header(begin)})
    keyspace, report = recovered(storage)
    assert everything_in(keyspace) == life.everything()
    assert report.left_out == [segment_name(begin)]
    go_on(storage, keyspace, report, b"after")
    assert storage.names() == list(files)
    assert everything_in(recovered(storage)[0]) == everything_in(keyspace)


def test_an_empty_directory_is_an_empty_server() -> None:
    keyspace, report = recovered(MemoryStorage())
    assert everything_in(keyspace) == everything_in(Keyspace())
    assert (report.end, report.next_number, report.snapshot) == (0, 1, None)


# -- snapshots among the files ----------------------------------------------------------------


def test_the_newest_snapshot_counts_and_older_ones_go() -> None:
    life = LoggedServer()
    life.run("SET k 1")
    life.snapshot()
    life.run("SET k 2")
    life.snapshot()
    newest = snapshot_name(life.log.end)
    life.run("SET k 3")
    keyspace, report = recovered(life.storage)
    assert everything_in(keyspace) == life.everything()
    assert report.snapshot == newest
    assert report.effects == 1
    assert [name for name in life.storage.names() if name.startswith("snapshot-")] == [newest]


def test_a_log_that_ends_before_the_snapshot_is_superfluous() -> None:
    life = LoggedServer()
    life.run("SET k 1")
    life.snapshot()
    files = life.files()
    (snapshot,) = (name for name in files if name.startswith("snapshot-"))
    (old, _) = sorted(name for name in files if name.startswith("log-"))
    storage = restored({snapshot: files[snapshot], old: files[old][:-3]})
    keyspace, report = recovered(storage)
    assert everything_in(keyspace) == life.everything()
    assert report.segments == []
    assert report.end == life.log.end
    go_on(storage, keyspace, report, b"after")
    assert everything_in(recovered(storage)[0]) == everything_in(keyspace)


def test_a_snapshot_under_another_name_is_refused() -> None:
    life = LoggedServer()
    life.run("SET k 1")
    life.snapshot()
    name = snapshot_name(life.log.end)
    life.storage.rename(name, snapshot_name(life.log.end + 1))
    with pytest.raises(CorruptLogError, match="the header says position"):
        recovered(life.storage)


# -- gaps and overlaps ------------------------------------------------------------------------


def several_files() -> LoggedServer:
    life = LoggedServer(segment_bytes=1)
    for number in range(4):
        life.run(f"SET k {number}")
        life.sync()
    return life


def test_a_gap_names_the_positions_that_are_missing() -> None:
    life = several_files()
    first, second, third, _ = life.log.segments
    life.storage.remove(second.name)
    with pytest.raises(CorruptLogError, match="is missing") as refusal:
        recovered(life.storage)
    assert refusal.value.name == f"disk/{third.name}"
    assert f"from position {first.end} to {third.first}" in str(refusal.value)
    assert "Put the missing files back" in str(refusal.value)


def test_files_that_overlap_are_refused() -> None:
    life = several_files()
    first, second = life.log.segments[:2]
    files = life.files()
    files[first.name] += files[second.name][SEGMENT_HEADER_BYTES:]
    with pytest.raises(CorruptLogError, match=f"within {first.name}"):
        recovered(restored(files))


# -- versions ---------------------------------------------------------------------------------


def with_header_field(data: bytes, at: int, value: int, size: int = 2) -> bytes:
    """A segment whose header has another value somewhere, and is sound."""
    header = bytearray(data[: SEGMENT_HEADER_BYTES - 8])
    header[at : at + size] = value.to_bytes(size, "little")
    checksum = xxh3_64_intdigest(bytes(header)).to_bytes(8, "little")
    return bytes(header) + checksum + data[SEGMENT_HEADER_BYTES:]


def one_file() -> tuple[str, bytes]:
    life = LoggedServer()
    life.run("SET k 1")
    ((name, data),) = life.files().items()
    return name, data


@pytest.mark.parametrize(
    ("at", "value", "size"), [(10, 3, 2), (12, 1, 4), (12, 1 << 31, 4)], ids=["lowest", "f", "f31"]
)
def test_a_file_that_needs_a_newer_server_is_refused_and_left_alone(
    at: int, value: int, size: int
) -> None:
    name, data = one_file()
    storage = restored({name: with_header_field(data, at, value, size)})
    before = storage.files()
    with pytest.raises(NewerFormatError, match="start the newer version again") as refusal:
        recovered(storage)
    assert f"disk/{name}" in str(refusal.value)
    assert storage.files() == before


def test_a_file_of_a_newer_server_that_we_can_read_is_read() -> None:
    name, data = one_file()
    keyspace, report = recovered(restored({name: with_header_field(data, 8, 3)}))
    assert report.effects == 1
    assert keyspace.databases[0].values.keys() == {b"k"}


@pytest.mark.parametrize(("at", "value"), [(2, 2), (3, 0x80)], ids=["version", "flags"])
def test_a_sound_batch_of_a_newer_server_is_no_torn_tail(at: int, value: int) -> None:
    name, data = one_file()
    batch = bytearray(encode_batch([], region=0, epoch=0, first=2, wall_ms=1, flags=0))
    batch[at] = value
    header = bytes(batch[:33])
    batch[33:41] = xxh3_64_intdigest(header + bytes(batch[41:])).to_bytes(8, "little")
    storage = restored({name: data + bytes(batch)})
    before = storage.files()
    with pytest.raises(NewerFormatError, match="newer server"):
        recovered(storage)
    assert storage.files() == before


# -- sound bytes that make no sense -----------------------------------------------------------


def refused(*effects: kinds.Effect, first: int = 2, flags: int = 0) -> CorruptLogError:
    name, data = one_file()
    batch = encode_batch(effects, region=0, epoch=0, first=first, wall_ms=1, flags=flags)
    storage = restored({name: data + batch})
    before = storage.files()
    with pytest.raises(CorruptLogError) as refusal:
        recovered(storage)
    assert refusal.value.offset == len(data)
    assert storage.files() == before
    return refusal.value


def test_an_effect_that_cannot_be_applied_is_our_mistake() -> None:
    for effect in (
        kinds.Add(0, b"k", 1 << 64, b"", 1, True),  # of a string
        kinds.CreateGroup(0, b"none", b"g", 0, None),
        kinds.Rename(0, b"none", 0, b"l"),
    ):
        assert "a mistake of the server, please report it" in str(refused(effect))


def test_an_effect_number_that_is_not_due_is_refused() -> None:
    effect = kinds.SetString(0, b"k", b"v")
    assert "effect number 3 where 2 was due" in str(refused(effect, first=3))
    assert "effect number 1 where 2 was due" in str(refused(effect, first=1))


# -- a disk that fails ------------------------------------------------------------------------


def test_a_file_that_cannot_be_read_is_an_os_error_and_changes_nothing() -> None:
    name, data = one_file()
    storage = restored({name: data + b"torn"})
    storage.faults = [DiskFault("open", errno.EACCES)]
    before = storage.files()
    with pytest.raises(PermissionError):
        recovered(storage)
    assert storage.files() == before


@pytest.mark.parametrize("operation", ["append", "truncate", "write"])
def test_a_torn_end_is_cut_by_the_first_write_and_not_before(operation: str) -> None:
    """Whoever starts next must find it, too, if this start does not come so far."""
    name, data = one_file()
    storage = restored({name: data + b"torn"})
    keyspace, report = recovered(storage)
    assert report.end == len(data) - SEGMENT_HEADER_BYTES
    assert report.cut is not None
    assert storage.files()[name] == data + b"torn"
    storage.faults = [DiskFault(operation, errno.EROFS)]
    with pytest.raises(OSError, match="Read-only"):
        go_on(storage, keyspace, report, b"after")
    assert storage.files()[name].startswith(data)
    keyspace, report = recovered(storage)
    go_on(storage, keyspace, report, b"after")
    found, report = recovered(storage)
    assert everything_in(found) == everything_in(keyspace)
    assert report.cut is None


def test_progress_goes_up_to_the_whole() -> None:
    life = LoggedServer(segment_bytes=300)
    for number in range(20):
        life.run(f"SET k {number}")
    life.snapshot()
    for number in range(20):
        life.run(f"SET l {number}")
    shares = []
    for report in recover(life.storage, Keyspace()):
        assert report.bytes_done <= report.bytes_total
        shares.append(report.bytes_done)
    assert shares == sorted(shares)
    assert len(set(shares)) > 20


def test_every_refusal_is_a_log_error() -> None:
    assert issubclass(CorruptLogError, LogError)
    assert issubclass(NewerFormatError, LogError)


def test_files_that_use_more_databases_than_there_are_say_so() -> None:
    life = LoggedServer()
    life.run("SELECT 9", "SET k 1")
    assert isinstance(life.storage, MemoryStorage)
    for _ in ("from the log", "from a snapshot"):
        storage = MemoryStorage(life.storage.files())
        with pytest.raises(LogError, match="start it with --databases 10 or more"):
            list(recover(storage, Keyspace(4)))
        assert storage.files() == life.storage.files()
        life.snapshot()
