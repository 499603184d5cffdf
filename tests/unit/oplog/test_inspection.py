"""What a survey says of a directory is what a start does with it; a repair keeps the sound part."""

from __future__ import annotations

import random
from functools import cache

import pytest

from anabranch.effects import kinds
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.oplog.errors import CorruptLogError, NewerFormatError
from anabranch.oplog.inspection import Fate, SeenBatch, SegmentFacts, SnapshotFacts, Survey
from anabranch.oplog.recovery import recover
from anabranch.oplog.repair import RepairImpossible, RepairPlan, carry_out, plan_repair, way_out
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES, segment_header, segment_name
from anabranch.oplog.snapshot import snapshot_name
from anabranch.region.turn import Turn
from anabranch.simulator.disk import DiskFault, MemoryStorage
from tests.support.logged_server import LoggedServer, restored
from tests.support.random_lines import random_lines
from tests.support.recorder import OTHER_LINES, everything_in


def a_life(seed: int, *, snapshot_after: int = 0, retire: bool = False) -> LoggedServer:
    """Some twenty turns of several effects in files of a few hundred bytes, maybe a snapshot."""
    rng = random.Random(seed)
    life = LoggedServer(segment_bytes=400)
    lines = random_lines(rng, *OTHER_LINES, count=40)
    number = 0
    while lines:
        count = rng.randint(1, 6)
        life.run(*lines[:count])
        if rng.random() < 0.8:
            life.sync()
        del lines[:count]
        number += 1
        if number == snapshot_after:
            life.snapshot()
            if retire:
                life.log.retire(life.log.end)
    return life


@cache
def some_life(seed: int) -> LoggedServer:
    return a_life(seed, snapshot_after=(0, 6, 6)[seed % 3], retire=seed % 3 == 2)


def files_of(life: LoggedServer) -> dict[str, bytes]:
    return life.files()


def survey_of(storage: MemoryStorage, only: str | None = None) -> Survey:
    survey = Survey(storage, only)
    for _ in survey.walk():
        pass
    assert survey.bytes_done == survey.bytes_total == sum(facts.size for facts in survey.read)
    return survey


Outcome = tuple[str, str, int, str]


def start(storage: MemoryStorage) -> tuple[Outcome, int]:
    """What recovery does, and how far it comes; the disk must be as before."""
    before = storage.files()
    keyspace = Keyspace()
    try:
        *_, report = recover(storage, keyspace)
    except CorruptLogError as problem:
        return ("refused" if problem.advice else "", problem.name, problem.offset, problem.what), -1
    except NewerFormatError as problem:
        return ("newer", str(problem).split(" ")[0], 0, ""), -1
    finally:
        assert storage.files() == before
    if report.cut is not None:
        return ("cut", report.cut.name, report.cut.offset, report.cut.why), report.end
    return ("sound", "", 0, ""), report.end


def foretold(survey: Survey) -> Outcome:
    """The same, as the survey sees it."""
    refused = survey.refused
    if refused is not None:
        assert refused.problem is not None
        if refused.is_newer:
            return "newer", refused.shown, 0, ""
        return "refused", refused.shown, *refused.problem
    torn = survey.torn
    if torn is not None:
        assert torn.problem is not None
        return "cut", torn.shown, *torn.problem
    return "sound", "", 0, ""


