"""Sends to other regions: own effects continuously, and requested effects and full syncs.

Own effects and full syncs are limited by a window of the peer and sent in slices of time, so that
a peer which is far behind occupies neither memory nor the event loop. A FETCH is answered at once
and outside the window, because the fetched effects may be those that open the window again; a FETCH
has a limit of its own.
"""

from __future__ import annotations

from typing import Final

import msgspec

from anabranch.keyspace.places import Places
from anabranch.keyspace.replica import region_of
from anabranch.keyspace.version_vectors import covers, maximum
from anabranch.oplog.batch import SentBatch
from anabranch.replication.frames import (
    Behind,
    Credit,
    Fetch,
    Fetched,
    FullSyncBegin,
    FullSyncEnd,
    FullSyncGet,
    Reason,
    Refusal,
    Sub,
    busy,
)
from anabranch.replication.framing import FrameType
from anabranch.replication.lag import SendLag
from anabranch.replication.links import Links
from anabranch.replication.peer import PeerSession
from anabranch.replication.transfer import WAIT_MS, Transfer
from anabranch.scheduling import Steps

FRESH_BYTES: Final = 2 << 20
"""Bytes of new own effects that are kept for all peers; more is read again for each."""

READ_BYTES = 64 << 10
"""Bytes of older own effects that are read and sent in one step. Tests change it."""

FULL_SYNC_SLICE_BYTES: Final = 512 << 10
"""Bytes of a full sync per slice; less, because it must be encoded as well."""

FETCH_BYTES_MAX: Final = 1 << 20

CREDIT_MAX: Final = 64 << 20
"""The limit of the credit of a peer."""

TRANSFER_BYTES: Final = 7
"""Bytes of the random number that names a full sync."""


