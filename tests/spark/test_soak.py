"""A minute of `tests.spark.soak`; by hand it runs for an hour."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spark import soak


@pytest.mark.long
@pytest.mark.parametrize(("part", "seconds"), [(soak.soak_restores, 20), (soak.soak_regions, 60)])
def test_what_a_query_did_not_read_is_what_it_reported_as_lost(
    tmp_path: Path, part: Callable[..., str], seconds: float
) -> None:
    assert "done" in part(tmp_path, seconds, random.Random(3), lambda: "alone")
