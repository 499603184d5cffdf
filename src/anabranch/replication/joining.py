"""Full syncs from other regions: staged in a file, then joined as a whole, from one peer at a time.

A full sync is necessary where a peer's log does not reach back far enough, or to repair a key. If
the link ends before the full sync is complete, the staged part is kept for a while, and the peer
continues there over the next link.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct, field

from anabranch.errors import AnabranchError
from anabranch.keyspace.inquiry import Inquiry
from anabranch.keyspace.version_vectors import covers
from anabranch.replication.causal import CausalBuffer
from anabranch.replication.digest_exchange import comparable
from anabranch.replication.frames import (
    Behind,
    FullSyncBegin,
    FullSyncEnd,
    FullSyncGet,
    Place,
    Reason,
    Refusal,
    busy,
)
from anabranch.replication.links import Links
from anabranch.replication.peer import PeerSession
from anabranch.replication.transfer import WAIT_MS
from anabranch.scheduling import Steps, in_one_go


class StagedFullSync(Struct):
    """A full sync that is being staged."""

    session: PeerSession
    """The link that brings it, or the ended link while it waits for another one."""
    vector: dict[int, int] | None = None
    """Its version vector; None until it has begun, and if the staged part is of no use."""
    transfer: int = 0
    """The name that its sender has given it."""
    bytes: int = 0
    """Count of staged bytes."""
    partial: bool = False
    """Whether keys that need not be joined were left out."""
    repair: Repair | None = None
    """The repair for which it was requested, if it is not to be joined."""
    loading: Steps[None] | None = None
    """The steps of loading it, once it is complete."""
    until_ms: float = 0.0
    """Until when it waits for another link; 0 while it arrives."""


class Joiner:
    """The staged full sync, and the peers whose full sync is needed next."""

    def __init__(
        self,
        links: Links,
        buffer: CausalBuffer,
        reach: Callable[[int], int],
        subscribe: Callable[[PeerSession], None],
    ) -> None:
        """``reach`` and ``subscribe`` are those of the :class:`Receiver`, which has the buffer."""
        self._links = links
        self._buffer = buffer
        self._reach = reach
        self._subscribe = subscribe
        self.incoming: StagedFullSync | None = None
        self.repairs = Repairs(links)
        self._behind: dict[
            int, Behind
        ] = {}  # by link: peers whose log does not reach back far enough

    @property
    def joining(self) -> StagedFullSync | None:
        """The full sync that is being staged to be joined."""
        incoming = self.incoming
        return None if incoming is None or incoming.repair is not None else incoming

    @property
    def is_loading(self) -> bool:
        """Whether work is left for :meth:`go_on` that did not fit into a slice of time."""
        return self.incoming is not None and self.incoming.loading is not None

    @property
    def vector(self) -> Mapping[int, int]:
        """The version vector of the full sync that is being joined."""
        joining = self.joining
        return {} if joining is None or joining.vector is None else joining.vector

    def is_needed(self, session: PeerSession) -> bool:
        """Whether this region needs a full sync of a peer, because the peer's log is cut."""
        return session.link in self._behind

    def end(self, session: PeerSession, now_ms: float) -> None:
        """A link has ended: a full sync over it is given up, or goes on with another one."""
        self._behind.pop(session.link, None)
        incoming = self.incoming
        if incoming is not None and incoming.session is session:
            self._stop_loading(incoming)
            if incoming.vector is None or incoming.repair is not None:
                self._give_up()
                self._stage_next()
            elif not incoming.until_ms:
                incoming.until_ms = now_ms + WAIT_MS
        self.repairs.end(session)

    # -- joining a state ----------------------------------------------------------------------

    def is_behind(self, session: PeerSession, message: Behind, now_ms: float) -> None:
        """A BEHIND: the log of a peer does not reach back to the requested effects."""
        self._links.peer(session.region).counters.failed_partial_catch_ups += 1
        self._behind[session.link] = message
        self._stage_next()

    def _stage_next(self) -> None:
        """Request the next full sync, or effects if a full sync is not necessary any more."""
        waiting = self.incoming
        if waiting is not None and not waiting.until_ms:
            return
        for link, behind in list(self._behind.items()):
            session = self._links.sessions[link]
            if self._reach(behind.replica_id) > behind.after:
                del self._behind[link]
                self._subscribe(session)
                continue
            if waiting is not None and waiting.session.region != session.region:
                continue
            known = dict(self._links.local.vector)
            if waiting is not None:
                waiting.session, waiting.until_ms = session, 0.0
                self._links.send(session, FullSyncGet(known, [], waiting.transfer, waiting.bytes))
            else:
                self.incoming = StagedFullSync(session)
                self._links.send(session, FullSyncGet(known))
            self._links.local.report_event("joining", **self._links.named(session.region))
            return

    def full_sync_begin(self, session: PeerSession, message: FullSyncBegin, now_ms: float) -> None:
        """A full sync begins, or continues."""
        incoming = self._expected(session)
        self._links.refuse_beyond_issued(message.vector.get(self._links.replica_id, 0), now_ms)
        self._links.membership.learn(message.vector)
        if message.offset:
            if (message.transfer, message.offset) != (incoming.transfer, incoming.bytes):
                raise Refusal(Reason.PROTOCOL, "a snapshot goes on elsewhere than it ended")
            facts = self._links.named(session.region)
            self._links.local.report_event("join_resumed", **facts, bytes=incoming.bytes)
            return
        self._stage(incoming, None)
        incoming.vector = message.vector
        incoming.transfer = message.transfer
        incoming.bytes = 0
        incoming.partial = message.partial
        if incoming.repair is not None:
            incoming.repair.begun(message)

    def full_sync_chunk(self, session: PeerSession, chunk: bytes) -> None:
        """The next bytes of a full sync."""
        incoming = self._expected(session)
        if incoming.vector is None:
            raise Refusal(Reason.PROTOCOL, "a snapshot goes on that has not begun")
        session.full_sync_ungranted += len(chunk)
        self._stage(incoming, chunk)
        incoming.bytes += len(chunk)

    def full_sync_end(self, session: PeerSession, message: FullSyncEnd, now_ms: float) -> None:
        """The full sync is complete: begin to load it."""
        incoming = self._expected(session)
        if incoming.vector is None or not incoming.bytes or incoming.bytes != message.bytes:
            incoming.vector = None
            raise Refusal(Reason.PROTOCOL, "a snapshot is not as long as it should be")
        if incoming.repair is not None:
            incoming.repair.is_staged = True
            self.mend(now_ms)
            return
        incoming.loading = self._links.local.load()
        self.go_on()

    def go_on(self) -> None:
        """Load more of a complete full sync, for a slice of time; join it when all is loaded."""
        incoming = self.incoming
        if incoming is None or incoming.loading is None:
            return
        try:
            for _ in incoming.loading:
                if self._links.local.is_over:
                    return
        except (OSError, AnabranchError) as problem:
            incoming.vector = incoming.loading = None
            raise busy(f"the snapshot cannot be joined: {problem}") from None
        incoming.loading = None
        self._join(incoming)

    def _join(self, incoming: StagedFullSync) -> None:
        session, vector = incoming.session, incoming.vector
        assert vector is not None
        incoming.vector = None
        links, reach = self._links, self._reach
        before = {other.link: reach(other.replica_id) for other in links.up()}
        try:
            links.local.join(vector, partial=incoming.partial)
        except (OSError, AnabranchError) as problem:
            raise busy(f"the snapshot cannot be joined: {problem}") from None
        self.incoming = None
        self._buffer.drop_applied(links.local.vector)
        counters = links.peer(session.region).counters
        counters.full_catch_ups += 1
        session.joined = True
        behind = self._behind.pop(session.link)
        counters.catch_up_cause = f"log cut after {behind.after} of replica ID {behind.replica_id}"
        facts = links.named(session.region)
        links.local.report_event("joined", **facts, bytes=incoming.bytes)
        for other in links.up():
            if other is session or reach(other.replica_id) > before[other.link]:
                self._behind.pop(other.link, None)
                self._subscribe(other)
        self._stage_next()

    # -- mending a key ------------------------------------------------------------------------

    def mend(self, now_ms: float) -> None:
        """Continue repairs: one at a time, and only while no full sync is being joined."""
        incoming = self.incoming
        if incoming is not None and 0 < incoming.until_ms <= now_ms:
            self._give_up()
            self._stage_next()
        if self.incoming is None:
            repair = self.repairs.next(now_ms)
            if repair is not None:
                self.incoming = StagedFullSync(repair.session, repair=repair)
                repair.ask(self._links)
        elif (repair := self.incoming.repair) is not None and self.repairs.go_on(repair, now_ms):
            self._give_up()
            self._stage_next()

    # -- staging ------------------------------------------------------------------------------

    def _expected(self, session: PeerSession) -> StagedFullSync:
        if self.incoming is None or self.incoming.session is not session:
            raise Refusal(Reason.PROTOCOL, "a snapshot arrives that was not requested")
        if self.incoming.loading is not None:
            raise Refusal(Reason.PROTOCOL, "a snapshot goes on behind its end")
        return self.incoming

    def _stop_loading(self, incoming: StagedFullSync) -> None:
        """Close the staging file; its contents stay."""
        if incoming.loading is not None:
            incoming.loading.close()
            incoming.loading = None

    def _stage(self, incoming: StagedFullSync, chunk: bytes | None) -> None:
        try:
            self._links.local.stage(chunk)
        except OSError as problem:
            incoming.vector = None  # it is unknown how much of the chunk was written
            raise busy(f"the snapshot cannot be staged: {problem}") from None

    def _give_up(self) -> None:
        if self.incoming is not None:
            self._stop_loading(self.incoming)
        self.incoming = None
        try:
            self._links.local.stage(None)
        except OSError as problem:
            self._links.local.report_event("not_staged", why=str(problem))


