"""A short run of `tests.spark.soak`; by hand it runs for an hour."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark import soak


@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.parametrize("part", [soak.soak_restores, soak.soak_regions])
def test_what_a_query_did_not_read_is_what_it_said_was_lost(
    tmp_path: Path, part: Callable[..., str]
) -> None:
    assert "done" in part(tmp_path, 15, random.Random(3), lambda: "alone")
