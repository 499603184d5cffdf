"""The protocol of a group's home as a model: it holds, and each of its rules is needed."""

from __future__ import annotations

import pytest

from tests.active_active.home_model import Model, Rules

BUDGETS = [
    {"moves": 1, "takes": 0, "crashes": 1},
    {"moves": 0, "takes": 1, "crashes": 0},
]
"""More takes longer: docs/testing.md."""


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_the_protocol_holds_in_every_state(budget: dict[str, int]) -> None:
    model = Model(**budget)
    assert model.explore() == ""
    assert model.ends
    assert not budget["takes"] or {"delivered twice", "reported"} <= model.reached
    assert not budget["crashes"] or {"lost leave", "lost over"} <= model.reached


@pytest.mark.parametrize("rule", Rules._fields)
def test_each_rule_is_needed(rule: str) -> None:
    rules = Rules()._replace(**{rule: False})
    assert any(Model(rules, **budget).explore() for budget in BUDGETS)