def damaged(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    """The same files after a misfortune."""
    files = dict(files)
    name = rng.choice(sorted(files))
    data = files[name]
    at = rng.randrange(len(data))
    act = rng.randrange(8)
    if act == 0:
        files[name] = data[:at]
    elif act == 1:
        files[name] = data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    elif act == 2:
        end = min(len(data), at + rng.randint(1, 200))
        files[name] = data[:at] + bytes(end - at) + data[end:]
    elif act == 3:
        del files[name]
    elif act == 4:
        files[name] = data + rng.randbytes(rng.randint(1, 60))
    elif act == 5:
        other = rng.choice(sorted(files))
        files[name], files[other] = files[other], files[name]
    elif act == 6:
        end = min(len(data), at + rng.randint(1, 200))
        files[name] = data[:at] + data[end:]
    else:
        newest = max(each for each in files if each.startswith("log-"))
        files[newest] = files[newest][: rng.randrange(len(files[newest]))]
    return files


def test_a_file_that_could_not_be_begun_is_called_torn() -> None:
    life = some_life(1)
    files = files_of(life)
    last = life.log.segments[-1]
    begin = last.first + 1  # within what was written
    storage = restored({**files, segment_name(begin): segment_header(begin)})
    survey = survey_of(storage)
    assert survey.torn is not None
    assert survey.torn.name == segment_name(begin)
    assert (foretold(survey), survey.end) == start(storage)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_sound_is_called_sound(seed: int) -> None:
    life = some_life(seed)
    storage = restored(files_of(life))
    survey = survey_of(storage)
    assert survey.is_sound
    assert survey.refused is survey.torn is None
    assert (foretold(survey), survey.end) == start(storage)
    assert survey.end == life.log.end
    assert plan_repair(survey) is None


@pytest.mark.parametrize("seed", range(6))
def test_what_is_foretold_is_what_a_start_does(seed: int) -> None:
    rng = random.Random(seed)
    seen = set()
    for _ in range(400):
        files = damaged(rng, files_of(some_life(seed)))
        if rng.random() < 0.2 and files:
            files = damaged(rng, {name: data or b"\0" for name, data in files.items()})
        storage = restored(files)
        survey = survey_of(storage)
        outcome, end = start(storage)
        assert foretold(survey) == outcome
        assert end in (-1, survey.end)
        seen.add(outcome[0])
    assert seen >= {"refused", "cut", "sound"}


@pytest.mark.parametrize("seed", range(6))
def test_a_repair_keeps_the_turns_before_the_damage_and_all_bytes(seed: int) -> None:
    rng = random.Random(seed)
    life = some_life(seed)
    repaired = 0
    for _ in range(150):
        files = damaged(rng, files_of(life))
        storage = restored(files)
        try:
            repair = plan_repair(survey_of(storage))
        except RepairImpossible:
            assert start(storage)[0][0] == "refused"
            continue
        if repair is None:
            assert start(storage)[0][0] == "sound"
            continue
        repaired += 1
        kept = carry_out(storage, repair)
        after = storage.files()
        for name, data in files.items():
            assert after.get(name, b"") + after.get(kept.get(name, ""), b"") == data
        check_repaired(life, storage, repair)
    assert repaired > 20


def check_repaired(life: LoggedServer, storage: MemoryStorage, repair: RepairPlan) -> None:
    keyspace = Keyspace()
    *_, report = recover(storage, keyspace)
    assert report.cut is None
    assert report.end == repair.position
    if repair.position in life.states:  # else a file was lengthened by what was sound by chance
        assert everything_in(keyspace) == life.states[repair.position]


OPERATIONS = ("rename", "sync directory", "create", "write", "sync", "append", "truncate", "open")


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_repair_that_fails_half_way_can_be_tried_again(operation: str, after: int) -> None:
    life = some_life(0)
    files = files_of(life)
    name = sorted(files)[-3]  # two are behind it
    at = len(files[name]) // 2
    files = {**files, name: files[name][:at] + b"\xff" * 8 + files[name][at + 8 :]}
    wanted = plan_repair(survey_of(restored(files)))
    assert wanted is not None
    assert len(wanted.aside) >= 2
    assert wanted.cut is not None
    storage = restored(files)
    storage.faults.append(DiskFault(operation, after=after, keep=3))
    try:
        carry_out(storage, wanted)
    except OSError:
        storage = storage.crash(random.Random(after))
        survey = survey_of(storage)
        again = plan_repair(survey)
        # The very last step may have reached the disk although it failed.
        assert (survey.end if again is None else again.position) == wanted.position
        if again is not None:
            carry_out(storage, again)
    storage.faults.clear()
    assert survey_of(storage).is_sound
    check_repaired(life, storage, wanted)
    kept = list(storage.files().values())
    assert files[name][wanted.cut.sound :] in kept
    assert all(files[facts.name] in kept for facts in wanted.aside)


def test_the_newest_file_is_put_aside_first() -> None:
    life = some_life(0)
    files = files_of(life)
    name, *later = sorted(files)
    files[name] = files[name][: len(files[name]) // 2]
    storage = restored(files)
    repair = plan_repair(survey_of(storage))
    assert repair is not None
    storage.faults.append(DiskFault("rename", after=1))
    with pytest.raises(OSError, match="Input/output error"):
        carry_out(storage, repair)
    assert set(storage.names()) >= {name, *later[:-1]}
    assert later[-1] not in storage.names()


def test_files_behind_a_damaged_one_are_judged_by_themselves() -> None:
    life = some_life(0)
    files = files_of(life)
    name = sorted(files)[1]
    files[name] = files[name][: len(files[name]) // 2]
    survey = survey_of(restored(files))
    assert [facts.fate for facts in survey.segments if facts.name != name] == [Fate.SOUND] * (
        len(files) - 1
    )
    assert survey.refused is survey.segments[1]


def test_what_is_cut_off_twice_at_one_position_is_kept_twice() -> None:
    life = LoggedServer()
    life.run("SET k 1")
    (name,) = files_of(life)
    storage = life.storage
    assert isinstance(storage, MemoryStorage)
    for rest in (b"first", b"second"):
        storage.append(name).write(rest)
        repair = plan_repair(survey_of(storage))
        assert repair is not None
        carry_out(storage, repair)
    position = life.log.end
    assert storage.files()[f"{name}.cut-{position}"] == b"first"
    assert storage.files()[f"{name}.cut-{position}.2"] == b"second"
    survey = survey_of(storage)
    assert survey.is_sound
    assert survey.strangers == [f"{name}.cut-{position}", f"{name}.cut-{position}.2"]


# -- what is counted --------------------------------------------------------------------------


def test_a_file_is_counted() -> None:
    life = LoggedServer()
    life.run("XADD s 1-0 f v", "XADD s 2-0 f v", "XGROUP CREATE s g 0")
    life.run("XREADGROUP GROUP g c COUNT 2 STREAMS s >", "SET k v", "RENAME k l")
    ((name, data),) = files_of(life).items()
    survey = survey_of(restored({name: data}))
    (facts,) = survey.segments
    assert (facts.version, facts.first, facts.end) == (2, 0, life.log.end)
    assert (facts.size, facts.sound) == (len(data), len(data))
    assert facts.turns == 2
    assert facts.batches == 3
    assert facts.kinds == {
        "CreateStream": 1, "Add": 2, "CreateGroup": 1, "CreateConsumer": 1, "Deliver": 1,
        "SetString": 1, "Rename": 1,
    }  # fmt: skip
    assert (facts.effects, facts.local) == (8, 2)
    assert (facts.first_number, facts.next_number) == (1, 7)
    assert facts.keys == {(0, b"s"), (0, b"k"), (0, b"l")}
    assert facts.earliest_ms == facts.latest_ms == 1


def test_a_snapshot_is_counted() -> None:
    life = LoggedServer()
    life.run("XADD s IDMP p i 1-0 f v", "XADD s IDMP p j * f v", "XADD s 9000-0 f v")
    life.run("XGROUP CREATE s g 0", "XREADGROUP GROUP g c COUNT 2 STREAMS s >", "XDEL s 9000-0")
    life.run("SET k v", "EXPIRE k 100", "SADD m 1 2", "RPUSH l 1", "ACL SETUSER ann on")
    life.snapshot()
    (facts,) = survey_of(restored(files_of(life))).snapshots
    assert facts.fate is Fate.SOUND
    assert (facts.version, facts.position, facts.wall_ms) == (1, life.log.end, 1)
    assert facts.next_number == life.turn.next_number
    assert facts.kinds == {"stream": 1, "string": 1, "set": 1, "list": 1}
    assert (facts.keys, facts.databases, facts.deadlines, facts.users) == (4, {0}, 1, 1)
    stream = life.keyspace.databases[0].values[b"s"]
    assert facts.entries == stream.length
    assert facts.pending == stream.groups[b"g"].pending.count
    assert (facts.groups, facts.consumers, facts.idempotent_ids) == (1, 1, stream.producers.tracked)


def test_what_is_lost_behind_a_damage_is_counted() -> None:
    life = LoggedServer(segment_bytes=1 << 20)
    ends = []
    for number in range(6):
        life.run(f"SET k {number}", f"XADD s {number + 1}-0 f v")
        ends.append(life.log.end)
    ((name, data),) = files_of(life).items()
    at = SEGMENT_HEADER_BYTES + ends[2] - 1
    survey = survey_of(restored({name: data[:at] + b"!" + data[at + 1 :]}))
    (facts,) = survey.segments
    assert facts.turns == 2
    assert facts.end == ends[1]
    assert facts.turns_behind == 3
    assert facts.effects_behind == 3 * 2
    repair = plan_repair(survey)
    assert repair is not None
    assert (repair.position, repair.lost_turns, repair.lost_effects) == (ends[1], 3, 6)
    assert repair.lost_bytes == ends[-1] - ends[1]


def test_what_lies_in_later_files_is_lost_as_well() -> None:
    life = LoggedServer(segment_bytes=200)
    ends = []
    for number in range(9):
        life.run(f"SET k {number}", f"SET l {number}")
        ends.append(life.log.end)
    files = files_of(life)
    first, *later = sorted(files)
    assert len(later) >= 2
    at = SEGMENT_HEADER_BYTES + ends[1] - 1
    files[first] = files[first][:at] + b"!" + files[first][at + 1 :]
    repair = plan_repair(survey_of(restored(files)))
    assert repair is not None
    assert repair.cut is not None
    assert [facts.name for facts in repair.aside] == later
    assert (repair.position, repair.lost_turns, repair.lost_effects) == (ends[0], 7, 14)


def test_batches_are_told_with_their_places() -> None:
    life = LoggedServer()
    life.run("SET k v")
    first = life.log.end
    life.run("ACL SETUSER ann on", "SET k w")
    walk = list(Survey(life.storage).walk())
    assert all(isinstance(item, SeenBatch) for item in walk)
    assert [(item.ordinal, item.position) for item in walk if isinstance(item, SeenBatch)][:2] == [
        (1, 0),
        (2, first),
    ]
    assert [type(effect) for item in walk for effect in item.effects] == [
        kinds.SetString,
        kinds.SetUser,
        kinds.SetString,
    ]
    assert [item.offset - item.position for item in walk] == [SEGMENT_HEADER_BYTES] * 3


# -- places -----------------------------------------------------------------------------------


def test_damage_that_no_start_reads_is_told_but_hinders_nobody() -> None:
    life = a_life(1, snapshot_after=6)
    files = files_of(life)
    old = segment_name(0)
    storage = restored({**files, old: files[old][:-5]})
    survey = survey_of(storage)
    assert survey.segments[0].fate is Fate.UNREAD
    assert not survey.is_sound
    assert start(storage)[0][0] == "sound"
    assert plan_repair(survey) is None


def test_one_file_is_judged_by_its_place_among_the_others() -> None:
    life = some_life(0)
    files = files_of(life)
    first, *_, last = sorted(files)
    for name, fate in ((first, Fate.REFUSED), (last, Fate.CUT)):
        storage = restored({**files, name: files[name][:-3]})
        survey = survey_of(storage, name)
        (facts,) = survey.read
        assert isinstance(facts, SegmentFacts)
        assert (facts.name, facts.fate) == (name, fate)


def test_a_file_under_another_name_can_be_looked_at() -> None:
    life = a_life(3, snapshot_after=6)
    files = files_of(life)
    log = sorted(files)[1]
    snapshot = max(files)
    storage = restored({"copy": files[log], "other": files[snapshot], "torn": files[log][:-1]})
    (facts,) = survey_of(storage, "copy").read
    assert isinstance(facts, SegmentFacts)
    assert segment_name(facts.first) == log
    assert facts.fate is Fate.SOUND
    assert facts.turns > 1
    (kept,) = survey_of(storage, "other").read
    assert isinstance(kept, SnapshotFacts)
    assert (snapshot_name(kept.position), kept.fate) == (snapshot, Fate.SOUND)
    assert survey_of(storage, "torn").read[0].fate is Fate.UNREAD


def test_a_file_that_begins_within_another_is_put_aside() -> None:
    life = some_life(0)
    files = files_of(life)
    first, second, *later = sorted(files)
    files[first] += files[second][SEGMENT_HEADER_BYTES:]
    storage = restored(files)
    survey = survey_of(storage)
    begin = survey.segments[1].first
    assert survey.segments[1].problem == (0, f"it begins at position {begin}, within {first}")
    assert foretold(survey) == start(storage)[0]
    repair = plan_repair(survey)
    assert repair is not None
    assert repair.cut is None
    assert [facts.name for facts in repair.aside] == [second, *later]
    carry_out(storage, repair)
    check_repaired(life, storage, repair)


def test_an_effect_number_that_is_not_due_is_damage_where_its_turn_begins() -> None:
    turn = Turn(Replica.alone())
    data = segment_header(0)
    for number in (1, 2, 9):
        turn.next_number = number
        turn.recorded.append(kinds.SetString(0, b"k", b"v"))
        end = len(data)
        data += turn.drain(1)
    storage = restored({segment_name(0): data})
    survey = survey_of(storage)
    (facts,) = survey.segments
    assert facts.problem == (end, "effect number 9 where 3 was due")
    assert facts.fate is Fate.REFUSED
    assert facts.sound == end
    assert foretold(survey) == start(storage)[0]


def test_a_damaged_length_costs_no_memory() -> None:
    life = LoggedServer()
    life.run(f"SET k {'v' * 100}")
    life.snapshot()
    files = files_of(life)
    name = max(files)
    data = files[name]
    asked: list[int] = []

    class Disk(MemoryStorage):
        def open(self, name: str):  # type: ignore[no-untyped-def]
            file = super().open(name)
            read = file.read

            class Watched:
                def read(self, count: int = -1, /) -> bytes:
                    asked.append(count)
                    return read(count)

                def close(self) -> None:
                    file.close()

            return Watched()

    survey = Survey(Disk({name: data[:33] + b"\xff\xff\xff\xff" + data[37:]}))
    for _ in survey.walk():
        pass
    (facts,) = survey.snapshots
    assert facts.problem == (32, "the file ends within a record")
    assert min(asked) >= 0
    assert max(asked) <= 1 << 20


# -- damaged snapshots ------------------------------------------------------------------------


def test_a_damaged_snapshot_is_not_cut_and_the_way_out_is_true() -> None:
    life = a_life(1, snapshot_after=6)
    files = files_of(life)
    name = max(files)
    files[name] = files[name][:-1]
    storage = restored(files)
    with pytest.raises(RepairImpossible, match="Move it out of the directory: the log holds all"):
        plan_repair(survey_of(storage))
    assert "the log holds all" in way_out(survey_of(storage, name))
    del files[name]
    storage = restored(files)
    keyspace = Keyspace()
    *_, report = recover(storage, keyspace)
    assert everything_in(keyspace) == life.everything()
    assert report.end == life.log.end


def test_a_damaged_snapshot_of_the_end_of_the_log_is_not_needed() -> None:
    life = a_life(1)
    life.snapshot()
    files = files_of(life)
    name = max(files)
    survey = survey_of(restored({**files, name: files[name][:-1]}))
    assert survey.base is not None
    assert survey.base.position == life.log.end
    assert "the log holds all" in way_out(survey)


def test_a_damaged_snapshot_without_the_log_before_it_needs_a_backup() -> None:
    life = a_life(1, snapshot_after=6, retire=True)
    files = files_of(life)
    name = max(files)
    storage = restored({**files, name: files[name][:-1]})
    with pytest.raises(RepairImpossible, match="Restore a backup of the directory"):
        plan_repair(survey_of(storage))


def test_a_log_without_its_beginning_is_not_put_aside() -> None:
    life = some_life(0)
    files = files_of(life)
    del files[segment_name(0)]
    with pytest.raises(RepairImpossible, match="Put the missing files back"):
        plan_repair(survey_of(restored(files)))


def test_a_file_that_grows_meanwhile_has_the_size_that_was_read() -> None:
    life = LoggedServer()
    life.run("XADD s 1-0 f v")
    survey = Survey(life.storage)
    (segment,) = survey.segments
    before = segment.size
    life.run("XADD s 2-0 f v")
    seen = list(survey.walk())
    assert len(seen) == 2
    assert segment.size == len(life.files()[segment.name]) > before
