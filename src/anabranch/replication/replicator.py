"""The face of replication: links come and go, frames and time come in, everything else follows.

What is done with a frame is in :mod:`handshake`, :mod:`sending`, :mod:`receiving` and
:mod:`gossip`, whom to dial in :mod:`dialling`; here is on which link, and when it is given up.
Nothing that comes in over a link raises: what is wrong closes the link with a sentence
(:class:`~frames.Bye`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.errors import AnabranchError, CommandError
from anabranch.keyspace.inquiry import Inquiry, Verdict
from anabranch.keyspace.version_vectors import covers
from anabranch.metrics.peers import PeerFigures, Standing
from anabranch.replication import frames
from anabranch.replication.absence import Absence
from anabranch.replication.dialling import Dialler
from anabranch.replication.digest_exchange import DigestExchange
from anabranch.replication.figures import Figures
from anabranch.replication.former_epochs import FormerEpochs
from anabranch.replication.frames import (
    Bye,
    FrameType,
    Place,
    Reason,
    Refusal,
)
from anabranch.replication.gossip import Gossip
from anabranch.replication.handshake import Handshaker
from anabranch.replication.interface import Address, Chance, Local, ReplicationConfig, Transport
from anabranch.replication.links import Links
from anabranch.replication.peer import DELAY_MS_MAX, Session, Stage
from anabranch.replication.receiving import Receiver
from anabranch.replication.sending import Sender

__all__ = ["Replicator"]

SILENT_MS: Final = 5000.0
"""A link on which nothing was heard for so long is given up."""

HALF_OPEN_MS: Final = 2000.0
"""Two heartbeats: from then on another link to the same region takes precedence."""

FRAME_TYPES: Final = frozenset(FrameType)

UNSPOKEN: Final = frozenset(
    {Reason.DUPLICATE, Reason.STOPPING, Reason.ELSEWHERE, Reason.SILENT, Reason.HEARD}
)
"""Reasons of a BYE that nobody need hear of."""

UNANSWERED: Final = frozenset({0, Reason.STOPPING, Reason.SILENT})
"""Reasons for which the end of a handshake is the same as no answer; 0 is a lost connection."""

_Handler = Callable[[Session, Any, float], None]


class Replicator:
    """One region's part in the exchange. Times are in ms of a clock that never jumps."""

    def __init__(
        self, local: Local, transport: Transport, config: ReplicationConfig, random: Chance
    ) -> None:
        self._local = local
        self._config = config
        self._links = Links(local, transport, config, random)
        self._handshaker = Handshaker(self._links, config, self._up)
        self._sender = Sender(self._links)
        self._receiver = Receiver(self._links)
        self._gossip = Gossip(self._links, self._receiver)
        self._digest_exchange = DigestExchange(self._links)
        self._dialler = Dialler(self._links, config, self.region_at)
        self._figures = Figures(
            self._links, self._sender, self._receiver, self._gossip, self._digest_exchange
        )
        self._links.membership.hear([local.replica_id, *local.vector])
        self._handlers: dict[tuple[Stage, FrameType], tuple[type[Any], _Handler]] = {
            (Stage.WELCOME, FrameType.WELCOME): (frames.Welcome, self._handshaker.welcome),
            (Stage.PROOF, FrameType.PROOF): (frames.Proof, self._handshaker.proof),
            (Stage.CONFIRMATION, FrameType.PROOF): (frames.Proof, self._handshaker.confirmation),
            (Stage.MEMBERS, FrameType.MEMBERS): (frames.Members, self._handshaker.members),
            (Stage.UP, FrameType.SUB): (frames.Sub, self._sender.subscribe),
            (Stage.UP, FrameType.CREDIT): (frames.Credit, self._sender.credit),
            (Stage.UP, FrameType.FETCH): (frames.Fetch, self._sender.fetch),
            (Stage.UP, FrameType.FETCHED): (frames.Fetched, self._receiver.fetched),
            (Stage.UP, FrameType.ROW): (frames.Rows, self._gossip.receive),
            (Stage.UP, FrameType.BEHIND): (frames.Behind, self._receiver.joiner.is_behind),
            (Stage.UP, FrameType.FULL_SYNC_GET): (frames.FullSyncGet, self._sender.begin_full_sync),
            (Stage.UP, FrameType.FULL_SYNC_BEGIN): (
                frames.FullSyncBegin,
                self._receiver.joiner.full_sync_begin,
            ),
            (Stage.UP, FrameType.FULL_SYNC_END): (
                frames.FullSyncEnd,
                self._receiver.joiner.full_sync_end,
            ),
            (Stage.UP, FrameType.DIGESTS): (frames.Digests, self._digest_exchange.asked),
            (Stage.UP, FrameType.DIFFERING): (frames.Differing, self._digest_exchange.differing),
            (Stage.UP, FrameType.KEYS_GET): (frames.KeysGet, self._digest_exchange.asked),
            (Stage.UP, FrameType.KEYS): (frames.Keys, self._digest_exchange.keys),
        }
        self._absence = Absence(self._links)
        self._former_epochs = FormerEpochs(self._links)
        self._is_expelled = False
        self.caught_up = False
        """Whether all that some other region had has been applied since the start."""
        self.former_epochs_at: list[int] = []
        """Members that may have effects of former epochs of this region that are missing here."""
        self.unknown_frames = 0

    # -- links --------------------------------------------------------------------------------

    def link_up(
        self,
        link: int,
        now_ms: float,
        dialled: Address | None,
        names: frozenset[str] | None = None,
    ) -> None:
        """There is a connection; ``dialled`` is the address if we asked for it.

        ``names`` are those in the certificate of the other side; None where none was asked for.
        """
        session = Session(link, now_ms, Stage.HELLO, dialled, now_ms, names)
        if dialled is None:
            self._links.sessions[link] = session
            return
        self._dialler.connected(dialled)
        expected = self.region_at(dialled)
        if expected is not None and self._links.session_of(expected) is not None:
            self._links.transport.close(link)  # it was faster
            return
        self._links.sessions[link] = session
        self._handshaker.start(session, expected, now_ms)

    def link_down(self, link: int, now_ms: float) -> None:
        """A connection has ended."""
        session = self._links.sessions.get(link)
        if session is not None:
            self._end(session, now_ms, "the connection was lost")

    def dial_failed(self, host: str, port: int, now_ms: float, why: str) -> None:
        """Nobody answers there; ``why`` is for people."""
        self._dialler.failed((host, port), now_ms, why)

    def region_at(self, address: Address) -> int | None:
        """The region that is to be found at an address."""
        return self._handshaker.region_at(address)

    def set_back(self, reason: str) -> None:
        """An earlier process of this region has found that it was set back."""
        self._links.set_back(reason)

    def region_of(self, link: int) -> int | None:
        """Who is at the other end of a link, as far as it has said so."""
        session = self._links.sessions.get(link)
        if session is None or session.theirs is None:
            return None
        return session.theirs.region

    def is_up(self, link: int) -> bool:
        """Whether the handshake on a link is complete."""
        session = self._links.sessions.get(link)
        return session is not None and session.stage is Stage.UP

    def frame_bytes_max(self, link: int) -> int:
        """How long a frame (type and payload) may be on a link at present."""
        session = self._links.sessions.get(link)
        is_up = session is not None and session.stage is Stage.UP
        return frames.FRAME_BYTES_MAX if is_up else frames.HANDSHAKE_BYTES_MAX

    def stop(self) -> None:
        """Say goodbye to everybody; nothing may be called any more."""
        for session in self._links.sessions.values():
            self._links.send(session, frames.Bye(Reason.STOPPING, "this region stops"))
            self._links.transport.close(session.link)
        self._links.sessions.clear()
        self._links.peers.clear()

    def _refuse(self, link: int, refusal: Refusal, now_ms: float) -> None:
        """Close a link with a sentence."""
        session = self._links.sessions.get(link)
        if session is None:
            return
        bye = frames.Bye(refusal.reason, refusal.text[:1000], refusal.retry_after_ms, refusal.ask)
        self._links.send(session, bye)
        self._links.transport.close(link)
        self._note_refusal(session, refusal.reason, refusal.text, now_ms, by="us")
        self._end(session, now_ms, refusal.text, refusal.reason, refusal.retry_after_ms)

    def _end(
        self,
        session: Session,
        now_ms: float,
        why: str,
        reason: int = 0,
        retry_after_ms: float = 0,
    ) -> None:
        """Forget a link."""
        links = self._links
        del links.sessions[session.link]
        peer = links.peers.get(session.region)
        if peer is not None and peer.session is session:
            peer.session = None
            self._receiver.end(session, now_ms)
            self._sender.end(session, now_ms)
            self._digest_exchange.end(session)
            if reason == Reason.DUPLICATE:
                return
            healthy_ms = now_ms - session.up_ms
            peer.backoff.lost(now_ms, healthy_ms, links.chance, retry_after_ms)
            name = links.membership.name(peer.region)
            links.local.note("unreachable", region=peer.region, name=name, why=why)
        elif session.dialled is not None and reason != Reason.DUPLICATE:
            region = self._handshaker.region_at(session.dialled)
            if reason == Reason.SILENT and region is not None:
                name = links.membership.name(region)
                links.note_once("unreachable", region, now_ms, region=region, name=name, why=why)
            self._dialler.wait(session.dialled, now_ms, retry_after_ms)
            if reason in UNANSWERED:
                self._dialler.note_failure(session.dialled, now_ms, why)

    def _note_refusal(
        self, session: Session, reason: int, text: str, now_ms: float, by: str
    ) -> None:
        if reason not in UNSPOKEN:
            region = session.region or (session.theirs.region if session.theirs else 0)
            line = "".join(each if each.isprintable() else "?" for each in text)
            self._links.refusal = f"region {region}: {line} (refused by {by})"
            if region in self._links.peers:
                self._links.peers[region].refusal = self._links.refusal
            self._links.note_once(
                "refused", (region, session.dialled), now_ms,
                region=region, reason=reason, text=text, by=by,
            )  # fmt: skip

    # -- frames -------------------------------------------------------------------------------

    def receive(self, link: int, frame_type: int, payload: bytes, now_ms: float) -> None:
        """One frame has come."""
        session = self._links.sessions.get(link)
        if session is None:
            return
        session.heard_ms = now_ms
        if session.region:
            counters = self._links.peer(session.region).counters
            counters.received_bytes += len(payload)
            counters.received_raw_bytes += len(payload)
        try:
            if len(payload) >= self.frame_bytes_max(link):
                raise Refusal(Reason.PROTOCOL, f"a frame of {len(payload)} bytes is not accepted")
            self._handle(session, frame_type, payload, now_ms)
        except Refusal as refusal:
            self._refuse(link, refusal, now_ms)
        self._end_rejected(now_ms)
        self._follow_epochs(now_ms)
        if session.stage is Stage.UP:
            self._receiver.grant(session)
            if self._receiver.buffer:
                self._deliver(now_ms)
                for other in self._links.up():
                    self._receiver.grant(other)
            if frame_type == FrameType.ROW or self._receiver.buffer:
                self._receiver.want(now_ms)
            self._gossip.send_due(now_ms)

    def _handle(self, session: Session, frame_type: int, payload: bytes, now_ms: float) -> None:
        try:
            if session.opening is not None:
                payload = session.opening.open(frame_type, payload)
            body = frames.body_of(frame_type, payload)
        except Refusal:
            if session.region:
                self._links.peer(session.region).counters.checksum_errors += 1
            raise
        is_up = session.stage is Stage.UP
        if is_up and frame_type == FrameType.BATCH:
            self._receiver.batch(session, body, now_ms)
        elif is_up and frame_type == FrameType.FULL_SYNC:
            self._receiver.joiner.full_sync_chunk(session, body)
        elif frame_type == FrameType.BYE:
            self._bye(session, frames.decode(Bye, body), now_ms)
        elif frame_type == FrameType.HELLO and session.stage is Stage.HELLO:
            self._handshaker.hello(session, body, now_ms)
        elif frame_type not in FRAME_TYPES:
            self.unknown_frames += 1
        elif (known := self._handlers.get((session.stage, FrameType(frame_type)))) is not None:
            kind, handler = known
            handler(session, frames.decode(kind, body), now_ms)
        else:
            name = FrameType(frame_type).name
            raise Refusal(
                Reason.PROTOCOL, f"{name} was sent while {session.stage.name} was expected"
            )

    # -- sessions -----------------------------------------------------------------------------

    def _up(self, session: Session, now_ms: float) -> None:
        """Both sides know each other: begin, unless there is a better link already."""
        links = self._links
        theirs = session.theirs
        assert theirs is not None
        peer = links.peer(theirs.region)
        existing = peer.session
        if existing is not None:
            if self._is_better(existing, session, now_ms):
                raise Refusal(Reason.DUPLICATE, "there is another link between these regions")
            self._refuse(existing.link, Refusal(Reason.DUPLICATE, "another link is used"), now_ms)
        session.stage = Stage.UP
        session.region = theirs.region
        session.replica_id = theirs.replica_id
        session.up_ms = now_ms
        peer.session = session
        # Without a cluster, in an epoch that is over: it lost its disk, and is somebody else.
        if theirs.cluster_id or theirs.epoch > links.membership.known_epoch(theirs.region):
            peer.run_id = theirs.run_id
        peer.counters.connects += 1
        links.membership.moved(theirs.region, theirs.host, theirs.port)
        links.membership.hear([theirs.replica_id])
        if existing is None:
            links.local.note("reachable", region=theirs.region, name=theirs.name)
        self._receiver.begin(session)
        self._gossip.send_due(now_ms)

    def _is_better(self, existing: Session, new: Session, now_ms: float) -> bool:
        """Whether an existing link stays. Both sides decide alike, whichever comes first there.

        Of two dials at once the one of the lower number stays. But a region that dials although it
        has a link has lost that one: it is another process, or dials again, or the old link is
        silent.
        """
        assert existing.theirs is not None
        assert new.theirs is not None
        if (
            existing.theirs.run_id != new.theirs.run_id
            or (existing.dialled is None) == (new.dialled is None)
            or now_ms - existing.heard_ms >= HALF_OPEN_MS
        ):
            return False
        return (existing.dialled is not None) == (self._links.region < existing.region)

    def _bye(self, session: Session, message: Bye, now_ms: float) -> None:
        """The other side closes the link."""
        self._links.transport.close(session.link)
        self._note_refusal(session, message.reason, message.text, now_ms, by="them")
        retry_after_ms = min(message.retry_after_ms, DELAY_MS_MAX)
        if message.ask is not None:
            self._dialler.recommend(message.ask)
        if message.reason == Reason.REMOVED:
            retry_after_ms = DELAY_MS_MAX
            if session.stage is Stage.UP:  # it has proved who it is
                self._expelled(message.text)
        if message.reason == Reason.SET_BACK and session.stage is Stage.UP:
            self._links.set_back(message.text)
        self._end(session, now_ms, message.text, message.reason, retry_after_ms)

    def _expelled(self, reason: str) -> None:
        """We were removed: nobody listens to us any more."""
        if not self._is_expelled:
            self._is_expelled = True
            self._local.expelled(reason)

    # -- time ---------------------------------------------------------------------------------

    def appended(self, now_ms: float) -> None:
        """The region has new effects that may leave it, or more of them on its disk."""
        if self._local.replica_id != self._links.replica_id:
            self._begin_own_life(now_ms)
        self._sender.appended()
        self._feed(now_ms)
        self._deliver(now_ms)  # what is new here may be a cause
        self._gossip.send_due(now_ms)

    @property
    def is_behind(self) -> bool:
        """Whether :meth:`go_on` has something to do that did not fit into a slice of time."""
        return self._receiver.is_ready or self._sender.is_ready or self._receiver.joiner.is_loading

    def go_on(self, now_ms: float) -> None:
        """Apply more of what waited for a cause, read and send more of states, for a slice."""
        incoming = self._receiver.joiner.incoming
        try:
            self._receiver.joiner.go_on()
        except Refusal as refusal:
            assert incoming is not None
            self._refuse(incoming.session.link, refusal, now_ms)
        self._receiver.deliver(now_ms)
        for session in self._links.up():
            self._receiver.grant(session)
            try:
                self._sender.feed_full_sync(session)
            except Refusal as refusal:
                self._refuse(session.link, refusal, now_ms)
        self._gossip.send_due(now_ms)

    def tick(self, now_ms: float) -> None:
        """Time has passed: call this at least every 50 ms."""
        if self._local.replica_id != self._links.replica_id:
            self._begin_own_life(now_ms)
        self._receiver.refused = None
        self._receiver.look_at_memory()
        self._deliver(now_ms)
        self._links.membership.hear(self._local.vector)
        self._follow_epochs(now_ms)
        self._remove_absent(now_ms)
        self._follow_removals(now_ms)
        self._end_silent(now_ms)
        self._stay_apart(now_ms)
        if not self._is_expelled and not self._links.is_set_back:
            self._dialler.dial_due(now_ms)
        self._receiver.want(now_ms)
        self._feed(now_ms)
        for session in self._links.up():
            self._receiver.grant(session)
        self._gossip.send_due(now_ms)
        self._gossip.stabilise()
        self._digest_exchange.tick(now_ms)
        self._receiver.joiner.mend(now_ms)
        self._sender.tick(now_ms)
        if not self.caught_up:
            self.caught_up = self._has_caught_up()
        self.former_epochs_at = self._former_epochs.waits_for(now_ms)

    def _stay_apart(self, now_ms: float) -> None:
        """A region that was set back ends the links that it has."""
        for session in self._links.up():
            try:
                self._links.refuse_if_set_back()
            except Refusal as refusal:
                self._refuse(session.link, refusal, now_ms)

    def _deliver(self, now_ms: float) -> None:
        """Apply what is ready."""
        self._receiver.deliver(now_ms)
        self._end_rejected(now_ms)

    def _end_rejected(self, now_ms: float) -> None:
        """End the links that have brought what must not be applied."""
        for region, refusal in self._receiver.take_rejected():
            session = self._links.session_of(region)
            if session is not None:
                self._refuse(session.link, refusal, now_ms)

    def _feed(self, now_ms: float) -> None:
        for session in self._links.up():
            try:
                self._sender.feed(session)
            except Refusal as refusal:
                self._refuse(session.link, refusal, now_ms)

    def _begin_own_life(self, now_ms: float) -> None:
        """This region has opened a new epoch: everybody must hear of it first."""
        self._links.replica_id = self._local.replica_id
        for link in list(self._links.sessions):
            self._refuse(link, Refusal(Reason.EPOCH, "this region begins a new epoch"), now_ms)
        self._links.membership.hear([self._links.replica_id])
        self._receiver.forget_lives_that_are_over()
        self._sender.restart()

    def _follow_epochs(self, now_ms: float) -> None:
        """End sessions with former lives of regions, and forget what is left of those."""
        membership = self._links.membership
        if not membership.has_news:
            return
        membership.has_news = False
        for session in self._links.up():
            if membership.is_former(session.replica_id):
                epoch = membership.known_epoch(session.region)
                text = f"region {session.region} lives in epoch {epoch} by now"
                self._refuse(session.link, Refusal(Reason.EPOCH, text), now_ms)
        self._receiver.forget_lives_that_are_over()

    def _remove_absent(self, now_ms: float) -> None:
        """Remove members that nobody has heard of for longer than is set."""
        links = self._links
        for region in self._absence.to_remove(now_ms, self._config.expire_after_ms):
            name = links.membership.name(region)
            try:
                self._local.remove(region)
            except (OSError, AnabranchError) as problem:
                links.note_once("not_removed", region, now_ms, region=region, reason=str(problem))
            else:
                links.local.note("expired", region=region, name=name)

    def _follow_removals(self, now_ms: float) -> None:
        membership = self._links.membership
        if membership.notice_removals():
            self._receiver.forget_lives_that_are_over()
        if membership.was_removed(self._links.region):
            self._expelled(f"region {self._links.region} was removed from the cluster")
        for session in self._links.up():
            if membership.was_removed(session.region):
                text = f"region {session.region} was removed from the cluster"
                self._refuse(session.link, Refusal(Reason.REMOVED, text), now_ms)
            elif membership.was_removed(self._links.region):
                text = f"region {self._links.region} was removed from the cluster"
                self._refuse(session.link, Refusal(Reason.STOPPING, text), now_ms)

    def _end_silent(self, now_ms: float) -> None:
        for session in list(self._links.sessions.values()):
            if now_ms - session.heard_ms >= SILENT_MS:
                text = f"nothing was heard for {SILENT_MS / 1000:g} s"
                self._refuse(session.link, Refusal(Reason.SILENT, text), now_ms)

    def _has_caught_up(self) -> bool:
        if self._local.cluster_id and not self._links.membership.others():
            return True
        return any(
            session.met is not None and covers(self._local.vector, session.met[0])
            for session in self._links.up()
        )

    # -- steering and looking -----------------------------------------------------------------

    def verify(self, region: int, keys: list[Place], now_ms: float) -> Verdict:
        """Compare with another region: some keys, or all if none are named.

        CommandError if it is out of reach.
        """
        return self._digest_exchange.verify(self._link_to(region), keys, now_ms)

    def repair(self, region: int, place: Place, now_ms: float) -> Inquiry:
        """Take over a key (database and name) from another region; CommandError likewise."""
        inquiry = self._receiver.joiner.repairs.order(self._link_to(region), place, now_ms)
        self._receiver.joiner.mend(now_ms)
        return inquiry

    def waiting_bytes(self) -> int:
        """Of batches that wait for a cause; read, each is there twice or thrice."""
        return 3 * sum(self._receiver.buffer.bytes_of.values())

    @property
    def entry(self) -> str:
        """How the tries to be admitted to a cluster stand, for people."""
        return "; ".join(filter(None, (self._dialler.tries, self._links.refusal)))

    @property
    def is_joining(self) -> bool:
        """Whether the state of another region is on its way here."""
        return self._receiver.joiner.joining is not None

    @property
    def is_comparing(self) -> bool:
        """Whether :meth:`compare` has something to do."""
        return self._digest_exchange.is_busy

    def compare(self, now_ms: float) -> None:
        """A slice of the work that comparing takes; every tick does one, more make it faster."""
        self._digest_exchange.tick(now_ms)

    def _link_to(self, region: int) -> Session:
        session = self._links.session_of(region)
        if session is None:
            raise CommandError(f"ERR Region {region} is unreachable")
        return session

    def remove(self, region: int, *, force: bool = False) -> None:
        """Remove a member; CommandError if it is none, or cannot be asked for what it has."""
        if not self._links.membership.is_member(region):
            raise CommandError(f"ERR Region {region} is not a member")
        if region != self._links.region and not force and self._links.session_of(region) is None:
            raise CommandError(
                f"ERR Region {region} is unreachable: what only it has would be lost. "
                "Use FORCE to remove it nevertheless"
            )
        self._local.remove(region)

    def clock_error(self) -> float:
        """By how many ms our clock is ahead of the others; 0 if nobody has told his.

        That is against the median, of an even number of others the one nearer to ours.
        """
        ahead = sorted(
            -offset
            for session in self._links.up()
            if (offset := self._links.peer(session.region).clock.offset_ms) is not None
        )
        if not ahead:
            return 0.0
        middle = ahead[(len(ahead) - 1) // 2 : len(ahead) // 2 + 1]
        return min(middle, key=abs)

    def confirmed(self) -> list[tuple[int, int]]:
        """Up to where the other members have applied own effects, and have them on disk."""
        return self._gossip.confirmed()

    def acknowledged(self, number: int, replica_id: int | None = None) -> tuple[int, int]:
        """How many other members have applied an own effect, and how many have it on disk.

        ``replica_id`` tells in which life of this region it was issued, if not in the present one.
        """
        confirmed = self._gossip.confirmed(replica_id)
        return (
            sum(applied >= number for applied, _ in confirmed),
            sum(durable >= number for _, durable in confirmed),
        )

    def feature_levels(self) -> dict[int, int]:
        """What each member understands, as far as it has told."""
        return self._gossip.feature_levels()

    @property
    def feature_level(self) -> int:
        """What all of them understand."""
        return min(self.feature_levels().values())

    def holding_back(self, effects: Mapping[int, int]) -> list[int]:
        """The members, maybe us, that keep some of these effects from being stable."""
        return self._figures.holding_back(effects)

    def peers(self, now_ms: float) -> list[PeerFigures]:
        """All other members, and regions that were removed while this process ran."""
        regions = {*self._links.membership.others(), *self._links.peers}
        return [self._figures.of(region, now_ms) for region in sorted(regions)]

    def standings(self, now_ms: float) -> dict[int, Standing]:
        """How far each region is, as it has told last."""
        return self._figures.standings(now_ms)

    def facts(self, now_ms: float) -> dict[str, int | float | str]:
        """Figures of the whole region, by the names INFO gives them."""
        return self._figures.facts(now_ms, self.unknown_frames, caught_up=self.caught_up)
