"""Progress on standard error: when it is shown, and what."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.cli import progress
from anabranch.cli.progress import Progress


@pytest.mark.parametrize(
    ("total", "unit", "lines"),
    [
        (400, "", ["reading: 25 %", "reading: 75 %"]),
        (50_000, "keys", ["reading: 100 of 50,000 keys", "reading: 300 of 50,000 keys"]),
        (None, "keys", ["reading: 100 keys", "reading: 300 keys"]),
    ],
)
def test_a_line_is_shown_after_a_second_and_then_every_few(
    total: int | None,
    unit: str,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 100.0
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now))
    with Progress("reading", total, unit=unit) as shown:
        for step in range(8):
            now = 100.0 + step * 0.9
            shown.update(step * 50)
    assert capsys.readouterr().err.splitlines() == [f"anabranch: {line}" for line in lines]
