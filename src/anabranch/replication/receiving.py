"""Receives batches of other regions, applies them in causal order, and fetches missing ones.

A region sends its own effects without being asked. This region fetches them from another region

* if a batch of that other region depends on them, and their own link does not bring them at once;
* if a status row shows more of them than are here, and the link to their region is down, or has
  not brought any for two round trips.

This is how relaying works: no region forwards effects without a request, the first copy that
arrives is used, and a link that is up to date causes no requests. If a peer's log does not reach
back far enough, a full sync is joined instead: :mod:`joining`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from msgspec import Struct

from anabranch.effects.codec import EffectFormatError
from anabranch.errors import AnabranchError
from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.keyspace.version_vectors import covers, maximum
from anabranch.oplog.batch import (
    Batch,
    BatchError,
    NewerBatchError,
    decode_batch,
    fingerprint,
    saved_bytes,
)
from anabranch.replication.causal import CausalBuffer, Held, MissingEffects
from anabranch.replication.frames import (
    REPLICA_ID_MAX,
    Credit,
    Fetch,
    Fetched,
    Reason,
    Refusal,
    Sub,
)
from anabranch.replication.joining import Joiner
from anabranch.replication.links import Links
from anabranch.replication.peer import PeerSession
from anabranch.replication.sending import FETCH_BYTES_MAX
from anabranch.stream.fields import NUMBER_MAX

PATIENCE_MS: Final = 200.0
"""How long a link may bring nothing before other regions are asked for its effects."""

GRACE_MS: Final = 10.0
"""How much later a cause may arrive than a batch that depends on it; at least a round trip."""

FETCH_TIMEOUT_MS: Final = 2000.0
"""A request without an answer is repeated if its link was silent for so long.

A link that brings anything keeps the order, so the answer comes behind that."""

GRANTS_PER_WINDOW: Final = 16

FEW_NUMBERS: Final = 8
"""A unit with at most so many numbers costs less if it is applied with those behind it."""

GATHERED_UNITS: Final = 32
"""The most units that wait only for what has arrived behind them."""

TOGETHER_NUMBERS = 64  # not Final: a test of the compiled core lowers it, too
"""Waiting units of one replica ID are applied together while all have at most so many numbers.

