"""The exploration of small worlds: it is complete, it is honest, and it finds mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.simulator import looking
from anabranch.simulator.exploration.script import SmallWorld, line_of, move_of
from anabranch.simulator.exploration.search import Reductions, Search
from anabranch.simulator.exploration.transcript import TranscriptError, read_transcript, replay
from anabranch.simulator.exploration.worlds import SMALL, WORLDS, world_named
from tests.active_active import policy_mistakes
from tests.simulator.exploring import (
    BUILT_IN,
    FOUND_IN,
    NOT_OF_REGIONS,
    VARIANTS,
    search_with,
)
from tests.simulator.faults import del_takes_whatever_is_there
from tests.simulator.link_mistakes import units_applied_in_parts
from tests.support.mesh import Mesh

TINY = SmallWorld(
    "tiny",
    "",
    ("eu> XADD k * f a; eu> DEL k", "us> XADD k * f b"),
    regions=3,
    before="eu> XADD k * f c",
)
"""Two regions have no pasts here that cannot be told apart; three have."""

LISTENED = SmallWorld(
    "listened",
    "",
    (f"eu> XADD k * f a | XREADGROUP GROUP g c STREAMS k > | XADD k * f {'b' * 260}; eu> DEL k",),
    regions=3,
    before="eu> XGROUP CREATE k g 0 MKSTREAM",
    settings={"gossip_window": 600},
)
"""Two regions that no script names: each could stand for the other."""


@pytest.mark.parametrize("name", SMALL)
def test_all_holds_in_every_order_of_a_small_world(name: str) -> None:
    explored = Search(world_named(name)).run()
    assert explored.problem is None
    assert explored.is_complete
    assert explored.situations > 60


def test_a_counterexample_is_the_shortest_and_can_be_replayed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        del_takes_whatever_is_there(patch)
        found = Search(world_named("entries")).run()
        assert found.problem is not None
        again = replay(found.world, found.path)
        assert str(again.problem) == str(found.problem)
    world, moves = read_transcript(again.lines)
    assert (world, moves) == (found.world, found.path)
    assert replay(world, moves).problem is None  # without the mistake


@pytest.mark.parametrize(
    ("off", "world", "build_in"),
    [
        ("merges", TINY, del_takes_whatever_is_there),
        ("swaps", LISTENED, units_applied_in_parts),
    ],
    ids=["merges", "swaps"],
)
def test_reductions_change_no_verdict(
    off: str,
    world: SmallWorld,
    build_in: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for is_broken in (False, True):
        with monkeypatch.context() as patch:
            if is_broken:
                build_in(patch)
            least = Search(world).run()
            most = Search(world, replace(Reductions(), **{off: False})).run()
        assert str(most.problem) == str(least.problem)
        assert len(most.path) == len(least.path)
        assert (least.problem is not None) == is_broken
        assert most.moves > least.moves or is_broken, f"{off} reduces nothing in this world"


def test_equal_data_look_alike_whatever_their_order() -> None:
    first, second = (node for node in Mesh(2).nodes.values())
    names = [b"%d" % number for number in range(100)]
    for node, some in ((first, names), (second, names[::-1])):
        node.do("SADD", "k", *some)
        for name in (each for each in some if len(each) == 1):
            node.do("AB.POLICY", "SET", name, "acks", "all")
    one, other = (looking.equal(node.region.keyspace) for node in (first, second))
    assert list(one["policies"]) == list(other["policies"])
    assert repr(one["data"]) == repr(other["data"])


def test_every_step_reads_as_it_is_written() -> None:
    for world in WORLDS:
        for steps in (*world.steps, world.first_steps):
            for move in steps:
                assert move_of(line_of(move)) == move


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty"),
        ("eu> XADD k * f v", "line 1: it begins with"),
        ("world nowhere", "line 1: there is no world 'nowhere'; there are entries"),
        ("world entries\nfly", "line 2: 'fly' is no step"),
        ("world entries\nkill de", "line 2: 'de' is no region"),
        ("world entries\ncrash us 0/x/0", "line 2: 'crash us 0/x/0' has something else where"),
        ("world entries\nwait -5", "line 2: 'wait -5' has something else where"),
    ],
)
def test_a_wrong_transcript_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(TranscriptError, match=told):
        read_transcript(text.splitlines())


def test_a_step_that_is_not_possible_is_refused() -> None:
    with pytest.raises(TranscriptError, match="`us -> eu` is not possible"):
        replay(world_named("entries"), [("arrive", 2, 1)])


PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| ([a-z-]+) \|$", PAGE, re.MULTILINE)
"""Of the table in docs/testing.md: mistake, states, steps, world."""

MORE_STATES = 3
"""What a change of the code may add before the page has to say so."""

QUICK_STATES = 60
"""Most mistakes that take more are tried with ANABRANCH_ALL_MISTAKES only."""

TRIED = [
    (name, int(states), int(steps), world)
    for name, states, steps, world in ROWS
    if int(states) <= QUICK_STATES
    or name in policy_mistakes.MISTAKES  # few others find these
    or os.environ.get("ANABRANCH_ALL_MISTAKES")
]


@pytest.mark.parametrize(("name", "states", "steps", "world"), TRIED, ids=str)
@pytest.mark.timeout(3600)
def test_a_mistake_is_found_where_the_page_says(
    name: str, states: int, steps: int, world: str
) -> None:
    found = search_with(name, world)
    assert found.problem is not None
    assert not isinstance(found.problem, TypeError)  # then the mistake itself is wrong
    assert found.situations <= MORE_STATES * states
    assert len(found.path) == steps


def test_the_tables_of_mistakes_and_worlds_are_complete() -> None:
    assert {name: world for name, _, _, world in ROWS} == FOUND_IN
    names = [*FOUND_IN, *VARIANTS, *NOT_OF_REGIONS]
    assert sorted(names) == sorted(BUILT_IN)
    assert set(VARIANTS.values()) <= FOUND_IN.keys()
    told = re.findall(r"^\| `([a-z-]+)` \| \d \|", PAGE, re.MULTILINE)
    assert told == [world.name for world in WORLDS]
