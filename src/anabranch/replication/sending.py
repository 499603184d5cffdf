"""What other regions are sent: own effects as they come, and whatever they ask for.

Own effects and snapshots are sent as far as a window of the peer reaches, a slice at a time, so
that a peer which is far behind keeps neither memory nor the event loop busy. A FETCH is answered at
once and outside the window, because what it brings may be what the other side needs to open the
window again; it names its own limit.
"""

from __future__ import annotations

from typing import Final

from anabranch.oplog.batch import span
from anabranch.replication.frames import (
    Behind,
    Credit,
    Fetch,
    Fetched,
    FrameType,
    Reason,
    Refusal,
    StateBegin,
    StateEnd,
    StateGet,
    Sub,
)
from anabranch.replication.lag import OwnMarks
from anabranch.replication.mesh import Mesh
from anabranch.replication.peer import Session
from anabranch.replication.vectors import maximum

__all__ = ["FETCH_BYTES_MAX", "Sender"]

SLICE_BYTES: Final = 2 << 20
"""Of own effects at a time; the rest goes when credit comes, or with the next tick."""

STATE_SLICE_BYTES: Final = 512 << 10
"""Of a snapshot, which has to be encoded as well."""

FETCH_BYTES_MAX: Final = 1 << 20

CREDIT_MAX: Final = 64 << 20
"""A peer that grants more is not sent more at a time."""

BUSY_RETRY_MS: Final = 1000


class Sender:
    """The outward half."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.restart()

    def restart(self) -> None:
        """The own origin has changed."""
        self.marks = OwnMarks(self._mesh.local.vector.get(self._mesh.origin, 0))
        self._fresh_after = -1
        self._fresh: list[bytes] = []

    def appended(self) -> None:
        """There are new own effects: read them once for all that keep up."""
        mesh = self._mesh
        after = self.marks.number
        fresh = mesh.local.read(mesh.origin, after, SLICE_BYTES)
        if fresh is None:  # a snapshot has replaced the log behind our back
            self.restart()
        elif fresh:
            self._fresh_after, self._fresh = after, fresh
            for raw in fresh:
                self.marks.add(span(raw).last, len(raw), span(raw).wall_ms)

    def subscribe(self, session: Session, message: Sub, now_ms: float) -> None:
        """The peer tells from where on it wants our effects."""
        number = message.vector.get(self._mesh.origin, 0)
        self._mesh.refuse_beyond_issued(number, now_ms)
        session.position = number
        session.subscribed = True
        self.feed(session)

    def credit(self, session: Session, message: Credit, now_ms: float) -> None:
        """The peer takes more."""
        if message.of_state:
            session.state_credit = min(session.state_credit + message.bytes, CREDIT_MAX)
        else:
            session.credit = min(session.credit + message.bytes, CREDIT_MAX)
            session.window = max(session.window, session.credit)
        self.feed(session)

    def fetch(self, session: Session, message: Fetch, now_ms: float) -> None:
        """The peer lacks effects of some origin."""
        mesh = self._mesh
        limit = min(message.max_bytes, FETCH_BYTES_MAX)
        batches = mesh.local.read(message.origin, message.after, limit)
        mesh.peer(session.region).counters.served_fetches += 1
        if batches is None:
            mesh.send(session, Behind(message.origin, message.after))
        for raw in batches or ():
            if span(raw).first > message.upto:
                break
            mesh.send_raw(session, FrameType.BATCH, raw)
        mesh.send(session, Fetched(message.origin))

    def begin_state(self, session: Session, message: StateGet, now_ms: float) -> None:
        """The peer wants our state, or some keys; a transfer that is under way begins again."""
        local = self._mesh.local
        try:
            session.outgoing, partial = local.state(message.vector, message.keys)
        except OSError as problem:
            raise Refusal(
                Reason.BUSY, f"no snapshot can be made: {problem}", BUSY_RETRY_MS
            ) from None
        session.outgoing_bytes = 0
        keys = message.keys
        touched = maximum(*map(local.digests.touched_key, keys)) if keys else {}
        self._mesh.send(session, StateBegin(dict(local.vector), partial, touched))
        self.feed(session)

    def feed(self, session: Session) -> None:
        """Send what there is, as far as the window reaches."""
        self._feed_state(session)
        mesh = self._mesh
        budget = SLICE_BYTES
        while session.subscribed and session.credit > 0 and budget > 0:
            if session.position == self._fresh_after:
                batches: list[bytes] | None = self._fresh
            else:
                most = min(session.credit, budget)
                batches = mesh.local.read(mesh.origin, session.position, most)
            if batches is None:
                session.subscribed = False
                mesh.send(session, Behind(mesh.origin, session.position))
                return
            if not batches:
                return
            for raw in batches:
                if session.credit <= 0 or budget <= 0:
                    break
                mesh.send_raw(session, FrameType.BATCH, raw)
                session.position = span(raw).last
                session.credit -= len(raw)
                budget -= len(raw)

    def _feed_state(self, session: Session) -> None:
        budget = STATE_SLICE_BYTES
        while session.outgoing is not None and session.state_credit > 0 and budget > 0:
            try:
                chunk = next(session.outgoing, None)
            except OSError as problem:
                raise Refusal(
                    Reason.BUSY, f"the snapshot cannot be read: {problem}", BUSY_RETRY_MS
                ) from None
            if chunk is None:
                session.outgoing = None
                self._mesh.send(session, StateEnd(session.outgoing_bytes))
                return
            self._mesh.send_raw(session, FrameType.STATE, chunk)
            session.outgoing_bytes += len(chunk)
            session.state_credit -= len(chunk)
            budget -= len(chunk)
