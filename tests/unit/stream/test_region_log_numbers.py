"""A log with effect numbers against a list of entries."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from anabranch.stream import by_number
from anabranch.stream.block import full_block
from anabranch.stream.compression import BlockCache
from anabranch.stream.frozen import FrozenStream, StreamBuilder
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream
from tests.support.compressing import compress_blocks, whatever_it_gains
from tests.support.engine_model import copy_of


@dataclass
class Naive:
    """What the log should hold: ``(number, ID, position)`` of live entries, and its counters."""

    live: list[tuple[int, int, int]]
    next_position: int = 0
    base: int = 0
    newest: tuple[int, int] = (0, 0)
    floor: int = 0


def fragment(number: int) -> bytes:
    return b"<%d>" % number


def grown(rng: random.Random) -> tuple[RegionLog, Naive, list[str]]:
    """A log after a random life, and what it should hold."""
    log, naive = RegionLog(), Naive([])
    number, entry_id = 0, 0
    did = []
    for _ in range(rng.randint(5, 60)):
        (what,) = rng.choices(
            ("add", "run", "node", "remove", "range", "clear", "compress"), (20, 8, 4, 8, 4, 1, 4)
        )
        did.append(what)
        if what in ("add", "run", "node"):
            number += rng.choice((1, 1, 1, 5))  # other effects of the replica ID lie between
            count = 1 if what == "add" else rng.randint(2, 9)
            ids = [entry_id := entry_id + rng.choice((1, 256)) for _ in range(count)]
            numbers = list(range(number, number + count))
            fragments = [fragment(each) for each in numbers]
            if not naive.newest[0]:  # a log that nothing is counted of may go on further up
                position = max(naive.next_position, number) if rng.random() < 0.5 else 0
                if position > naive.next_position:
                    log.open_at(position, number)
                    naive.next_position = naive.base = position
                    naive.floor = number - 1
            opens = rng.random() < 0.3
            shift = numbers[0] - log.next_position
            if what == "add":
                log.append(ids[0], fragments[0], 1, opens, shift)
            elif what == "run":
                log.append(ids[0], fragments[0], 1, opens, shift)
                log.extend(ids[1:], fragments[1:], count - 1, shift)
            else:
                ends = [sum(map(len, fragments[: i + 1])) for i in range(count)]
                log.append_blocks([full_block(ids, b"".join(fragments), ends, count)], shift)
                log.tail.reopen()  # type: ignore[union-attr]
            for each_id, each in zip(ids, numbers, strict=True):
                naive.live.append((each, each_id, naive.next_position))
                naive.next_position += 1
            naive.newest = (numbers[-1], ids[-1])
            number = numbers[-1]
        elif what == "remove" and naive.live:
            gone = naive.live.pop(rng.randrange(len(naive.live)))
            found = log.find(gone[1])
            assert found is not None
            log.remove_within(found[0], [found[1]])
        elif what == "range":
            low = rng.randint(0, number)
            high = rng.randint(low, number + 1)
            by_number.remove(log, low, high)
            naive.live = [each for each in naive.live if not low < each[0] <= high]
        elif what == "clear":
            top = rng.randint(0, number)
            place = (
                max([naive.base, *(e[2] + 1 for e in naive.live if e[0] <= top)])
                if top < naive.newest[0]
                else naive.next_position
            )
            by_number.clear_upto(log, top, place)
            naive.live = [each for each in naive.live if each[0] > top]
            naive.base = max(naive.base, place)
            naive.floor = max(naive.floor, top)
            if naive.newest[0] <= top:
                naive.newest = (0, 0)
        elif what == "compress":
            with whatever_it_gains():
                compress_blocks(log.blocks, BlockCache(rng.choice((0, 1000))))
    return log, naive, did


@pytest.mark.parametrize("seed", range(150))
def test_a_random_life(seed: int) -> None:
    rng = random.Random(seed)
    log, naive, _ = grown(rng)
    log.check()
    assert log.length == len(naive.live)
    assert log.next_position == naive.next_position
    assert log.base == naive.base
    assert log.floor == naive.floor
    assert (log.newest_number, log.newest_id) == naive.newest
    held = [
        (block.number(index), block.ids[index], block.position(index), block.fragment(index))
        for block, low, high in by_number.spans(log, 0, 1 << 40)
        for index in range(low, high)
    ]
    assert held == [(*each, fragment(each[0])) for each in naive.live]
    top = naive.newest[0] + 3
    for _ in range(20):
        low, high = rng.randint(0, top), rng.randint(0, top)
        wanted = [each for each in naive.live if low < each[0] <= high]
        assert by_number.count(log, low, high) == len(wanted)
        assert sum(b - a for _, a, b in by_number.spans(log, low, high)) == len(wanted)
        newest, position = by_number.newest_slot_upto(log, low)
        below = max((each for each in naive.live if each[0] <= low), default=(0, 0, -1))
        assert below[0] <= newest <= low
        assert position > below[2]
        assert all(position <= each[2] for each in naive.live if each[0] > low)
        found = by_number.find(log, low)
        assert (found is not None) == any(each[0] == low for each in naive.live)
        some = [each for each in wanted if rng.random() < 0.8]  # a group was given the others
        for these in (wanted, some):
            assert by_number.numbers_of(log, [each[1] for each in these]) == [
                each[0] for each in these
            ]
        asked = [number for number in range(low, high + 1) if rng.random() < 0.7]
        known = {each[0] for each in naive.live}
        assert by_number.live_among(log, asked) == [number for number in asked if number in known]
    for number, entry_id, position in naive.live:
        assert by_number.number_upto(log, entry_id) == number
        assert by_number.id_upto(log, number) == entry_id
        assert by_number.number_below(log, position + 1) == number


@pytest.mark.parametrize("seed", range(60))
def test_counts_stay_right_while_entries_come_and_go(seed: int) -> None:
    """The sums that counting keeps are thrown away where they would be wrong."""
    rng = random.Random(seed)
    log = RegionLog()
    live: list[int] = []
    for number in range(1, 80):
        log.append(number, fragment(number), 1, number % 5 == 1)
        live.append(number)
        if rng.random() < 0.4:
            gone = live.pop(rng.randrange(len(live)))
            found = by_number.find(log, gone)
            assert found is not None
            log.remove_within(found[0], [found[1]])
        low = rng.randint(0, number)
        assert by_number.count(log, low, number) == sum(each > low for each in live)


def test_a_copy_is_independent() -> None:
    log, _, _ = grown(random.Random(5))
    twin = copy_of(log)
    twin.check()
    assert twin.length == log.length
    by_number.remove(twin, 0, 1 << 40)
    assert log.length
    log.check()


def test_sums_forget_the_block_that_becomes_the_newest_again() -> None:
    log = RegionLog()
    for number in range(1, 4):
        log.append(number, fragment(number), 1, number == 3)
    assert by_number.count(log, 0, 3) == 3
    assert by_number.count(log, 0, 2) == 2
    by_number.remove(log, 2, 3)  # the newest block goes; entries 1 and 2 can get company again
    log.append(4, fragment(4), 1, False)
    log.append(5, fragment(5), 1, True)
    log.check()
    assert by_number.count(log, 0, 5) == 4
    assert by_number.count(log, 0, 4) == 3


def test_a_region_alone_numbers_by_position() -> None:
    stream = Stream(100, 100)
    for number in range(1, 201):
        stream.local.append(number, fragment(number), 1, number % 50 == 1)
    stream.local.remove_all(range(1, 80))
    stream.last_id = 200
    frozen = FrozenStream(stream)
    closed = [block for block in stream.local.blocks if block is not stream.local.tail]
    assert [block.shared for block in closed] == [1] * len(closed)
    records = list(filter(None, frozen.blocks()))
    assert [block.shared for block in closed] == [0] * len(closed)
    assert [block[-1] for _, blocks in records for block in blocks] == [None] * len(
        stream.local.blocks
    )
    builder = StreamBuilder(frozen.head)
    for record in records:
        builder.add_blocks(record)
    builder.stream.check()
    for log in (stream.local, builder.stream.local):
        spans = by_number.spans(log, 90, 150)
        assert [n for block, *span in spans for n in block.numbers_of(*span)] == [*range(91, 151)]
        assert [by_number.id_upto(log, n) for n in (100, 200)] == [100, 200]
        assert (log.newest_number, log.newest_id) == (200, 200)
