"""The exploration of small worlds: it is complete, it is honest, and it finds mistakes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.simulator.exploration.script import World, line_of, move_of
from anabranch.simulator.exploration.search import Reductions, Search
from anabranch.simulator.exploration.transcript import TranscriptError, read_transcript, replay
from anabranch.simulator.exploration.worlds import SMALL, WORLDS, world_named
from tests.simulator.faults import del_takes_whatever_is_there

TINY = World(
    "tiny", "", ("eu> XADD k * f a; eu> DEL k", "us> XADD k * f b"), before="eu> XADD k * f c"
)


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


@pytest.mark.parametrize("off", ["sleeps", "merges", "swaps"])
@pytest.mark.parametrize("regions", [2, 3])
def test_reductions_change_no_verdict(
    off: str, regions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = replace(TINY, regions=regions)
    for is_broken in (False, True):
        with monkeypatch.context() as patch:
            if is_broken:
                del_takes_whatever_is_there(patch)
            least = Search(world).run()
            most = Search(world, replace(Reductions(), **{off: False})).run()
        assert str(most.problem) == str(least.problem)
        assert len(most.path) == len(least.path)
        assert (least.problem is not None) == is_broken
        assert most.moves >= least.moves


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
    ],
)
def test_a_wrong_transcript_is_refused_with_its_line(text: str, told: str) -> None:
    with pytest.raises(TranscriptError, match=told):
        read_transcript(text.splitlines())


def test_a_step_that_is_not_possible_is_refused() -> None:
    with pytest.raises(TranscriptError, match="`us -> eu` is not possible"):
        replay(world_named("entries"), [("arrive", 2, 1)])
