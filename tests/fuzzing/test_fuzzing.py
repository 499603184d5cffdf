"""A short run of every fuzzer, always with the same seeds; see the package for longer ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
    ("seed", "case"),
    [(31, 49_040), (1, 816)],
    ids=["first IDs of blocks that do not ascend", "fragments that end before they begin"],
)
def test_full_syncs_that_once_broke_a_promise(seed: int, case: int) -> None:
    came = Outcomes()
    full_syncs.run(range(case, case + 1), seed, came)
    came.check()
    assert came.counts == {"refused": 1}


@pytest.mark.parametrize(
    ("seed", "case"), [(26, 145_257)], ids=["a position that no snapshot holds"]
)
def test_batches_that_once_broke_a_promise(seed: int, case: int) -> None:
    came = Outcomes()
    batches.run(range(case, case + 1), seed, came)
    came.check()
    assert came.counts == {"rejected": 1}
