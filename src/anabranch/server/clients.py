"""Who may connect, and who must go: limits on connections.

``maxclients`` and protected mode at the door; ``auth-timeout``, ``timeout`` and
``client-output-buffer-limit`` later.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch.commands.execution.session import Session
    from anabranch.config.settings import Settings
    from anabranch.server.connection import ClientConnection

__all__ = ["OutputLimits", "Strangers", "idle", "refusal"]

STRANGERS_PER_LOOK: Final = 1000
"""Clients that are looked at in one go: less than a millisecond."""

_TOO_MANY: Final = b"ERR max number of clients reached"

_PROTECTED: Final = (
    b"DENIED Protected mode is on and the default user has no password, so only clients of this "
    b"machine are let in. There are three ways out: 1) set a password: start the server with "
    b"--requirepass, or send CONFIG SET requirepass from this machine; 2) if nobody else can reach "
    b"the server's port, switch protected mode off with --protected-mode no, or send "
    b"CONFIG SET protected-mode no from this machine; 3) connect from this machine, for example "
    b"through an SSH tunnel."
)


def refusal(
    settings: Settings, session: Session, connected: int, *, open_door: bool
) -> bytes | None:
    """Why a new client must not stay, as an error reply, or None.

    ``open_door``: the default user needs no password.
    """
    if connected >= settings.maxclients:
        return _TOO_MANY
    if settings.protected_mode and open_door and not session.is_local:
        return _PROTECTED
    return None


def idle(
    connections: Iterable[ClientConnection], now_ms: int, timeout_s: int
) -> list[ClientConnection]:
    """Clients silent for longer than ``timeout``; who waits or listens is not idle."""
    return [
        each
        for each in connections
        if now_ms - each.session.last_ms > timeout_s * 1000
        and not each.session.blocked
        and not each.session.subscriptions
        and not each.session.shard_channels
        and not each.session.monitoring
    ]


class Strangers:
    """Clients that have to log in and have not, in the order in which they came."""

    def __init__(self) -> None:
        self._since_ms: dict[ClientConnection, int] = {}

    def came(self, connection: ClientConnection, now_ms: int) -> None:
        """Somebody has come."""
        self._since_ms[connection] = now_ms

    def forget(self, connection: ClientConnection) -> None:
        """The client is gone."""
        self._since_ms.pop(connection, None)

    def overdue(self, now_ms: int, timeout_s: int) -> list[ClientConnection]:
        """Those who must go; whoever logged in is not looked at again."""
        found = []
        for connection, since_ms in list(islice(self._since_ms.items(), STRANGERS_PER_LOOK)):
            if connection.session.user is None:
                if now_ms - since_ms < timeout_s * 1000:
                    break
                found.append(connection)
            del self._since_ms[connection]
        return found


class OutputLimits:
    """Watches clients that do not read what they are sent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._soft_since_ms: dict[ClientConnection, int] = {}

    def exceeded(self, connection: ClientConnection, now_ms: int) -> bool:
        """Whether this client must be closed; a soft limit must have been passed for a while."""
        session = connection.session
        listens = session.subscriptions or session.shard_channels
        kind = "pubsub" if listens and not session.monitoring else "normal"
        hard, soft, seconds = self._settings.client_output_buffer_limit[kind]
        size = connection.transport.get_write_buffer_size()
        if hard and size >= hard:
            return True
        if not soft or size < soft:
            self._soft_since_ms.pop(connection, None)
            return False
        since_ms = self._soft_since_ms.setdefault(connection, now_ms)
        return now_ms - since_ms > seconds * 1000

    def overdue(self, now_ms: int) -> list[ClientConnection]:
        """Clients above their soft limit for too long, although nothing new was written."""
        return [each for each in list(self._soft_since_ms) if self.exceeded(each, now_ms)]

    def forget(self, connection: ClientConnection) -> None:
        """The client is gone."""
        self._soft_since_ms.pop(connection, None)
