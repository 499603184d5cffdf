"""The entry points of replication: links, frames and ticks of time.

:mod:`handshake`, :mod:`sending`, :mod:`receiving` and :mod:`gossip` process frames;
:mod:`sessions` decides which links are used and given up. A frame never makes these methods raise:
a wrong frame closes the link with a :class:`~frames.Bye`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from anabranch.errors import AnabranchError, CommandError
from anabranch.keyspace.inquiry import Inquiry, Verdict
from anabranch.keyspace.version_vectors import covers
from anabranch.metrics.peers import PeerFigures
from anabranch.replication import frames
from anabranch.replication.absence import AbsenceLimit
from anabranch.replication.digest_exchange import DigestExchange
from anabranch.replication.figures import Figures
from anabranch.replication.former_epochs import FormerEpochs
from anabranch.replication.frames import Bye, Place, Reason, Refusal
from anabranch.replication.framing import FrameType
from anabranch.replication.gossip import Gossip
from anabranch.replication.interface import Chance, Local, ReplicationConfig, Transport
from anabranch.replication.links import Links
from anabranch.replication.peer import PeerSession, Stage
from anabranch.replication.receiving import Receiver
from anabranch.replication.sending import Sender
from anabranch.replication.sessions import Sessions

FRAME_TYPES: Final = frozenset(FrameType)

# For every frame: Python calls a function for each look at a member of an enumeration.
_UP: Final = Stage.UP
_BATCH: Final = int(FrameType.BATCH)

_Handler = Callable[[PeerSession, Any, float], None]


class Replicator:
    """One region's part in the exchange. Times are in ms of a clock that never jumps."""

    def __init__(
        self, local: Local, transport: Transport, config: ReplicationConfig, random: Chance
    ) -> None:
        self._local = local
        self._config = config
        self.links = Links(local, transport, config, random)
        self.sender = Sender(self.links)
        self.receiver = Receiver(self.links)
        self.gossip = Gossip(self.links, self.receiver)
        self.digest_exchange = DigestExchange(self.links)
        parts = self.links, self.sender, self.receiver, self.gossip, self.digest_exchange
        self.sessions = Sessions(*parts)
        self.figures = Figures(*parts)
        self.links.membership.learn([local.replica.own, *local.vector])
        handshaker = self.sessions.handshaker
        joiner, digests = self.receiver.joiner, self.digest_exchange
        self._handlers: dict[tuple[Stage, FrameType], _Handler] = {
            (Stage.WELCOME, FrameType.WELCOME): handshaker.welcome,
            (Stage.PROOF, FrameType.PROOF): handshaker.proof,
            (Stage.CONFIRMATION, FrameType.PROOF): handshaker.confirmation,
            (Stage.MEMBERS, FrameType.MEMBERS): handshaker.members,
            (Stage.UP, FrameType.SUB): self.sender.subscribe,
            (Stage.UP, FrameType.CREDIT): self.sender.credit,
            (Stage.UP, FrameType.FETCH): self.sender.fetch,
            (Stage.UP, FrameType.FETCHED): self.receiver.fetched,
            (Stage.UP, FrameType.ROW): self.gossip.receive,
            (Stage.UP, FrameType.BEHIND): joiner.is_behind,
            (Stage.UP, FrameType.FULL_SYNC_GET): self.sender.begin_full_sync,
            (Stage.UP, FrameType.FULL_SYNC_BEGIN): joiner.full_sync_begin,
            (Stage.UP, FrameType.FULL_SYNC_END): joiner.full_sync_end,
            (Stage.UP, FrameType.DIGESTS): digests.asked,
            (Stage.UP, FrameType.DIFFERING): digests.differing,
            (Stage.UP, FrameType.KEYS_GET): digests.asked,
            (Stage.UP, FrameType.KEYS): digests.keys,
        }
        self._absence = AbsenceLimit(self.links)
        self._former_epochs = FormerEpochs(self.links)
        self.caught_up = False
        """Whether, since the start, everything that one other region had was applied."""
        self.former_epochs_at: list[int] = []
        """Members that may have effects of former epochs of this region that are missing here."""
        self.unknown_frames = 0

    # -- links --------------------------------------------------------------------------------

    def region_of(self, link: int) -> int | None:
        """The region at the other end of a link, as far as it is known."""
        session = self.links.sessions.get(link)
        if session is None or session.theirs is None:
            return None
        return session.theirs.region

    def is_up(self, link: int) -> bool:
        """Whether the handshake on a link is complete."""
        session = self.links.sessions.get(link)
        return session is not None and session.stage is _UP

    def frame_bytes_max(self, link: int) -> int:
        """How long a frame (type and payload) may be on a link at present."""
        session = self.links.sessions.get(link)
        is_up = session is not None and session.stage is _UP
        return frames.FRAME_BYTES_MAX if is_up else frames.HANDSHAKE_BYTES_MAX

    # -- frames -------------------------------------------------------------------------------

    def receive(
        self,
        link: int,
        frame_type: int,
        payload: bytes,
        now_ms: float,
        *,
        more_follows: bool = False,
    ) -> None:
        """A frame has arrived; ``more_follows``: the next frame of the link has arrived, too.

        Then small batches may be left to be applied with the next ones: call this again, or
        :meth:`go_on`.
        """
        session = self.links.sessions.get(link)
        if session is None:
            return
        session.heard_ms = now_ms
        if session.region:
            counters = self.links.peer(session.region).counters
            counters.received_bytes += len(payload)
            counters.received_raw_bytes += len(payload)
        try:
            if len(payload) >= self.frame_bytes_max(link):
                self.refuse_frame(link, len(payload) + 1, now_ms)
                return
            if self._handle(session, frame_type, payload, now_ms, more_follows=more_follows):
                return
        except Refusal as refusal:
            self.sessions.refuse(link, refusal, now_ms)
        except MemoryError:
            text = f"there is not enough memory for a frame of {len(payload) + 1} bytes"
            refused = self.receiver.refuse(session.region, text, Reason.BUSY)
            self.sessions.refuse(link, refused, now_ms)
        self._end_rejected(now_ms)
        self.sessions.follow_epochs(now_ms)
        if session.stage is _UP:
            self.receiver.grant(session)
            if self.receiver.buffer:
                self._deliver(now_ms)
                for other in self.links.up():
                    self.receiver.grant(other)
            if frame_type == FrameType.ROW or self.receiver.buffer:
                self.receiver.want(now_ms)
            self.gossip.send_due(now_ms)

    def refuse_frame(self, link: int, size: int, now_ms: float) -> None:
        """A frame is too long to be read (type and payload): end the link."""
        most = self.frame_bytes_max(link)
        text = f"a frame of {size} bytes is not accepted: {most} are allowed"
        session = self.links.sessions.get(link)
        region = 0 if session is None else session.region
        refusal = self.receiver.refuse(region, text, Reason.PROTOCOL)
        self.sessions.refuse(link, refusal, now_ms)

    def heard(self, link: int, now_ms: float) -> None:
        """A part of a frame has arrived: a long one may take longer than a link may be silent."""
        session = self.links.sessions.get(link)
        if session is not None and session.stage is _UP:
            session.heard_ms = now_ms

    def _handle(
        self,
        session: PeerSession,
        frame_type: int,
        payload: bytes,
        now_ms: float,
        *,
        more_follows: bool,
    ) -> bool:
        """Handle a frame; returns whether it was a batch that waits for those behind it."""
        try:
            if session.opening is not None:
                payload = session.opening.open(frame_type, payload)
            body = frames.body_of(frame_type, payload)
        except Refusal:
            if session.region:
                self.links.peer(session.region).counters.checksum_errors += 1
            raise
        is_up = session.stage is _UP
        if is_up and frame_type == _BATCH:
            return self.receiver.batch(session, body, now_ms, more_follows=more_follows)
        if is_up and frame_type == FrameType.FULL_SYNC:
            self.receiver.joiner.full_sync_chunk(session, body)
        elif frame_type == FrameType.BYE:
            self.sessions.bye(session, frames.decode(Bye, body), now_ms)
        elif frame_type == FrameType.HELLO and session.stage is Stage.HELLO:
            self.sessions.handshaker.hello(session, body, now_ms)
        elif frame_type not in FRAME_TYPES:
            self.unknown_frames += 1
        elif (handler := self._handlers.get((session.stage, FrameType(frame_type)))) is not None:
            handler(session, frames.decode(frames.STRUCTS[FrameType(frame_type)], body), now_ms)
        else:
            name = FrameType(frame_type).name
            raise Refusal(
                Reason.PROTOCOL, f"{name} was sent while {session.stage.name} was expected"
            )
        return False

    # -- time ---------------------------------------------------------------------------------

    def appended(self, now_ms: float) -> None:
        """The region has new effects that may leave it, or more of them on its disk."""
        if self._local.replica.own != self.links.replica_id:
            self.sessions.begin_own_epoch(now_ms)
        self.sender.appended()
        self._feed(now_ms)
        self._deliver_if_free(now_ms)  # new effects may be the cause of waiting ones
        self.gossip.send_due(now_ms)

    @property
    def is_behind(self) -> bool:
        """Whether work is left for :meth:`go_on` that did not fit into a slice of time."""
        joiner = self.receiver.joiner
        return (
            self.receiver.is_ready
            or self.sender.is_ready
            or (joiner.incoming is not None and joiner.is_loading)
        )

    def go_on(self, now_ms: float) -> None:
        """Apply waiting units, load full syncs, and send, for a slice of time."""
        incoming = self.receiver.joiner.incoming
        try:
            self.receiver.joiner.go_on()
        except Refusal as refusal:
            assert incoming is not None
            self.sessions.refuse(incoming.session.link, refusal, now_ms)
        self._deliver(now_ms)
        for session in self.links.up():
            self.receiver.grant(session)
        self._feed(now_ms)
        self.gossip.send_due(now_ms)

    def tick(self, now_ms: float) -> None:
        """Time has passed: call this at least every 50 ms."""
        if self._local.replica.own != self.links.replica_id:
            self.sessions.begin_own_epoch(now_ms)
        self.receiver.refused = None
        self.receiver.check_memory()
        self._deliver_if_free(now_ms)
        self.links.membership.learn(self._local.vector)
        self.sessions.follow_epochs(now_ms)
        self._remove_absent(now_ms)
        self.sessions.follow_removals(now_ms, is_behind=not self.caught_up)
        self.sessions.end_silent(now_ms)
        self.sessions.end_if_set_back(now_ms)
        if not self.links.is_expelled and not self.links.is_set_back:
            self.sessions.dialler.dial_due(now_ms)
        self.receiver.want(now_ms)
        self._feed(now_ms)
        for session in self.links.up():
            self.receiver.grant(session)
        self.gossip.send_due(now_ms)
        self.gossip.stabilise()
        self.digest_exchange.tick(now_ms)
        self.receiver.joiner.mend(now_ms)
        self.sender.tick(now_ms)
        if not self.caught_up:
            self.caught_up = self._has_caught_up()
        self.former_epochs_at = self._former_epochs.waits_for(now_ms)

    def _deliver(self, now_ms: float) -> None:
        """Apply units that are ready."""
        self.receiver.deliver(now_ms)
        self._end_rejected(now_ms)

    def _deliver_if_free(self, now_ms: float) -> None:
        """The same, unless the slice is over: then units wait for :meth:`go_on`.

        A unit may take as long as a turn. So only one that others gave time for is applied.
        """
        if not self._local.is_over:
            self._deliver(now_ms)

    def _end_rejected(self, now_ms: float) -> None:
        """End links that brought batches which must not be applied."""
        for region, refusal in self.receiver.take_rejected():
            session = self.links.session_of(region)
            if session is not None:
                self.sessions.refuse(session.link, refusal, now_ms)

    def _feed(self, now_ms: float) -> None:
        for session in self.links.up():
            try:
                self.sender.feed(session)
            except Refusal as refusal:
                self.sessions.refuse(session.link, refusal, now_ms)

    def _remove_absent(self, now_ms: float) -> None:
        """Remove members that are absent for longer than the setting allows."""
        links = self.links
        for region in self._absence.to_remove(now_ms, self._config.expire_after_ms):
            name = links.membership.name(region)
            try:
                self._local.remove(region)
            except (OSError, AnabranchError) as problem:
                links.report_once("not_removed", region, now_ms, region=region, reason=str(problem))
            else:
                links.local.report_event("expired", region=region, name=name)

    def _has_caught_up(self) -> bool:
        if self._local.replica.cluster_id and not self.links.membership.others():
            return True
        return any(
            session.met is not None and covers(self._local.vector, session.met[0])
            for session in self.links.up()
        )

    # -- steering and looking -----------------------------------------------------------------

    def verify(self, region: int, keys: list[Place], now_ms: float) -> Verdict:
        """Compare with another region: some keys, or all if none are named.

        Raises CommandError if the region cannot be reached.
        """
        return self.digest_exchange.verify(self._link_to(region), keys, now_ms)

    def repair(self, region: int, place: Place, now_ms: float) -> Inquiry:
        """Take over a key (database and name) from another region; may raise CommandError."""
        inquiry = self.receiver.joiner.repairs.order(self._link_to(region), place, now_ms)
        self.receiver.joiner.mend(now_ms)
        return inquiry

    @property
    def entry(self) -> str:
        """The state of the attempts to be admitted to a cluster, as a text for operators."""
        return "; ".join(filter(None, (self.sessions.dialler.tries, self.links.refusal)))

    @property
    def is_joining(self) -> bool:
        """Whether this region receives a full sync."""
        return self.receiver.joiner.joining is not None

    def _link_to(self, region: int) -> PeerSession:
        session = self.links.session_of(region)
        if session is None:
            raise CommandError(f"ERR Region {region} is unreachable")
        return session

    def remove(self, region: int, *, force: bool = False) -> None:
        """Remove a member; CommandError if it is none, or if its effects cannot be fetched."""
        if not self.links.membership.is_member(region):
            raise CommandError(f"ERR Region {region} is not a member")
        if region != self.links.region and not force and self.links.session_of(region) is None:
            raise CommandError(
                f"ERR Region {region} is unreachable: what only it has would be lost. "
                "Use FORCE to remove it nevertheless"
            )
        self._local.remove(region)

    def clock_error(self) -> float:
        """By how many ms the own clock is ahead of the other regions; 0 if no clock is known.

        The reference is the median; of an even count of regions, the middle one nearer to 0.
        """
        ahead = sorted(
            -offset
            for session in self.links.up()
            if (offset := self.links.peer(session.region).clock.offset_ms) is not None
        )
        if not ahead:
            return 0.0
        middle = ahead[(len(ahead) - 1) // 2 : len(ahead) // 2 + 1]
        return min(middle, key=abs)

    def acknowledged(self, number: int, replica_id: int | None = None) -> tuple[int, int]:
        """How many other members have applied an own effect, and how many have it on disk.

        ``replica_id`` is the former replica ID that issued the effect, if not the present one.
        """
        confirmed = self.gossip.confirmed(replica_id)
        return (
            sum(applied >= number for applied, _ in confirmed),
            sum(durable >= number for _, durable in confirmed),
        )

    def peers(self, now_ms: float) -> list[PeerFigures]:
        """All other members, and regions that were removed while this process ran."""
        regions = {*self.links.membership.others(), *self.links.peers}
        return [self.figures.of(region, now_ms) for region in sorted(regions)]

    def facts(self, now_ms: float) -> dict[str, int | float | str]:
        """Figures of the region, by the names of INFO."""
        return self.figures.facts(now_ms, self.unknown_frames, caught_up=self.caught_up)
