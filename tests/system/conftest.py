"""Servers of a test end with it, however it ends."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.support.servers import (
    SOURCES,
    AnabranchServer,
    compiled_core,
    kill_servers_in_directories,
)


@pytest.fixture(scope="module")
def compiled_form() -> Iterator[None]:
    """Servers of the module run the compiled core that `make compile` built, if there is one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AnabranchServer, "core", compiled_core() or SOURCES)
        yield


@pytest.fixture(autouse=True)
def no_server_is_left() -> Iterator[None]:
    """Whatever a test came to, its servers end with it."""
    yield
    kill_servers_in_directories()


@pytest.fixture
def hangups() -> Iterator[None]:
    """Programs that are started obey SIGHUP, also if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
