"""Entries that are looked up in steps: what others change meanwhile is taken into account."""

from __future__ import annotations

import random

import pytest

from anabranch.scheduling import in_one_go
from anabranch.stream.compression import BlockCache
from anabranch.stream.located import LOCATED_AT_ONCE, LocatedEntries
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream

ENTRIES = 8 * LOCATED_AT_ONCE
NODE = 80


def add(stream: Stream, replica_id: int, ids: list[int]) -> None:
    """Add entries to a log; each is 60 bytes, which compress well."""
    log = stream.log_of(replica_id)
    for entry_id in ids:
        opens = log.tail is None or log.tail.count == NODE
        log.append(entry_id, b"%060d" % entry_id, 1, opens)
        stream.last_id = max(stream.last_id, entry_id)


def filled(regions: int = 1) -> Stream:
    """A stream whose regions have every second ID; the first ones they have together."""
    stream = Stream(100, 100)
    for replica_id in range(1, regions):
        stream.log_of(replica_id)
    for at, replica_id in enumerate(list(stream.logs)):
        add(stream, replica_id, list(range(2 * at + 2, 2 * ENTRIES, 2)))
    return stream


def compress(stream: Stream, cache: BlockCache) -> None:
    """Compress all blocks that are closed."""
    for log in stream.logs.values():
        for block in log.blocks:
            if not block.is_open:
                block.compress(cache, if_smaller=False)
                block.shut()


def shown(located: LocatedEntries, stream: Stream) -> list[tuple[int, int]]:
    """Replica IDs and IDs of the entries that the shares name by block and index."""
    seen = []
    for replica_id, block, indexes, ids in located.shares:
        assert stream.logs[replica_id].holds(block)
        assert [block.ids[index] for index in indexes] == ids
        assert not block.dead.intersection(indexes)
        seen += [(replica_id, entry_id) for entry_id in ids]
    assert len({id(share[1]) for share in located.shares}) == len(located.shares)
    assert set(located.live) == {entry_id for _, entry_id in seen}
    return sorted(seen)


def expected(stream: Stream, ids: list[int]) -> list[tuple[int, int]]:
    """The same, looked up at once."""
    return sorted(
        (replica_id, entry_id)
        for replica_id, log in stream.logs.items()
        for entry_id in ids
        if log.find(entry_id) is not None
    )


def change(stream: Stream, log: RegionLog, dice: random.Random, snapshots: list[object]) -> None:
    """What another client may do between two steps."""
    live = [block.ids[index] for block, *run in log.spans(0, 1 << 127) for index in range(*run)]
    what = dice.randrange(6)
    if what == 0 and live:
        log.remove_all(dice.sample(live, min(len(live), dice.randrange(1, 60))))
    elif what == 1 and live:  # nearly a whole block, so that it is rewritten
        block = dice.choice(log.blocks)
        log.remove_all(list(block.ids[3:]))
    elif what == 2:
        newest = log.last_id if dice.random() < 0.3 else stream.last_id
        log.reopen_at(newest)  # as XSETID, and then IDs that were there before
        replica_id = next(each for each, known in stream.logs.items() if known is log)
        add(stream, replica_id, list(range(newest + 1, newest + 30, dice.randrange(1, 3))))
    elif what == 3 and live:
        region = next(each for each, known in stream.logs.items() if known is log)
        stream.trim(region, log.blocks[0].first_position + dice.randrange(30))
    elif what == 4:  # a snapshot, which takes the newest block at once
        for block in log.blocks[:-1]:
            block.shared = 1
        snapshots.append(list(log.blocks))
    else:
        stream.log_of(7)


@pytest.mark.parametrize("seed", range(100))
def test_what_changes_between_the_steps_is_taken_into_account(seed: int) -> None:
    dice = random.Random(seed)
    stream = filled(dice.choice([1, 1, 3]))
    cache = BlockCache(4096)
    if dice.random() < 0.7:
        compress(stream, cache)
    ids = dice.sample(range(2 * ENTRIES + 200), ENTRIES)
    if dice.random() < 0.7:
        ids.sort()
    located = LocatedEntries(stream, ids)
    snapshots: list[object] = []
    for _ in located.steps():
        for log in list(stream.logs.values()):
            if dice.random() < 0.6:
                change(stream, log, dice, snapshots)
    located.update()
    assert shown(located, stream) == expected(stream, ids)
    some = set(dice.sample(ids, len(ids) // 2))
    kept = [(replica_id, each) for replica_id, _, _, live in located.among(some) for each in live]
    assert sorted(kept) == [pair for pair in expected(stream, ids) if pair[1] in some]
    for log in stream.logs.values():
        for block in log.blocks:
            block.shared = 0
    stream.remove_located(located.shares)
    assert not expected(stream, ids)
    for log in stream.logs.values():
        log.check()


def test_what_was_located_is_removed_without_opening_a_block() -> None:
    stream = filled()
    cache = BlockCache(0)
    compress(stream, cache)
    located = LocatedEntries(stream, list(range(2, 2 * ENTRIES, 2 * NODE // 4)))
    in_one_go(located.steps())
    opened = cache.opens
    assert opened >= ENTRIES // NODE - 2
    located.update()
    stream.remove_located(located.shares)
    assert cache.opens == opened
    assert stream.length == ENTRIES - 1 - len(located.live)
