"""One blocked command. A module of its own: objects with weak references cannot be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.keyspace.values import Value

__all__ = ["Waiter"]


class Waiter:
    """One blocked command of one connection.

    ``wants`` returns for the present value of a signalled key (None: no such key) whether running
    the command again can end the wait. ``deadline_ms`` of 0 waits for ever; at ``recheck_ms``
    (0: never) the command runs again although no key was signalled (a pending entry comes of age).
    ``fails_without_key`` is set for XREADGROUP, which fails when its key is removed.
    """

    __slots__ = (
        "__weakref__",  # timers, and tables of who waits for other things than keys, do not keep it
        "args",
        "deadline_ms",
        "fails_without_key",
        "keys",
        "recheck_ms",
        "session",
        "timeout_reply",
        "wants",
    )

    def __init__(
        self,
        session: Any,
        args: list[bytes],
        keys: list[tuple[int, bytes]],
        deadline_ms: int,
        wants: Callable[[Value | None], bool],
        timeout_reply: bytes,
        *,
        fails_without_key: bool = False,
    ) -> None:
        self.session = session
        self.args = args
        self.keys = keys
        self.deadline_ms = deadline_ms
        self.recheck_ms = 0
        self.wants = wants
        self.timeout_reply = timeout_reply
        self.fails_without_key = fails_without_key
