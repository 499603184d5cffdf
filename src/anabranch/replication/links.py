"""The links to other regions, and what all parts of the replicator share."""

from __future__ import annotations

from typing import Final

from anabranch.keyspace.replica import EPOCH_STEP_BYTES, epoch_of
from anabranch.oplog.batch import saved_bytes
from anabranch.replication.frames import Message, Reason, Refusal, encode
from anabranch.replication.framing import FrameType, batch_head, framed
from anabranch.replication.interface import Chance, Local, ReplicationConfig, Transport
from anabranch.replication.membership import Membership
from anabranch.replication.peer import Peer, PeerSession
from anabranch.replication.status_table import StatusTable

# For every batch: Python calls a function for each look at a member of an enumeration.
_BATCH: Final = int(FrameType.BATCH)

NOTE_AGAIN_MS: Final = 60_000.0
"""The interval between two reports of a condition that does not change."""

STOPPED_RETRY_MS: Final = 30_000
"""Long, because only an operator can remove the cause."""


class Links:
    """Sessions by link, peers by region, and sending to them."""

    def __init__(
        self, local: Local, transport: Transport, config: ReplicationConfig, chance: Chance
    ) -> None:
        self.local = local
        self.transport = transport
        self.config = config
        self.chance = chance
        self.replica_id = local.replica.own
        self.region = local.replica.region
        self.membership = Membership(local)
        self.rows = StatusTable()
        self.sessions: dict[int, PeerSession] = {}
        self.peers: dict[int, Peer] = {}
        self.is_set_back = False
        """Whether other regions know different effects under numbers of this region."""
        self.is_expelled = False
        """Whether this region knows that it was removed from its cluster."""
        self.refusal = ""
        """The reason of the last refused link, who refused it, and the region."""
        self._noted: dict[tuple[str, object], tuple[object, float]] = {}

    def peer(self, region: int) -> Peer:
        """The record of a region; made if missing."""
        peer = self.peers.get(region)
        if peer is None:
            peer = self.peers[region] = Peer(region)
        return peer

    def up(self) -> list[PeerSession]:
        """Sessions whose other side is known; at most one per region."""
        return [peer.session for peer in self.peers.values() if peer.session is not None]

    def session_of(self, region: int) -> PeerSession | None:
        """The link to a region, if it is up."""
        peer = self.peers.get(region)
        return None if peer is None else peer.session

    def send(self, session: PeerSession, message: Message) -> None:
        """Send a message over a link, sealed if the link is."""
        self._send(session, encode(message))

    def send_batch(self, session: PeerSession, data: bytes) -> None:
        """Send a batch over a link, and count its bytes for the peer."""
        if session.sealing is None:
            frame = framed(_BATCH, data)
        else:
            frame = session.sealing.close(batch_head(len(data)), data)
        self._pass_on(session, frame, saved_bytes(data))

    def send_raw(self, session: PeerSession, frame_type: FrameType, payload: bytes) -> None:
        """Send a message that is encoded already, or a piece of a full sync."""
        self._send(session, framed(frame_type, payload))

    def _send(self, session: PeerSession, frame: bytes) -> None:
        if session.sealing is not None:
            frame = session.sealing.close(frame)
        self._pass_on(session, frame)

    def _pass_on(self, session: PeerSession, frame: bytes, saved: int = 0) -> None:
        """Pass a frame, sealed where a secret is set, on to the transport."""
        self.transport.send(session.link, frame)
        if session.region:
            counters = self.peer(session.region).counters
            counters.sent_bytes += len(frame)
            counters.sent_raw_bytes += len(frame) + saved

    def named(self, region: int) -> dict[str, object]:
        """The number and the name of a region, as facts of an event."""
        return {"region": region, "name": self.membership.name(region)}

    def report_once(self, event: str, subject: object, now_ms: float, **facts: object) -> None:
        """Report an event, unless the same was reported of this subject a short while ago."""
        self.report_rarely(event, subject, now_ms, 0, **facts)

    def report_rarely(
        self, event: str, subject: object, now_ms: float, pause_ms: float, **facts: object
    ) -> None:
        """Do the same, but report other facts only after a pause, too."""
        content = tuple(sorted(facts.items(), key=lambda item: item[0]))
        last, at_ms = self._noted.get((event, subject), (None, float("-inf")))
        if now_ms - at_ms >= (NOTE_AGAIN_MS if last == content else pause_ms):
            self._noted[event, subject] = content, now_ms
            self.local.report_event(event, **facts)

    def outlived(self, epoch: int) -> None:
        """Another server uses, or has used, this region number in this epoch: open a later one.

        A region whose disk was lost or set back does not know its later epochs, so the distance to
        the new epoch is random: only a member that is down at present may know the last one.
        """
        if self.local.replica.own == self.replica_id:  # otherwise it was opened just now
            later = int.from_bytes(self.chance.randbytes(EPOCH_STEP_BYTES))
            try:
                self.local.reopen(epoch + later)
            except OSError as problem:
                self.local.report_event("epoch_not_kept", reason=problem.strerror)

    def set_back(self, reason: str) -> None:
        """Others know different effects under numbers of this region: send no more of them."""
        if not self.is_set_back:
            self.is_set_back = True
            self.local.set_back(reason)

    def refuse_if_set_back(self) -> None:
        """Refuse a link while the effects of this region contradict those of others."""
        if self.is_set_back:
            raise self._stopped("was set back, and has stopped")

    def expelled(self, reason: str) -> None:
        """This region was removed from its cluster: dial nobody, and admit nobody."""
        if not self.is_expelled:
            self.is_expelled = True
            self.local.expelled(reason)

    def refuse_if_expelled(self) -> None:
        """Refuse a newcomer if this region was removed: its data may be old.

        Members that do not know of the removal have links: whoever ordered it may have lost it.
        """
        if self.is_expelled:
            raise self._stopped("was removed from the cluster")

    def _stopped(self, why: str) -> Refusal:
        return Refusal(Reason.EPOCH, f"region {self.region} {why}", STOPPED_RETRY_MS)

    def refuse_beyond_issued(self, number: int, now_ms: float) -> None:
        """Refuse a region that knows effects of this replica ID that were never issued here."""
        issued = self.local.vector.get(self.replica_id, 0)
        if number > issued:
            self.report_once("ahead_of_us", 0, now_ms, number=number, issued=issued)
            self.outlived(epoch_of(self.replica_id))
            raise Refusal(
                Reason.EPOCH,
                f"effect {number} of region {self.region} is known there, "
                f"but {issued} were issued here: its disk was lost or set back",
            )
