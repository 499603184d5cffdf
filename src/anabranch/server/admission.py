"""One budget of connections over all listeners.

A process may hold so many file descriptors. A share of them is kept for the server itself: its
log, snapshots, files, and connections with known regions; a smaller one for regions that have not
greeted yet and for HTTP; the rest is for clients. So nobody who connects, however
often and to whichever port, takes away what the server needs to write a snapshot or to reach
another region. Whoever has not said who they are holds a place for a short while only
(``handshake-timeout``), and one address does not get all of these places.
"""

from __future__ import annotations

import resource
import sys
from collections import Counter
from enum import StrEnum
from typing import Final

__all__ = ["SPARE_FILES", "Admission", "Kind", "Place", "spare_files"]

SPARE_FILES: Final = 192
"""Descriptors that are not for clients, where the system allows that many in all."""

SPARE_FILES_MIN: Final = 32
"""The same where it allows only a few: listeners, the log and the event loop take some twenty."""

DOOR_SHARE: Final = 3
"""One in so many of these is for strangers at the gossip port and for HTTP."""

REFUSED_AT_ONCE: Final = 16
"""Clients beyond the limit that are told so at the same time; further ones are cut off."""

HANDSHAKES_SHARE: Final = 4
"""One in so many places of clients may be taken by TLS handshakes that are not finished."""

ADDRESS_SHARE: Final = 4
"""One address may take one in so many places of those who have not said who they are."""

HTTP_ADDRESS_SHARE: Final = 2
"""The same for HTTP: a browser holds up to six connections for each page that is open."""

PLACES_MIN: Final = 4
"""No share is smaller."""


class Kind(StrEnum):
    """What a connection is, as far as is known."""

    CLIENT = "client"
    HANDSHAKE = "handshake"  # on the TLS port, and not finished
    STRANGER = "stranger"  # on the gossip port, before the end of the handshake
    PEER = "peer"  # a region
    HTTP = "http"


_CLIENT: Final = Kind.CLIENT
_HANDSHAKE: Final = Kind.HANDSHAKE
"""Looking into an enumeration costs more than all the rest of admitting."""


def spare_files(files: int) -> int:
    """How many descriptors of so many are not for clients."""
    return min(SPARE_FILES, max(min(SPARE_FILES_MIN, files // 2), files // 3))


class Place:
    """The place of one connection; whoever holds it gives it back with :meth:`leave`."""

    __slots__ = ("_address", "_admission", "is_made", "kind")

    def __init__(self, admission: Admission, kind: Kind, address: str) -> None:
        self._admission: Admission | None = admission
        self._address = address
        self.kind = kind
        self.is_made = False  # there is a protocol that will give the place back

    def become(self, kind: Kind) -> None:
        """The connection is made; it is known now what it is."""
        self.is_made = True
        if self._admission is not None and kind is not self.kind:
            self._admission.free_place(self.kind, self._address)
            self.kind = kind
            self._admission.take_place(kind, self._address)

    def leave(self) -> None:
        """The connection is gone; a second time changes nothing."""
        admission, self._admission = self._admission, None
        if admission is not None:
            admission.free_place(self.kind, self._address)


class Admission:
    """Who holds places, and whether there is another one."""

    def __init__(self) -> None:
        self.held: Counter[Kind] = Counter()
        self._by_address: Counter[tuple[Kind, str]] = Counter()
        self._limits: dict[Kind, int] = {}
        self.limit_changed()

    def limit_changed(self) -> None:
        """The system allows another number of descriptors."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.share_out(sys.maxsize if soft == resource.RLIM_INFINITY else soft)

    def share_out(self, files: int) -> None:
        """So many descriptors may be open."""
        spare = spare_files(files)
        clients = files - spare
        at_the_door = max(spare // DOOR_SHARE // 2, PLACES_MIN)
        self._limits = {
            Kind.CLIENT: clients + min(REFUSED_AT_ONCE, spare // 4),
            Kind.HANDSHAKE: max(clients // HANDSHAKES_SHARE, PLACES_MIN),
            Kind.STRANGER: at_the_door,
            Kind.PEER: sys.maxsize,
            Kind.HTTP: at_the_door,
        }

    def limit(self, kind: Kind) -> int:
        """How many places there are for connections of a kind."""
        return self._limits[kind]

    def admit(self, kind: Kind, address: str) -> Place | None:
        """A place for a connection that has come from an address; None if there is none."""
        held, limit = self.held, self._limits[kind]
        if held[kind] >= limit:
            return None
        if kind is _CLIENT or kind is _HANDSHAKE:
            clients = held[_CLIENT] + held[_HANDSHAKE]
            if clients >= self._limits[_CLIENT]:
                return None
        if kind is not _CLIENT and address:
            part = HTTP_ADDRESS_SHARE if kind is Kind.HTTP else ADDRESS_SHARE
            share = max(limit // part, PLACES_MIN)
            if self._by_address[kind, address] >= share:
                return None
        self.take_place(kind, address)
        return Place(self, kind, address)

    # -- for places ---------------------------------------------------------------------------

    def take_place(self, kind: Kind, address: str) -> None:
        """A place is taken."""
        self.held[kind] += 1
        if kind is not _CLIENT:
            self._by_address[kind, address] += 1

    def free_place(self, kind: Kind, address: str) -> None:
        """A place is free again."""
        self.held[kind] -= 1
        if kind is not _CLIENT:
            left = self._by_address[kind, address] - 1
            if left:
                self._by_address[kind, address] = left
            else:
                del self._by_address[kind, address]
