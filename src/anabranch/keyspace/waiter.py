"""One blocked command. A module of its own, as what is made by ``msgspec`` cannot be compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from anabranch.keyspace.values import Value

__all__ = ["Waiter"]


class Waiter(Struct, eq=False, weakref=True):
    """One blocked command of one connection.

    ``wants`` returns for the present value of a signalled key (None: no such key) whether running
    the command again can end the wait. ``deadline_ms`` of 0 waits for ever; at ``recheck_ms``
    (0: never) the command runs again although no key was signalled (a pending entry comes of age).
    ``request`` is what a reading command has parsed, and does not parse again.
    ``fails_without_key`` is set for XREADGROUP, which fails when its key is removed. Timers, and
    tables of who waits for other things than keys, have weak references to it.
    """

    session: Any
    args: list[bytes]
    keys: list[tuple[int, bytes]]
    deadline_ms: int
    wants: Callable[[Value | None], bool]
    timeout_reply: bytes
    fails_without_key: bool = False
    recheck_ms: int = 0
    request: Any = None