# -- repairs --------------------------------------------------------------------------------------
#
# Repairs a key: this region takes over the version of another region.
#
# The repair must not undo effects that the other region lacks, nor miss effects that this region
# lacks. So the version is used only if both regions have applied the same effects on the key.
# Usually that is so at once; if the key is being written, the repair fetches it again for a few
# seconds.

PATIENCE_MS: Final = 10_000.0
"""The deadline of a repair of a key that is written all the time."""

AGAIN_MS: Final = 100.0
"""The time after which a version that is too old is fetched again."""


class Repair(Struct):
    """The repair of one key, and its progress."""

    session: PeerSession
    place: Place
    inquiry: Inquiry
    until_ms: float
    is_staged: bool = False
    """Whether the version has arrived completely."""
    again_ms: float = 0.0
    """When it is requested again; 0 while it is requested, or can be used."""
    vector: dict[int, int] = field(default_factory=dict)
    """What the other side had applied, and its last effects on the key."""
    last_effects: dict[int, int] = field(default_factory=dict)

    def ask(self, links: Links) -> None:
        """Request the present version of the key."""
        self.is_staged = False
        self.again_ms = 0.0
        links.send(self.session, FullSyncGet(dict(links.local.vector), [self.place]))

    def begun(self, message: FullSyncBegin) -> None:
        """The version begins to arrive."""
        self.vector, self.last_effects = message.vector, message.last_effects


