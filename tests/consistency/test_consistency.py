"""Three real regions under faults keep what sessions, WAIT, idempotent IDs and groups promise.

``python -m tests.consistency --seed 7 --faults 40`` runs longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("clingo", reason="clingo is not installed: NO HISTORY IS CHECKED")

from tests.consistency.checking import violations
from tests.consistency.clients import REGIONS, Run
from tests.consistency.history import load

SEEDS = 6
"""Processes run as the machine lets them: one run may meet no moment at which a mistake shows."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def directories(directory: Path) -> Iterator[tuple[int, Path]]:
    """A seed and a directory for each run that is tried."""
    return ((seed, directory / str(seed)) for seed in range(1, SEEDS + 1))


def is_found(runs: Iterable[Run], rules: set[str]) -> bool:
    """Whether one of the runs, each with one fault, breaks one of these rules."""
    return any(broken_rules(run) & rules for run in runs)


def broken_rules(run: Run) -> set[str]:
    operations = run.perform(faults=1, steps=50).operations
    return {each.rule for each in violations(operations, len(REGIONS))}


def test_no_promise_is_broken_under_faults(tmp_path: Path) -> None:
    run = Run(tmp_path, seed=1)
    recorder = run.perform(faults=4, steps=50)
    assert len(run.done) == 4, run.done
    recorder.save(tmp_path / "history.json")
    operations = load(tmp_path / "history.json")
    assert violations(operations, len(REGIONS)) == []
    answered = Counter(each["f"] for each in operations if each["type"] == "ok")
    assert min(answered[f] for f in ("txn", "send", "deliver", "wait", "final")) > 20
    assert any(each["f"] == "wait" and each["value"][2] == 2 for each in operations)


def test_a_reader_that_does_not_pass_its_token_is_found(tmp_path: Path) -> None:
    runs = (Run(each, seed, passes_tokens=False) for seed, each in directories(tmp_path))
    assert is_found(runs, {"read_your_writes", "monotonic_reads", "write_is_missing"})


@pytest.mark.parametrize(
    ("mistake", "rules"),
    [
        ("WAITFOR does not wait", {"read_your_writes", "monotonic_reads", "write_is_missing"}),
        ("WAIT counts regions that have nothing yet", {"wait"}),
        ("idempotent IDs are not recognised", {"twice"}),
        ("a group forgets what it has delivered", {"delivered_twice"}),
    ],
)
def test_a_server_with_a_mistake_is_found(tmp_path: Path, mistake: str, rules: set[str]) -> None:
    runs = (Run(each, seed, mistake=mistake) for seed, each in directories(tmp_path))
    assert is_found(runs, rules), f"not in {SEEDS} runs"
