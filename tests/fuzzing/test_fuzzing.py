"""A short run of every fuzzer, always with the same seeds; see the package for longer ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzzing import __main__ as in_turn
from tests.fuzzing import batches, full_syncs, gossip
from tests.fuzzing.running import Outcomes


@pytest.mark.parametrize(
    ("run", "cases", "outcomes"),
    [
        (batches.run, 2000, {"applied", "refused", "rejected", "repeated", "waits"}),
        (gossip.run, 3000, {"applied", "borne", "greeted", "refused", "turned away"}),
        (full_syncs.run, 1000, {"joined", "refused"}),
    ],
    ids=["batches", "gossip", "full_syncs"],
)
def test_whatever_regions_send_is_refused_or_applied_as_a_whole(
    run: Callable[[range, int, Outcomes], None], cases: int, outcomes: set[str]
) -> None:
    came = Outcomes()
    run(range(cases), 1, came)
    came.check()
    assert outcomes <= set(came.counts), "some outcomes do not come about any more"


@pytest.mark.parametrize(
    ("seed", "case"), [(26, 145_257)], ids=["a position that no snapshot holds"]
)
def test_batches_that_once_broke_a_promise(seed: int, case: int) -> None:
    came = Outcomes()
    batches.run(range(case, case + 1), seed, came)
    came.check()
    assert came.counts == {"rejected": 1}


def test_fuzzers_take_turns_and_go_on_where_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[str, int, int]] = []

    def fuzzer(name: str, cost_s: float) -> in_turn.Fuzzer:
        def run(cases: range, seed: int, outcomes: Outcomes) -> None:
            nonlocal spent_s
            spent_s += cost_s
            tried.append((name, cases.start, cases.stop))
            outcomes.counts["refused"] += len(cases)
            if name == "slow" and cases.start == 10:
                try:
                    raise AssertionError("broken")
                except AssertionError as problem:
                    outcomes.failed(13, problem)

        return in_turn.Fuzzer(run, 10)

    spent_s = 0.0
    monkeypatch.setattr(
        in_turn, "FUZZERS", {"slow": fuzzer("slow", 3.0), "fast": fuzzer("fast", 1)}
    )
    monkeypatch.setattr(time, "process_time", lambda: spent_s)
    path = tmp_path / "tally"
    failures = []
    for _ in range(2):
        tally = in_turn.FuzzingTally(7, path)
        for _ in range(4):
            failures += in_turn.next_slice(tally)
        tally.keep()
    assert [name for name, _, _ in tried] == ["slow"] + 3 * ["fast"] + ["slow"] + 3 * ["fast"]
    assert [low for name, low, _ in tried if name == "fast"] == list(range(0, 60, 10))
    [failure] = failures
    assert failure.endswith("python -m tests.fuzzing.slow --seed 7 --from-case 10 --cases 14")
    assert tally.lines()[0] == "slow: 20 cases, 0.1 minutes: 1 FAILED, 20 refused"
    for _ in range(3):  # the fast one has tried 60 cases
        in_turn.next_slice(tally, cases=40)
    assert [name for name, _, _ in tried][8:] == ["slow", "slow", "fast"]
    with pytest.raises(SystemExit, match="is of seed 7"):
        in_turn.FuzzingTally(8, path)
