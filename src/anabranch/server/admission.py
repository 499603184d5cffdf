"""One budget of connections over all listeners.

The system limits the file descriptors of a process. One share of them is reserved for the server:
log, snapshots, files, and connections with known regions. A smaller share is for regions before the
end of their handshake and for HTTP. The rest is for clients. So connections, however many and to
whichever port, cannot use the descriptors that the server needs to write a snapshot or to reach
another region. An unidentified connection keeps its place for a short time only
(``handshake-timeout``), and one address does not get all of these places.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from enum import StrEnum
from typing import Final

SPARE_FILES: Final = 192
"""Descriptors reserved for the server, where the system allows enough."""

SPARE_FILES_MIN: Final = 64
"""The same where it allows only a few.

Listeners, log and event loop need about twenty, other connections up to 40 of the reserve.
"""

FILES_MIN: Final = SPARE_FILES_MIN + 16
"""With fewer in all, the server does not start."""

UNIDENTIFIED_SHARE: Final = 3
"""The part of the reserve for unidentified regions and for HTTP: one in so many."""

REFUSED_AT_ONCE: Final = 16
"""Clients beyond the limit that get an error at the same time; others are closed at once."""

HANDSHAKES_SHARE: Final = 4
"""The part of the clients' places for unfinished TLS handshakes: one in so many."""

ADDRESS_SHARE: Final = 4
"""The part of the places for unidentified connections that one address may take."""

HTTP_ADDRESS_SHARE: Final = 2
"""The same for HTTP: a browser holds up to six connections for each page that is open."""

PROBES_SHARE: Final = 4
"""One in so many as there are places for HTTP is added for requests for health and availability."""

FEEDS_SHARE: Final = 4
"""All places for HTTP but one in so many may be held by open pages."""

PLACES_MIN: Final = 4
"""No share is smaller."""


class ConnectionKind(StrEnum):
    """The kind of a connection, as far as it is known."""

    CLIENT = "client"
    HANDSHAKE = "handshake"  # on the TLS port, and not finished
    STRANGER = "stranger"  # on the gossip port, before the end of the handshake
    PEER = "peer"  # a region
    HTTP = "http"
    PROBE = "probe"  # on the HTTP port, beyond the places of HTTP: gets answers about health only


_CLIENT: Final = ConnectionKind.CLIENT
_HANDSHAKE: Final = ConnectionKind.HANDSHAKE
"""Constants, because access to an enumeration is slower than the rest of admission."""


def spare_files(files: int) -> int:
    """How many of ``files`` descriptors are reserved for the server."""
    return min(SPARE_FILES, max(SPARE_FILES_MIN, files // 3))


class Place:
    """The place of one connection; its owner returns it with :meth:`leave`."""

    __slots__ = ("_address", "_admission", "is_made", "kind")

    def __init__(self, admission: Admission, kind: ConnectionKind, address: str) -> None:
        self._admission: Admission | None = admission
        self._address = address
        self.kind = kind
        self.is_made = False  # there is a protocol that will return the place

    def become(self, kind: ConnectionKind) -> None:
        """The kind of the connection is known now."""
        self.is_made = True
        if self._admission is not None and kind is not self.kind:
            self._admission.free_place(self.kind, self._address)
            self.kind = kind
            self._admission.take_place(kind, self._address)

    def leave(self) -> None:
        """The connection has ended; a second call changes nothing."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.free_place(self.kind, self._address)


class Admission:
    """The places that are taken, and whether another one is free."""

    def __init__(self) -> None:
        self.held: Counter[ConnectionKind] = Counter()
        self._by_address: Counter[tuple[ConnectionKind, str]] = Counter()
        self._limits: dict[ConnectionKind, int] = {}
        self.limit_changed()

    def limit_changed(self) -> None:
        """The system allows another number of descriptors."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.share_out(sys.maxsize if soft == resource.RLIM_INFINITY else soft)

    def share_out(self, files: int) -> None:
        """So many descriptors may be open."""
        spare = spare_files(files)
        clients = files - spare
        unidentified = max(spare // UNIDENTIFIED_SHARE // 2, PLACES_MIN)
        self._limits = {
            ConnectionKind.CLIENT: clients + min(REFUSED_AT_ONCE, spare // 4),
            ConnectionKind.HANDSHAKE: max(clients // HANDSHAKES_SHARE, PLACES_MIN),
            ConnectionKind.STRANGER: unidentified,
            ConnectionKind.PEER: sys.maxsize,
            ConnectionKind.HTTP: unidentified,
            ConnectionKind.PROBE: max(unidentified // PROBES_SHARE, PLACES_MIN),
        }

    def limit(self, kind: ConnectionKind) -> int:
        """How many places there are for connections of a kind."""
        return self._limits[kind]

    def feeds(self) -> tuple[int, int]:
        """How many pages may be open, of all addresses and of one.

        The other places for HTTP remain for requests of these pages.
        """
        limit = self._limits[ConnectionKind.HTTP]
        share = max(limit // HTTP_ADDRESS_SHARE, PLACES_MIN)
        return limit - limit // FEEDS_SHARE, share - share // FEEDS_SHARE

    def admit(self, kind: ConnectionKind, address: str) -> Place | None:
        """A place for a new connection from an address; None if none is free."""
        held, limit = self.held, self._limits[kind]
        if held[kind] >= limit:
            return None
        if kind is _CLIENT or kind is _HANDSHAKE:
            clients = held[_CLIENT] + held[_HANDSHAKE]
            if clients >= self._limits[_CLIENT]:
                return None
        if kind is not _CLIENT and address:
            part = (
                HTTP_ADDRESS_SHARE
                if kind in (ConnectionKind.HTTP, ConnectionKind.PROBE)
                else ADDRESS_SHARE
            )
            share = max(limit // part, PLACES_MIN)
            if self._by_address[kind, address] >= share:
                return None
        self.take_place(kind, address)
        return Place(self, kind, address)

    # -- for places ---------------------------------------------------------------------------

    def take_place(self, kind: ConnectionKind, address: str) -> None:
        """Count a new connection of this kind and address."""
        self.held[kind] += 1
        if kind is not _CLIENT:
            self._by_address[kind, address] += 1

    def free_place(self, kind: ConnectionKind, address: str) -> None:
        """Count a connection of this kind and address as gone."""
        self.held[kind] -= 1
        if kind is not _CLIENT:
            left = self._by_address[kind, address] - 1
            if left:
                self._by_address[kind, address] = left
            else:
                del self._by_address[kind, address]
