"""Order per key against its model: a sample of the histories, and the mistakes they must find."""

from __future__ import annotations

import pytest

from tests.simulator.ordered import OrderedRun, failures, seed_that_finds
from tests.simulator.ordered_mistakes import MISTAKES

SEEN = (
    *("read", "read without a receipt", "woken", "claim", "autoclaim", "FAIL", "SILENT", "FATAL"),
    *("skipped", "redriven", "started again", "moved", "set back"),
)


def test_the_order_holds_and_every_case_is_reached() -> None:
    failed, reached = failures(range(1, 61))
    assert not failed
    assert not [case for case in SEEN if not reached[case]]


@pytest.mark.parametrize("seed", [8676, 882310])
def test_what_another_reader_is_given_wakes_one_that_has_less_then(seed: int) -> None:
    OrderedRun(seed).run()


@pytest.mark.parametrize("seed", [7009, 9495, 27281])
def test_what_longer_runs_have_found_holds(seed: int) -> None:
    """A new consumer, XCLAIM LASTID past what holds up others, poison behind a trimmed entry."""
    OrderedRun(seed).run()


def test_a_seed_gives_the_same_history() -> None:
    first, second = OrderedRun(3), OrderedRun(3)
    for run in (first, second):
        run.run()
    assert first.effects == second.effects


@pytest.mark.parametrize("mistake", MISTAKES)
def test_each_mistake_is_found(mistake: str) -> None:
    assert seed_that_finds(MISTAKES[mistake], range(1, 200))
