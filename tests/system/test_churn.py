"""Some seconds of ``churn.py``."""

from __future__ import annotations

import pytest

from tests.conftest import require_redis
from tests.support.inspection import has_proc
from tests.system.churn import churn


@pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")
def test_keys_that_come_and_go_give_their_memory_back() -> None:
    require_redis()
    _, mine, early = churn(seed=1, commands=60_000)
    assert mine < early + 8, (mine, early)  # 17 MB have come, and 3 are there at any time
