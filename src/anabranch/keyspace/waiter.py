"""One blocked command."""

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
    ``request`` is what a reading command has parsed, and does not parse again.
    ``fails_without_key`` is set for XREADGROUP, which fails when its key is removed. ``number`` and
    ``held_bytes`` are given by :class:`anabranch.keyspace.waiters.Waiters`.
    """

    __slots__ = (
        "args",
        "conditions",
        "deadline_ms",
        "fails_without_key",
        "held_bytes",
        "keys",
        "number",
        "recheck_ms",
        "request",
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
        fails_without_key: bool,
        recheck_ms: int,
        request: Any,
    ) -> None:
        self.session = session
        self.args = args
        self.keys = keys
        self.deadline_ms = deadline_ms
        self.wants = wants
        self.timeout_reply = timeout_reply
        self.fails_without_key = fails_without_key
        self.recheck_ms = recheck_ms
        self.request = request
        self.number = 0
        self.held_bytes = 0
        self.conditions: dict[Waiter, Any] | None = None

    def wait_for(self, conditions: dict[Waiter, Any], condition: Any) -> None:
        """Be in a table of those who wait for other things than keys, until the wait ends."""
        self.conditions = conditions
        conditions[self] = condition
