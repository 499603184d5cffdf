"""Batches of each replica ID: at hand in memory, then from the log."""

from __future__ import annotations

from io import BytesIO

import pytest

from anabranch.effects import kinds
from anabranch.oplog import segment
from anabranch.oplog.batch import CONTINUES, UNIT_CONTINUES, decode_batch, fingerprint, wire_form
from anabranch.oplog.log import OpLog
from anabranch.oplog.log_index import NOTED_EVERY_BYTES, LogIndex
from anabranch.oplog.segment import SEGMENT_HEADER_BYTES
from anabranch.simulator.disk import MemoryStorage
from tests.support.batches import encode_batch


class Disk(MemoryStorage):
    opened = 0

    def open(self, name: str) -> BytesIO:
        self.opened += 1
        return super().open(name)


class Written:
    """Batches of one effect each, unless a test says more, of several replica IDs."""

    def __init__(self, recent_bytes: int = 1 << 20) -> None:
        self.storage = Disk()
        self.log = OpLog(self.storage, [], end=0, segment_bytes=1 << 20)
        self.index = LogIndex(self.storage, recent_bytes=recent_bytes)
        self.size = 0

    def write(self, region: int, number: int, count: int = 1, value: int = 3) -> None:
        effects = [kinds.SetString(0, b"k", b"%0*d" % (value, number))] * count
        data = encode_batch(effects, region=region, epoch=0, first=number, wall_ms=1, flags=0)
        self.index.record(data, self.log.end)
        self.log.append(data)
        self.size = len(data)

    def numbers(self, replica_id: int, after: int) -> list[int]:
        found = self.index.read(self.log, replica_id, after, 1 << 20, self.log.end)
        assert found is not None
        return [decode_batch(batch.data).first for batch in found]

    def reads_files(self, replica_id: int, after: int) -> bool:
        before = self.storage.opened
        self.numbers(replica_id, after)
        return self.storage.opened > before


def test_what_every_member_has_is_not_kept_at_hand() -> None:
    written = Written()
    for number in range(1, 11):
        written.write(1, number)
        written.write(2, number)
    assert not written.reads_files(1, 0)
    written.index.prune({1: 6, 2: 4})
    assert written.reads_files(1, 0)
    assert written.reads_files(2, 0)
    assert not written.reads_files(1, 5)
    assert not written.reads_files(2, 4)
    assert written.numbers(1, 0) == written.numbers(2, 0) == list(range(1, 11))
    assert written.numbers(1, 7) == [8, 9, 10]
    written.index.prune({1: 10, 2: 10})
    assert written.reads_files(1, 9)
    assert written.numbers(2, 9) == [10]


@pytest.mark.parametrize("batches", [1, 2, 3, 8, 33])
def test_a_read_begins_with_the_batch_that_has_the_next_number(batches: int) -> None:
    written = Written()
    spans = []
    for each in range(batches):
        first = spans[-1][1] + 1 if spans else 1
        written.write(1, first, count=1 + each % 3)
        spans.append((first, first + each % 3))
    for after in range(spans[-1][1] + 1):
        assert written.numbers(1, after) == [first for first, last in spans if last > after]


def test_the_log_is_needed_from_the_first_batch_that_some_member_lacks() -> None:
    written = Written()
    begins = []
    for number in range(1, 6):
        begins.append(written.log.end)
        written.write(1, number, value=NOTED_EVERY_BYTES)
    needed = [written.index.needed_from(written.log, {1: number}) for number in range(6)]
    assert needed == [*begins, written.log.end]
    assert written.index.needed_from(written.log, {}) == begins[0]
    written.write(2, 1)
    assert written.index.needed_from(written.log, {1: 5}) < written.log.end


def test_what_was_given_back_leaves_room_for_more() -> None:
    written = Written()
    written.write(1, 1)
    room = 10 * written.size
    written = Written(recent_bytes=room)
    for number in range(1, 6):
        written.write(1, number)
    written.index.prune({1: 5})
    for number in range(6, 16):
        written.write(1, number)
    assert not written.reads_files(1, 5)
    written.write(1, 16)
    assert written.reads_files(1, 5)
    assert not written.reads_files(1, 6)


