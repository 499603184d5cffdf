"""One other region as this one sees it: the link to it, and what is measured over all its links.

A :class:`Session` lives as long as a link; a :class:`Peer` as long as this process. What a peer has
been sent is a position in the log (:attr:`Session.position`), never a queue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from anabranch.metrics.peers import Counters
from anabranch.replication.frames import Hello, Row
from anabranch.replication.interface import Chance
from anabranch.replication.lag import ReceiveLag
from anabranch.replication.sealing import Seal
from anabranch.replication.transfer import Transfer

__all__ = [
    "DELAY_MS_MAX",
    "Backoff",
    "ClockSamples",
    "Peer",
    "Session",
    "Stage",
]

DELAY_MS_MIN: Final = 100.0
DELAY_MS_MAX: Final = 10_000.0
HEALTHY_MS: Final = 10_000.0
SAMPLES: Final = 16


class Backoff:
    """When to dial next: decorrelated jitter, so that regions do not dial in step."""

    def __init__(self) -> None:
        self.next_ms = 0.0
        self._delay_ms = DELAY_MS_MIN

    def failed(self, now_ms: float, chance: Chance, at_least_ms: float = 0) -> None:
        """Nothing came of it: wait."""
        spread = max(0.0, self._delay_ms * 3 - DELAY_MS_MIN)
        self._delay_ms = min(DELAY_MS_MAX, DELAY_MS_MIN + chance.random() * spread)
        self.next_ms = now_ms + max(self._delay_ms, at_least_ms)

    def lost(
        self, now_ms: float, healthy_ms: float, chance: Chance, at_least_ms: float = 0
    ) -> None:
        """A link went down that was up for so long."""
        if healthy_ms >= HEALTHY_MS:
            self._delay_ms = DELAY_MS_MIN
        self.failed(now_ms, chance, at_least_ms)


class ClockSamples:
    """Round trip and offset of the clocks; the fastest of the last round trips errs least."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def add(self, round_trip_ms: float, offset_ms: float) -> None:
        """One round trip and by how much the other clock was ahead."""
        self._samples.append((round_trip_ms, offset_ms))

    @property
    def round_trip_ms(self) -> float | None:
        """The fastest of the last ones."""
        return min(self._samples)[0] if self._samples else None

    @property
    def offset_ms(self) -> float | None:
        """By how much the other clock is ahead of ours."""
        return min(self._samples)[1] if self._samples else None


class Stage(Enum):
    """What a session waits for."""

    HELLO = "hello"
    WELCOME = "welcome"
    PROOF = "proof"
    CONFIRMATION = "confirmation"
    MEMBERS = "members"
    UP = "up"


@dataclass(slots=True)
class Session:
    """A link, from its first byte; the second half means something once it is up."""

    link: int
    opened_ms: float
    stage: Stage
    dialled: tuple[str, int] | None
    """The address, if we dialled."""
    heard_ms: float
    names: frozenset[str] | None = None
    """Those in the certificate of the other side; None where none was asked for."""
    hello: bytes = b""
    facts: bytes = b""
    """The two halves of the handshake, as they were sent."""
    sealing: Seal | None = None
    """Of what we send from now on; None if nothing is sealed."""
    opening: Seal | None = None
    """Of what comes from now on."""

    theirs: Hello | None = None
    region: int = 0
    replica_id: int = 0
    up_ms: float = 0.0
    subscribed: bool = False
    """Whether own effects are sent from ``position`` on."""
    position: int = 0
    credit: int = 0
    """What the peer still takes; a batch may exceed it."""
    window: int = 0
    """What it takes at most."""
    full_sync_credit: int = 0
    """The same for a snapshot: it may be what effects that fill the window wait for."""
    grants: int = 0
    """What we let it send at most; a greater window would wait for more than it may send."""
    ungranted: int = 0
    """What has come and was not granted again."""
    full_sync_ungranted: int = 0
    outgoing: Transfer | None = None
    rows_sent: dict[int, Row] = field(default_factory=dict)
    row_sent_ms: float = -1e18
    unechoed: deque[float] = field(default_factory=deque)
    """Stamps of rows sent that it has not shown to have received."""
    stamp: float = -1.0
    stamp_at_ms: float = 0.0
    met: tuple[dict[int, int], int] | None = None
    """What it had applied when we met, and the last effect of ours; None until its first row."""
    began_behind: bool = False
    """We had less than it."""
    joined: bool = False
    """Its state was joined."""
    in_sync: bool = False
    """Both have had, since, all that the other had when they met."""


class Peer:
    """A region other than ours."""

    def __init__(self, region: int) -> None:
        self.region = region
        self.session: Session | None = None
        self.backoff = Backoff()
        self.clock = ClockSamples()
        self.counters = Counters()
        self.receive_lag = ReceiveLag()
        self.refusal = ""
        """See :class:`PeerFigures`."""
        self.run_id = ""
        """The process that was there last."""
        self.agreed: dict[int, int] = {}
        """By replica ID of ours, up to where it had the same effects as we: we sent them, or it has
        shown it. Only this process knows."""
