"""A browser, and where its pictures go. Needs Debian's chromium and playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.visitor import (
    PATIENCE_MS,
    TOKEN,
    Visit,
    Visitor,
    World,
    pictures_directory,
)
from tests.support.servers import kill_servers_in_directories

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.close()
    kill_servers_in_directories()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium. While it is there an event loop counts as running, so others must not follow."""
    pytest.importorskip("starlette", reason="the extra web is not installed: NO PAGE IS TRIED")
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: THE PAGE IS NOT TRIED"
    )
    if CHROMIUM is None:
        pytest.skip("chromium is not installed: THE PAGE IS NOT TRIED")
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu"],
            timeout=2 * PATIENCE_MS,
        )
        yield made
        made.close()


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Visit]:
    pictures = pictures_directory(tmp_path / "pictures")
    visitors = []

    def visit(port: int, *, token: str = TOKEN, script: str = "") -> Visitor:
        visitors.append(Visitor(browser, port, pictures, token=token, script=script))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.close()
