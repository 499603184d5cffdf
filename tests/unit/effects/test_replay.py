"""Whatever commands did can be done again from the record of their effects, and only from it.

A random life of a server is recorded; the effects, sent through msgspec and back, are applied to an
empty keyspace. Both keyspaces must then be the same, down to blocks, positions and orders.
"""

from __future__ import annotations

import random
from typing import Any, Union

import msgspec
import pytest

from anabranch.effects import kinds
from anabranch.effects.apply import APPLY, apply
from anabranch.keyspace.keyspace import Keyspace
from anabranch.keyspace.values import ListValue, SetValue, StringValue
from anabranch.stream.entry_id import MAX_ID
from anabranch.stream.group import Group
from anabranch.stream.region_log import RegionLog
from anabranch.stream.stream import Stream
from tests.support.random_life import STREAM_LINES, random_life
from tests.support.streams import Streams, words

AnyEffect: Any = Union[tuple(APPLY)]  # noqa: UP007  (the kinds are a list)

OTHER_LINES = """
DEL {k}
EXPIRE {k} {n}
PERSIST {k}
RENAME {k} {l}
COPY {k} {l} REPLACE
MOVE {k} {n}
SWAPDB 0 {n}
SET {k} {n}
INCR {k}
RPUSH {k} {n}
LPUSH {k} {n} {i}
LPOP {k}
SADD {k} {n} {i}
RESTORE
ADVANCE {i}000
""".strip().splitlines()

ENOUGH = [
    *STREAM_LINES, *OTHER_LINES,
    "SET a b", "INCR n", "RPUSH l 1 2", "LPOP l", "SADD m 1", "RESTORE",
    "XGROUP CREATE r g 0 MKSTREAM", "XADD r 1-0 f v", "XADD r 2-0 f v", "XADD r 3-0 f v",
    "XREADGROUP GROUP g c STREAMS r >", "XCLAIM r g c 0 1-0 LASTID 9", "XDEL r 2-0",
    "XDELEX r DELREF IDS 1 2-0", "XACK r g 3-0", "XGROUP SETID r g 0", "XGROUP DELCONSUMER r g c",
    "XGROUP DESTROY r g", "XADD r IDMP p i * f v", "XADD r IDMP p i * f v", "XTRIM r MAXLEN 1",
    "ADVANCE 200000", "XADD r MAXLEN 1 DELREF * f v", "XCFGSET r IDMP-MAXSIZE 3",
    "XSETID r 9999999999999",
    "EXPIRE r 1", "ADVANCE 2000", "SET x y", "RENAME x z", "COPY z x", "SWAPDB 0 1", "DEL x",
    "FLUSHDB",
]  # fmt: skip
"""One run in which everything that can happen does (with every choice being 1)."""


class Recorder:
    """A server whose effects are recorded."""

    def __init__(self) -> None:
        self.server = Streams(now_ms=1)  # so that "*" makes IDs of the same range as the others
        self.server.settings.stream_node_max_entries = 3
        self.effects: list[kinds.Effect] = []
        self.server.region.context.record = self.effects.append

    def run(self, line: str) -> None:
        server = self.server
        name, *rest = words(line)
        if name == "ADVANCE":
            server.advance(int(rest[0]))
        elif name == "RESTORE":
            if payload := server.do("DUMP", "s"):
                server.raw("RESTORE", "t", 0, payload, "REPLACE")
        elif "BLOCK" in rest:
            server.raw(name, *rest, session=server.connect())
        else:
            server.raw(name, *rest)


def snapshot(keyspace: Keyspace) -> list[Any]:
    """Everything but access times."""
    return [
        (
            database.index,
            {key: _value(value) for key, value in database.values.items()},
            dict(database.deadlines),
        )
        for database in keyspace.databases
        if database.values
    ]


