"""One other region: the session over the present link, and figures over all links.

A :class:`PeerSession` exists as long as a link, a :class:`Peer` as long as this process. What was
sent to a peer is a position in the log (:attr:`PeerSession.position`), never a queue.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from anabranch.keyspace.places import Places
from anabranch.metrics.counters import Counters
from anabranch.replication.frames import Hello, Row
from anabranch.replication.interface import Chance
from anabranch.replication.lag import ReceiveLag
from anabranch.replication.sealing import Seal
from anabranch.replication.transfer import Transfer
from anabranch.scheduling import Steps

DELAY_MS_MIN: Final = 100.0
DELAY_MS_MAX: Final = 10_000.0
HEALTHY_MS: Final = 10_000.0
SAMPLES: Final = 16


class Backoff:
    """When to dial next: decorrelated jitter, so that regions do not dial at the same time."""

    def __init__(self) -> None:
        self.next_ms = 0.0
        self._delay_ms = DELAY_MS_MIN

    def failed(self, now_ms: float, chance: Chance, at_least_ms: float = 0) -> None:
        """A dial has failed: wait."""
        spread = max(0.0, self._delay_ms * 3 - DELAY_MS_MIN)
        self._delay_ms = min(DELAY_MS_MAX, DELAY_MS_MIN + chance.random() * spread)
        self.next_ms = now_ms + max(self._delay_ms, at_least_ms)

    def lost(
        self, now_ms: float, healthy_ms: float, chance: Chance, at_least_ms: float = 0
    ) -> None:
        """A link has ended; ``up_ms`` is how long it was up."""
        if healthy_ms >= HEALTHY_MS:
            self._delay_ms = DELAY_MS_MIN
        self.failed(now_ms, chance, at_least_ms)


class ClockSamples:
    """Round trip and clock offset, taken from the fastest of the last round trips."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def record(self, round_trip_ms: float, offset_ms: float) -> None:
        """Add a round trip, and by how much the other clock was ahead."""
        self._samples.append((round_trip_ms, offset_ms))

    @property
    def round_trip_ms(self) -> float | None:
        """The fastest of the last round trips."""
        return min(self._samples)[0] if self._samples else None

    @property
    def offset_ms(self) -> float | None:
        """By how much the other clock is ahead of the own one."""
        return min(self._samples)[1] if self._samples else None


class Stage(Enum):
    """What a session waits for."""

    HELLO = "hello"
    WELCOME = "welcome"
    PROOF = "proof"
    CONFIRMATION = "confirmation"
    MEMBERS = "members"
    UP = "up"


class PeerSession:
    """A link from its first byte on; the attributes from ``theirs`` on are valid once it is up."""

    hello: bytes = b""
    facts: bytes = b""
    """The two halves of the handshake, as they were sent."""
    sealing: Seal | None = None
    """Seals frames that are sent; None if nothing is sealed."""
    opening: Seal | None = None
    """Opens the seal of frames that arrive; None if nothing is sealed."""

    theirs: Hello | None = None
    region: int = 0
    replica_id: int = 0
    up_ms: float = 0.0
    subscribed: bool = False
    """Whether own effects are sent from ``position`` on."""
    position: int = 0
    is_cut: bool = False
    """Whether the slice of time ended before all own effects were sent that the window allows."""
    credit: int = 0
    """Bytes that the peer still accepts; a batch may exceed it."""
    window: int = 0
    """The greatest credit of the peer."""
    full_sync_credit: int = 0
    """Credit for a full sync, separate because effects in a full window may wait for it."""
    grants: int = 0
    """The window that this region grants to the peer, in bytes."""
    ungranted: int = 0
    """Bytes that have arrived and were not granted again."""
    full_sync_ungranted: int = 0
    choosing: Steps[Places | None] | None = None
    """Finds the keys of a full sync that the peer has requested."""
    outgoing: Transfer | None = None
    row_sent_ms: float = -1e18
    stamp: float = -1.0
    stamp_at_ms: float = 0.0
    met: tuple[dict[int, int], int] | None = None
    """What the peer had applied at its first row, and the own last effect then; None before."""
    began_behind: bool = False
    """Whether this region lacked effects of the peer when the link came up."""
    joined: bool = False
    """Whether a full sync of the peer was joined."""
    in_sync: bool = False
    """Whether both sides have everything that the other had when the link came up."""

    def __init__(
        self,
        link: int,
        stage: Stage,
        dialled: tuple[str, int] | None,
        heard_ms: float,
        names: frozenset[str] | None = None,
    ) -> None:
        self.link = link
        self.stage = stage
        self.dialled = dialled
        """The address, if this region dialled."""
        self.began_ms = heard_ms
        self.heard_ms = heard_ms
        self.names = names
        """The names in the certificate of the other side; None without a certificate."""
        self.rows_sent: dict[int, Row] = {}
        self.unechoed: deque[float] = deque()
        """Stamps of sent rows that the peer has not confirmed."""


class Peer:
    """Another region."""

    def __init__(self, region: int) -> None:
        self.region = region
        self.session: PeerSession | None = None
        self.backoff = Backoff()
        self.clock = ClockSamples()
        self.counters = Counters()
        self.receive_lag = ReceiveLag()
        self.refusal = ""
        """See :class:`PeerFigures`."""
        self.run_id = ""
        """The run ID of its last known process."""
        self.agreed: dict[int, int] = {}
        """By own replica ID, the number up to which the peer has the same effects: this process
        sent them, or the peer has shown it."""
