"""Rows: how far every region is, told on change and once a second; and what follows from them.

A row that arrives says that its sender is alive, how much of ours it has, what it could relay, what
its clock shows, and what it has on its disk. Rows of others travel along, so that regions without a
link hear of each other.
"""

from __future__ import annotations

from typing import Final

from anabranch.keyspace.replica import epoch_of, region_of
from anabranch.keyspace.version_vectors import covers
from anabranch.replication.frames import Reason, Refusal, Row, Rows
from anabranch.replication.links import Links
from anabranch.replication.peer import Session
from anabranch.replication.receiving import Receiver

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

    def __init__(self, links: Links, receiver: Receiver) -> None:
        self._links = links
        self._receiver = receiver
        self._version = links.config.wall_ms()
        self.watermark: dict[int, int] = {}
        """What was told to the region as stable last."""

    # -- telling ------------------------------------------------------------------------------

    def _own_row(self) -> Row:
        links = self._links
        return Row(
            links.region,
            links.replica_id,
            self._version,
            dict(links.local.vector),
            dict(links.local.durable),
            self._receiver.have(),
            links.config.feature_level,
            sorted(session.region for session in links.up()),
        )

    def send_due(self, now_ms: float) -> None:
        """Send rows to those for whom it is time."""
        links = self._links
        waiting = [
            session
            for session in links.up()
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
            self._version = max(self._version + 1, links.config.wall_ms())
            own = self._own_row()
        for session in due:
            self._send(session, own, now_ms)

    def _has_news(self, session: Session, own: Row) -> bool:
        """Whether something has changed that the other side does not hear of from elsewhere."""
        sent = session.rows_sent.get(own.region)
        if sent is None or not sent.tells_the_same(own):
            return True
        theirs = self._links.rows.rows.get(session.region)
        connected = () if theirs is None else theirs.links
        for region, row in self._links.rows.rows.items():
            if region != session.region and region not in connected:
                sent = session.rows_sent.get(region)
                if sent is None or not sent.tells_the_same(row):
                    return True
        return False

    def _send(self, session: Session, own: Row, now_ms: float) -> None:
        rows = [own]
        for region, row in self._links.rows.rows.items():
            # Of itself it is told once: after a restart its versions must go on above that.
            if session.rows_sent.get(region) is not row and (
                region != session.region or region not in session.rows_sent
            ):
                rows.append(row)
        session.rows_sent.update((row.region, row) for row in rows)
        session.row_sent_ms = now_ms
        session.unechoed.append(now_ms)
        echo_age_ms = now_ms - session.stamp_at_ms
        self._links.send(
            session, Rows(rows, now_ms, session.stamp, echo_age_ms, self._links.config.wall_ms())
        )

    # -- hearing ------------------------------------------------------------------------------

    def receive(self, session: Session, message: Rows, now_ms: float) -> None:
        """Rows have come."""
        links = self._links
        first = message.rows[0]
        if first.region != session.region or first.replica_id != session.replica_id:
            raise Refusal(Reason.PROTOCOL, "the first row is not that of its sender")
        for row in message.rows:
            known_of_us = max(
                row.have.get(links.replica_id, 0), row.applied.get(links.replica_id, 0)
            )
            links.refuse_beyond_issued(known_of_us, now_ms)
        for row in message.rows:
            self._update_row(row, now_ms)
        self._measure(session, message, now_ms)
        self._compare(session, first)

    def _update_row(self, row: Row, now_ms: float) -> None:
        links = self._links
        if row.region == links.region:
            if row.replica_id == links.replica_id:
                self._version = max(self._version, row.version)  # of ours, before a restart
        elif links.membership.is_known(row.region):
            links.rows.update(row, now_ms)
            if links.membership.is_member(row.region):
                theirs, ours = (
                    row.applied.get(row.replica_id, 0),
                    links.local.vector.get(row.replica_id, 0),
                )
                links.peer(row.region).receive_lag.told(row.replica_id, theirs, ours, now_ms)
        for replica_id in {row.replica_id, *row.applied, *row.durable, *row.have}:
            if region_of(replica_id) == links.region and replica_id > links.replica_id:
                links.outlived(epoch_of(replica_id))
                raise Refusal(
                    Reason.EPOCH,
                    f"region {links.region} lives in epoch {epoch_of(replica_id)} by now",
                )
            links.membership.hear([replica_id])

    def _measure(self, session: Session, message: Rows, now_ms: float) -> None:
        session.stamp = message.stamp
        session.stamp_at_ms = now_ms
        if message.echo < 0:
            return
        while session.unechoed and session.unechoed[0] <= message.echo:
            session.unechoed.popleft()
        links = self._links
        round_trip = max(0.0, now_ms - message.echo - message.echo_age_ms)
        clock = links.peer(session.region).clock
        clock.add(round_trip, message.wall_ms + round_trip / 2 - links.config.wall_ms())
        skew = round(clock.offset_ms or 0)
        if abs(skew) > links.config.max_clock_skew_ms:
            name = links.membership.name(session.region)
            links.report_once(
                "skew", session.region, now_ms,
                region=session.region, name=name, ahead=skew > 0,
            )  # fmt: skip

    def _compare(self, session: Session, row: Row) -> None:
        """Tell when both sides have all that the other had when they met."""
        links = self._links
        if session.met is None:
            session.met = (row.applied, links.local.vector.get(links.replica_id, 0))
            session.began_behind = not covers(links.local.vector, row.applied)
        theirs, ours = session.met
        if (
            not session.in_sync
            and row.applied.get(links.replica_id, 0) >= ours
            and covers(links.local.vector, theirs)
        ):
            session.in_sync = True
            counters = links.peer(session.region).counters
            if session.began_behind and not session.joined:
                counters.partial_catch_ups += 1
                counters.catch_up_cause = "effects written while there was no link"
            links.local.report_event(
                "caught_up", region=session.region, name=links.membership.name(session.region)
            )

    # -- what follows -------------------------------------------------------------------------

    def stabilise(self) -> None:
        """Tell the region when more has come to be on every member's disk.

        Not while a state is on its way here: it is of the past and may lack effects that every
        member has by now. What is remembered of them is needed to join it.
        """
        links = self._links
        if not links.membership.is_member(links.region):
            return  # who has not joined knows nobody it must wait for
        if self._receiver.joiner.incoming is not None:
            return
        watermark = links.rows.watermark(links.local.vector, links.local.durable, links.membership)
        if watermark and watermark != self.watermark:
            self.watermark = watermark
            links.local.watermark_moved(dict(watermark))

    def confirmed(self, replica_id: int | None = None) -> list[tuple[int, int]]:
        """Up to where the other members have applied our effects, and have them on disk.

        ``replica_id`` is one of our former lives, if those of the present one are not meant.
        """
        links = self._links
        ours = links.replica_id if replica_id is None else replica_id
        rows = [row for row in map(links.rows.rows.get, links.membership.others()) if row]
        return [(row.applied.get(ours, 0), row.durable.get(ours, 0)) for row in rows]

    def feature_levels(self) -> dict[int, int]:
        """What every member understands, as far as it has told."""
        links = self._links
        levels = {links.region: links.config.feature_level}
        for region in links.membership.others():
            row = links.rows.rows.get(region)
            levels[region] = FEATURE_LEVEL_MIN if row is None else row.feature_level
        return levels
