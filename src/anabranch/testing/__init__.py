"""A stream server inside a test suite: real sockets, and time, disk and crashes under control.

``Server`` is one server, ``Cluster`` several regions; both run in a thread of the test process, and
any Redis client connects to them. ``anabranch.testing.plugin`` gives the fixtures of pytest.
Importing this package imports nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.testing.clock import Clock
    from anabranch.testing.cluster import Cluster, NotConvergedError
    from anabranch.testing.disk import Disk
    from anabranch.testing.server import Server
    from anabranch.testing.startable import CommandFailedError

__all__ = ["Clock", "Cluster", "CommandFailedError", "Disk", "NotConvergedError", "Server"]

_HOMES: Final = {
    "Clock": "clock",
    "Cluster": "cluster",
    "CommandFailedError": "startable",
    "Disk": "disk",
    "NotConvergedError": "cluster",
    "Server": "server",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
