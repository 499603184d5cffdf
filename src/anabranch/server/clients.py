"""Limits on client connections: which are refused, and which are closed.

``maxclients`` and protected mode apply to new connections; ``auth-timeout``, ``timeout`` and
``client-output-buffer-limit`` to existing ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Final, Protocol

from anabranch.config.settings import Settings
from anabranch.engine.session import Session
from anabranch.node.node import Node
from anabranch.resp.encode import error as error_reply
from anabranch.server.logs import emit_sparingly

STRANGERS_PER_LOOK: Final = 1000
"""Clients that are checked at a time: less than a millisecond."""

OUTPUTS_PER_LOOK: Final = 1000
"""Clients whose unread output is measured at a time, beside those with much of it."""

_TOO_MANY: Final = b"ERR max number of clients reached"

_PROTECTED: Final = (
    b"DENIED Protected mode is on and the default user has no password, so only clients of this "
    b"machine are let in. There are three ways out: 1) set a password: start the server with "
    b"--requirepass, or send CONFIG SET requirepass from this machine; 2) if nobody else can reach "
    b"the server's port, switch protected mode off with --protected-mode no, or send "
    b"CONFIG SET protected-mode no from this machine; 3) connect from this machine, for example "
    b"through an SSH tunnel."
)


class Connection(Protocol):
    """The part of a client's connection that limits and the stop of the server use."""

    session: Session
    transport: asyncio.Transport

    @property
    def held_bytes(self) -> int:
        """All that the server holds for this client."""

    def close(self) -> None:
        """Close once the outbox is written."""

    def finish(self) -> None:
        """Stop reading, and close once all received requests are answered."""

    def limits_changed(self) -> None:
        """Take over changed limits on requests."""

    def measure_output(self) -> None:
        """Count the output that the client has not read."""


def refusal(
    settings: Settings, session: Session, connected: int, *, no_password: bool
) -> bytes | None:
    """The error reply for a new client that is refused, or None.

    ``no_password``: the default user needs no password.
    """
    if connected >= settings.maxclients:
        return _TOO_MANY
    if settings.protected_mode and no_password and not session.is_local:
        return _PROTECTED
    return None


def idle(connections: Iterable[Connection], now_ms: int, timeout_s: int) -> list[Connection]:
    """Clients that are silent for longer than ``timeout``, except blocked and subscribed ones."""
    return [
        each
        for each in connections
        if now_ms - each.session.last_ms > timeout_s * 1000
        and not each.session.blocked
        and not each.session.listens
        and not each.session.monitoring
    ]


class Strangers:
    """Clients that must still authenticate, in the order of their connections."""

    def __init__(self) -> None:
        self._since_ms: dict[Connection, int] = {}

    def came(self, connection: Connection, now_ms: int) -> None:
        """A client has connected, and has not authenticated yet."""
        self._since_ms[connection] = now_ms

    def remove(self, connection: Connection) -> None:
        """Remove a client that has disconnected."""
        self._since_ms.pop(connection, None)

    def overdue(self, now_ms: int, timeout_s: int) -> list[Connection]:
        """Clients whose time is over; authenticated clients are dropped from the list."""
        found = []
        for connection, since_ms in list(islice(self._since_ms.items(), STRANGERS_PER_LOOK)):
            if connection.session.user is None:
                if now_ms - since_ms < timeout_s * 1000:
                    break
                found.append(connection)
            del self._since_ms[connection]
        return found


