"""The siege of ``soak.py``, for some seconds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.inspection import has_proc
from tests.system.soak import Siege

WAVES = 12


@pytest.mark.skipif(not has_proc(), reason="looks at the process under /proc")
def test_what_strangers_take_comes_back(tmp_path: Path) -> None:
    siege = Siege(tmp_path, seed=7)
    siege.begin()
    try:
        siege.wave(100)
        before = siege.rest()
        for _ in range(WAVES):
            siege.wave(40, stay_s=0.05)
        after = siege.rest()
    finally:
        siege.end()
    assert after.files <= before.files + 2, (before, after)
    assert after.threads <= before.threads + 1, (before, after)
    assert after.tasks <= before.tasks, (before, after)
    assert after.used_bytes < before.used_bytes + (1 << 20), (before, after)
    assert after.resident_bytes < before.resident_bytes + (48 << 20), (before, after)
