"""What a server can start beside the core: answers on the HTTP port, and scripts.

The packages that do it, :mod:`anabranch.web` and :mod:`anabranch.scripting`, are above this one.
Whoever makes a server hands in what starts them; nothing is started before it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import asyncio
    import logging

    from anabranch.engine.script_machine import ScriptMachine
    from anabranch.node.node import Node


class HttpAnswers(Protocol):
    """What answers the connections of the HTTP port."""

    def connection(self, left: Callable[[], None], *, only_health: bool) -> asyncio.BaseProtocol:
        """A protocol for a connection that has come; ``left`` is called when it is gone.

        ``only_health``: it gets one answer, which is an error unless it asks for health.
        """

    def close(self) -> None:
        """End all connections."""


class Wings(NamedTuple):
    """The functions that start them; each raises an error that says which package is missing."""

    http: Callable[
        [Node, logging.Logger, Callable[[], float], Callable[[], tuple[int, int]]], HttpAnswers
    ]
    """Gets the process, a logger, the seconds since background work ran, and the numbers of pages
    that may be open, of all addresses and of one. Raises ConfigError."""
    scripts: Callable[[int], ScriptMachine]
    """Gets the bytes of memory that all scripts may take together. Raises CommandError."""