class Repairs:
    """Requested repairs, one at a time."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._waiting: list[Repair] = []

    def order(self, session: PeerSession, place: Place, now_ms: float) -> Inquiry:
        """Order the repair of a key from a region."""
        inquiry = Inquiry()
        self._waiting.append(Repair(session, place, inquiry, now_ms + PATIENCE_MS))
        return inquiry

    def next(self, now_ms: float) -> Repair | None:
        """The next repair to begin; it stays first until it ends."""
        return self._waiting[0] if self._waiting else None

    def end(self, session: PeerSession) -> None:
        """A link has ended: repairs over it have failed."""
        for repair in list(self._waiting):
            if repair.session is session:
                self._finish(repair, "the connection was lost")

    def go_on(self, repair: Repair, now_ms: float) -> bool:
        """Use the version that has arrived, if possible; returns whether the repair has ended."""
        links = self._links
        if repair.is_staged and not repair.again_ms:
            ours, last_effects = (
                links.local.vector,
                links.local.digests.last_effects_on_key(repair.place),
            )
            if comparable(ours, last_effects, repair.vector, repair.last_effects):
                return self._use(repair)
            if covers(ours, repair.last_effects):
                repair.again_ms = now_ms + AGAIN_MS  # this region has later effects on the key
        if now_ms >= repair.until_ms:
            self._finish(repair, "the key is written all the time: no moment was found to do it")
            return True
        if repair.again_ms and now_ms >= repair.again_ms:
            repair.ask(links)
        return False

    def _use(self, repair: Repair) -> bool:
        links = self._links
        db, key = repair.place
        try:
            in_one_go(links.local.load())
            links.local.take_key(db, key)
        except (OSError, AnabranchError) as problem:
            self._finish(repair, str(problem))
            return True
        links.local.report_event(
            "repaired", **links.named(repair.session.region),
            db=db, key=key[:128].decode("utf-8", "backslashreplace"),
        )  # fmt: skip
        self._finish(repair, "")
        return True

    def _finish(self, repair: Repair, problem: str) -> None:
        self._waiting.remove(repair)
        repair.inquiry.end(problem and f"TRYAGAIN {problem}")