def test_batches_are_not_sent_that_are_not_as_they_were_written() -> None:
    written = Written(recent_bytes=1)
    for number in range(1, 6):
        written.write(1, number)
    told: list[str] = []
    written.index.on_damage = lambda problem: told.append(str(problem))
    (name,) = (each.name for each in written.log.segments)
    sound = written.storage.files()[name]
    assert written.numbers(1, 0) == [1, 2, 3, 4, 5]
    size = written.size
    for at in range(SEGMENT_HEADER_BYTES, len(sound)):
        intact = (at - SEGMENT_HEADER_BYTES) // size
        for bit in (0, 7):
            damaged = bytearray(sound)
            damaged[at] ^= 1 << bit
            _put(written.storage, name, bytes(damaged))
            del told[:]
            found = written.index.read(written.log, 1, 0, 1 << 20, written.log.end)
            if intact:
                assert [decode_batch(batch.data).first for batch in found or ()] == [1, 2, 3, 4, 5][
                    :intact
                ]
            else:
                assert found is None
            assert len(told) == 1
            assert name in told[0]
            if intact < 4:  # the newest one is in memory still
                assert written.index.read(written.log, 1, intact, 1 << 20, 1 << 20) is None
    for end in (SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + size + 5, len(sound) - 1):
        _put(written.storage, name, sound[:end])
        del told[:]
        written.index.read(written.log, 1, 0, 1 << 20, written.log.end)
        assert told, "a file that became shorter"
    written.storage.remove(name)
    assert written.index.read(written.log, 1, 0, 1 << 20, written.log.end) is None


def test_what_a_start_finds_damaged_is_not_sent_either() -> None:
    """In files that only wait to be deleted, which recovery does not look at."""
    written = Written()
    for number in range(1, 6):
        written.write(1, number)
    (name,) = (each.name for each in written.log.segments)
    damaged = bytearray(written.storage.files()[name])
    damaged[SEGMENT_HEADER_BYTES + 2 * written.size + 3] ^= CONTINUES  # it is sent without
    _put(written.storage, name, bytes(damaged))
    index = LogIndex(written.storage, recent_bytes=1 << 20)
    told: list[str] = []
    index.on_damage = lambda problem: told.append(str(problem))
    index.scan(written.log.segments, {1: 5})
    assert len(told) == 1
    assert index.read(written.log, 1, 0, 1 << 20, written.log.end) is None
    assert index.read(written.log, 1, 5, 1 << 20, written.log.end) == []


def _put(storage: Disk, name: str, data: bytes) -> None:
    file = storage.create(name)
    file.write(data)
    file.close()


@pytest.mark.parametrize("recent_bytes", [0, 1 << 20])
def test_the_fingerprint_of_a_batch_is_that_of_what_is_sent(recent_bytes: int) -> None:
    written = Written(recent_bytes)
    sent: list[bytes] = []
    for number, flags in (1, CONTINUES), (3, CONTINUES | UNIT_CONTINUES), (5, 0):
        effects = [kinds.SetString(0, b"k", b"%d" % n) for n in (number, number + 1)]
        data = encode_batch(effects, region=1, epoch=0, first=number, wall_ms=1, flags=flags)
        written.index.record(data, written.log.end)
        written.log.append(data)
        sent.append(wire_form(data))
        newest = written.index.fingerprint(written.log, 1, number + 1)
        assert newest == fingerprint(sent[-1])
        assert (fingerprint(data) != newest) == bool(flags)
    told = [written.index.fingerprint(written.log, 1, number) for number in range(8)]
    one, two, three = map(fingerprint, sent)
    assert told == [None, b"", one, b"", two, b"", three, None]
    assert len({one, two, three}) == 3
    assert written.index.fingerprint(written.log, 2, 1) is None
    written.index.joined({1: 9})
    assert written.index.fingerprint(written.log, 1, 9) is None
    assert written.index.fingerprint(written.log, 1, 6) is None


def test_room_in_memory_can_be_changed_at_any_time() -> None:
    written = Written()
    for number in range(1, 11):
        written.write(1, number)
    written.index.keep_recent(4 * written.size)
    assert written.reads_files(1, 5)
    assert not written.reads_files(1, 6)
    written.index.keep_recent(5 * written.size)
    written.write(1, 11)
    assert not written.reads_files(1, 6)


def test_a_long_batch_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it in pieces would take a time that is quadratic in its length."""
    monkeypatch.setattr(segment, "READ_BYTES", 100)
    written = Written(recent_bytes=0)
    reads: list[int] = []

    class File(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            reads.append(len(data))
            return data

    effect = kinds.SetString(0, b"k", b"x" * 100_000)
    data = encode_batch([effect], region=1, epoch=0, first=1, wall_ms=1, flags=0)
    written.index.record(data, written.log.end)
    written.log.append(data)
    written.write(1, 2)
    content = File(written.storage.open(written.log.segments[0].name).read())
    monkeypatch.setattr(written.storage, "open", lambda _: content)
    assert written.numbers(1, 0) == [1, 2]
    assert len(reads) < 6
    assert sum(reads) < 101_000


def test_no_more_is_read_than_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Written(recent_bytes=0)
    for number in range(1, 4):
        written.write(1, number)
    sound: list[bytes] = []
    check = segment.is_sound
    monkeypatch.setattr(segment, "is_sound", lambda data: sound.append(data) or check(data))
    assert written.index.fingerprint(written.log, 1, 1) is not None
    assert len(sound) == 1
