"""A log that is cut, overwritten or damaged anywhere: an exact state, or a refusal."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import pytest

from anabranch.keyspace.keyspace import Keyspace
from anabranch.oplog.batch import decode_batch
from anabranch.oplog.errors import CorruptLogError, LogError, NewerFormatError
from anabranch.oplog.log import Sync
from anabranch.oplog.recovery import TEMPORARY_SUFFIX, Recovery
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES, batches_in, segment_name
from anabranch.simulator.disk import MemoryStorage
from tests.support.logged_server import LoggedServer, go_on, recovered, restored
from tests.support.recorder import everything_in

LAST_TURN = (
    "XADD s 90-0 f first",
    "XREADGROUP GROUP g c COUNT 2 STREAMS s >",
    "XADD s 91-0 f second",
    "XACK s g 1-0",
    "SET k last",
)
"""Numbered and local effects in turn, so that it takes six batches, a note of the sync included."""


class Log:
    """The files of a log, what there was after every turn, and where the last turn is."""

    def __init__(self, *, with_snapshot: bool) -> None:
        life = LoggedServer(segment_bytes=500)

        def run(*lines: str) -> None:
            life.run(*lines)
            life.sync()

        run("XADD s 1-0 f v", "XADD s 2-0 f v", "XGROUP CREATE s g 0")
        run("XREADGROUP GROUP g c COUNT 1 STREAMS s >")
        run("SET k 1", "ACL SETUSER ann on")
        run("XADD t 5-0 f v g w", "EXPIRE t 100", "RPUSH l 1 2 3")
        snapshot_position = 0
        if with_snapshot:
            life.snapshot()
            snapshot_position = life.log.end
        run("XADD s IDMP p i * f v", "XADD s IDMP p i * f v")
        run("XDEL s 1-0", "XADD t 6-0 f v")
        for number in range(8):
            run(f"XADD s {number + 10}-0 f {'x' * 50}")
        if life.log.segments[-1].size >= life.log.segment_bytes:
            run("SET k 2")  # in a new file, so that the last turn is not its first
        self.boundary = life.log.end
        life.run(*LAST_TURN)
        self.states = life.states
        assert isinstance(life.storage, MemoryStorage)
        self.files = life.files()
        self.last = life.log.segments[-1].name
        self.last_turn_at = SEGMENT_HEADER_BYTES + self.boundary - life.log.segments[-1].first
        self.needed = {
            name
            for name in self.files
            if not name.startswith("log-") or name >= segment_name(snapshot_position)
        }
        assert len(life.log.segments) >= 3

    def changed(self, name: str, data: bytes | None) -> MemoryStorage:
        """A disk on which one file is another, or gone."""
        files = {**self.files, name: data or b""}
        if data is None:
            del files[name]
        return restored(files)

    def outcome(self, storage: MemoryStorage) -> int | None:
        """Recover: the position of the state that was found, None for a refusal.

        Fails for every other exception, for a state that never was at the end of a turn, and for a
        directory that cannot be used afterwards.
        """
        before = storage.files()
        try:
            keyspace, report = recovered(storage)
        except (CorruptLogError, NewerFormatError) as problem:
            refusal = problem
        else:
            return self._usable(storage, keyspace, report)
        assert storage.files() == before, "a refusal has changed files"
        if isinstance(refusal, CorruptLogError):
            name = refusal.name.removeprefix("disk/")
            assert 0 <= refusal.offset <= len(before[name])
            assert str(refusal).startswith(f"{refusal.name} is damaged at byte {refusal.offset}: ")
        else:
            assert str(refusal).startswith("disk/")
        return None

    def _usable(self, storage: MemoryStorage, keyspace: Keyspace, report: Recovery) -> int:
        found = report.end
        assert everything_in(keyspace) == self.states[found]
        for name in (b"after", b"and after"):
            go_on(storage, keyspace, report, name)
            again, report = recovered(storage)
            assert everything_in(again) == everything_in(keyspace)
            assert report.cut is None
            keyspace = again
        return found


@cache
def log(with_snapshot: bool = False) -> Log:
    return Log(with_snapshot=with_snapshot)


SNAPSHOT = pytest.mark.parametrize("with_snapshot", [False, True], ids=["log", "snapshot and log"])


@SNAPSHOT
def test_the_log_is_what_these_tests_need(with_snapshot: bool) -> None:
    made = log(with_snapshot)
    batches = [item for item in batches_in(made.files[made.last]) if item[0] >= made.last_turn_at]
    assert [(batch.is_local, batch.continues) for _, batch in batches] == [
        (False, True),
        (True, True),
        (False, True),
        (True, True),
        (False, True),
        (True, False),
    ]
    assert made.last_turn_at > SEGMENT_HEADER_BYTES, "another turn stands before it in its file"
    keyspace, report = recovered(restored(made.files))
    assert report.end == max(made.states)
    assert everything_in(keyspace) == made.states[report.end]
    assert (report.snapshot is not None) == with_snapshot


# -- the last turn ----------------------------------------------------------------------------


@SNAPSHOT
def test_a_last_turn_cut_anywhere_is_gone_as_a_whole(with_snapshot: bool) -> None:
    made = log(with_snapshot)
    data = made.files[made.last]
    for size in range(made.last_turn_at, len(data)):
        storage = made.changed(made.last, data[:size])
        _, report = recovered(storage)
        assert report.end == made.boundary
        assert report.segments[-1].size == made.last_turn_at - SEGMENT_HEADER_BYTES
        if size == made.last_turn_at:
            assert report.cut is None
        else:
            assert report.cut is not None
            assert (report.cut.name, report.cut.offset) == (f"disk/{made.last}", made.last_turn_at)
            assert report.cut.size == size - made.last_turn_at
    for size in range(made.last_turn_at, len(data), 17):
        assert made.outcome(made.changed(made.last, data[:size])) is not None


@pytest.mark.parametrize("rest", ["zeros", "garbage"])
def test_a_last_turn_that_was_not_written_to_its_end_is_gone_too(rest: str) -> None:
    made = log()
    data = made.files[made.last]
    rng = random.Random(5)
    for at in range(made.last_turn_at, len(data)):
        size = len(data) - at
        end = bytes(size) if rest == "zeros" else rng.randbytes(size)
        if end == data[at:]:
            continue
        storage = made.changed(made.last, data[:at] + end)
        _, report = recovered(storage)
        assert report.end == made.boundary
        assert report.segments[-1].size == made.last_turn_at - SEGMENT_HEADER_BYTES


def test_a_changed_byte_in_the_last_turn_is_noticed() -> None:
    made = log()
    data = made.files[made.last]
    rng = random.Random(6)
    for at in range(made.last_turn_at, len(data)):
        broken = bytearray(data)
        broken[at] ^= rng.randint(1, 255)
        assert made.outcome(made.changed(made.last, bytes(broken))) == made.boundary, at


def test_a_changed_byte_before_it_is_none_of_an_unfinished_end() -> None:
    """The last turn says that all before it was on the disk."""
    made = log()
    data = made.files[made.last]
    rng = random.Random(8)
    for at in range(made.last_turn_at):
        broken = bytearray(data)
        broken[at] ^= rng.randint(1, 255)
        assert made.outcome(made.changed(made.last, bytes(broken))) is None, at


# -- two files that are not synced ------------------------------------------------------------


def a_life_with_late_syncs(rng: random.Random) -> LoggedServer:
    """A syncing thread works while the log is written, and while files become full."""
    life = LoggedServer(segment_bytes=250)
    running: Sync | None = None
    is_run = False
    for number in range(rng.randrange(2, 40)):
        life.run(f"SET k{number % 3} {'x' * rng.randrange(40)}{number}")
        if running is None:
            if rng.random() < 0.5:
                running, is_run = life.log.begin_sync(), False
        elif not is_run and rng.random() < 0.6:
            running.run()
            is_run = True
        elif is_run and rng.random() < 0.6:
            life.log.finish_sync(running)
            life.log.record_end()
            running = None
        if running is None and rng.random() < 0.05:
            life.snapshot()
        elif rng.random() < 0.05:
            life.log.begin_segment()
    return life


def test_a_power_failure_leaves_a_state_that_was_whichever_files_were_synced() -> None:
    seen: dict[str, int] = {"cut": 0, "gap": 0}
    for seed in range(250):
        rng = random.Random(seed)
        life = a_life_with_late_syncs(rng)
        assert isinstance(life.storage, MemoryStorage)
        storage = life.storage.crash(rng, holes=seed % 2 > 0)
        storage.boot = "another"
        keyspace, report = recovered(storage)
        assert report.end >= life.log.synced, seed
        assert everything_in(keyspace) == life.states[report.end], seed
        if report.left_out and report.cut is not None:
            seen["cut" if report.cut.offset else "gap"] += 1
        for name in (b"after", b"and after"):
            go_on(storage, keyspace, report, name)
            again, report = recovered(storage)
            assert everything_in(again) == everything_in(keyspace), seed
            assert (report.cut, report.left_out) == (None, []), seed
            keyspace = again
    assert min(seen.values()) > 5, seen


# -- anywhere ---------------------------------------------------------------------------------


@SNAPSHOT
@pytest.mark.parametrize("seed", range(2))
def test_damage_anywhere_gives_a_state_that_was_or_a_refusal(
    seed: int, with_snapshot: bool
) -> None:
    made = log(with_snapshot)
    rng = random.Random(seed)
    names = sorted(made.files)
    outcomes: dict[str, set[bool]] = {}
    for _ in range(100):
        name = rng.choice(names)
        data = made.files[name]
        at = rng.randrange(len(data))
        size = rng.choice((1, 1, 4, 40))
        act = rng.choice(("flip", "cut out", "insert", "truncate", "repeat"))
        if act == "flip":
            broken = data[:at] + bytes([data[at] ^ rng.randint(1, 255)]) + data[at + 1 :]
        elif act == "cut out":
            broken = data[:at] + data[at + size :]
        elif act == "insert":
            broken = data[:at] + rng.randbytes(size) + data[at:]
        elif act == "truncate":
            broken = data[:at]
        else:
            broken = data[: at + size] + data[at:]
        found = made.outcome(made.changed(name, broken))
        outcomes.setdefault(act, set()).add(found is not None)
        if name not in made.needed:
            assert found == max(made.states)
        elif name != made.last and broken != data:
            assert found is None, (act, name, at)
    assert all(False in seen for seen in outcomes.values()), "everything was forgiven"


@SNAPSHOT
def test_a_missing_file_is_noticed_unless_the_manifest_asks_for_nothing(
    with_snapshot: bool,
) -> None:
    made = log(with_snapshot)
    for name in made.files:
        found = made.outcome(made.changed(name, None))
        if name == made.last:
            assert found is not None
            assert found <= made.boundary
        else:
            # Without the snapshot, what it made superfluous is still there.
            instead = name not in made.needed or name.startswith("snapshot-")
            assert found == (max(made.states) if instead else None), name


def test_a_snapshot_outlives_the_loss_of_the_log_before_it() -> None:
    life = LoggedServer(segment_bytes=400)
    life.run("SET k 1")
    life.run("SET k 2")
    life.snapshot()
    life.run("SET k 3")
    assert isinstance(life.storage, MemoryStorage)
    storage = life.storage
    storage.remove(life.log.segments[0].name)
    keyspace, report = recovered(storage)
    assert everything_in(keyspace) == life.everything()
    assert [segment.first for segment in report.segments] == [report.snapshot_position]


def test_two_files_exchanged_are_noticed() -> None:
    made = log()
    logs = sorted(name for name in made.files if name.startswith("log-"))
    for one, other in pairwise(logs):
        files = {**made.files, one: made.files[other], other: made.files[one]}
        with pytest.raises(CorruptLogError, match="the header says position"):
            recovered(restored(files))


def test_turns_of_one_file_in_another_order_are_noticed() -> None:
    made = log()
    data = made.files[made.last]
    first = decode_batch(data, SEGMENT_HEADER_BYTES)
    moved = (
        data[:SEGMENT_HEADER_BYTES]
        + data[SEGMENT_HEADER_BYTES + first.size :]
        + data[SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES + first.size]
    )
    with pytest.raises(CorruptLogError, match="effect number"):
        recovered(made.changed(made.last, moved))


def test_what_an_unfinished_snapshot_left_is_removed() -> None:
    made = log()
    name = "snapshot-00000000000000000099.absnap" + TEMPORARY_SUFFIX
    storage = made.changed(name, b"half of it")
    keyspace, report = recovered(storage)
    assert everything_in(keyspace) == made.states[report.end]
    assert name not in storage.names()


def test_files_of_others_are_left_alone() -> None:
    made = log()
    storage = made.changed("lock", b"12\n")
    storage = MemoryStorage({**storage.files(), "log-x.ablog": b"?", "notes.txt": b"!"})
    recovered(storage)
    assert {"lock", "log-x.ablog", "notes.txt"} <= set(storage.names())


def test_a_refusal_says_what_to_do() -> None:
    made = log()
    name = min(made.files)
    data = bytearray(made.files[name])
    data[-1] ^= 1
    with pytest.raises(LogError, match="anabranch inspect ") as refusal:
        recovered(made.changed(name, bytes(data)))
    assert f"disk/{name}" in str(refusal.value)
    assert "Nothing was changed" in str(refusal.value)
