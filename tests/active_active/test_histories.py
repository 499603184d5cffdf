"""Random histories of several regions, each compared with the formulas as it goes."""

from __future__ import annotations

import os
from collections import Counter
from itertools import product
from typing import Any

import pytest

from anabranch.effects import kinds
from anabranch.simulator.facts import Fact
from anabranch.simulator.formulas import History
from tests.active_active import histories

pytestmark = pytest.mark.timeout(600)

COUNT = int(os.environ.get("ANABRANCH_HISTORIES", "600"))
"""``make histories`` goes on behind them."""

CHUNK = 50
"""Histories a test: a process of its own may run each."""

AT_LEAST = {
    "ack that travels": 200, "ack held back": 5, "discarded pending": 10, "SETID forward": 30,
    "SETID to an ID": 50, "create || create": 50, "create || destroy": 20, "DEL || add": 50,
    "removal || removal": 50, "both regions accepted": 20, "collapse": 10, "relayed": 100,
    "held batch": 50, "join": 30, "join both ways at once": 20, "join interrupted": 5,
    "full sync of data that has changed since": 5, "power failure": 20, "own effects lost": 15,
    "epoch opened": 20, "effects fetched back": 5, "ID of a later epoch": 20, "restart": 10,
    "unit": 50, "duplicate refused": 20, "FLUSHALL": 2, "RENAME": 2, "COPY": 2, "PEXPIRE": 10,
    "RESTORE": 20, "group moved": 40, "pending entry moved": 10, "late entry moved": 2,
    "XDELEX": 10, "XACKDEL": 10, "XCLAIM": 10, "ENTRIESREAD": 50,
    "old data joined": 200,
}  # fmt: skip
"""What a hundred histories must come to, and how often: a run that does not proves little."""


@pytest.mark.parametrize("first", range(101, COUNT + 1, CHUNK))
def test_histories(first: int) -> None:
    outcome = histories.run_range(range(first, min(first + CHUNK, COUNT + 1)))
    assert outcome.failed == {}, "python -m tests.active_active.histories --shrink --seeds ..."


def test_the_first_hundred_histories_reach_what_they_are_for() -> None:
    reached: Counter[str] = Counter()
    for seed in range(1, 101):
        history = histories.History(seed)
        history.run()
        assert history.cluster.commands >= histories.COMMANDS
        reached.update(history.cluster.reached)
        reached.update(concurrent(history.cluster.mesh.history))
    assert {name: reached[name] for name, least in AT_LEAST.items() if reached[name] < least} == {}


def concurrent(history: History) -> Counter[str]:
    """How often regions did such things to one key without knowing of each other's."""
    named = {
        "create": kinds.CreateGroup,
        "destroy": kinds.DestroyGroup,
        "DEL": kinds.Delete,
        "removal": kinds.RemoveNumbers,
        "add": kinds.Add,
    }
    found: Counter[str] = Counter()
    for facts in history.facts.values():
        by_name = {
            name: [fact for fact in facts if isinstance(fact.effect, kind)]
            for name, kind in named.items()
        }
        for one, other in (
            ("create", "create"), ("create", "destroy"), ("DEL", "add"), ("removal", "removal"),
        ):  # fmt: skip
            found[f"{one} || {other}"] += sum(
                _are_concurrent(*pair) for pair in product(by_name[one], by_name[other])
            )
    return found


def _are_concurrent(one: Fact[Any], other: Fact[Any]) -> bool:
    return one.replica_id != other.replica_id and not one.knew(other) and not other.knew(one)
