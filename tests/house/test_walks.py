"""The way of an operation through the files is short, and does not become longer unnoticed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.house.walks import WALKS, walked

MOST: Final = {
    "XADD with appendfsync always": (21, 43),
    "a batch of another region": (41, 147),
    "a blocked XREADGROUP": (38, 134),
}
"""Files, and calls from one to another: what there are today, and a little for background work."""

FEWEST_FILES: Final = 15
"""With fewer, nothing was measured."""


@pytest.mark.parametrize("name", WALKS)
async def test_an_operation_enters_few_files(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    walk = await walked(name, tmp_path, caplog)
    files, moves = MOST[name]
    assert FEWEST_FILES <= walk.files <= files
    assert walk.moves <= moves