class Sender:
    """Sends effects and full syncs to all peers."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._waiting: dict[int, Transfer] = {}  # by region: full syncs whose link has ended
        self.restart()

    def restart(self) -> None:
        """The own replica ID has changed."""
        self.lag = SendLag(self._links.local.vector.get(self._links.replica_id, 0))
        self._fresh_after = -1
        self._fresh: list[SentBatch] = []

    def appended(self) -> None:
        """Send new own effects: they are read once for all peers that are up to date."""
        links = self._links
        after = self.lag.number
        fresh = links.local.read(links.replica_id, after, FRESH_BYTES)
        if fresh is None:  # a snapshot has replaced the log meanwhile
            self.restart()
        elif fresh:
            self._fresh_after, self._fresh = after, fresh
            for batch in fresh:
                self.lag.record(batch.last, len(batch.data), batch.wall_ms)

    def subscribe(self, session: PeerSession, message: Sub, now_ms: float) -> None:
        """A SUB: the peer requests own effects after a number."""
        number = message.vector.get(self._links.replica_id, 0)
        self._links.refuse_beyond_issued(number, now_ms)
        same = self._has_same(self._links.replica_id, number, message.fingerprint)
        if same:
            self._agree(session, number)
        elif same is not None:
            self._conflict(session, self._links.replica_id, number, now_ms)
        session.position = number
        session.subscribed = True
        self.feed(session)

    def credit(self, session: PeerSession, message: Credit, now_ms: float) -> None:
        """A CREDIT: the peer accepts more bytes."""
        if message.of_full_sync:
            session.full_sync_credit = min(session.full_sync_credit + message.bytes, CREDIT_MAX)
        else:
            session.credit = min(session.credit + message.bytes, CREDIT_MAX)
            session.window = max(session.window, session.credit)
        self.feed(session)

    def fetch(self, session: PeerSession, message: Fetch, now_ms: float) -> None:
        """A FETCH: the peer lacks effects of some replica ID."""
        links = self._links
        limit = min(message.max_bytes, FETCH_BYTES_MAX)
        links.peer(session.region).counters.served_fetches += 1
        batches: list[SentBatch] | None = []
        if self._has_same(message.replica_id, message.after, message.fingerprint) is False:
            self._conflict(session, message.replica_id, message.after, now_ms)
        else:
            batches = links.local.read(message.replica_id, message.after, limit)
        if batches is None:
            links.send(session, Behind(message.replica_id, message.after))
        for batch in batches or ():
            if batch.first > message.upto:
                break
            links.send_batch(session, batch.data)
        links.send(session, Fetched(message.replica_id))

    def _has_same(self, replica_id: int, number: int, fingerprint: bytes) -> bool | None:
        """Whether the peer has the same batch at a number; None if that is unknown."""
        ours = self._links.local.fingerprint(replica_id, number) if fingerprint else None
        return None if ours is None else ours == fingerprint

    def _agree(self, session: PeerSession, number: int) -> None:
        agreed = self._links.peer(session.region).agreed
        agreed[self._links.replica_id] = max(number, agreed.get(self._links.replica_id, 0))

    def _conflict(self, session: PeerSession, replica_id: int, number: int, now_ms: float) -> None:
        """A number has two contents: no effects may follow either of them in other regions.

        The region that issued both must stop: it was set back. But if the peer had agreed on the
        number while this process ran, the peer's disk is inconsistent. That case, and a conflict of
        two other regions, is reported to the operator.
        """
        links, region = self._links, region_of(replica_id)
        agreed = links.peer(session.region).agreed.get(replica_id, 0)
        if region == links.region and number > agreed:
            links.set_back(_set_back_text(replica_id, number, session.region))
            links.refuse_if_set_back()
        if region == session.region:
            raise Refusal(Reason.SET_BACK, _set_back_text(replica_id, number, links.region))
        links.report_once(
            "conflict", (session.region, replica_id), now_ms,
            region=session.region, replica_id=replica_id, number=number,
        )  # fmt: skip

    def begin_full_sync(self, session: PeerSession, message: FullSyncGet, now_ms: float) -> None:
        """The peer requests a full sync, or some keys; a running transfer begins again."""
        waiting = self._waiting.pop(session.region, None)
        self._stop(session)
        if (
            waiting is not None
            and waiting.begin.transfer == message.transfer
            and waiting.go_back(message.offset)
        ):
            session.outgoing = waiting
            begin = msgspec.structs.replace(waiting.begin, offset=message.offset)
            self._links.send(session, begin)
        else:
            self._drop(waiting)
            local = self._links.local
            if message.keys:
                last_effects = map(local.digests.last_effects_on_key, message.keys)
                self._begin_transfer(session, local.places(message.keys), maximum(*last_effects))
            else:
                session.choosing = local.choose(message.vector)
        self.feed(session)

    def _choose(self, session: PeerSession, choosing: Steps[Places | None]) -> None:
        """Find the keys of a full sync, for a slice of time; begin to send it when they are known.

        Not while a full sync is joined here: its keys may be among them.
        """
        local = self._links.local
        if local.is_joining:
            return
        try:
            next(choosing)
            while not local.is_over:
                next(choosing)
        except StopIteration as end:
            session.choosing = None
            self._begin_transfer(session, end.value, None)

    def _begin_transfer(
        self, session: PeerSession, places: Places | None, last_effects: dict[int, int] | None
    ) -> None:
        """Begin a full sync of these keys; ``last_effects`` on them only for a repair."""
        local = self._links.local
        try:
            chunks = local.full_sync(places)
        except OSError as problem:
            raise busy(f"no snapshot can be made: {problem}") from None
        number = int.from_bytes(self._links.chance.randbytes(TRANSFER_BYTES))
        is_partial = places is not None
        begin = FullSyncBegin(dict(local.vector), is_partial, last_effects or {}, number)
        session.outgoing = Transfer(begin, chunks, is_whole=last_effects is None)
        self._links.send(session, begin)

    def _stop(self, session: PeerSession) -> None:
        """End what is being sent over a link, or prepared."""
        self._drop(session.outgoing)
        session.outgoing = None
        if session.choosing is not None:
            session.choosing.close()
            session.choosing = None

    def end(self, session: PeerSession, now_ms: float) -> None:
        """A link has ended: the peer may continue its full sync over the next one."""
        transfer, session.outgoing = session.outgoing, None
        self._stop(session)
        if transfer is None or not transfer.is_whole:
            self._drop(transfer)
            return
        transfer.until_ms = now_ms + WAIT_MS
        self._drop(self._waiting.get(session.region))
        self._waiting[session.region] = transfer

    def tick(self, now_ms: float) -> None:
        """Release full syncs whose peer did not return in time."""
        for region, transfer in list(self._waiting.items()):
            if now_ms >= transfer.until_ms:
                self._drop(self._waiting.pop(region))
        for session in self._links.up():
            if session.outgoing is not None and session.outgoing.is_sent:
                row = self._links.rows.rows.get(session.region)
                if row is not None and covers(row.applied, session.outgoing.begin.vector):
                    session.outgoing = None

    @property
    def is_ready(self) -> bool:
        """Whether more could be sent."""
        up = self._links.up()
        return bool([each for each in up if each.is_cut or _has_full_sync_to_send(each)])

    @staticmethod
    def _drop(transfer: Transfer | None) -> None:
        if transfer is not None:
            transfer.close()

    def feed(self, session: PeerSession) -> None:
        """Send full sync data and own effects, as far as the window and the slice of time allow."""
        self._feed_full_sync(session)
        links = self._links
        session.is_cut = False
        issued = links.local.vector.get(links.replica_id, 0)
        while (
            session.subscribed
            and session.credit > 0
            and session.position < issued
            and not session.is_cut
        ):
            if session.position == self._fresh_after:
                batches: list[SentBatch] | None = self._fresh
            else:
                most = min(session.credit, READ_BYTES)
                batches = links.local.read(links.replica_id, session.position, most)
            if batches is None:
                session.subscribed = False
                links.send(session, Behind(links.replica_id, session.position))
                return
            if not batches:
                return
            for batch in batches:
                if session.credit <= 0:
                    break
                links.send_batch(session, batch.data)
                session.position = batch.last
                session.credit -= len(batch.data)
            self._agree(session, session.position)
            session.is_cut = session.position < self.lag.number and links.local.is_over

    def _feed_full_sync(self, session: PeerSession) -> None:
        """Send more of a full sync, as far as the window and the slice of time allow."""
        budget = FULL_SYNC_SLICE_BYTES
        if session.choosing is not None:
            self._choose(session, session.choosing)
        transfer = session.outgoing
        while transfer is not None and _has_full_sync_to_send(session) and budget > 0:
            try:
                chunk = transfer.next_chunk()
            except OSError as problem:
                session.outgoing = None
                raise busy(f"the snapshot cannot be read: {problem}") from None
            if chunk is None:
                self._links.send(session, FullSyncEnd(transfer.sent))
                return
            if not chunk:
                return
            self._links.send_raw(session, FrameType.FULL_SYNC, chunk)
            session.full_sync_credit -= len(chunk)
            budget -= len(chunk)


def _has_full_sync_to_send(session: PeerSession) -> bool:
    """Whether a full sync is prepared, or incomplete and the peer accepts more."""
    transfer = session.outgoing
    if session.choosing is not None:
        return True
    return transfer is not None and not transfer.is_sent and session.full_sync_credit > 0


def _set_back_text(replica_id: int, number: int, witness: int) -> str:
    return (
        f"This region was set back to an earlier state: region {witness} knows another effect "
        f"{number} of replica ID {replica_id}. Writes accepted here since are in no other region; "
        "the manual describes how to recover them "
        "(active-active-operating.md, A disk that was set back)"
    )
