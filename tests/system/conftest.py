"""Servers of a test end with it, however it ends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.servers import kill_servers_in_directories


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    """Whatever a test came to, its servers end with it."""
    yield
    kill_servers_in_directories()
