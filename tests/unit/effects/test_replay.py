"""Whatever commands did can be done again from the record of their effects, and only from it.

A random life of a server is recorded; the effects, sent through batches and back, are applied to an
empty keyspace. Both keyspaces must then be the same, down to blocks, positions and orders.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from anabranch.effects import kinds
from anabranch.effects.apply import EFFECTS, apply
from anabranch.effects.codec import plain
from anabranch.effects.recorded import numbers_of
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.replica import Replica
from anabranch.oplog.batch import decode_batch, effects_in
from anabranch.region.turn import Turn
from anabranch.stream.stream import Stream
from tests.support.random_lines import STREAM_LINES, random_lines
from tests.support.recorder import OTHER_LINES, Recorder, everything_in
from tests.support.recording import record_all

ENOUGH = [
    *STREAM_LINES, *OTHER_LINES,
    "MSET a 1 e 2", "DEL a e",
    "SET a b", "INCR n", "RPUSH l 1 2 3 4", "LPOP l", "LINSERT l BEFORE 3 7", "LREM l -1 3",
    "RPOP l", "SADD m 1 2", "SREM m 1", "RESTORE",
    "XGROUP CREATE r g 0 MKSTREAM", "XADD r 1-0 f v", "XADD r 2-0 f v", "XADD r 3-0 f v",
    "XREADGROUP GROUP g c STREAMS r >", "XREADGROUP GROUP g c STREAMS r >",
    "XCLAIM r g c 0 1-0 LASTID 9", "XDEL r 2-0",
    "XDELEX r DELREF IDS 1 2-0", "XACK r g 3-0", "XGROUP SETID r g 0", "XGROUP DELCONSUMER r g c",
    "XGROUP DESTROY r g", "XADD r IDMP p i * f v", "XADD r IDMP p i * f v", "XTRIM r MAXLEN 1",
    "ADVANCE 200000", "XADD r MAXLEN 1 DELREF * f v", "XCFGSET r IDMP-MAXSIZE 3",
    "XSETID r 9999999999999",
    "EXPIRE r 1", "ADVANCE 2000", "SET x y", "RENAME x z", "COPY z x", "SWAPDB 0 1", "DEL x",
    "ABIMPORT", "ADVANCE 4000", "FLUSHDB", "ACL SETUSER ann on +@all", "ACL DELUSER ann",
    "AB.POLICY SET s redeliver first", "AB.POLICY SET PATTERN s* GROUP g redeliver claim",
    "AB.POLICY DEL s redeliver", "AB.SCHEDULE s IN 500 IDMP p i ID h f v",
    "AB.SCHEDULE s CRON '* * * * *' ID c f v", "ADVANCE 900", "AB.SCHEDULE CANCEL s c",
    "FUNCTIONLOAD", "FUNCTION DELETE library",
]  # fmt: skip
"""One run in which everything that can happen does (with every choice being 1)."""


def replayed(effects: list[kinds.Effect], rng: random.Random) -> Keyspace:
    """An empty keyspace after these effects, sent through batches of turns and back."""
    keyspace = Keyspace()
    turn = Turn(Replica.alone())
    number = 1
    rest = list(effects)
    while rest:
        record_all(turn.recorded, rest[: (length := rng.choice((1, 2, 20, 200)))])
        rest = rest[length:]
        data = turn.drain(1234)
        at = 0
        while at < len(data):
            batch = decode_batch(data, at)
            assert batch.first == number
            assert batch.continues == (at + batch.size < len(data))
            number += batch.numbered
            at += batch.size
            for effect in effects_in(batch):
                apply(keyspace, effect)
    assert number == turn.next_number
    assert number == 1 + sum(map(numbers_of, effects))
    return keyspace


def _check(recorder: Recorder, seed: int) -> None:
    keyspace = replayed(recorder.effects, random.Random(seed))
    assert everything_in(keyspace) == everything_in(recorder.server.region.keyspace)
    for database in keyspace.databases:
        database.check()
        for value in database.values.values():
            if isinstance(value, Stream):
                value.check()


@pytest.mark.parametrize("seed", range(80))
def test_a_life_replayed_from_its_effects_is_the_same(seed: int) -> None:
    recorder = Recorder()
    for line in random_lines(random.Random(seed), *OTHER_LINES):
        recorder.run(line)
    recorder.server.check()
    _check(recorder, seed)


@pytest.fixture(scope="module")
def everything() -> Recorder:
    """The run in which everything happens."""
    recorder = Recorder()
    one = dict(zip("klijngcp", "st111gcp", strict=True))
    for line in ENOUGH:
        recorder.run(line.format(**one))
    return recorder


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind, row in EFFECTS.items()
        if row.alone and kind not in (kinds.AddRun, kinds.Synced)
    ],
    ids=lambda kind: kind.__name__,
)
def test_every_kind_of_effect_comes_about(everything: Recorder, kind: type[kinds.Effect]) -> None:
    """A kind that no command emits, or that this file forgets, shows here.

    The codec makes runs; the log tells of syncs.
    """
    assert kind in {type(effect) for effect in everything.effects}


def test_the_run_in_which_everything_happens_is_replayed_too(everything: Recorder) -> None:
    _check(everything, 1)


def _kinds_below(base: type) -> Iterator[type]:
    """The kinds that are no bases of other ones."""
    below = base.__subclasses__()
    for kind in below:
        yield from _kinds_below(kind)
    if not below:
        yield base


def test_every_kind_has_its_way_of_being_applied_and_its_own_tag() -> None:
    found = set(_kinds_below(kinds.Effect))
    assert found == set(EFFECTS)
    tags = [kind.__struct_config__.tag for kind in found]
    assert len(set(tags)) == len(tags)


def test_nothing_is_recorded_where_nothing_changes() -> None:
    recorder = Recorder()
    recorder.run("XADD s 1-0 f v")
    recorder.run("XGROUP CREATE s g 0")
    recorder.effects.clear()
    for line in (
        "XLEN s", "XRANGE s - +", "XREAD STREAMS s 0", "XINFO STREAM s FULL", "XPENDING s g",
        "XDEL s 9-9", "XTRIM s MAXLEN 5", "XACK s g 1-0", "XADD s 1-0 f v", "XGROUP CREATE s g 0",
        "XADD t NOMKSTREAM * f v", "XGROUP DESTROY s none", "XNACK s g FAIL IDS 1 1-0",
        "XCFGSET s IDMP-DURATION 100", "DEL none", "RENAME none other", "XDELEX s ACKED IDS 1 1-0",
    ):  # fmt: skip
        recorder.run(line)
    assert recorder.effects == []


def test_an_effect_does_not_share_memory_with_the_state() -> None:
    """What is recorded stays as it was, whatever happens to the stream afterwards."""
    recorder = Recorder()
    recorder.run("XADD s 1-0 f v")
    recorder.run("XADD s 2-0 f v")
    recorder.run("XGROUP CREATE s g 0")
    recorder.run("XREADGROUP GROUP g c STREAMS s >")
    before = [plain(effect) for effect in recorder.effects]
    for line in (
        "XADD s 3-0 f v",
        "XDEL s 1-0",
        "XACK s g 1-0",
        "XTRIM s MAXLEN 1",
        "XCLAIM s g d 0 2-0",
    ):
        recorder.run(line)
    assert [plain(effect) for effect in recorder.effects[: len(before)]] == before
