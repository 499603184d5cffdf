"""Random histories of several regions, each compared with the formulas as it goes."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.active_active.histories import History

COUNT = int(os.environ.get("ANABRANCH_HISTORIES", "300"))
CHUNK = 25
"""Histories a test: a process of its own may run each."""


@pytest.mark.parametrize("first", range(1, COUNT + 1, CHUNK))
def test_histories(first: int) -> None:
    for seed in range(first, min(first + CHUNK, COUNT + 1)):
        try:
            History(seed).run()
        except Exception as problem:
            problem.add_note(f"python -m tests.active_active.histories --seeds {seed} --shrink")
            raise


def test_histories_reach_what_they_are_for() -> None:
    reached: Counter[str] = Counter()
    for seed in range(1, 41):
        history = History(seed)
        history.run()
        reached.update(history.life.reached)
    rare = {
        "ack that travels", "ack held back", "discarded pending", "SETID forward",
        "SETID to an ID", "held batch", "relayed", "join", "join both ways at once", "unit",
        "duplicate refused", "both regions accepted", "collapse", "DEL", "FLUSHALL", "RENAME",
        "COPY", "PEXPIRE", "XDELEX", "XACKDEL", "XCLAIM",
    }  # fmt: skip
    assert {name for name in rare if not reached[name]} == set()