class OutputLimitWatch:
    """Observes clients that do not read their replies."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._soft_since_ms: dict[Connection, int] = {}

    def exceeded(self, connection: Connection, now_ms: int) -> bool:
        """Whether this client must be closed; a soft limit must have been passed for a while."""
        session = connection.session
        kind = "pubsub" if session.listens and not session.monitoring else "normal"
        hard, soft, seconds = self._settings.client_output_buffer_limit[kind]
        size = connection.transport.get_write_buffer_size()
        if hard and size >= hard:
            return True
        if not soft or size < soft:
            self._soft_since_ms.pop(connection, None)
            return False
        since_ms = self._soft_since_ms.setdefault(connection, now_ms)
        return now_ms - since_ms > seconds * 1000

    def overdue(self, now_ms: int) -> list[Connection]:
        """Clients above their soft limit for too long, although nothing new was written."""
        return [each for each in list(self._soft_since_ms) if self.exceeded(each, now_ms)]

    def remove(self, connection: Connection) -> None:
        """Remove a client that has disconnected."""
        self._soft_since_ms.pop(connection, None)


class Clients:
    """The connections of a server, and the limits on them."""

    def __init__(self, settings: Settings, node: Node) -> None:
        self.settings = settings
        self.connections: set[Connection] = set()
        self.stalled: set[Connection] = set()
        """Clients that do not read what they are sent."""
        self._to_measure: list[Connection] = []
        self.are_ending = False
        """The server stops: a client whose connection was accepted just before gets no service."""
        self.all_closed = asyncio.Event()
        self.all_closed.set()
        self._node = node
        self._limits = OutputLimitWatch(settings)
        self._strangers = Strangers()

    def opened(self, connection: Connection) -> bytes | None:
        """Add a client; returns the error reply if it is refused."""
        region = self._node.region
        session = connection.session
        error = refusal(
            self.settings,
            session,
            len(self.connections),
            no_password=region.acl.initial_user() is not None,
        )
        if error is not None:
            region.stats.connections_received -= 1
            region.stats.rejected_connections += 1
            return error
        self.connections.add(connection)
        if session.user is None:
            self._strangers.came(connection, self._now_ms())
        self.all_closed.clear()
        return None

    def finish(self) -> None:
        """The server stops: answer what was received, and serve nobody who connects from now on."""
        self.are_ending = True
        for connection in list(self.connections):
            connection.finish()

    def users_known(self) -> None:
        """Users of the log are loaded: decide again about clients that came before."""
        region = self._node.region
        user = region.acl.initial_user()
        for connection in list(self.connections):
            session = connection.session
            if session.user is None and user is not None:
                error = refusal(self.settings, session, 0, no_password=True)
                if error is not None:
                    region.stats.rejected_connections += 1
                    session.outbox.append(error_reply(error))
                    connection.finish()
                    continue
                session.user = user
            session.refresh()

    def closed(self, connection: Connection) -> None:
        """The connection of a client has ended: forget the client."""
        self._limits.remove(connection)
        self._strangers.remove(connection)
        self.connections.discard(connection)
        if not self.connections:
            self.all_closed.set()
        self._node.end_turn()

    def measure_output(self) -> None:
        """Measure unread output: of clients with much of it now, of the others one after another.

        Called some times a second.
        """
        for connection in self.stalled:
            connection.measure_output()
        if not self._to_measure:
            self._to_measure = list(self.connections)
        for connection in self._to_measure[-OUTPUTS_PER_LOOK:]:
            if connection in self.connections:
                connection.measure_output()
        del self._to_measure[-OUTPUTS_PER_LOOK:]

    def evict(self) -> None:
        """Close the clients that hold most, while all of them hold more than maxmemory-clients."""
        limit = self.settings.maxmemory_clients
        if limit < 0:
            limit = self.settings.maxmemory * -limit // 100
        region = self._node.region
        excess = region.holdings.client_bytes - limit
        if not limit or excess <= 0:
            return
        allowed = [each for each in self.connections if not each.session.no_evict]
        for connection in sorted(allowed, key=lambda each: each.held_bytes, reverse=True):
            emit_sparingly(
                "warning",
                "client.evicted",
                client=connection.session.id,
                address=connection.session.address,
                held_bytes=connection.held_bytes,
            )
            region.stats.evicted_clients += 1
            connection.transport.abort()
            excess -= connection.held_bytes
            if excess <= 0:
                break

    def output_limit_exceeded(self, connection: Connection) -> bool:
        """Whether a client that does not read must be closed (it is logged here)."""
        exceeded = self._limits.exceeded(connection, self._now_ms())
        if exceeded:
            self._node.region.stats.output_limit_closed += 1
            emit_sparingly(
                "warning",
                "client.output_limit",
                client=connection.session.id,
                address=connection.session.address,
                unread_bytes=connection.transport.get_write_buffer_size(),
            )
        return exceeded

    def log_query_limit(self, connection: Connection, unfinished_bytes: int) -> None:
        """Log that a client is closed because of an unfinished request or transaction."""
        self._node.region.stats.query_limit_closed += 1
        emit_sparingly(
            "warning",
            "client.query_limit",
            client=connection.session.id,
            address=connection.session.address,
            unfinished_bytes=unfinished_bytes,
        )

    def close_overdue(self) -> None:
        """Close clients that are idle, unauthenticated, or not reading, for too long."""
        settings = self.settings
        now_ms = self._now_ms()
        if settings.timeout:
            for connection in idle(self.connections, now_ms, settings.timeout):
                connection.close()
        if settings.auth_timeout:
            for connection in self._strangers.overdue(now_ms, settings.auth_timeout):
                connection.close()
        for connection in self._limits.overdue(now_ms):
            if self.output_limit_exceeded(connection):
                connection.transport.abort()

    def _now_ms(self) -> int:
        return self._node.region.clock.now_us() // 1000