def _value(value: object) -> Any:
    if isinstance(value, StringValue):
        return value.data
    if isinstance(value, ListValue):
        return list(value.items)
    if isinstance(value, SetValue):
        return set(value.members)
    assert isinstance(value, Stream)
    producers = value.producers
    return {
        "counters": (value.last_id, value.max_deleted_id, value.entries_added, value.length),
        "logs": {region: _log(log) for region, log in value.logs.items()},
        "groups": {name: _group(group) for name, group in value.groups.items()},
        "producers": (
            producers.duration_s,
            producers.maxsize,
            [(pid, list(table.items())) for pid, table in producers.tables.items()],
            producers.iids_added,
            producers.duplicates,
        ),
    }


def _log(log: RegionLog) -> Any:
    blocks = []
    for block in log.live_blocks():
        rows = [
            (block.ids[index], block.position(index), bytes(block.fragment(index)))
            for low, high in block.runs(0, len(block.ids))
            for index in range(low, high)
        ]
        blocks.append((block.first_id, block.slots, block.weight, rows))
    return log.next_position, blocks


def _group(group: Group) -> Any:
    return {
        "cursors": group.cursors,
        "read": group.entries_read,
        "consumers": [(c.name, c.seen_ms, c.active_ms) for c in group.consumers.values()],
        "released": list(group.released),
        "pending": [
            (e.entry_id, e.consumer and e.consumer.name, e.delivery_ms, e.delivery_count)
            for e in group.between(0, MAX_ID)
        ],
        "by age": [entry_id for _, _, entry_id in group.copy().oldest_first()],
    }


def replayed(effects: list[kinds.Effect]) -> Keyspace:
    """An empty keyspace after these effects, sent through bytes and back."""
    keyspace = Keyspace()
    for effect in effects:
        data = msgspec.json.encode(effect)
        again: kinds.Effect = msgspec.json.decode(data, type=AnyEffect)
        assert again == effect
        apply(keyspace, again)
    return keyspace


def _check(recorder: Recorder) -> None:
    keyspace = replayed(recorder.effects)
    assert snapshot(keyspace) == snapshot(recorder.server.region.keyspace)
    for database in keyspace.databases:
        database.check()
        for value in database.values.values():
            if isinstance(value, Stream):
                value.check()


@pytest.mark.parametrize("seed", range(80))
def test_a_life_replayed_from_its_effects_is_the_same(seed: int) -> None:
    recorder = Recorder()
    for line in random_life(random.Random(seed), *OTHER_LINES):
        recorder.run(line)
    recorder.server.check()
    _check(recorder)


@pytest.fixture(scope="module")
def everything() -> Recorder:
    """The run in which everything happens."""
    recorder = Recorder()
    one = dict(zip("klijngcp", "st111gcp", strict=True))
    for line in ENOUGH:
        recorder.run(line.format(**one))
    return recorder


@pytest.mark.parametrize("kind", APPLY, ids=lambda kind: kind.__name__)
def test_every_kind_of_effect_comes_about(everything: Recorder, kind: type[kinds.Effect]) -> None:
    """A kind that no command emits, or that this file forgets, shows here."""
    assert kind in {type(effect) for effect in everything.effects}


def test_the_run_in_which_everything_happens_is_replayed_too(everything: Recorder) -> None:
    _check(everything)


def test_every_kind_has_its_way_of_being_applied_and_its_own_tag() -> None:
    found = set(kinds.Effect.__subclasses__())
    assert found == set(APPLY)
    tags = [kind.__struct_config__.tag for kind in found]
    assert len(set(tags)) == len(tags)
    assert set(kinds.__all__) == {kind.__name__ for kind in found} | {"Effect"}


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
    before = [msgspec.json.encode(effect) for effect in recorder.effects]
    for line in (
        "XADD s 3-0 f v",
        "XDEL s 1-0",
        "XACK s g 1-0",
        "XTRIM s MAXLEN 1",
        "XCLAIM s g d 0 2-0",
    ):
        recorder.run(line)
    assert [msgspec.json.encode(effect) for effect in recorder.effects[: len(before)]] == before
