"""How the program that measures a newcomer's first minute counts what was downloaded."""

from __future__ import annotations

import pytest

from tests.house.first_reply import megabytes

LOG = """
2026-11-23T23:17:31,001 Downloading pip-26.3-py3-none-any.whl (2.0 MB)
2026-11-23T23:17:33,033   Downloading hatchling-1.33.0-py3-none-any.whl (78 kB)
2026-11-23T23:17:33,034 Downloading hatchling-1.33.0-py3-none-any.whl (78 kB)
2026-11-23T23:17:33,100 Processing ./anabranch-0.1.0-py3-none-any.whl
2026-11-23T23:17:34,100 Downloading tiny-1.0.tar.gz (900 bytes)
"""


def test_every_file_counts_once() -> None:
    assert megabytes(LOG) == pytest.approx(2.0 + 0.078 + 0.0009)
