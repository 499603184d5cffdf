"""Directories that earlier versions wrote are opened, and nothing of them is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from anabranch.testing import Clock, Server
from tests.recorded.directories import KEPT, answers

FOLDERS = sorted(path.parent for path in KEPT.glob("*/answers.json"))
REGION: dict[str, Any] = {"region_id": 1, "region_name": "eu"}


@pytest.mark.parametrize("settings", [{}, REGION], ids=["alone", "region"])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_directory_of_an_earlier_version_is_opened(
    folder: Path, settings: dict[str, Any], tmp_path: Path
) -> None:
    kind = "region" if settings else "alone"
    expected = json.loads((folder / "answers.json").read_text("utf-8"))[kind]
    (lamp,) = (
        each for each, fields in expected["XREVRANGE orders + - COUNT 4"] if "lamp" in fields
    )
    clock = Clock()
    clock.set(int(lamp.partition("-")[0]) + 1000)  # idempotent IDs are kept for 100 s
    clock.freeze()
    copy = shutil.copytree(folder / kind, tmp_path / kind)
    for line in ("XADD orders * item ink", "SAVE"):  # opened as it was, with a log, with a snapshot
        with Server(persist=copy, clock=clock, **settings) as server:
            assert answers(server) == expected
            again = server.execute(*"XADD orders IDMP shop order-1 * item lamp".split())
            assert again.decode() == lamp, "a message that is sent again is recognised"
            added = server.execute(*"XADD orders * item ink".split()).decode()
            assert server.execute("XDEL", "orders", added) == 1
            server.execute(*line.split())
            expected = answers(server)


def test_the_first_format_is_kept() -> None:
    assert "0.2.0" in [folder.name for folder in FOLDERS]
