"""Rows: how far every region is, told on change and once a second; and what follows from them.

A row that arrives says that its sender is alive, how much of ours it has, what it could relay, what
its clock shows, and what it has on its disk. Rows of others travel along, so that regions without a
link hear of each other.
"""

from __future__ import annotations

from typing import Final

from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.replication.frames import Reason, Refusal, Row, Rows
from anabranch.replication.mesh import Mesh
from anabranch.replication.peer import Session
from anabranch.replication.receiving import Receiver
from anabranch.replication.vectors import covers

__all__ = ["HEARTBEAT_MS", "Gossip"]

ROW_EVERY_MS: Final = 50.0
"""Changes are told at most so often."""

HEARTBEAT_MS: Final = 1000.0
"""Without a change a row is sent so often."""

ROWS_UNDER_WAY_MAX: Final = 32
"""A link that is slower than its rows gets no more until some have arrived."""

FEATURE_LEVEL_MIN: Final = 1
"""What a member of which nothing is known understands."""


class Gossip:
    """Our own row and those of others."""

    def __init__(self, mesh: Mesh, receiver: Receiver) -> None:
        self._mesh = mesh
        self._receiver = receiver
        self._version = mesh.config.wall_ms()
        self.stable: dict[int, int] = {}
        """What was told to the region as stable last."""

    # -- telling ------------------------------------------------------------------------------

    def _own_row(self) -> Row:
        mesh = self._mesh
        return Row(
            mesh.region,
            mesh.origin,
            self._version,
            dict(mesh.local.vector),
            dict(mesh.local.durable),
            self._receiver.have(),
            mesh.config.feature_level,
            sorted(session.region for session in mesh.up()),
        )

    def send_due(self, now_ms: float) -> None:
        """Send rows to those for whom it is time."""
        mesh = self._mesh
        waiting = [
            session
            for session in mesh.up()
            if now_ms - session.row_sent_ms >= ROW_EVERY_MS
            and len(session.unechoed) < ROWS_UNDER_WAY_MAX
        ]
        if not waiting:
            return
        own = self._own_row()
        due = [
            session
            for session in waiting
            if now_ms - session.row_sent_ms >= HEARTBEAT_MS or self._has_news(session, own)
        ]
        if due:
            self._version = max(self._version + 1, mesh.config.wall_ms())
            own = self._own_row()
        for session in due:
            self._send(session, own, now_ms)

    def _has_news(self, session: Session, own: Row) -> bool:
        """Whether something has changed that the other side does not hear of from elsewhere."""
        sent = session.rows_sent.get(own.region)
        if sent is None or not sent.tells_the_same(own):
            return True
        theirs = self._mesh.rows.rows.get(session.region)
        connected = () if theirs is None else theirs.links
        for region, row in self._mesh.rows.rows.items():
            if region != session.region and region not in connected:
                sent = session.rows_sent.get(region)
                if sent is None or not sent.tells_the_same(row):
                    return True
        return False

    def _send(self, session: Session, own: Row, now_ms: float) -> None:
        rows = [own]
        for region, row in self._mesh.rows.rows.items():
            # Of itself it is told once: after a restart its versions must go on above that.
            if session.rows_sent.get(region) is not row and (
                region != session.region or region not in session.rows_sent
            ):
                rows.append(row)
        session.rows_sent.update((row.region, row) for row in rows)
        session.row_sent_ms = now_ms
        session.unechoed.append(now_ms)
        echo_age_ms = now_ms - session.stamp_at_ms
        self._mesh.send(
            session, Rows(rows, now_ms, session.stamp, echo_age_ms, self._mesh.config.wall_ms())
        )

    # -- hearing ------------------------------------------------------------------------------

    def receive(self, session: Session, message: Rows, now_ms: float) -> None:
        """Rows have come."""
        mesh = self._mesh
        first = message.rows[0]
        if first.region != session.region or first.origin != session.origin:
            raise Refusal(Reason.PROTOCOL, "the first row is not that of its sender")
        for row in message.rows:
            known_of_us = max(row.have.get(mesh.origin, 0), row.applied.get(mesh.origin, 0))
            mesh.refuse_beyond_issued(known_of_us, now_ms)
        for row in message.rows:
            self._note(row, now_ms)
        self._measure(session, message, now_ms)
        self._compare(session, first)

    def _note(self, row: Row, now_ms: float) -> None:
        mesh = self._mesh
        if row.region == mesh.region:
            if row.origin == mesh.origin:
                self._version = max(self._version, row.version)  # of ours, before a restart
        elif mesh.membership.is_known(row.region):
            mesh.rows.note(row, now_ms)
            if mesh.membership.is_member(row.region):
                theirs, ours = row.applied.get(row.origin, 0), mesh.local.vector.get(row.origin, 0)
                mesh.peer(row.region).receive_lag.told(row.origin, theirs, ours, now_ms)
        for origin in {row.origin, *row.applied, *row.durable, *row.have}:
            if region_of(origin) == mesh.region and origin > mesh.origin:
                mesh.outlived(epoch_of(origin))
                raise Refusal(
                    Reason.EPOCH,
                    f"region {mesh.region} lives in epoch {epoch_of(origin)} by now",
                )
            mesh.membership.hear([origin])

    def _measure(self, session: Session, message: Rows, now_ms: float) -> None:
        session.stamp = message.stamp
        session.stamp_at_ms = now_ms
        if message.echo < 0:
            return
        while session.unechoed and session.unechoed[0] <= message.echo:
            session.unechoed.popleft()
        mesh = self._mesh
        round_trip = max(0.0, now_ms - message.echo - message.echo_age_ms)
        clock = mesh.peer(session.region).clock
        clock.add(round_trip, message.wall_ms + round_trip / 2 - mesh.config.wall_ms())
        skew = round(clock.offset_ms or 0)
        if abs(skew) > mesh.config.max_clock_skew_ms:
            name = mesh.membership.name(session.region)
            mesh.note_once(
                "skew", session.region, now_ms,
                region=session.region, name=name, ahead=skew > 0,
            )  # fmt: skip

    def _compare(self, session: Session, row: Row) -> None:
        """Tell when both sides have all that the other had when they met."""
        mesh = self._mesh
        if session.met is None:
            session.met = (row.applied, mesh.local.vector.get(mesh.origin, 0))
            session.began_behind = not covers(mesh.local.vector, row.applied)
        theirs, ours = session.met
        if (
            not session.in_sync
            and row.applied.get(mesh.origin, 0) >= ours
            and covers(mesh.local.vector, theirs)
        ):
            session.in_sync = True
            counters = mesh.peer(session.region).counters
            if session.began_behind and not session.joined:
                counters.partial_catch_ups += 1
                counters.catch_up_cause = "effects written while there was no link"
            mesh.local.note(
                "caught_up", region=session.region, name=mesh.membership.name(session.region)
            )

    # -- what follows -------------------------------------------------------------------------

    def stabilise(self) -> None:
        """Tell the region when more has come to be on every member's disk.

        Not while a state is on its way here: it is of the past and may lack effects that every
        member has by now. What is remembered of them is needed to join it.
        """
        mesh = self._mesh
        if not mesh.membership.is_member(mesh.region):
            return  # who has not joined knows nobody it must wait for
        if self._receiver.joiner.incoming is not None:
            return
        stable = mesh.rows.stable(mesh.local.vector, mesh.local.durable, mesh.membership)
        if stable and stable != self.stable:
            self.stable = stable
            mesh.local.stable(dict(stable))

    def confirmed(self, origin: int | None = None) -> list[tuple[int, int]]:
        """Up to where the other members have applied our effects, and have them on disk.

        ``origin`` is one of our former lives, if those of the present one are not meant.
        """
        mesh = self._mesh
        ours = mesh.origin if origin is None else origin
        rows = [row for row in map(mesh.rows.rows.get, mesh.membership.others()) if row]
        return [(row.applied.get(ours, 0), row.durable.get(ours, 0)) for row in rows]

    def feature_levels(self) -> dict[int, int]:
        """What every member understands, as far as it has told."""
        mesh = self._mesh
        levels = {mesh.region: mesh.config.feature_level}
        for region in mesh.membership.others():
            row = mesh.rows.rows.get(region)
            levels[region] = FEATURE_LEVEL_MIN if row is None else row.feature_level
        return levels