A log entry, waiting clients and the checks of a unit then cost about as much as for one unit."""

MALFORMED_RETRY_MS: Final = 10_000
"""Long, because the same batch arrives again until an operator removes the cause."""


class _Fetching(Struct):
    session: PeerSession
    reach: int
    since_ms: float


class _Reached(NamedTuple):
    reach: int
    since_ms: float


class Receiver:
    """Receives batches and decides when they are applied."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self.buffer = CausalBuffer()
        self.refused: str | None = None
        """Why effects cannot be applied at present; tried again with the next tick."""
        self.unacceptable: dict[int, str] = {}
        """By region: why a batch or a frame that it sends cannot be read or applied here."""
        self.rejected: list[tuple[int, Refusal]] = []
        """Regions that sent batches which must not be applied: their links must be ended."""
        self.is_full = False
        """Whether memory is short: nothing is requested, but arriving batches are applied."""
        self.joiner = Joiner(links, self.buffer, self.reach, self.subscribe)
        self.relays: dict[int, int] = {}
        """Replica IDs that another region relays at present, and that region."""
        self._fetching: dict[int, _Fetching] = {}
        self._barren_until: dict[
            int, float
        ] = {}  # replica IDs of which no region had more when it was asked
        self._progress: dict[int, _Reached] = {}  # of replica IDs of which other regions have more

    # -- where we are -------------------------------------------------------------------------

    def reach(self, replica_id: int) -> int:
        """The last effect of a replica ID up to which all effects are here, applied or waiting."""
        return self.buffer.reach(replica_id, self._links.local.vector.get(replica_id, 0))

    def _fingerprint(self, replica_id: int) -> bytes:
        """The fingerprint of the batch at :meth:`reach`; empty if unknown."""
        reach = self.reach(replica_id)
        waiting = self.buffer.ending(replica_id, reach)
        if waiting is not None:
            return fingerprint(waiting)
        return self._links.local.fingerprint(replica_id, reach) or b""

    def have(self) -> dict[int, int]:
        """The last effect of each replica ID that is here in any form."""
        return maximum(self._links.local.vector, self.buffer.last(), self.joiner.vector)

    # -- links --------------------------------------------------------------------------------

    def link_up(self, session: PeerSession) -> None:
        """A link is up: request effects over it."""
        session.grants = self._links.config.window_bytes
        session.ungranted = session.full_sync_ungranted = session.grants
        self.grant(session)
        self.subscribe(session)

    def subscribe(self, session: PeerSession) -> None:
        """Request the own effects of the peer after those that are here."""
        vector = dict(self._links.local.vector)
        if reach := self.reach(session.replica_id):
            vector[session.replica_id] = reach
        self._links.send(session, Sub(vector, self._fingerprint(session.replica_id)))

    def end(self, session: PeerSession, now_ms: float) -> None:
        """A link has ended: forget requests and units that arrived only in part."""
        for replica_id, fetching in list(self._fetching.items()):
            if fetching.session is session:
                del self._fetching[replica_id]
        self.joiner.end(session, now_ms)

    def drop_ended_epochs(self) -> None:
        """Drop waiting batches of epochs that have ended, and of regions that were removed.

        If another region has applied them, they can be fetched there. Batches that no region has
        applied are lost with the disk or the removal of their region, and so may be their causes.
        This region must not apply them later, when the others do not expect them any more.
        """
        for replica_id in self.buffer.replica_ids():
            if self._links.membership.is_over(replica_id):
                self.buffer.drop(replica_id)
        for region in [*self.unacceptable]:
            if not self._links.membership.is_member(region):
                del self.unacceptable[region]

    # -- batches ------------------------------------------------------------------------------

    def batch(
        self, session: PeerSession, raw: bytes, now_ms: float, *, more_follows: bool = False
    ) -> bool:
        """A batch has arrived: keep it until :meth:`deliver`, unless it is here already.

        Returns whether it can wait for what has arrived behind it, if ``more_follows``: it is
        small, and so are those that wait.
        """
        links = self._links
        counters = links.peer(session.region).counters
        batch = self._checked(session, raw, now_ms)
        counters.received_raw_bytes += saved_bytes(raw)
        is_direct = batch.replica_id == session.replica_id
        if is_direct:
            session.ungranted += len(raw)
        else:
            counters.relayed_bytes += len(raw)
        applied = links.local.vector.get(batch.replica_id, 0)
        can_wait = (
            more_follows and batch.numbered <= FEW_NUMBERS and len(self.buffer) < GATHERED_UNITS
        )
        if batch.last <= applied:
            counters.duplicates += 1
        elif not can_wait and self._is_next(batch, applied):
            self._apply([Held(batch, raw, session.region, now_ms)], now_ms)
        elif batch.first <= applied:
            self._alarm(
                session, now_ms, f"effects {batch.first} to {batch.last} of {batch.replica_id}"
            )
            raise Refusal(
                Reason.BATCH,
                f"a batch contains effects {batch.first} to {batch.last} of "
                f"replica ID {batch.replica_id}, of which {applied} are applied: "
                "it was cut differently before",
            )
        elif not is_direct and self.buffer.bytes_of[session.region] >= self._fetched_bytes_max():
            pass  # more than was requested; it can be fetched when there is room
        elif not self.buffer.add(Held(batch, raw, session.region, now_ms)):
            counters.duplicates += 1
        if (
            is_direct
            and batch.last > applied
            and self.relays.pop(batch.replica_id, None) is not None
        ):
            links.local.report_event("relay_ended", **links.named(session.region))
        return can_wait

    def _is_next(self, batch: Batch, applied: int) -> bool:
        """Whether a batch can be applied at once, which is usual."""
        return (
            not self.buffer
            and not batch.continues
            and batch.first == applied + 1
            and self.refused is None
            and covers(self._links.local.vector, batch.dependencies)
        )

    def _fetched_bytes_max(self) -> int:
        config = self._links.config
        return config.hold_bytes + config.window_bytes + FETCH_BYTES_MAX

    def _checked(self, session: PeerSession, raw: bytes, now_ms: float) -> Batch:
        """The batch in these bytes; :class:`Refusal` if it must not be applied."""
        links = self._links
        try:
            batch = decode_batch(raw)
        except BatchError as problem:
            links.peer(session.region).counters.checksum_errors += 1
            self._alarm(session, now_ms, str(problem))
            text = f"a batch cannot be read: {problem}"
            if isinstance(problem, NewerBatchError):  # it was not damaged on its way
                raise self.refuse(session.region, text) from None
            raise Refusal(Reason.BATCH, text) from None
        if (
            batch.size != len(raw)
            or batch.is_local
            or batch.numbered < 1
            or batch.first < 1
            or batch.last > NUMBER_MAX
            or max(batch.dependencies, default=0) > REPLICA_ID_MAX
        ):
            self._alarm(session, now_ms, "no batch for other regions")
            raise self.refuse(session.region, "a batch is not one that is sent to other regions")
        if batch.replica_id == links.replica_id:
            links.refuse_beyond_issued(batch.last, now_ms)
        elif batch.region == links.region and batch.epoch > epoch_of(links.replica_id):
            links.outlived(batch.epoch)
            raise Refusal(Reason.EPOCH, f"region {links.region} is in epoch {batch.epoch} there")
        if not links.membership.is_known(batch.region):
            self._alarm(session, now_ms, f"region {batch.region} is no member")
            raise Refusal(
                Reason.BATCH, f"a batch is of region {batch.region}, which is no member here"
            )
        links.membership.learn([batch.replica_id])
        return batch

    def _alarm(self, session: PeerSession, now_ms: float, why: str) -> None:
        self._links.report_once(
            "bad_batch", session.region, now_ms, **self._links.named(session.region), why=why
        )

    def deliver(self, now_ms: float) -> None:
        """Apply ready units for a slice of time, at least one."""
        local = self._links.local
        numbers = TOGETHER_NUMBERS
        while (
            self.refused is None
            and not local.is_joining
            and (units := self.buffer.next_units(local.vector, numbers))
        ):
            self.buffer.remove(units)
            if not self._apply(units, now_ms):
                numbers = 0  # one of them is malformed: find it
            if local.is_over:
                return

    @property
    def is_ready(self) -> bool:
        """Whether another unit is ready."""
        local = self._links.local
        if not self.buffer or self.refused is not None or local.is_joining:
            return False
        return bool(self.buffer.next_units(local.vector))

    def _apply(self, units: list[Held], now_ms: float) -> bool:
        """Apply units; they wait if that is not possible at present.

        Returns False if they wait because one of several units is malformed.
        """
        local = self._links.local
        try:
            local.deliver([held.batch for held in units], [held.raw for held in units])
        except EffectFormatError as problem:
            if all(held.batch.continues for held in units[:-1]):
                self._reject(units, problem, now_ms)
                return True
            self._keep(units)
            return False
        except (OSError, AnabranchError) as trouble:  # not problem: see decision 21
            self.refused = str(trouble)
            self._links.report_once("not_applied", 0, now_ms, why=self.refused)
            self._keep(units)
            return True
        for held in units if self.unacceptable else ():
            self.unacceptable.pop(held.source, None)
        last = units[-1].batch
        assert local.vector[last.replica_id] == last.last
        return True

    def _keep(self, units: list[Held]) -> None:
        """Let units wait that were taken from the buffer."""
        for held in units:
            self.buffer.add(held)

    def _reject(self, unit: list[Held], problem: EffectFormatError, now_ms: float) -> None:
        """A unit is malformed: end the links that brought it."""
        batch = unit[0].batch
        text = f"a batch of region {batch.region} cannot be applied: {problem}"
        for source in dict.fromkeys(held.source for held in unit):
            session = self._links.session_of(source)
            if session is not None:
                self._alarm(session, now_ms, text)
            self.rejected.append((source, self.refuse(source, text)))

    def refuse(self, region: int, why: str, reason: Reason = Reason.BATCH) -> Refusal:
        """The refusal of what a region will send again, to be raised."""
        if region:  # otherwise the other side has proved nothing yet
            self.unacceptable[region] = why
        return Refusal(reason, why, MALFORMED_RETRY_MS)

    @property
    def trouble(self) -> str:
        """Why received effects cannot be applied at present; empty if they can."""
        return self.refused or "; ".join(
            f"region {region}: {why}" for region, why in self.unacceptable.items()
        )

    def take_rejected(self) -> list[tuple[int, Refusal]]:
        """The regions in :attr:`rejected`, which is emptied."""
        rejected, self.rejected = self.rejected, []
        return rejected

    def check_memory(self) -> None:
        """Report when memory becomes short, and when it is sufficient again."""
        is_full = self._links.local.is_full
        if is_full != self.is_full:
            self.is_full = is_full
            self._links.local.report_event("full" if is_full else "not_full")

    def grant(self, session: PeerSession) -> None:
        """Grant a peer the bytes that it has sent, unless too many of them wait for a cause."""
        if self.is_full:
            return
        config = self._links.config
        if session.full_sync_ungranted * GRANTS_PER_WINDOW >= session.grants:
            self._links.send(session, Credit(session.full_sync_ungranted, True))
            session.full_sync_ungranted = 0
        if self.refused is not None or session.ungranted * GRANTS_PER_WINDOW < session.grants:
            return
        if self.buffer.bytes_of[session.region] >= config.hold_bytes and not self.buffer.lacks_rest(
            session.replica_id, self._links.local.vector
        ):
            return
        self._links.send(session, Credit(session.ungranted))
        session.ungranted = 0

    # -- what is missing ----------------------------------------------------------------------

    def want(self, now_ms: float) -> None:
        """Fetch effects that are missing here and that other regions have."""
        for replica_id, fetching in list(self._fetching.items()):
            last_ms = max(fetching.since_ms, fetching.session.heard_ms)
            if now_ms - last_ms >= FETCH_TIMEOUT_MS:
                del self._fetching[replica_id]
        if self.is_full:
            return
        vector = self._links.local.vector
        for missing in self.buffer.missing(vector):
            self._want_cause(missing, now_ms)
        if self.refused is None:
            self._want_unheard(now_ms)

    def _want_cause(self, missing: MissingEffects, now_ms: float) -> None:
        links = self._links
        replica_id, upto = missing.replica_id, missing.upto
        if self.reach(replica_id) >= upto and self.buffer.lacks_cause(
            replica_id, links.local.vector
        ):
            return  # the missing batch is here, and waits for a cause itself
        direct = links.session_of(region_of(replica_id))
        if (
            direct is not None
            and direct.replica_id == replica_id
            and direct.region != missing.source
        ):
            # Usually it arrives sooner than the answer of another region would.
            round_trip = links.peer(direct.region).clock.round_trip_ms or 0.0
            if now_ms - missing.since_ms < min(max(GRACE_MS, round_trip), PATIENCE_MS):
                return
        session = links.session_of(missing.source) or self._best_source(replica_id, None)
        if session is not None:
            self._fetch(session, replica_id, upto, now_ms)

    def _want_unheard(self, now_ms: float) -> None:
        links = self._links
        newest: dict[int, int] = {}
        for session in links.up():
            row = links.rows.rows.get(session.region)
            for replica_id, number in {} if row is None else row.applied.items():
                if number > self.reach(replica_id) and replica_id != links.replica_id:
                    newest[replica_id] = max(number, newest.get(replica_id, 0))
        for replica_id in [replica_id for replica_id in self._progress if replica_id not in newest]:
            del self._progress[replica_id]
        for replica_id in [
            o for o in self.relays if links.membership.is_former(o) and o not in newest
        ]:
            del self.relays[replica_id]
        for replica_id, number in newest.items():
            reach = self.reach(replica_id)
            progress = self._progress.get(replica_id)
            if progress is None or progress.reach != reach:
                progress = self._progress[replica_id] = _Reached(reach, now_ms)
            direct = links.session_of(region_of(replica_id))
            if direct is not None and direct.replica_id != replica_id:
                direct = None  # it is in a later epoch, and sends this one only on request
            if direct is not None:
                round_trip = links.peer(direct.region).clock.round_trip_ms or 0.0
                if now_ms - progress.since_ms < max(PATIENCE_MS, 2 * round_trip):
                    continue
            if self.buffer.lacks_cause(replica_id, links.local.vector):
                continue
            source = self._best_source(replica_id, direct)
            if source is not None and self._fetch(source, replica_id, number, now_ms):
                self._report_relay(replica_id, source)

    def _best_source(self, replica_id: int, but: PeerSession | None) -> PeerSession | None:
        """The link to the region that has most effects of a replica ID, if more than this one."""
        best = None
        most = self.reach(replica_id)
        for session in self._links.up():
            row = self._links.rows.rows.get(session.region)
            number = 0 if row is None else row.applied.get(replica_id, 0)
            if number > most and session is not but and not self.joiner.is_needed(session):
                best, most = session, number
        return best

    def _fetch(self, session: PeerSession, replica_id: int, upto: int, now_ms: float) -> bool:
        """Fetch, unless a request is unanswered or failed a short while ago."""
        links = self._links
        if (
            replica_id in self._fetching
            or now_ms < self._barren_until.get(replica_id, 0.0)
            or not links.membership.is_known(region_of(replica_id))
            or self.joiner.is_needed(session)
        ):
            return False
        reach = self.reach(replica_id)
        if upto <= reach:
            return False
        self._fetching[replica_id] = _Fetching(session, reach, now_ms)
        links.peer(session.region).counters.fetches += 1
        links.send(
            session, Fetch(replica_id, reach, upto, FETCH_BYTES_MAX, self._fingerprint(replica_id))
        )
        return True

    def _report_relay(self, replica_id: int, source: PeerSession) -> None:
        if self.relays.get(replica_id) != source.region:
            self.relays[replica_id] = source.region
            self._links.local.report_event(
                "relay", region=region_of(replica_id), replica_id=replica_id, via=source.region
            )

    def fetched(self, session: PeerSession, message: Fetched, now_ms: float) -> None:
        """The answer to a FETCH is complete."""
        fetching = self._fetching.get(message.replica_id)
        if fetching is None or fetching.session is not session:
            return
        del self._fetching[message.replica_id]
        if self.reach(message.replica_id) <= fetching.reach:
            self._barren_until[message.replica_id] = now_ms + PATIENCE_MS
        else:
            self._barren_until.pop(message.replica_id, None)
